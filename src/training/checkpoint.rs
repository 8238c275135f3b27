//! What a run leaves on the disk so that another one goes on where it ended, bit for bit.
//!
//! One checkpoint is a directory `step-<n>`, written as `.step-<n>`, flushed and renamed. The one before goes once the step behind the new one
//! has a loss and a gradient: weights of which nobody knows whether they are spoilt take the place of none that are good. So there is
//! always a whole one, or none, and never a half one under its name. The metrics of all steps but the last are in a file beside it, to
//! which each checkpoint adds (`metrics_log.rs`); so is what the reference of a DPO made of its pairs (`kept_reference.rs`).
//!
//! | file | content |
//! |---|---|
//! | `parameters.safetensors` | the trainable weights after step n |
//! | `optimizer.safetensors` | the moments of AdamW, [`AdamW::save`] |
//! | `best.safetensors` | the weights of the best validation, where early stopping keeps them |
//! | `state.json` | the step, which is also the place in the order of the examples, its metrics, what validation has shown |
//! | `SHA256SUMS` | checksums of the others, in the form of `sha256sum` |
//!
//! Numbers in the state are kept as the bits of an f64, because JSON does not promise to give a fraction back as it was.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor, Var};
use ring::digest::{SHA256, digest};
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};

use super::adamw::{AdamW, AdamWOptions};
use super::metrics_log::{self, Logged};
use super::trainer::Metrics;
use super::validation::{Best, Judgement, NamedTensors};
use super::warnings::Warnings;
use crate::error::{Error, Result};
use crate::sha256::{self, hex};

const PARAMETERS: &str = "parameters.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const BEST: &str = "best.safetensors";
const STATE: &str = "state.json";
const CHECKSUMS: &str = "SHA256SUMS";
/// What stands before the number of steps in the name of a directory.
const PREFIX: &str = "step-";
/// Of a directory that is not whole yet.
const UNFINISHED_PREFIX: &str = ".step-";

/// Where a run keeps its checkpoints, and for which run they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoints {
    /// Of this run alone; made when the first checkpoint is written. The caller removes it when the result is published.
    pub directory: PathBuf,
    /// Of all that decides about the result: base, examples, options, build. A checkpoint of another one is never used.
    pub fingerprint: String,
}

impl Checkpoints {
    /// The step of the newest one, whether it can be read or not; `None` if there is none.
    pub fn last_step(&self) -> Option<usize> {
        let steps = steps_in(&self.directory).ok()?;
        steps.into_iter().find(|step| self.directory.join(format!("{PREFIX}{step}")).is_dir())
    }
}

/// What a run has behind it.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// Of each whole step; their number is the number of steps done.
    pub steps: Vec<Metrics>,
    pub judgement: Judgement,
    /// What is in the file of metrics.
    pub logged: Logged,
}

/// A run as its checkpoint remembers it.
#[derive(Debug)]
pub(super) struct Restored {
    pub weights: NamedTensors,
    pub optimizer: AdamW,
    pub progress: Progress,
}

/// `state.json`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    fingerprint: String,
    step: usize,
    best: Option<BestState>,
    num_worse: usize,
    /// Of the last step, which an evaluation may still add to: names and the bits of the values.
    metrics: Vec<(String, u64)>,
    /// Where those of the steps before it are.
    logged: Logged,
}

#[derive(Debug, Serialize, Deserialize)]
struct BestState {
    step: usize,
    value_bits: u64,
}

/// Writes the checkpoint of the run's last whole step. Those before it stay until [`settle`].
///
/// # Errors
/// [`Error::Io`]; the older checkpoint is still there, which the error says, and nothing of the new one.
pub(super) fn save(
    checkpoints: &Checkpoints,
    parameters: &BTreeMap<String, Var>,
    optimizer: &AdamW,
    progress: &mut Progress,
) -> Result<()> {
    let step = progress.steps.len();
    save_whole(checkpoints, parameters, optimizer, progress).map_err(|error| {
        error.advising(&match checkpoints.last_step() {
            Some(last) => format!("there is no checkpoint of step {step}, and the same training goes on at that of step {last}"),
            None => format!("there is no checkpoint of step {step}, nor an older one: the same training begins anew"),
        })
    })
}

