//! Answers of servers on the disk: what was paid for once is not asked for again, whatever happens to the process.
//!
//! Files `remote/<number>.answers` of records that are appended and synced before an answer counts. A record is a header (length, key, checksums of
//! both and of the rest) and the answer as JSON. A torn end is what a crash leaves: it is passed over, and a new file is begun. In memory is a map from
//! keys to places; when there are too many answers, the oldest file goes.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Error as IoError, ErrorKind, Read, Result as IoResult};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::{HEADER_BYTES, Header, sum};
use super::request::Key;

const EXTENSION: &str = "answers";
/// Of one file.
const FILE_BYTES_MAX: u64 = 64 << 20;
const BYTES_MAX: u64 = 4 << 30;
/// A place takes about 50 bytes of memory.
const ANSWERS_MAX: usize = 4_000_000;

/// The answers of a data directory. Several threads may read and write them.
#[derive(Debug)]
pub(super) struct Answers {
    folder: PathBuf,
    state: Mutex<State>,
    /// Writes up to this number are on the disk, unless they are lost. Held by the one that syncs: those that wait for it find theirs done.
    synced: Mutex<u64>,
    file_bytes_max: u64,
    bytes_max: u64,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    pub answers: u64,
    /// On the disk, those that a later answer replaced included.
    pub bytes: u64,
    pub files: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By the first half of the key; the whole of it stands in the record.
    places: HashMap<u128, Place>,
    files: BTreeMap<u32, Segment>,
    /// The file that is written to.
    current: Option<u32>,
    /// The file that was written to last: those before it are synced.
    last: Option<Arc<File>>,
    writes: u64,
    /// Writes up to this number that were not synced before may be lost: the disk refused once, and might not say so again.
    lost: u64,
}

#[derive(Debug)]
struct Segment {
    file: Arc<File>,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    file: u32,
    offset: u32,
    len: u32,
}

impl Answers {
    /// Reads where the answers are; none if the folder does not exist yet.
    pub fn open(folder: &Path) -> IoResult<Self> {
        Self::open_with(folder, FILE_BYTES_MAX, BYTES_MAX)
    }

    fn open_with(folder: &Path, file_bytes_max: u64, bytes_max: u64) -> IoResult<Self> {
        let mut state = State::default();
        for number in numbers(folder)? {
            let file = OpenOptions::new().read(true).write(true).open(path(folder, number))?;
            let (end, is_whole) = state.scan(&file, number)?;
            state.files.insert(number, Segment { file: Arc::new(file), bytes: end });
            state.current = (is_whole && end < file_bytes_max).then_some(number);
        }
        Ok(Self { folder: folder.to_owned(), state: Mutex::new(state), synced: Mutex::default(), file_bytes_max, bytes_max })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.state().places.contains_key(&short(key))
    }

    /// The answer, if there is one and it is whole.
    pub fn get(&self, key: &Key) -> IoResult<Option<Vec<u8>>> {
        let found = {
            let state = self.state();
            let place = state.places.get(&short(key)).copied();
            place.and_then(|place| Some((place, Arc::clone(&state.files.get(&place.file)?.file))))
        };
        let Some((place, file)) = found else { return Ok(None) };
        let mut record = vec![0; HEADER_BYTES + place.len as usize];
        let read = file.read_exact_at(&mut record, u64::from(place.offset));
        let (header, answer) = record.split_at(HEADER_BYTES);
        let is_whole = read.is_ok() && Header::read(header).is_some_and(|header| header.key == *key && header.sum == sum(answer));
        if is_whole {
            return Ok(Some(answer.to_vec()));
        }
        // What is damaged is asked for again.
        self.forget(key);
        Ok(None)
    }

    /// As if it had not been asked for.
    pub fn forget(&self, key: &Key) {
        self.state().places.remove(&short(key));
    }

    /// When this returns, the answer is on the disk.
    pub fn put(&self, key: &Key, answer: &[u8]) -> IoResult<()> {
        let (place, write) = self.append(key, answer)?;
        self.sync(write)?;
        let mut state = self.state();
        if state.files.contains_key(&place.file) {
            state.places.insert(short(key), place);
        }
        Ok(())
    }

