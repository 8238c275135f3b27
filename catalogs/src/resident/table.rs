//! The resident columns of one table, in step with its versions.

mod residency;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::{concat, take};
use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use futures::TryStreamExt;
use lance_table::format::Fragment;
use tokio::sync::OwnedRwLockReadGuard;

use super::Bits;
use super::columns::{Column as ResidentColumn, Vectors};
use super::graph::Graph;
use super::keys::Keys;
use super::nearest::{Found, Search};
use super::words::Words;
use crate::index::TextIndex;
use crate::scan::scan_of;
use crate::search::ranking::{Hit, KeyRows};
use crate::search::vector::VectorSearch;
use crate::search::{Condition, TextQuery};
use crate::{Error, Result, Table};

pub(crate) use residency::Heat;
pub use residency::TableInMemory;

/// Loads after which everything is loaded anew as one segment.
const SEGMENTS_MAX: usize = 64;
/// Deleted rows are not worth a new load before there are so many.
const DEAD_ROWS_MIN: usize = 4_096;

/// A read lock on the resident rows of one version.
pub(crate) type Resident = OwnedRwLockReadGuard<ResidentTable>;

#[derive(Debug, Default)]
pub(crate) struct ResidentTable {
    pub(super) numbering: Numbering,
    /// The version that `live` describes.
    version: Option<u64>,
    fragments: Vec<ResidentFragment>,
    /// Rows that were loaded together; every column has one array for each.
    segments: Vec<Segment>,
    num_rows: usize,
    /// The rows of the version.
    live: Option<Bits>,
    /// By the number of the field.
    columns: HashMap<i32, ResidentColumn>,
    words: HashMap<String, Words>,
    /// By the number of the field; `None`: it has too many rows.
    keys: HashMap<i32, Option<Keys>>,
    /// By the name of the index; `None`: there is none for these rows.
    graphs: HashMap<String, Option<ResidentGraph>>,
}

/// Tells whether a number still means the same row: everything that is read anew is numbered anew.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbering(Arc<()>);

impl PartialEq for Numbering {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Debug, Clone)]
struct ResidentFragment {
    id: u64,
    files: Vec<String>,
    first_row: usize,
    num_rows: usize,
}

#[derive(Debug)]
struct Segment {
    rows: Range<usize>,
    /// Positions in the list of fragments.
    fragments: Range<usize>,
}

/// The graph of an index over the first rows.
#[derive(Clone)]
pub(crate) struct ResidentGraph {
    pub(super) graph: Arc<Graph>,
    /// The vectors scaled to length 1, when they are not so already and the metric is cosine.
    pub(super) normalised: Option<Arc<Vec<f32>>>,
    /// Rows of the graph that its file has.
    pub(super) saved_rows: usize,
    /// Whether a task is at work to take rows in.
    pub(super) is_extending: Arc<AtomicBool>,
}

impl ResidentGraph {
    fn memory_bytes(&self) -> usize {
        self.graph.memory_bytes() + self.normalised.as_ref().map_or(0, |matrix| size_of_val(&matrix[..]))
    }
}

#[cfg(test)]
impl ResidentGraph {
    pub(crate) fn num_rows(&self) -> usize {
        self.graph.len()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.graph.to_bytes()
    }
}

impl std::fmt::Debug for ResidentGraph {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ResidentGraph(rows={})", self.graph.len())
    }
}

impl ResidentTable {
    pub(super) fn has(&self, table: &Table, columns: &[&str]) -> bool {
        let is_loaded = |name: &&str| self.column(table, name).is_some_and(|column| column.num_segments() == self.segments.len());
        self.version == Some(table.version()) && columns.iter().all(is_loaded)
    }

    fn has_words(&self, index: &TextIndex) -> bool {
        self.words.get(&index.name).is_some_and(|words| words.num_rows() == self.num_rows && words.is_of(index))
    }

    fn has_keys(&self, table: &Table, column: &str) -> bool {
        let keys = table.dataset.schema().field(column).and_then(|field| self.keys.get(&field.id));
        keys.is_some_and(|keys| keys.as_ref().is_none_or(|keys| keys.num_rows() == self.num_rows))
    }

