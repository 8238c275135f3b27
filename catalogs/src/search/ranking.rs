//! The k best rows, ties broken by primary key, and their columns.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::row::{RowConverter, Rows, SortField};
use lance::dataset::ProjectionRequest;

use crate::{Error, Result, Table};

/// Lance's own column of row ids, which no table of ours can have: tells found rows apart where there is no key.
pub(crate) const ROW_ID: &str = "_rowid";

pub(crate) fn row_id_column(row_ids: &[u64]) -> (Field, ArrayRef) {
    (Field::new(ROW_ID, DataType::UInt64, false), Arc::new(UInt64Array::from(row_ids.to_vec())))
}

/// A row and its rank: a smaller `distance` is better, then the smaller primary key, then the older row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hit {
    /// Smaller is better; NaN is worse than every number.
    pub(crate) distance: f64,
    /// The primary key in Arrow's row format, whose bytes order as the key does.
    pub(crate) key: Vec<u8>,
    pub(crate) row_id: u64,
}

impl Eq for Hit {}

impl Ord for Hit {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_distance = order(self.distance).total_cmp(&order(other.distance));
        by_distance.then_with(|| self.key.cmp(&other.key)).then_with(|| self.row_id.cmp(&other.row_id))
    }
}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `-0.0` and `0.0` are the same distance, and every NaN is the worst.
fn order(distance: f64) -> f64 {
    if distance.is_nan() { f64::NAN.abs() } else { distance + 0.0 }
}

/// Keeps the k best of the hits offered to it.
#[derive(Debug)]
pub(crate) struct TopHits {
    k: usize,
    /// The worst kept hit on top.
    heap: BinaryHeap<Hit>,
}

impl TopHits {
    pub(crate) fn new(k: usize) -> Self {
        Self { k, heap: BinaryHeap::new() }
    }

    /// Offers a row; `key` is asked for only when the distance is good enough.
    pub(crate) fn offer(&mut self, distance: f64, row_id: u64, key: impl FnOnce() -> Vec<u8>) {
        if self.heap.len() >= self.k {
            match self.heap.peek() {
                Some(worst) if order(distance).total_cmp(&order(worst.distance)).is_le() => {}
                _ => return,
            }
        }
        self.heap.push(Hit { distance, key: key(), row_id });
        if self.heap.len() > self.k {
            self.heap.pop();
        }
    }

    /// The hits, best first.
    pub(crate) fn into_sorted(self) -> Vec<Hit> {
        self.heap.into_sorted_vec()
    }
}

/// Primary keys of a batch as bytes.
#[derive(Debug)]
pub(crate) struct KeyRows(Option<Rows>);

impl KeyRows {
    /// Of the key columns in `batch`, which may be named differently from the table's order.
    pub(crate) fn new(table: &Table, batch: &RecordBatch) -> Result<Self> {
        let definition = table.definition();
        if definition.primary_key.is_empty() {
            return Ok(Self(None));
        }
        let positions = definition.positions(&definition.primary_key);
        let sort = |position: &usize| SortField::new(definition.schema.field(*position).data_type().clone());
        let converter = RowConverter::new(positions.iter().map(sort).collect())?;
        let mut columns = Vec::with_capacity(positions.len());
        for column in &definition.primary_key {
            columns.push(batch.column(batch.schema().index_of(column)?).clone());
        }
        Ok(Self(Some(converter.convert_columns(&columns)?)))
    }

    pub(crate) fn key(&self, row: usize) -> Vec<u8> {
        self.0.as_ref().map(|rows| rows.row(row).as_ref().to_vec()).unwrap_or_default()
    }
}

impl Table {
    /// The table's columns of the rows `row_ids`, in that order, then `extra` columns of the same length.
    pub(crate) async fn take_with(&self, row_ids: &[u64], extra: Vec<(Field, ArrayRef)>) -> Result<RecordBatch> {
        let schema = self.definition().schema.clone();
        let mut fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        let mut columns = self.take(row_ids).await?;
        for (field, column) in extra {
            if schema.field_with_name(field.name()).is_ok() {
                let reason =
                    format!("table \"{}\" has a column \"{}\", which a search adds: it can not be searched", self.name(), field.name());
                return Err(Error::NotSupported(reason));
            }
            fields.push(field);
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(row_ids.len()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }

    /// Some columns of rows, by position.
    pub(crate) async fn take_columns(&self, row_ids: &[u64], positions: &[usize]) -> Result<Vec<ArrayRef>> {
        let columns = self.take(row_ids).await?;
        Ok(positions.iter().map(|position| Arc::clone(&columns[*position])).collect())
    }

    /// The columns of rows of a table in memory.
    async fn take_resident(&self, row_ids: &[u64]) -> Result<Option<Vec<ArrayRef>>> {
        match self.resident(&self.column_names(), 0).await? {
            Some(resident) => resident.take_addresses(self, row_ids),
            None => Ok(None),
        }
    }

    /// The columns of rows, which may repeat: each distinct row is read once.
    async fn take(&self, row_ids: &[u64]) -> Result<Vec<ArrayRef>> {
        if let Some(columns) = self.take_resident(row_ids).await? {
            return Ok(columns);
        }
        let mut distinct = row_ids.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let schema = &self.definition().schema;
        let names = schema.fields().iter().map(|field| field.name());
        let projection = ProjectionRequest::from_columns(names, self.dataset.schema());
        let rows = self.dataset.take_rows(&distinct, projection).await;
        let rows = rows.map_err(|source| Error::storage(self.name(), source))?;
        let position = |row_id: &u64| distinct.binary_search(row_id).map_or(0, |position| position as u64);
        let positions = UInt64Array::from_iter_values(row_ids.iter().map(position));
        rows.columns().iter().map(|column| Ok(take(column, &positions, None)?)).collect()
    }
}