    pub fn counts(&self) -> AnswerCounts {
        let state = self.state();
        let bytes = state.files.values().map(|segment| segment.bytes).sum();
        AnswerCounts { answers: state.places.len() as u64, bytes, files: state.files.len() as u64 }
    }

    /// The record's place and the number of the write.
    fn append(&self, key: &Key, answer: &[u8]) -> IoResult<(Place, u64)> {
        let too_long = || IoError::new(ErrorKind::InvalidInput, "an answer of more than 4 GB");
        let len = u32::try_from(answer.len()).map_err(|_| too_long())?;
        let mut record = Header { len, key: *key, sum: sum(answer) }.write();
        record.extend_from_slice(answer);
        let mut state = self.state();
        let number = self.writable(&mut state)?;
        let segment = state.files.get_mut(&number).expect("the current file is one of the files");
        let offset = segment.bytes;
        if let Err(error) = segment.file.write_all_at(&record, offset) {
            // The rest of a record would hide those after it.
            drop(segment.file.set_len(offset));
            state.current = None;
            return Err(error);
        }
        segment.bytes += record.len() as u64;
        let file = Arc::clone(&segment.file);
        state.last = Some(file);
        state.writes += 1;
        Ok((Place { file: number, offset: offset as u32, len }, state.writes))
    }

    /// One sync for all that was written before it begins.
    fn sync(&self, write: u64) -> IoResult<()> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let (writes, lost, file) = {
            let state = self.state();
            (state.writes, state.lost, state.last.clone())
        };
        // First: a later write that was synced says nothing of those that were lost before it.
        if lost >= write {
            return Err(IoError::other("the disk did not take an answer that was written beside this one"));
        }
        if *synced >= write {
            return Ok(());
        }
        if let Some(Err(error)) = file.map(|file| file.sync_data()) {
            self.state().lose(writes);
            return Err(error);
        }
        *synced = writes;
        Ok(())
    }

    /// The file to append to, a new one if there is none or it is full. The oldest goes when there is too much.
    fn writable(&self, state: &mut State) -> IoResult<u32> {
        if let Some(number) = state.current.filter(|number| state.files[number].bytes < self.file_bytes_max) {
            return Ok(number);
        }
        if let Some(Err(error)) = state.last.as_ref().map(|last| last.sync_data()) {
            state.lose(state.writes);
            return Err(error);
        }
        state.last = None;
        if !self.folder.exists() {
            std::fs::create_dir_all(&self.folder)?;
            sync_folder(self.folder.parent().unwrap_or(Path::new(".")))?;
        }
        let number = state.files.keys().next_back().map_or(1, |last| last + 1);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path(&self.folder, number))?;
        sync_folder(&self.folder)?;
        state.files.insert(number, Segment { file: Arc::new(file), bytes: 0 });
        state.current = Some(number);
        let bytes = |state: &State| state.files.values().map(|segment| segment.bytes).sum::<u64>();
        while state.files.len() > 1 && (bytes(state) > self.bytes_max || state.places.len() > ANSWERS_MAX) {
            let oldest = *state.files.keys().next().expect("there are several");
            std::fs::remove_file(path(&self.folder, oldest))?;
            state.files.remove(&oldest);
            state.places.retain(|_, place| place.file != oldest);
        }
        Ok(number)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lose(&mut self, writes: u64) {
        (self.current, self.last, self.lost) = (None, None, self.lost.max(writes));
    }

    /// Takes in the records of a file. Where they end, and whether the file ends there too.
    fn scan(&mut self, file: &File, number: u32) -> IoResult<(u64, bool)> {
        let bytes = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut offset = 0;
        while offset + HEADER_BYTES as u64 <= bytes {
            let mut header = [0; HEADER_BYTES];
            reader.read_exact(&mut header)?;
            let Some(header) = Header::read(&header) else { break };
            let end = offset + HEADER_BYTES as u64 + u64::from(header.len);
            let Some(place_offset) = u32::try_from(offset).ok().filter(|_| end <= bytes) else { break };
            reader.seek_relative(i64::from(header.len))?;
            self.places.insert(short(&header.key), Place { file: number, offset: place_offset, len: header.len });
            offset = end;
        }
        Ok((offset, offset == bytes))
    }
}

fn short(key: &Key) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(&key[..16]);
    u128::from_le_bytes(half)
}

fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:08}.{EXTENSION}"))
}

/// The files there are, the oldest first.
fn numbers(folder: &Path) -> IoResult<Vec<u32>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            numbers.extend(path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok()));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn sync_folder(folder: &Path) -> IoResult<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        let mut key = Key::default();
        key[..8].copy_from_slice(&number.to_le_bytes());
        key[24..].copy_from_slice(&number.to_le_bytes());
        key
    }

    fn answer(number: u64) -> Vec<u8> {
        format!("answer {number} ").repeat(number as usize % 7 + 1).into_bytes()
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        numbers(folder).expect("a folder").into_iter().map(|number| path(folder, number)).collect()
    }

    #[test]
    fn answers_are_there_after_a_restart_and_go_on_in_the_same_file() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let folder = home.path().join("remote");
        for start in [0, 10] {
            let answers = Answers::open(&folder)?;
            for number in start..start + 10 {
                assert_eq!(answers.get(&key(number))?, None);
                answers.put(&key(number), &answer(number))?;
            }
            for number in 0..start + 10 {
                assert_eq!(answers.get(&key(number))?, Some(answer(number)), "{number}");
            }
            let counts = answers.counts();
            assert_eq!((counts.answers, counts.files), (start + 10, 1));
        }
        Ok(())
    }

    #[test]
    fn a_torn_end_costs_the_torn_answer_alone() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let whole = {
            let answers = Answers::open(home.path())?;
            (0..5).try_for_each(|number| answers.put(&key(number), &answer(number)))?;
            std::fs::read(&files(home.path())[0])?
        };
        let last = HEADER_BYTES + answer(4).len();
        for torn in 1..last {
            for entry in files(home.path()) {
                std::fs::remove_file(entry)?;
            }
            std::fs::write(path(home.path(), 1), &whole[..whole.len() - torn])?;
            let answers = Answers::open(home.path())?;
            for number in 0..4 {
                assert_eq!(answers.get(&key(number))?, Some(answer(number)), "{torn} bytes torn off");
            }
            assert_eq!(answers.get(&key(4))?, None, "{torn} bytes torn off");
            answers.put(&key(4), &answer(4))?;
            assert_eq!(Answers::open(home.path())?.get(&key(4))?, Some(answer(4)));
        }
        Ok(())
    }

    #[test]
    fn a_changed_byte_is_never_an_answer() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let file = path(home.path(), 1);
        {
            let answers = Answers::open(home.path())?;
            (0..3).try_for_each(|number| answers.put(&key(number), &answer(number)))?;
        }
        let whole = std::fs::read(&file)?;
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x40;
            std::fs::write(&file, &changed)?;
            let answers = Answers::open(home.path())?;
            for number in 0..3 {
                let found = answers.get(&key(number))?;
                assert!(found.is_none() || found == Some(answer(number)), "byte {at}");
            }
        }
        Ok(())
    }

    #[test]
    fn the_oldest_file_goes_when_there_is_too_much() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let answers = Answers::open_with(home.path(), 2_000, 10_000)?;
        for number in 0..1_000 {
            answers.put(&key(number), &answer(number))?;
            assert_eq!(answers.get(&key(number))?, Some(answer(number)));
        }
        let counts = answers.counts();
        assert!(counts.bytes < 13_000 && counts.answers > 50, "{counts:?}");
        assert_eq!(files(home.path()).len() as u64, counts.files);
        assert_eq!((answers.get(&key(0))?, answers.get(&key(999))?), (None, Some(answer(999))));
        assert_eq!(Answers::open_with(home.path(), 2_000, 10_000)?.counts(), counts);
        Ok(())
    }

    #[test]
    fn threads_write_at_the_same_time() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let answers = Answers::open_with(home.path(), 5_000, u64::MAX)?;
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let answers = &answers;
                scope.spawn(move || (0..50).for_each(|at| answers.put(&key(thread * 100 + at), &answer(at)).expect("it is written")));
            }
        });
        let again = Answers::open(home.path())?;
        for (thread, at) in (0..8).flat_map(|thread| (0..50).map(move |at| (thread, at))) {
            assert_eq!(again.get(&key(thread * 100 + at))?, Some(answer(at)));
        }
        Ok(())
    }
}