    fn column(&self, table: &Table, name: &str) -> Option<&ResidentColumn> {
        self.columns.get(&table.dataset.schema().field(name)?.id)
    }

    pub(crate) fn vectors(&self, table: &Table, name: &str) -> Option<&Vectors> {
        match self.column(table, name)? {
            ResidentColumn::Vectors(vectors) => Some(vectors),
            ResidentColumn::Values(_) => None,
        }
    }

    /// Brings new fragments and deletions in. What is awaited comes before what is changed: a search that is cancelled meanwhile leaves the rows of the
    /// version before.
    async fn follow(&mut self, table: &Table) -> Result<()> {
        if self.version == Some(table.version()) {
            return Ok(());
        }
        let mut fragments = self.fragments_of(table)?;
        let mut live = live_rows(table, &fragments).await?;
        let num_dead = live.num_rows() - live.count();
        if self.segments.len() >= SEGMENTS_MAX || (num_dead > DEAD_ROWS_MIN && num_dead * 2 > self.num_rows) {
            *self = Self::default();
            fragments = self.fragments_of(table)?;
            live = live_rows(table, &fragments).await?;
        }
        if fragments.len() > self.fragments.len() {
            self.segments.push(Segment { rows: self.num_rows..live.num_rows(), fragments: self.fragments.len()..fragments.len() });
        }
        self.fragments = fragments;
        self.num_rows = live.num_rows();
        let schema = table.dataset.schema();
        self.columns.retain(|id, _| schema.field_by_id(*id).is_some());
        self.keys.retain(|id, _| schema.field_by_id(*id).is_some());
        self.words.values_mut().for_each(|words| words.set_live(&live));
        self.live = (live.count() < self.num_rows).then_some(live);
        self.version = Some(table.version());
        Ok(())
    }

    /// Those that are known, also if they are gone, and then those of the version that are new.
    fn fragments_of(&self, table: &Table) -> Result<Vec<ResidentFragment>> {
        let mut new: Vec<&Fragment> = table.dataset.fragments().iter().filter(|fragment| !self.knows(fragment)).collect();
        new.sort_by_key(|fragment| fragment.id);
        let mut fragments = self.fragments.clone();
        let mut first_row = self.num_rows;
        for fragment in new {
            let num_rows = fragment.physical_rows.ok_or_else(|| Error::Damaged {
                table: table.name().to_owned(),
                reason: format!("fragment {} does not say how many rows it has", fragment.id),
            })?;
            let files = fragment.files.iter().map(|file| file.path.clone()).collect();
            fragments.push(ResidentFragment { id: fragment.id, files, first_row, num_rows });
            first_row += num_rows;
        }
        Ok(fragments)
    }

    fn knows(&self, fragment: &Fragment) -> bool {
        self.fragments.iter().any(|known| known.is(fragment))
    }

    /// Whether all fragments are there whose rows [`Self::load`] would read: those that have left the version cannot be read, and their places are taken.
    fn can_load(&self, table: &Table, columns: &[&str]) -> bool {
        let is_there = |known: &ResidentFragment| table.dataset.fragments().iter().any(|fragment| known.is(fragment));
        let num_loaded = columns.iter().map(|name| self.column(table, name).map_or(0, ResidentColumn::num_segments)).min();
        let missing = &self.segments[num_loaded.unwrap_or(self.segments.len())..];
        missing.iter().all(|segment| self.fragments[segment.fragments.clone()].iter().all(is_there))
    }

    /// Reads the columns that are not there yet.
    async fn load(&mut self, table: &Table, columns: &[&str]) -> Result<()> {
        let schema = table.dataset.schema();
        for segment in 0..self.segments.len() {
            let mut missing: Vec<(&str, i32)> = Vec::new();
            for name in columns {
                let field = schema
                    .field(name)
                    .ok_or_else(|| Error::Damaged { table: table.name().to_owned(), reason: format!("column \"{name}\" is not stored") })?;
                let column = self.columns.entry(field.id).or_insert_with(|| ResidentColumn::new(&field.data_type()));
                if column.num_segments() == segment && !missing.iter().any(|(_, id)| *id == field.id) {
                    missing.push((name, field.id));
                }
            }
            let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
            for ((_, id), array) in missing.iter().zip(self.read_segment(table, segment, &names).await?) {
                if let Some(column) = self.columns.get_mut(id) {
                    column.push_segment(array)?;
                }
            }
        }
        Ok(())
    }

