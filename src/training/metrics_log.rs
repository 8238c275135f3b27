//! The metrics of a run's steps in a file beside its checkpoints: one line of JSON for each step, only ever added to. A checkpoint says how much of it
//! is its own, and has the checksum of that; what stands behind is of a checkpoint that was not finished, or cannot be used.
//!
//! Numbers are kept as in `checkpoint.rs`, as the bits of an f64.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::checkpoint::{damaged, io, read_file};
use super::metrics::known;
use super::trainer::Metrics;
use crate::error::{Error, Result};
use crate::sha256::hex;

const FILE: &str = "metrics.jsonl";

/// The part of the file that belongs to a run or a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Logged {
    num_steps: usize,
    num_bytes: u64,
    /// SHA-256 of the sum before the last line, and that line; empty without a line.
    sum: String,
}

/// Adds the steps that the file has not yet. `steps`: all whose metrics do not change any more.
///
/// # Errors
/// [`Error::Io`]; what was in the file is still there.
pub(super) fn append(directory: &Path, logged: &Logged, steps: &[Metrics]) -> Result<Logged> {
    let path = directory.join(FILE);
    let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    // Somebody took the file away, or a part of it: the steps are still known.
    let before = if length < logged.num_bytes { Logged::default() } else { logged.clone() };
    let (mut after, mut lines) = (before.clone(), Vec::new());
    for metrics in steps.iter().skip(before.num_steps) {
        let mut line = serde_json::to_vec(&encode(metrics)).map_err(|error| Error::Internal(format!("describing a step: {error}")))?;
        line.push(b'\n');
        after.sum = chained(&after.sum, &line);
        lines.extend(line);
    }
    after.num_steps = steps.len();
    after.num_bytes += lines.len() as u64;
    write_behind(&path, before.num_bytes, &lines).map_err(io(&path))?;
    Ok(after)
}

/// The metrics of the steps in this part of the file.
///
/// # Errors
/// [`Error::Damaged`], also without the file; [`Error::Io`].
pub(super) fn read(directory: &Path, logged: &Logged) -> Result<Vec<Metrics>> {
    let path = directory.join(FILE);
    let bytes = read_file(&path)?;
    let end = usize::try_from(logged.num_bytes).unwrap_or(usize::MAX);
    let own = bytes.get(..end).ok_or_else(|| damaged(&path, "it ends too early"))?;
    let lines: Vec<&[u8]> = own.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.len() != logged.num_steps || lines.iter().fold(String::new(), |sum, line| chained(&sum, line)) != logged.sum {
        return Err(damaged(&path, "its checksum is another"));
    }
    let metrics = |line: &&[u8]| decode(&path, serde_json::from_slice(line).map_err(|error| damaged(&path, error))?);
    lines.iter().map(metrics).collect()
}

/// Names, and the bits of the values.
pub(super) fn encode(metrics: &Metrics) -> Vec<(String, u64)> {
    metrics.iter().map(|(name, value)| ((*name).to_owned(), value.to_bits())).collect()
}

/// What [`encode`] was given.
///
/// # Errors
/// [`Error::Damaged`] for a name that no metric has.
pub(super) fn decode(path: &Path, metrics: Vec<(String, u64)>) -> Result<Metrics> {
    let metric = |(name, bits): (String, u64)| -> Result<(&'static str, f64)> {
        let name = known(&name).ok_or_else(|| damaged(path, format!("there is no metric {name}")))?;
        Ok((name, f64::from_bits(bits)))
    };
    metrics.into_iter().map(metric).collect()
}

fn chained(sum: &str, line: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(sum.as_bytes());
    context.update(line);
    hex(context.finish().as_ref())
}

fn write_behind(path: &Path, num_bytes: u64, lines: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.set_len(num_bytes)?;
    file.seek(SeekFrom::Start(num_bytes))?;
    file.write_all(lines)?;
    file.sync_all()
}
