//! Answers of servers on the disk: what was paid for once is not asked for again, whatever happens to the process.
//!
//! Files `remote/<number>.answers` of records that are appended and synced before an answer counts. A record is a header (length, key, checksums of
//! both and of the rest) and the answer as JSON. A torn end is what a crash leaves: it is passed over, and a new file is begun. So is a damaged record,
//! and those behind it are found by their headers (`records`). In memory is a map from keys to places; when there are too many answers, the oldest file
//! goes. Answers that are taken away are written nowhere: their file is written anew without them, and takes the place of the old one.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::record::{HEADER_BYTES, answer_at, record_of};
use super::records::{Record, Records, copy};
use super::request::{AnswerSource, Key};

const EXTENSION: &str = "answers";
/// Of a file that is being written anew.
const PARTIAL: &str = "partial";
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
    /// Read by each write, from its first byte to its place in the map; written by what moves records.
    moving: RwLock<()>,
    file_bytes_max: u64,
    bytes_max: u64,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    pub answers: u64,
    /// On the disk, those that a later answer replaced and what is damaged included.
    pub bytes: u64,
    pub files: u64,
}

/// What was taken away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleared {
    pub answers: u64,
    pub bytes: u64,
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
        for number in numbers(folder, PARTIAL)? {
            std::fs::remove_file(path(folder, number).with_extension(PARTIAL))?;
        }
        for number in numbers(folder, EXTENSION)? {
            let file = OpenOptions::new().read(true).write(true).open(path(folder, number))?;
            let records = Records::read(&file)?;
            state.take_in(&records, number);
            state.files.insert(number, Segment { file: Arc::new(file), bytes: records.bytes });
            state.current = (records.is_whole_at_end() && records.bytes < file_bytes_max).then_some(number);
        }
        let (folder, state) = (folder.to_owned(), Mutex::new(state));
        Ok(Self { folder, state, synced: Mutex::default(), moving: RwLock::default(), file_bytes_max, bytes_max })
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
        if let Some(answer) = answer_at(&file, place.offset, place.len, key) {
            return Ok(Some(answer));
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
        let _nothing_moves = self.moving.read().unwrap_or_else(PoisonError::into_inner);
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

    /// Takes the answers of a source from the disk, or all. What is written meanwhile waits. An error leaves those of some files.
    pub fn clear(&self, source: Option<AnswerSource>) -> IoResult<Cleared> {
        let _nothing_is_written = self.moving.write().unwrap_or_else(PoisonError::into_inner);
        let numbers: Vec<u32> = self.state().files.keys().copied().collect();
        let mut cleared = Cleared::default();
        for number in &numbers {
            let of_file = match source {
                Some(source) => self.clear_source(*number, source)?,
                None => self.clear_file(*number)?,
            };
            cleared.answers += of_file.answers;
            cleared.bytes += of_file.bytes;
        }
        if !numbers.is_empty() {
            sync_folder(&self.folder)?;
        }
        Ok(cleared)
    }

    /// All of a file, whatever is in it.
    fn clear_file(&self, number: u32) -> IoResult<Cleared> {
        let mut state = self.state();
        let Some(segment) = state.files.get(&number) else { return Ok(Cleared::default()) };
        let bytes = segment.file.metadata()?.len();
        let answers = state.places.values().filter(|place| place.file == number).count() as u64;
        std::fs::remove_file(path(&self.folder, number))?;
        state.replace(number, None);
        Ok(Cleared { answers, bytes })
    }

    /// The answers of a source in a file. What is damaged there goes too: it may be one of them, and nobody can read it.
    fn clear_source(&self, number: u32, source: AnswerSource) -> IoResult<Cleared> {
        let Some(old) = self.state().files.get(&number).map(|segment| Arc::clone(&segment.file)) else { return Ok(Cleared::default()) };
        let records = Records::read(&old)?;
        let damaged = records.damaged_bytes();
        let goes = |record: &Record| AnswerSource::of(&record.key) == source;
        let (gone, mut staying): (Vec<Record>, Vec<Record>) = records.found.into_iter().partition(goes);
        if gone.is_empty() && damaged == 0 {
            return Ok(Cleared::default());
        }
        {
            let state = self.state();
            staying.retain(|record| state.has(record, number));
        }
        let (name, partial) = (path(&self.folder, number), path(&self.folder, number).with_extension(PARTIAL));
        let anew = if staying.is_empty() {
            None
        } else {
            Some(copy(&old, &staying, &partial).inspect_err(|_| drop(std::fs::remove_file(&partial)))?)
        };
        let mut state = self.state();
        match &anew {
            Some(_) => std::fs::rename(&partial, &name)?,
            None => std::fs::remove_file(&name)?,
        }
        let answers = gone.iter().filter(|record| state.has(record, number)).count() as u64;
        state.replace(number, anew.map(|file| (file, staying)));
        Ok(Cleared { answers, bytes: damaged + gone.iter().map(Record::bytes).sum::<u64>() })
    }

    /// The record's place and the number of the write.
    fn append(&self, key: &Key, answer: &[u8]) -> IoResult<(Place, u64)> {
        let record = record_of(key, answer)?;
        let len = (record.len() - HEADER_BYTES) as u32;
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

    fn has(&self, record: &Record, file: u32) -> bool {
        self.places.get(&short(&record.key)).is_some_and(|place| place.file == file && place.offset == record.offset)
    }

    /// A file is another one now, with these records, or none. All that was written to it is synced, or lost.
    fn replace(&mut self, number: u32, anew: Option<(File, Vec<Record>)>) {
        self.places.retain(|_, place| place.file != number);
        self.last = None;
        let Some((file, records)) = anew else {
            self.files.remove(&number);
            self.current = self.current.filter(|current| *current != number);
            return;
        };
        let mut bytes = 0;
        for record in records {
            self.places.insert(short(&record.key), Place { file: number, offset: bytes as u32, len: record.len });
            bytes += record.bytes();
        }
        self.files.insert(number, Segment { file: Arc::new(file), bytes });
    }

    /// The records of a file.
    fn take_in(&mut self, records: &Records, number: u32) {
        for Record { key, offset, len } in &records.found {
            self.places.insert(short(key), Place { file: number, offset: *offset, len: *len });
        }
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

/// The files of an extension, the oldest first.
fn numbers(folder: &Path, extension: &str) -> IoResult<Vec<u32>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
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
        numbers(folder, EXTENSION).expect("a folder").into_iter().map(|number| path(folder, number)).collect()
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
            let found = (0..3).map(|number| answers.get(&key(number))).collect::<IoResult<Vec<_>>>()?;
            for (number, found) in (0..3).zip(&found) {
                assert!(found.is_none() || *found == Some(answer(number)), "byte {at}");
            }
            assert_eq!(found.iter().flatten().count(), 2, "one record is lost by byte {at}, and none behind it");
        }
        Ok(())
    }

    /// Where the record of an answer begins.
    fn offset_of(text: &[u8], number: u64) -> usize {
        let own = record_of(&key_of(number as u8 % 2, number), &answer(number)).expect("a short answer");
        text.windows(own.len()).position(|bytes| bytes == own).expect("it is in the file")
    }

    /// A file of ten answers, of the sources 0 and 1 in turns, in which the header of the answers 3 and 6 is damaged.
    fn damaged(folder: &Path) -> IoResult<()> {
        {
            let answers = Answers::open(folder)?;
            (0..10).try_for_each(|number| answers.put(&key_of(number as u8 % 2, number), &answer(number)))?;
        }
        let mut text = std::fs::read(path(folder, 1))?;
        for number in [3, 6] {
            let offset = offset_of(&text, number);
            text[offset..offset + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        }
        std::fs::write(path(folder, 1), text)
    }

    fn has_text(folder: &Path, text: &str) -> IoResult<bool> {
        let files = files(folder).iter().map(std::fs::read).collect::<IoResult<Vec<_>>>()?.concat();
        Ok(files.windows(text.len()).any(|bytes| bytes == text.as_bytes()))
    }

    #[test]
    fn all_answers_go_with_what_is_damaged_and_what_lies_behind_it() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        damaged(home.path())?;
        let bytes = std::fs::metadata(path(home.path(), 1))?.len();
        let answers = Answers::open(home.path())?;
        assert_eq!(answers.counts(), AnswerCounts { answers: 8, bytes, files: 1 });
        assert_eq!(answers.clear(None)?, Cleared { answers: 8, bytes });
        assert_eq!((std::fs::read_dir(home.path())?.count(), answers.counts()), (0, AnswerCounts::default()));

        // Damage that came after it was opened, and a file without any record.
        damaged(home.path())?;
        let answers = Answers::open(home.path())?;
        std::fs::write(path(home.path(), 1), [7_u8; 4_000])?;
        assert_eq!(answers.clear(None)?, Cleared { answers: 8, bytes: 4_000 });
        std::fs::write(path(home.path(), 4), [7_u8; 4_000])?;
        assert_eq!(Answers::open(home.path())?.clear(None)?, Cleared { answers: 0, bytes: 4_000 });
        assert_eq!(std::fs::read_dir(home.path())?.count(), 0);
        Ok(())
    }

    #[test]
    fn answers_of_a_source_go_with_what_is_damaged_and_those_behind_it_stay() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        damaged(home.path())?;
        let answers = Answers::open(home.path())?;
        let before = answers.counts();
        let cleared = answers.clear(Some(source(1)))?;
        assert_eq!((cleared.answers, cleared.bytes), (4, before.bytes - answers.counts().bytes));
        for answers in [&answers, &Answers::open(home.path())?] {
            for number in 0..10 {
                let expected = [0, 2, 4, 8].contains(&number).then(|| answer(number));
                assert_eq!(answers.get(&key_of(number as u8 % 2, number))?, expected, "{number}");
            }
        }
        // Of the damaged ones neither is left: whose they were is not known.
        assert!(!has_text(home.path(), "answer 3")? && !has_text(home.path(), "answer 6")? && has_text(home.path(), "answer 8")?);
        assert_eq!(answers.clear(Some(source(1)))?, Cleared::default());
        answers.put(&key_of(1, 3), &answer(3))?;
        assert_eq!(Answers::open(home.path())?.get(&key_of(1, 3))?, Some(answer(3)));
        Ok(())
    }

    /// What is torn may be longer than what is looked through at once.
    #[test]
    fn an_answer_is_found_far_behind_damage() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let long = vec![b'x'; 3 << 20];
        {
            let answers = Answers::open(home.path())?;
            answers.put(&key(1), &long)?;
            answers.put(&key(2), &answer(2))?;
        }
        let mut text = std::fs::read(path(home.path(), 1))?;
        text[10] ^= 1;
        std::fs::write(path(home.path(), 1), text)?;
        let answers = Answers::open(home.path())?;
        assert_eq!((answers.get(&key(1))?, answers.get(&key(2))?), (None, Some(answer(2))));
        answers.put(&key(1), &long)?;
        assert_eq!(Answers::open(home.path())?.get(&key(1))?, Some(long));
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

    /// The key of an answer of a source.
    fn key_of(source: u8, number: u64) -> Key {
        let mut key = key(number);
        key.rotate_right(8);
        key[..8].fill(source);
        key
    }

    fn source(source: u8) -> AnswerSource {
        AnswerSource::of(&key_of(source, 0))
    }

    #[test]
    fn answers_of_a_source_go_and_those_of_others_stay() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let answers = Answers::open_with(home.path(), 2_000, u64::MAX)?;
        for number in 0..100 {
            answers.put(&key_of(number as u8 % 2, number), &answer(number))?;
        }
        // What was replaced goes too, and does not count as an answer.
        answers.put(&key_of(1, 1), &answer(3))?;
        let before = answers.counts();
        let cleared = answers.clear(Some(source(1)))?;
        let after = answers.counts();
        assert_eq!((cleared.answers, after.answers, before.bytes - after.bytes), (50, 50, cleared.bytes));
        assert_eq!(answers.clear(Some(source(1)))?, Cleared::default());
        for number in 100..110 {
            answers.put(&key_of(number as u8 % 2, number), &answer(number))?;
        }
        for answers in [answers, Answers::open(home.path())?] {
            for number in 0..110 {
                let expected = (number % 2 == 0 || number >= 100).then(|| answer(number));
                assert_eq!(answers.get(&key_of(number as u8 % 2, number))?, expected, "{number}");
            }
        }
        assert!(!has_text(home.path(), "answer 51")?, "nothing of it is left");
        Ok(())
    }

    #[test]
    fn all_answers_go_and_with_them_the_files() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let folder = home.path().join("remote");
        let answers = Answers::open_with(&folder, 2_000, u64::MAX)?;
        assert_eq!(answers.clear(None)?, Cleared::default(), "there is no folder yet");
        for number in 0..100 {
            answers.put(&key(number), &answer(number))?;
        }
        let before = answers.counts();
        assert_eq!(answers.clear(None)?, Cleared { answers: 100, bytes: before.bytes });
        assert_eq!((answers.counts(), files(&folder).len()), (AnswerCounts::default(), 0));
        answers.put(&key(5), &answer(5))?;
        assert_eq!(Answers::open(&folder)?.get(&key(5))?, Some(answer(5)));
        Ok(())
    }

    /// What was written when the process was killed.
    #[test]
    fn a_file_that_was_being_written_anew_is_removed() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        Answers::open(home.path())?.put(&key(1), &answer(1))?;
        std::fs::write(path(home.path(), 1).with_extension(PARTIAL), b"half")?;
        assert_eq!(Answers::open(home.path())?.get(&key(1))?, Some(answer(1)));
        assert_eq!(std::fs::read_dir(home.path())?.count(), 1);
        Ok(())
    }

    #[test]
    fn answers_that_come_meanwhile_are_kept() -> IoResult<()> {
        let home = tempfile::tempdir()?;
        let answers = Answers::open_with(home.path(), 5_000, u64::MAX)?;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let answers = &answers;
                scope.spawn(move || {
                    for at in 0..100 {
                        answers.put(&key_of(2, thread * 100 + at), &answer(at)).expect("it is written");
                        answers.put(&key_of(3, thread * 100 + at), &answer(at)).expect("it is written");
                    }
                });
            }
            for _ in 0..20 {
                answers.clear(Some(source(3))).expect("it is cleared");
            }
        });
        for answers in [&answers, &Answers::open(home.path())?] {
            for (thread, at) in (0..4).flat_map(|thread| (0..100).map(move |at| (thread, at))) {
                assert_eq!(answers.get(&key_of(2, thread * 100 + at))?, Some(answer(at)));
            }
        }
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