    /// Every row of a segment, deleted ones too: their places must stay taken.
    async fn read_segment(&self, table: &Table, segment: usize, columns: &[&str]) -> Result<Vec<ArrayRef>> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |source| Error::storage(table.name(), source);
        let segment = &self.segments[segment];
        let mut fragments = Vec::with_capacity(segment.fragments.len());
        for known in &self.fragments[segment.fragments.clone()] {
            match table.dataset.get_fragment(known.id as usize) {
                Some(fragment) => fragments.push(fragment.metadata().clone()),
                None => return Err(Error::NotReady(format!("table \"{}\" has changed while it was read", table.name()))),
            }
        }
        let mut scanner = scan_of(&table.dataset);
        scanner.with_fragments(fragments).scan_in_order(true).with_row_id().include_deleted_rows();
        scanner.project(columns).map_err(failed)?;
        let batches: Vec<RecordBatch> = scanner.try_into_stream().await.map_err(failed)?.try_collect().await.map_err(failed)?;
        let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if num_rows != segment.rows.len() {
            let reason = format!("{num_rows} rows were read where {} are stored", segment.rows.len());
            return Err(Error::Damaged { table: table.name().to_owned(), reason });
        }
        let mut arrays = Vec::with_capacity(columns.len());
        for name in columns {
            let parts: Vec<&dyn arrow::array::Array> =
                batches.iter().filter_map(|batch| batch.column_by_name(name)).map(AsRef::as_ref).collect();
            arrays.push(concat(&parts)?);
        }
        Ok(arrays)
    }

    fn load_words(&mut self, table: &Table, index: &TextIndex) -> Result<()> {
        // An index of this name may have been made anew, with other options.
        let mut words = match self.words.remove(&index.name).filter(|words| words.is_of(index)) {
            Some(words) => words,
            None => Words::new(table.name(), index)?,
        };
        let id = table.dataset.schema().field(&index.column).map(|field| field.id);
        if let Some(ResidentColumn::Values(arrays)) = id.and_then(|id| self.columns.get(&id)) {
            for (segment, array) in self.segments.iter().zip(arrays) {
                if segment.rows.start >= words.num_rows() {
                    words.push_segment(array);
                }
            }
        }
        words.set_live(&self.live.clone().unwrap_or_else(|| Bits::all(self.num_rows)));
        self.words.insert(index.name.clone(), words);
        Ok(())
    }

    /// Takes in the segments whose keys are not known yet.
    fn load_keys(&mut self, table: &Table, column: &str) {
        let Some(id) = table.dataset.schema().field(column).map(|field| field.id) else { return };
        let Some(ResidentColumn::Values(arrays)) = self.columns.get(&id) else { return };
        let known = self.keys.entry(id).or_insert_with(|| Some(Keys::default()));
        for (segment, array) in self.segments.iter().zip(arrays) {
            let Some(keys) = known else { return };
            if segment.rows.start >= keys.num_rows() && !keys.push_segment(array) {
                *known = None;
            }
        }
    }

    /// The live rows whose `column` is `key`; `None`: it has no keys in memory, or this is none.
    pub(crate) fn rows_of_key(&self, table: &Table, column: &str, key: &ScalarValue) -> Result<Option<Vec<usize>>> {
        let Some(id) = table.dataset.schema().field(column).map(|field| field.id) else { return Ok(None) };
        let (Some(Some(keys)), Some(ResidentColumn::Values(arrays))) = (self.keys.get(&id), self.columns.get(&id)) else { return Ok(None) };
        let Some(candidates) = keys.candidates(key) else { return Ok(None) };
        let mut rows = Vec::with_capacity(candidates.len());
        for row in candidates {
            let (segment, place) = self.place(row);
            let is_live = self.live.as_ref().is_none_or(|live| live.contains(row));
            if is_live && ScalarValue::try_from_array(&arrays[segment], place)? == *key {
                rows.push(row);
            }
        }
        rows.sort_unstable();
        Ok(Some(rows))
    }

    /// The live rows that meet `filter`. Each part of it sees the rows only that met those before: `x <> 0 AND 10 / x > 1` divides by no zero.
    pub(crate) fn matching(&self, table: &Table, filter: &Expr) -> Result<Bits> {
        let mut matching = self.live.clone().unwrap_or_else(|| Bits::all(self.num_rows));
        for condition in Condition::in_order(table, filter)? {
            let mut met = Bits::none(self.num_rows);
            for (number, segment) in self.segments.iter().enumerate() {
                let mut arrays = Vec::with_capacity(condition.schema.fields().len());
                for name in condition.column_names() {
                    match self.column(table, name) {
                        Some(ResidentColumn::Values(segments)) => arrays.push(Arc::clone(&segments[number])),
                        _ => return Err(Error::NotReady(format!("column \"{name}\" is not in memory"))),
                    }
                }
                match condition.is_comparison {
                    true => met.insert_mask(segment.rows.start, &condition.evaluate(arrays, segment.rows.len())?),
                    false => insert_met(&mut met, &condition, &arrays, segment, &matching)?,
                }
            }
            matching.intersect(&met);
        }
        Ok(matching)
    }

    /// The nearest rows of each query, best first.
    ///
    /// `index`: of the graph to walk, with the rows that it looks at; absent: every vector is read.
    pub(crate) fn nearest(&self, search: &VectorSearch, queries: &[Vec<f32>], index: Option<(&str, usize)>) -> Result<Vec<Vec<Hit>>> {
        let table = &search.table;
        let Some(vectors) = self.vectors(table, &search.column) else {
            return Err(Error::NotReady(format!("the vectors of table \"{}\" are not in memory", table.name())));
        };
        let mut accepted = match &search.filter {
            Some(filter) => self.matching(table, filter)?,
            None => self.live.clone().unwrap_or_else(|| Bits::all(self.num_rows)),
        };
        accepted.intersect(&vectors.present);
        let accepts_all = accepted.count() == self.num_rows;
        let counts = &search.counts;
        let among = Search { vectors, metric: search.metric, k: search.k, accepted: &accepted, accepts_all, counts };
        let graph = index.and_then(|(name, ef)| Some((self.graph(name)?, ef)));
        let found = match graph {
            Some((ResidentGraph { graph, normalised, .. }, ef)) => {
                let normalised = normalised.as_ref().map(|matrix| matrix.as_slice());
                queries.iter().map(|query| among.by_graph(graph, normalised, query, ef)).collect()
            }
            None => among.exact(&queries.iter().map(Vec::as_slice).collect::<Vec<_>>()),
        };
        self.ranked(table, &found, search.k)
    }

    /// The best rows of each query by words, best first.
    pub(crate) fn best_texts(
        &self,
        table: &Table,
        index: &TextIndex,
        queries: &[TextQuery],
        k: usize,
        filter: Option<&Expr>,
    ) -> Result<Vec<Vec<Hit>>> {
        let Some(words) = self.words.get(&index.name) else {
            return Err(Error::NotReady(format!("the words of table \"{}\" are not in memory", table.name())));
        };
        let accepted = filter.map(|filter| self.matching(table, filter)).transpose()?;
        let found = words.search_all(queries, k, accepted.as_ref());
        let hits = |found: Vec<(f32, u32)>| -> Vec<Found> {
            found.into_iter().map(|(score, row)| Found { distance: -f64::from(score), row: row as usize }).collect()
        };
        self.ranked(table, &found.into_iter().map(hits).collect::<Vec<_>>(), k)
    }

    /// Orders rows of one distance by primary key, and keeps k of each query.
    fn ranked(&self, table: &Table, found: &[Vec<Found>], k: usize) -> Result<Vec<Vec<Hit>>> {
        let rows: Vec<usize> = found.iter().flatten().map(|found| found.row).collect();
        if rows.is_empty() {
            return Ok(vec![Vec::new(); found.len()]);
        }
        let key: Vec<&str> = table.definition().primary_key.iter().map(String::as_str).collect();
        let keys = KeyRows::new(table, &self.take(table, &key, &rows)?)?;
        let mut position = 0;
        let mut hit = |found: &Found| {
            position += 1;
            Hit { distance: found.distance, key: keys.key(position - 1), row_id: self.address(found.row) }
        };
        let mut of_query = |found: &Vec<Found>| {
            let mut hits: Vec<Hit> = found.iter().map(&mut hit).collect();
            hits.sort_unstable();
            hits.truncate(k);
            hits
        };
        Ok(found.iter().map(&mut of_query).collect())
    }

    /// What a row takes of these columns, on average.
    pub(crate) fn row_bytes(&self, table: &Table, columns: &[&str]) -> usize {
        let bytes: usize = columns.iter().filter_map(|name| self.column(table, name)).map(ResidentColumn::memory_bytes).sum();
        bytes / self.num_rows.max(1)
    }

    /// Columns of rows, by number.
    pub(crate) fn take(&self, table: &Table, columns: &[&str], rows: &[usize]) -> Result<RecordBatch> {
        let places: Vec<(usize, usize)> = rows.iter().map(|row| self.place(*row)).collect();
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays = Vec::with_capacity(columns.len());
        for name in columns {
            let Some(column) = self.column(table, name) else {
                return Err(Error::NotReady(format!("column \"{name}\" is not in memory")));
            };
            fields.push(table.definition().schema.field_with_name(name)?.clone());
            arrays.push(column.take(&places, rows)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
    }

    /// All columns of the table of the rows at `addresses`; `None` when one of the columns is not in memory.
    pub(crate) fn take_addresses(&self, table: &Table, addresses: &[u64]) -> Result<Option<Vec<ArrayRef>>> {
        let names: Vec<&str> = table.definition().schema.fields().iter().map(|field| field.name().as_str()).collect();
        if !self.has(table, &names) {
            return Ok(None);
        }
        let Some(rows) = addresses.iter().map(|address| self.row(*address)).collect::<Option<Vec<usize>>>() else { return Ok(None) };
        Ok(Some(self.take(table, &names, &rows)?.columns().to_vec()))
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    fn memory_bytes(&self) -> usize {
        let columns: usize = self.columns.values().map(ResidentColumn::memory_bytes).sum();
        let words: usize = self.words.values().map(Words::memory_bytes).sum();
        let graphs: usize = self.graphs.values().flatten().map(ResidentGraph::memory_bytes).sum();
        let keys: usize = self.keys.values().flatten().map(Keys::memory_bytes).sum();
        columns + words + graphs + keys
    }

    pub(crate) fn graph(&self, index: &str) -> Option<&ResidentGraph> {
        self.graphs.get(index)?.as_ref()
    }

    /// Whether it was looked for in vain.
    pub(super) fn lacks_graph(&self, index: &str) -> bool {
        matches!(self.graphs.get(index), Some(None))
    }

    pub(super) fn insert_graph(&mut self, index: String, graph: ResidentGraph) {
        self.graphs.insert(index, Some(graph));
    }

    pub(super) fn note_no_graph(&mut self, index: String) {
        self.graphs.insert(index, None);
    }

    pub(super) fn forget_index(&mut self, index: &str) {
        self.graphs.remove(index);
        self.words.remove(index);
    }

    pub(super) fn fragments_json(&self) -> serde_json::Value {
        let one = |fragment: &ResidentFragment| serde_json::json!([fragment.id, fragment.num_rows, fragment.files]);
        self.fragments.iter().map(one).collect()
    }

    /// Where the first `num_rows` rows of stored fragments are now.
    pub(super) fn moves_of(&self, fragments: &serde_json::Value, num_rows: usize) -> Vec<Option<u32>> {
        let stored = fragments.as_array().map(Vec::as_slice).unwrap_or_default();
        let places = stored.iter().flat_map(|stored| {
            let known = self.fragments.iter().find(|known| known.is_stored_as(stored));
            let rows = usize::try_from(stored[1].as_u64().unwrap_or(0)).unwrap_or(0);
            (0..rows).map(move |place| known.and_then(|known| u32::try_from(known.first_row + place).ok()))
        });
        places.chain(std::iter::repeat(None)).take(num_rows).collect()
    }

    /// Whether the first fragments are these, as [`Self::fragments_json`] has written them.
    pub(super) fn starts_with(&self, fragments: &serde_json::Value) -> bool {
        let Some(fragments) = fragments.as_array() else { return false };
        fragments.len() <= self.fragments.len() && fragments.iter().zip(&self.fragments).all(|(stored, known)| known.is_stored_as(stored))
    }

    /// Segment of a row, and its place in it.
    fn place(&self, row: usize) -> (usize, usize) {
        let segment = self.segments.partition_point(|segment| segment.rows.end <= row);
        (segment, row - self.segments[segment].rows.start)
    }

    fn address(&self, row: usize) -> u64 {
        let fragment = &self.fragments[self.fragments.partition_point(|fragment| fragment.first_row + fragment.num_rows <= row)];
        fragment.id << 32 | (row - fragment.first_row) as u64
    }

    pub(super) fn row(&self, address: u64) -> Option<usize> {
        let id = address >> 32;
        let fragment = self.fragments.iter().rev().find(|fragment| fragment.id == id)?;
        let place = usize::try_from(address & u64::from(u32::MAX)).ok()?;
        (place < fragment.num_rows).then_some(fragment.first_row + place)
    }
}

/// The rows of a version among those of `fragments`.
async fn live_rows(table: &Table, fragments: &[ResidentFragment]) -> Result<Bits> {
    let mut live = Bits::all(fragments.last().map_or(0, |last| last.first_row + last.num_rows));
    for known in fragments {
        match table.dataset.get_fragment(known.id as usize).filter(|fragment| known.is(fragment.metadata())) {
            None => (known.first_row..known.first_row + known.num_rows).for_each(|row| live.remove(row)),
            Some(fragment) => {
                let deleted = fragment.get_deletion_vector().await.map_err(|source| Error::storage(table.name(), source))?;
                let deleted = deleted.iter().flat_map(|deleted| deleted.iter());
                deleted.for_each(|place| live.remove(known.first_row + place as usize));
            }
        }
    }
    Ok(live)
}

/// Adds those of `rows` in a segment that meet a condition; `arrays` are its columns.
fn insert_met(met: &mut Bits, condition: &Condition, arrays: &[ArrayRef], segment: &Segment, rows: &Bits) -> Result<()> {
    let rows: Vec<usize> = segment.rows.clone().filter(|row| rows.contains(*row)).collect();
    let places = UInt64Array::from_iter_values(rows.iter().map(|row| (row - segment.rows.start) as u64));
    let arrays = arrays.iter().map(|array| take(array, &places, None)).collect::<Result<_, _>>()?;
    let is_met = condition.evaluate(arrays, rows.len())?;
    rows.iter().zip(&is_met).filter(|(_, is_met)| *is_met == Some(true)).for_each(|(row, _)| met.insert(*row));
    Ok(())
}

impl ResidentFragment {
    /// Whether it is what [`ResidentTable::fragments_json`] has written.
    fn is_stored_as(&self, stored: &serde_json::Value) -> bool {
        let files = stored[2].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_known = |file: &serde_json::Value| file.as_str().is_some_and(|file| self.files.iter().any(|known| known == file));
        stored[0] == self.id && stored[1] == self.num_rows && files.iter().all(is_known)
    }

    /// Whether `fragment` holds the same rows: its files are those that were read, perhaps with columns added.
    fn is(&self, fragment: &Fragment) -> bool {
        self.id == fragment.id && self.files.iter().all(|file| fragment.files.iter().any(|stored| stored.path == *file))
    }
}