fn save_whole(checkpoints: &Checkpoints, parameters: &BTreeMap<String, Var>, optimizer: &AdamW, progress: &mut Progress) -> Result<()> {
    let directory = &checkpoints.directory;
    make_directory(directory)?;
    if let Some((_, before)) = progress.steps.split_last() {
        progress.logged = metrics_log::append(directory, &progress.logged, before)?;
    }
    let name = format!("{PREFIX}{}", progress.steps.len());
    let unfinished = directory.join(format!(".{name}"));
    let written = write(&unfinished, &checkpoints.fingerprint, parameters, optimizer, progress)
        .and_then(|()| put_in_place(&unfinished, &directory.join(&name)));
    if written.is_err() {
        // The disk may be full: the room goes back. What cannot be removed now goes with the next checkpoint.
        let _ = fs::remove_dir_all(&unfinished);
    }
    written
}

/// The checkpoint of `step` is good: a step has begun with its weights, or the run has ended. Removes all others; what cannot be removed is told to `warnings`.
pub(super) fn settle(checkpoints: &Checkpoints, step: usize, warnings: &Warnings) {
    if let Err(error) = remove_others(&checkpoints.directory, &format!("{PREFIX}{step}")) {
        warnings.say(format!("older checkpoints stay until the next one is written, because they could not be removed: {error}"));
    }
}

/// Removes the checkpoint of `step`, whose weights are spoilt; what cannot be removed is told to `warnings`.
pub(super) fn discard(checkpoints: &Checkpoints, step: usize, warnings: &Warnings) {
    if let Err(error) = remove(&checkpoints.directory.join(format!("{PREFIX}{step}"))) {
        warnings.say(format!("the checkpoint of step {step} has weights that are spoilt, and could not be removed: {error}"));
    }
}

/// Of a run that diverged, its error with the last good checkpoint; other errors are as they were. `unproven`: the step of a checkpoint with whose weights no
/// step has begun, which goes.
pub(super) fn after_divergence(error: Error, checkpoints: Option<&Checkpoints>, unproven: Option<usize>, warnings: &Warnings) -> Error {
    let (Error::Diverged { step, what, value, .. }, Some(checkpoints)) = (&error, checkpoints) else { return error };
    if let Some(unproven) = unproven {
        discard(checkpoints, unproven, warnings);
    }
    Error::Diverged { step: *step, what, value: *value, checkpoint: checkpoints.last_step() }
}

/// The newest checkpoint of this run that is whole; `None` if there is none.
///
/// One that is damaged, of another run, or has other parameters is passed over, which is told to `warnings`.
///
/// # Errors
/// [`Error::Io`] if the disk cannot be read; a file that is not there is damage instead.
pub(super) fn load(
    checkpoints: &Checkpoints,
    options: AdamWOptions,
    parameters: &BTreeMap<String, Var>,
    num_steps: usize,
    warnings: &Warnings,
) -> Result<Option<Restored>> {
    for step in steps_in(&checkpoints.directory)? {
        let reason = match read(checkpoints, step, options, parameters) {
            Ok(restored) if step <= num_steps => return Ok(Some(restored)),
            Ok(_) => format!("the run has {num_steps} steps only"),
            Err(error @ Error::Damaged { .. }) => error.to_string(),
            Err(other) => return Err(other),
        };
        warnings.say(format!("the checkpoint of step {step} is not used, and goes when the next one is written: {reason}"));
    }
    Ok(None)
}

