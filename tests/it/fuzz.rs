//! Bytes that no program of ours wrote, given to all that reads bytes from outside: nothing panics, and nothing takes long.
//!
//! Within the suite a few seconds of it, the same bytes each time. `FUZZ_SECONDS=3600` goes on for an hour of processor time for each target, with a line a
//! minute (`--nocapture`); `FUZZ_TARGET=dialect` names one, `FUZZ_SEED=n` begins elsewhere. What makes a target fail is written to `tests/fixtures/fuzz/<target>`, and each such file stays there as a test.
//! `tests/fuzz` has the targets, their corpora, and the crate for `cargo fuzz`, which finds more for it sees which code the bytes reach.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rolloutdb::models::random::CounterRng;

use crate::{project, times};

#[path = "../fuzz/targets.rs"]
mod targets;

use targets::{TARGETS, Target};

/// In the suite: inputs of each target, however long they take.
const INPUTS: u64 = 2_000;
/// Those that go through a whole query take a thousand times as long.
const INPUTS_OF_ROWS: u64 = 60;
/// For one input, in a development build beside other tests.
const TIME_MAX: Duration = Duration::from_secs(20);
const BYTES_MAX: usize = 1 << 16;
const CHANGES_MAX: usize = 8;

/// Numbers at which lengths and counts go wrong.
const NUMBERS: [u32; 10] = [0, 1, 4, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
/// Pieces of the languages that are read.
const PIECES: [&str; 24] = [
    "'", "\"", "(", ")", "[", "]", "{", "}", ",", ";", ":", "\\", "$$", "--", "/*", "\n", "\r\n", "\0", "NULL", "SELECT ", "e999", "-",
    "é", "\u{feff}",
];

fn folder(of: &str, target: &str) -> PathBuf {
    project().join("tests").join(of).join(target)
}

/// The files of a folder with what is in them, by their names.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file of the project").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).expect("a file of the project");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

/// Why the target fails for these bytes.
fn failure(target: Target, bytes: &[u8]) -> Option<String> {
    let slow = |time: &Duration| *time > TIME_MAX;
    let of = |time: Duration| format!("it took {time:?}");
    match timed(target, bytes) {
        Err(panic) => Some(panic),
        // A process that was stopped meanwhile is not slow twice.
        Ok(time) if slow(&time) => timed(target, bytes).map_or_else(Some, |again| Some(again).filter(slow).map(of)),
        Ok(_) => None,
    }
}

/// How long the target takes, or its panic.
fn timed((_, run): Target, bytes: &[u8]) -> Result<Duration, String> {
    let start = Instant::now();
    match catch_unwind(AssertUnwindSafe(|| run(bytes))) {
        Ok(()) => Ok(start.elapsed()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("a panic without a message").to_owned())
        }
    }
}

/// Random numbers, one after the other.
struct Draws {
    numbers: CounterRng,
    count: u64,
}

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.count += 1;
        (self.numbers.bits(self.count) % bound.max(1) as u64) as usize
    }
}

/// The input of this number: one of the corpus, with a few changes.
fn input(corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    let mut draws = Draws { numbers: CounterRng::new(seed).stream(number), count: 0 };
    let mut bytes = corpus[draws.below(corpus.len())].clone();
    for _ in 0..=draws.below(CHANGES_MAX) {
        change(&mut bytes, corpus, &mut draws);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], draws: &mut Draws) {
    let start = draws.below(bytes.len() + 1);
    let end = start + draws.below((bytes.len() - start).min(64) + 1);
    let number = NUMBERS[draws.below(NUMBERS.len())].to_be_bytes();
    match draws.below(9) {
        0 => drop(bytes.drain(start..end)),
        1 => drop(bytes.splice(start..start, bytes[start..end].to_vec())),
        2 => bytes.truncate(start),
        3 if start < bytes.len() => bytes[start] ^= 1 << draws.below(8),
        4 if start < bytes.len() => bytes[start] = draws.below(256) as u8,
        5 => drop(bytes.splice(start..end, number)),
        6 => drop(bytes.splice(start..end, number[2..].to_vec())),
        7 => {
            let piece = PIECES[draws.below(PIECES.len())].repeat(1 + draws.below(4) * draws.below(20));
            drop(bytes.splice(start..end, piece.into_bytes()));
        }
        _ => {
            let other = &corpus[draws.below(corpus.len())];
            let from = draws.below(other.len() + 1);
            drop(bytes.splice(start..end, other[from..].to_vec()));
        }
    }
}

/// Processor time of all threads of this process; where the system does not tell it, the time since the first question.
fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // Linux counts in hundredths of a second, as fields 14 and 15; the second field is a name that may hold spaces, in parentheses.
    let ticks = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    });
    ticks.map_or_else(|| START.elapsed(), |ticks| Duration::from_millis(ticks * 10))
}

/// Keeps what failed, and says where.
fn keep(target: &str, bytes: &[u8], reason: &str) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let folder = folder("fixtures/fuzz", target);
    fs::create_dir_all(&folder).expect("the project's folder takes files");
    let path = folder.join(format!("{:016x}", hasher.finish()));
    fs::write(&path, bytes).expect("the project's folder takes files");
    format!("{target} fails for {}: {reason}", path.display())
}

fn chosen() -> impl Iterator<Item = Target> {
    let name = std::env::var("FUZZ_TARGET").ok();
    TARGETS.iter().copied().filter(move |(target, _)| name.as_ref().is_none_or(|name| name == target))
}

#[test]
fn what_once_failed_does_not_fail_again() {
    for target in chosen() {
        for of in ["fixtures/fuzz", "fuzz/corpus"] {
            for (path, bytes) in files(&folder(of, target.0)) {
                if let Some(reason) = failure(target, &bytes) {
                    panic!("{} fails for {}: {reason}", target.0, path.display());
                }
            }
        }
    }
}

#[test]
fn changed_bytes_make_no_reader_fail() {
    let seconds = times("FUZZ_SECONDS", 0);
    let seed = times("FUZZ_SEED", 1);
    let mut failures = Vec::new();
    for target in chosen() {
        let corpus: Vec<Vec<u8>> = files(&folder("fuzz/corpus", target.0)).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(!corpus.is_empty(), "{} has a corpus", target.0);
        let inputs = if target.0 == "rows" { INPUTS_OF_ROWS } else { INPUTS };
        let start = processor_time();
        let (mut number, mut spent, mut minutes) = (0, Duration::ZERO, 0);
        while if seconds > 0 { spent.as_secs() < seconds } else { number < inputs } {
            let bytes = input(&corpus, seed, number);
            number += 1;
            if number % 1024 == 0 {
                spent = processor_time() - start;
            }
            if spent.as_secs() / 60 > minutes {
                minutes = spent.as_secs() / 60;
                println!("{}: {number} inputs after {minutes} minutes from seed {seed}", target.0);
            }
            if let Some(reason) = failure(target, &bytes) {
                failures.push(keep(target.0, &bytes, &reason));
                break;
            }
        }
        println!("{}: {number} inputs in {:.1} s from seed {seed}", target.0, (processor_time() - start).as_secs_f64());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
