//! Columns that the table numbers: from 1 by 1, never twice; a number that a failed or killed statement took is left out, as in Postgres.
//!
//! Numbers are reserved in blocks, in a file beside the data that is written before the first of a block is given away.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::PoisonError;

use crate::durability::write_durably;
use crate::{Error, Result, Table};

const FILE: &str = "identity.json";
/// Numbers reserved beyond those that are asked for.
const BLOCK: i64 = 1_000;

/// Of each numbered column.
pub(crate) type Counters = BTreeMap<String, Counter>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Counter {
    next: i64,
    /// The first number that the file does not cover.
    reserved: i64,
}

impl Table {
    /// The next `count` numbers of a column.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] when the file of numbers is not readable.
    pub fn next_numbers(&self, column: &str, count: usize) -> Result<Range<i64>> {
        let mut counters = self.state.counters.lock().unwrap_or_else(PoisonError::into_inner);
        // The folder may be another table's by now.
        self.state.check_exists()?;
        let known = self.known_counters(&mut counters)?;
        let counter = known.entry(column.to_owned()).or_insert(Counter { next: 1, reserved: 1 });
        let first = counter.next;
        let next = first.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
        if next > counter.reserved {
            let reserved = next.saturating_add(BLOCK);
            self.write_counters(known, column, reserved)?;
            known.insert(column.to_owned(), Counter { next, reserved });
        } else {
            counter.next = next;
        }
        Ok(first..next)
    }

    /// Lets a column count on where another does, whose name it gets.
    pub(crate) fn copy_counter(&self, from: &str, to: &str) -> Result<()> {
        let mut counters = self.state.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known_counters(&mut counters)?;
        let Some(counter) = known.get(from).copied() else { return Ok(()) };
        self.write_counters(known, to, counter.reserved)?;
        known.insert(to.to_owned(), counter);
        Ok(())
    }

    fn known_counters<'a>(&self, counters: &'a mut Option<Counters>) -> Result<&'a mut Counters> {
        let known = match counters.take() {
            Some(known) => known,
            None => self.read_counters()?,
        };
        Ok(counters.insert(known))
    }

    /// Writes what is reserved of all columns, of one of them as given.
    fn write_counters(&self, known: &Counters, column: &str, reserved: i64) -> Result<()> {
        let mut file: BTreeMap<&str, i64> = known.iter().map(|(name, counter)| (name.as_str(), counter.reserved)).collect();
        file.insert(column, reserved);
        let text = serde_json::to_vec(&file).expect("a map of numbers is JSON");
        write_durably(&self.counters_file(), &text)
    }

    /// Lets the numbered columns count from 1 again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn restart_identity(&self) -> Result<()> {
        let mut counters = self.state.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if self.counters_file().exists() {
            write_durably(&self.counters_file(), b"{}")?;
        }
        *counters = Some(Counters::new());
        Ok(())
    }

    fn read_counters(&self) -> Result<Counters> {
        let path = self.counters_file();
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Counters::new()),
            read => read.map_err(|source| Error::io(&path, source))?,
        };
        let file: BTreeMap<String, i64> = serde_json::from_slice(&bytes).map_err(|error| Error::Damaged {
            table: self.name().to_owned(),
            reason: format!("its file of numbers is not readable: {error}"),
        })?;
        Ok(file.into_iter().map(|(column, reserved)| (column, Counter { next: reserved, reserved })).collect())
    }

    fn counters_file(&self) -> PathBuf {
        self.state.directory.join(FILE)
    }
}