fn write(directory: &Path, fingerprint: &str, parameters: &BTreeMap<String, Var>, optimizer: &AdamW, progress: &Progress) -> Result<()> {
    // What a kill left of this name.
    remove(directory)?;
    fs::create_dir(directory).map_err(io(directory))?;
    let mut names = vec![PARAMETERS, OPTIMIZER, STATE];
    save_tensors(&directory.join(PARAMETERS), parameters.iter().map(|(name, parameter)| (name, parameter.as_tensor())))?;
    optimizer.save(&directory.join(OPTIMIZER))?;
    if let Some(best) = &progress.judgement.best {
        save_tensors(&directory.join(BEST), &best.weights)?;
        names.push(BEST);
    }
    write_file(&directory.join(STATE), &state(fingerprint, progress)?)?;
    let mut sums = String::new();
    for name in names {
        let path = directory.join(name);
        let sum = sync_and_sum(&path).map_err(io(&path))?;
        let _ = writeln!(sums, "{sum}  {name}");
    }
    let path = directory.join(CHECKSUMS);
    write_file(&path, sums.as_bytes())?;
    sync(&path)?;
    sync(directory)
}

fn put_in_place(unfinished: &Path, path: &Path) -> Result<()> {
    // One that was passed over may have the name.
    remove(path)?;
    fs::rename(unfinished, path).map_err(io(path))?;
    path.parent().map_or(Ok(()), sync)
}

/// Removes all checkpoints but the one called `name`, whole or not.
fn remove_others(directory: &Path, name: &str) -> Result<()> {
    for other in names_in(directory)? {
        if other != name && (other.starts_with(PREFIX) || other.starts_with(UNFINISHED_PREFIX)) {
            remove(&directory.join(other))?;
        }
    }
    Ok(())
}

fn state(fingerprint: &str, progress: &Progress) -> Result<Vec<u8>> {
    let Judgement { best, num_worse } = &progress.judgement;
    let state = State {
        fingerprint: fingerprint.to_owned(),
        step: progress.steps.len(),
        best: best.as_ref().map(|best| BestState { step: best.step, value_bits: best.value.to_bits() }),
        num_worse: *num_worse,
        metrics: progress.steps.last().map(metrics_log::encode).unwrap_or_default(),
        logged: progress.logged.clone(),
    };
    serde_json::to_vec(&state).map_err(|error| Error::Internal(format!("describing a checkpoint: {error}")))
}

fn read(checkpoints: &Checkpoints, step: usize, options: AdamWOptions, parameters: &BTreeMap<String, Var>) -> Result<Restored> {
    let directory = &checkpoints.directory.join(format!("{PREFIX}{step}"));
    let sums = checksums(directory)?;
    let path = directory.join(STATE);
    let bytes = checked(directory, STATE, &sums)?;
    let state: State = serde_json::from_slice(&bytes).map_err(|error| damaged(&path, error))?;
    if state.fingerprint != checkpoints.fingerprint {
        return Err(damaged(&path, "it is of another run"));
    }
    let mut steps = metrics_log::read(&checkpoints.directory, &state.logged)?;
    steps.push(metrics_log::decode(&path, state.metrics)?);
    if [state.step, steps.len()] != [step; 2] {
        return Err(damaged(&path, format!("it has metrics of {} steps and ends at step {}", steps.len(), state.step)));
    }
    let best = match state.best {
        Some(BestState { step, value_bits }) => {
            let weights = load_tensors(&directory.join(BEST), &checked(directory, BEST, &sums)?, parameters)?;
            Some(Best { step, value: f64::from_bits(value_bits), weights })
        }
        None => None,
    };
    let weights = load_tensors(&directory.join(PARAMETERS), &checked(directory, PARAMETERS, &sums)?, parameters)?;
    let bytes = checked(directory, OPTIMIZER, &sums)?;
    let optimizer = AdamW::decode(&directory.join(OPTIMIZER), &bytes, options, parameters)?;
    let judgement = Judgement { best, num_worse: state.num_worse };
    Ok(Restored { weights, optimizer, progress: Progress { steps, judgement, logged: state.logged } })
}

