//! Where the checkpoints of a training are: a folder of the data directory for each run that computes the same.
//!
//! A run is known by all that shapes its result, so that a statement that is run again, by RESUME JOB or by hand, finds its checkpoint, and one with another
//! option, row or base finds none. The folder goes when the model is there.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ring::digest::{Context, SHA256};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::models::kernel::has_amx;
use crate::models::simd::{Instructions, instructions};
use crate::training::{Checkpoints, Stop};

/// How long a run waits for one of the same that was cancelled, and writes its last checkpoint.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// SHA-256 of all that shapes the result of a run.
pub struct Identity(Context);

impl Identity {
    /// `statement`: what is known before any row is read. The program is in it, and the instructions of the processor: either may round otherwise.
    /// Blocks at the first call, see [`build`].
    pub fn new(statement: &Json) -> Self {
        Self::of(build(), statement)
    }

    fn of(build: &str, statement: &Json) -> Self {
        let mut identity = Self(Context::new(&SHA256));
        let processor = match instructions() {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 if has_amx() => "avx512, amx",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            Instructions::Baseline => "baseline",
        };
        [build, processor, &statement.to_string()].into_iter().for_each(|text| identity.text(text));
        identity
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    /// The length keeps apart what stands one after the other.
    pub fn ids(&mut self, ids: &[u32]) {
        self.number(ids.len() as u64);
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.0.update(&bytes);
    }

    pub fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    pub fn fingerprint(self) -> String {
        self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// SHA-256 of the running program in hexadecimal digits, since one version has many builds; the version where the file cannot be read. The first call
/// reads the whole file.
pub fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| program().and_then(sum_of).unwrap_or_else(|_| env!("CARGO_PKG_VERSION").to_owned()))
}

/// The file that runs, even where another one has taken its place meanwhile.
fn program() -> std::io::Result<File> {
    File::open("/proc/self/exe").or_else(|_| File::open(std::env::current_exe()?))
}

fn sum_of(mut file: File) -> std::io::Result<String> {
    let (mut context, mut buffer) = (Context::new(&SHA256), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()),
            count => context.update(&buffer[..count]),
        }
    }
}

/// The folders of checkpoints of a database.
#[derive(Debug)]
pub struct Trainings {
    pub(super) root: PathBuf,
    /// Fingerprints of the runs that are at work.
    at_work: Mutex<BTreeSet<String>>,
}

/// The right of a run to its folder, until it and all its clones are dropped. The thread that trains has one, and who writes the rows of its steps: a statement
/// that is cancelled ends before the last of them are written.
#[derive(Debug, Clone)]
pub struct Claim(Arc<Claimed>);

#[derive(Debug)]
struct Claimed {
    trainings: Arc<Trainings>,
    fingerprint: String,
}

impl Trainings {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), at_work: Mutex::default() }
    }

    fn at_work(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits a few seconds for a run of the same that was just cancelled. Blocks.
    ///
    /// # Errors
    /// [`Error::InUse`] (55006) if another run of the same is at work; [`Error::Cancelled`].
    pub fn claim(self: &Arc<Self>, fingerprint: String, stop: &Stop) -> Result<Claim> {
        let started = Instant::now();
        while !self.at_work().insert(fingerprint.clone()) {
            stop.check()?;
            if started.elapsed() > PATIENCE {
                return Err(Error::InUse(
                    "another TRAIN of the same model, rows and options is at work; wait for it, or give the model another name".to_owned(),
                ));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Claim(Arc::new(Claimed { trainings: Arc::clone(self), fingerprint })))
    }
}

impl Claim {
    /// All that shapes the result of the run, as 64 hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.0.fingerprint
    }

    fn directory(&self) -> PathBuf {
        self.0.trainings.root.join(&self.0.fingerprint)
    }

    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints { directory: self.directory(), fingerprint: self.0.fingerprint.clone() }
    }

    /// Removes what earlier runs have left.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear(&self) -> Result<()> {
        let path = self.directory();
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::Io { path, source }),
            _ => Ok(()),
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.trainings.at_work().remove(&self.fingerprint);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(method: &str, ids: &[&[u32]]) -> String {
        let mut identity = Identity::new(&json!({ "method": method }));
        ids.iter().for_each(|ids| identity.ids(ids));
        identity.fingerprint()
    }

    #[test]
    fn a_run_is_known_by_all_that_shapes_it() {
        let run = identity("SFT", &[&[1, 2], &[3]]);
        assert_eq!(run, identity("SFT", &[&[1, 2], &[3]]));
        for other in [identity("DPO", &[&[1, 2], &[3]]), identity("SFT", &[&[1], &[2, 3]]), identity("SFT", &[&[1, 2], &[4]])] {
            assert_ne!(run, other);
        }
        assert_eq!(run.len(), 64);
    }

    #[test]
    fn another_build_of_the_same_version_is_another_run() {
        let of = |build: &str| Identity::of(build, &json!({ "method": "SFT" })).fingerprint();
        assert_ne!(of("one"), of("other"));
        assert_eq!(of(build()), identity("SFT", &[]));
        assert_eq!(build().len(), 64, "the program is readable");
        let data = tempfile::tempdir().expect("a temporary directory");
        let path = data.path().join("program");
        fs::write(&path, "abc").expect("it can be written");
        let sum = sum_of(File::open(&path).expect("it is there")).expect("it is readable");
        assert_eq!(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_folder_has_one_run_at_a_time() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let root = data.path().join("training");
        let trainings = Arc::new(Trainings::new(&root));
        let stop = Stop::default();
        let claim = trainings.claim("a".to_owned(), &stop).expect("nobody else is at work");
        let waits = {
            let (trainings, stop) = (Arc::clone(&trainings), stop.clone());
            std::thread::spawn(move || trainings.claim("a".to_owned(), &stop).map(|claim| claim.checkpoints()))
        };
        trainings.claim("b".to_owned(), &stop).expect("another run has another folder");
        let folder = claim.checkpoints().directory;
        fs::create_dir_all(folder.join("step-5")).expect("it can be made");
        let clone = claim.clone();
        drop(claim);
        std::thread::sleep(2 * PAUSE);
        assert!(!waits.is_finished(), "somebody has it still");
        drop(clone);
        let second = waits.join().expect("no panic").expect("it has the folder when the first one is done");
        assert_eq!(second.directory, folder);
        assert!(folder.join("step-5").exists(), "what was written stays");

        let claim = trainings.claim("a".to_owned(), &stop).expect("nobody else is at work");
        claim.clear().expect("the folder can be removed");
        claim.clear().expect("where there is none, there is nothing to remove");
        assert_eq!(fs::read_dir(&root).expect("it is readable").count(), 0);
        stop.stop();
        assert!(matches!(trainings.claim("a".to_owned(), &stop), Err(Error::Cancelled(_))), "one that was cancelled does not wait");
    }
}
