//! The reference's log-probabilities in a file beside the checkpoints of a run: its pairs are scored once, also where it is stopped and goes on.
//!
//! The file is `reference`: the SHA-256 of what follows in hexadecimal digits, a line break, the run's fingerprint, a line break, and two f64 for each pair,
//! chosen and rejected, in little-endian bytes. It takes its place whole, or not at all.

use std::fs;

use ring::digest::{SHA256, digest};

use super::checkpoint::{Checkpoints, damaged, io, make_directory, read_file, sync, write_file};
use super::dpo::ReferenceLogps;
use super::warnings::Warnings;
use crate::error::Result;
use crate::sha256::hex;

const FILE: &str = "reference";
const UNFINISHED: &str = ".reference";

/// Keeps the log-probabilities of all pairs of a run, in their order. Where that cannot be, `warnings` are told, and a run that goes on computes them again.
pub fn keep_reference(checkpoints: &Checkpoints, logps: &[ReferenceLogps], warnings: &Warnings) {
    if let Err(error) = write(checkpoints, logps) {
        let _ = fs::remove_file(checkpoints.directory.join(UNFINISHED));
        warnings.say(format!(
            "the reference's log-probabilities could not be kept, and are computed again if the training is stopped and goes on: {error}"
        ));
    }
}

/// What [`keep_reference`] kept of the `num_pairs` pairs of this run; None if there is nothing that can be used, of which `warnings` are told the reason.
pub fn kept_reference(checkpoints: &Checkpoints, num_pairs: usize, warnings: &Warnings) -> Option<Vec<ReferenceLogps>> {
    if !checkpoints.directory.join(FILE).exists() {
        return None;
    }
    match read(checkpoints, num_pairs) {
        Ok(logps) => Some(logps),
        Err(error) => {
            warnings.say(format!("the reference's log-probabilities are computed again: {error}"));
            None
        }
    }
}

fn write(checkpoints: &Checkpoints, logps: &[ReferenceLogps]) -> Result<()> {
    make_directory(&checkpoints.directory)?;
    let mut content = format!("{}\n", checkpoints.fingerprint).into_bytes();
    content.extend(logps.iter().flat_map(|pair| [pair.chosen, pair.rejected]).flat_map(f64::to_le_bytes));
    let sum = hex(digest(&SHA256, &content).as_ref());
    let unfinished = checkpoints.directory.join(UNFINISHED);
    write_file(&unfinished, &[sum.as_bytes(), b"\n", &content].concat())?;
    sync(&unfinished)?;
    fs::rename(&unfinished, checkpoints.directory.join(FILE)).map_err(io(&unfinished))?;
    sync(&checkpoints.directory)
}

/// # Errors
/// [`crate::error::Error::Damaged`]; [`crate::error::Error::Io`].
fn read(checkpoints: &Checkpoints, num_pairs: usize) -> Result<Vec<ReferenceLogps>> {
    let path = checkpoints.directory.join(FILE);
    let bytes = read_file(&path)?;
    let (sum, content) = line(&bytes).ok_or_else(|| damaged(&path, "it has no checksum"))?;
    if sum != hex(digest(&SHA256, content).as_ref()).as_bytes() {
        return Err(damaged(&path, "its checksum is another"));
    }
    let (fingerprint, numbers) = line(content).ok_or_else(|| damaged(&path, "it has no run"))?;
    if fingerprint != checkpoints.fingerprint.as_bytes() {
        return Err(damaged(&path, "it is of another run"));
    }
    let (numbers, rest) = numbers.as_chunks::<8>();
    let numbers: Vec<f64> = numbers.iter().copied().map(f64::from_le_bytes).collect();
    if !rest.is_empty() || numbers.len() != 2 * num_pairs {
        return Err(damaged(&path, format!("it has {} numbers, expected two for each of {num_pairs} pairs", numbers.len())));
    }
    Ok(numbers.chunks_exact(2).map(|pair| ReferenceLogps { chosen: pair[0], rejected: pair[1] }).collect())
}

/// What stands before the first line break, and what stands behind it.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Warnings, and what was said.
    fn listening() -> (Warnings, Arc<Mutex<Vec<String>>>) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let hear = Arc::clone(&said);
        (Warnings::new(move |warning| hear.lock().expect("nobody panicked").push(warning)), said)
    }

    fn checkpoints(directory: &Path, fingerprint: &str) -> Checkpoints {
        Checkpoints { directory: directory.join("run"), fingerprint: fingerprint.to_owned() }
    }

    fn logps() -> Vec<ReferenceLogps> {
        [(-1.5, -0.1), (f64::MIN_POSITIVE, -1e300), (-0.0, -7.0 / 3.0)]
            .map(|(chosen, rejected)| ReferenceLogps { chosen, rejected })
            .to_vec()
    }

    fn bits(logps: &[ReferenceLogps]) -> Vec<u64> {
        logps.iter().flat_map(|pair| [pair.chosen.to_bits(), pair.rejected.to_bits()]).collect()
    }

    #[test]
    fn what_was_kept_is_there_bit_for_bit() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let (run, (warnings, said)) = (checkpoints(data.path(), "abc"), listening());
        assert_eq!(kept_reference(&run, 3, &warnings), None, "nothing is there yet");
        keep_reference(&run, &logps(), &warnings);
        assert_eq!(bits(&kept_reference(&run, 3, &warnings).expect("it is there")), bits(&logps()));
        keep_reference(&run, &logps()[..1], &warnings);
        assert_eq!(kept_reference(&run, 1, &warnings).map(|kept| kept.len()), Some(1), "the last one counts");
        assert!(said.lock().expect("nobody panicked").is_empty());
    }

    #[test]
    fn what_is_damaged_or_of_another_run_is_not_used() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let (run, (warnings, said)) = (checkpoints(data.path(), "abc"), listening());
        keep_reference(&run, &logps(), &warnings);
        let path = run.directory.join(FILE);
        let whole = fs::read(&path).expect("it was written");
        assert_eq!(kept_reference(&checkpoints(data.path(), "abd"), 3, &warnings), None);
        assert_eq!(kept_reference(&run, 4, &warnings), None);
        for length in [0, 10, 65, 69, whole.len() - 1] {
            fs::write(&path, &whole[..length]).expect("it can be written");
            assert_eq!(kept_reference(&run, 3, &warnings), None, "{length} bytes");
        }
        for index in 0..whole.len() {
            let mut other = whole.clone();
            other[index] ^= 4;
            fs::write(&path, &other).expect("it can be written");
            assert_eq!(kept_reference(&run, 3, &warnings), None, "byte {index}");
        }
        let told = said.lock().expect("nobody panicked");
        assert_eq!(told.len(), 7 + whole.len());
        assert!(told.iter().all(|text| text.starts_with("the reference's log-probabilities are computed again: ")), "{told:?}");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_a_warning() {
        let data = tempfile::tempdir().expect("a temporary directory");
        fs::write(data.path().join("run"), "a file").expect("it can be written");
        let (warnings, said) = listening();
        keep_reference(&checkpoints(data.path(), "abc"), &logps(), &warnings);
        let told = said.lock().expect("nobody panicked");
        assert!(told.len() == 1 && told[0].contains("could not be kept"), "{told:?}");
    }
}