/// The checksums by file name.
fn checksums(directory: &Path) -> Result<BTreeMap<String, String>> {
    let path = directory.join(CHECKSUMS);
    let bytes = read_file(&path)?;
    let text = String::from_utf8(bytes).map_err(|error| damaged(&path, error))?;
    Ok(text.lines().filter_map(|line| line.split_once("  ")).map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect())
}

/// The bytes of a file, if they are those that were written.
fn checked(directory: &Path, name: &str, sums: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let path = directory.join(name);
    let bytes = read_file(&path)?;
    if sums.get(name) == Some(&hex(digest(&SHA256, &bytes).as_ref())) { Ok(bytes) } else { Err(damaged(&path, "its checksum is another")) }
}

fn save_tensors<'a>(path: &Path, tensors: impl IntoIterator<Item = (&'a String, &'a Tensor)>) -> Result<()> {
    safetensors::serialize_to_file(tensors, None, path).map_err(|error| match error {
        SafeTensorError::IoError(source) => Error::Io { path: path.to_owned(), source },
        other => Error::Internal(format!("writing {}: {other}", path.display())),
    })
}

/// One tensor for each parameter, of its shape, and no other.
fn load_tensors(path: &Path, bytes: &[u8], parameters: &BTreeMap<String, Var>) -> Result<NamedTensors> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| damaged(path, error))?;
    if file.len() != parameters.len() {
        return Err(damaged(path, format!("it has {} tensors, expected {}", file.len(), parameters.len())));
    }
    let mut tensors = NamedTensors::new();
    for (name, parameter) in parameters {
        let view = file.tensor(name).map_err(|error| damaged(path, error))?;
        if view.dtype() != Dtype::F32 || view.shape() != parameter.dims() {
            let reason = format!("{name} is {:?} {:?}, expected F32 {:?}", view.dtype(), view.shape(), parameter.dims());
            return Err(damaged(path, reason));
        }
        tensors.insert(name.clone(), Tensor::from_raw_buffer(view.data(), DType::F32, view.shape(), parameter.device())?);
    }
    Ok(tensors)
}

/// The steps that have a checkpoint, the newest first.
fn steps_in(directory: &Path) -> Result<Vec<usize>> {
    let names = names_in(directory)?;
    let mut steps: Vec<usize> = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    Ok(steps)
}

/// Names in a directory; none if there is no such directory.
fn names_in(directory: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::Io { path: directory.to_owned(), source }),
    };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<std::io::Result<_>>().map_err(io(directory))
}

/// Makes the directory and those above it, so that they are there after a crash too.
pub(super) fn make_directory(directory: &Path) -> Result<()> {
    let Some(parent) = directory.parent().filter(|_| !directory.is_dir()) else { return Ok(()) };
    make_directory(parent)?;
    match fs::create_dir(directory) {
        // Another run made it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        result => result.map_err(io(directory))?,
    }
    sync(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Removes a directory with all that it holds, if there is one.
fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.map_err(io(directory)),
    }
}

pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(io(path))
}

/// Flushes a file and gives the SHA-256 of what it holds, in hexadecimal digits.
fn sync_and_sum(path: &Path) -> std::io::Result<String> {
    File::open(path)?.sync_all()?;
    sha256::of_files(&[path])
}

/// Flushes a file, or the names in a directory.
pub(super) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(io(path))
}

/// The bytes of a file of a checkpoint: one that is not there is damage, not a fault of the disk.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => damaged(path, source),
        _ => Error::Io { path: path.to_owned(), source },
    })
}

pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Io { path: path.to_owned(), source }
}

pub(super) fn damaged(path: &Path, reason: impl ToString) -> Error {
    Error::Damaged { path: path.to_owned(), reason: reason.to_string() }
}
