//! Reciprocal rank fusion of ranked lists of rows of one table (Cormack, Clarke and Büttcher, SIGIR 2009).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{AsArray, Float64Array, Int32Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, UInt64Type};
use datafusion::error::DataFusionError;

use super::retrieval::{QUERY_INDEX, column};
use crate::error::Result;

/// `score = Σ 1 / (60 + rank)` over the lists that have the row.
const RRF_CONSTANT: f64 = 60.0;
const ROW_ID: &str = "_rowid";

/// Where a fused row is: its list, and its row in it.
type Place = (usize, u32);

/// The best `k` rows of each query, by both lists together: the columns of `schema`, whose last one is the score, and `query_index`. Rows are the
/// same if their row ids are; equal scores are ordered by row id.
///
/// Each list has the columns of `schema` but the score, `query_index` and `_rowid`; the rows of one query stand together, best first.
pub fn fuse(lists: &[RecordBatch; 2], k: usize, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut fusion = Fusion::default();
    for (index, list) in lists.iter().enumerate() {
        fusion.add(index, list)?;
    }
    take_fused(lists, &fusion.ranked(k), schema)
}

#[derive(Default)]
struct Fusion {
    /// By query and row id.
    scores: BTreeMap<(i32, u64), (f64, Place)>,
}

impl Fusion {
    fn add(&mut self, list: usize, batch: &RecordBatch) -> Result<()> {
        let queries = column(batch, QUERY_INDEX)?.as_primitive::<Int32Type>();
        let row_ids = column(batch, ROW_ID)?.as_primitive::<UInt64Type>();
        let mut ranks: HashMap<i32, usize> = HashMap::new();
        for row in 0..batch.num_rows() {
            let query = queries.value(row);
            let rank = ranks.entry(query).and_modify(|rank| *rank += 1).or_insert(1);
            let entry = self.scores.entry((query, row_ids.value(row))).or_insert((0.0, (list, row as u32)));
            entry.0 += 1.0 / (RRF_CONSTANT + *rank as f64);
        }
        Ok(())
    }

    /// The best `k` of each query: (query, score, place).
    fn ranked(self, k: usize) -> Vec<(i32, f64, Place)> {
        let mut all: Vec<_> = self.scores.into_iter().collect();
        all.sort_by(|((query_a, row_a), (score_a, _)), ((query_b, row_b), (score_b, _))| {
            query_a.cmp(query_b).then(score_b.total_cmp(score_a)).then(row_a.cmp(row_b))
        });
        let mut taken: HashMap<i32, usize> = HashMap::new();
        all.into_iter()
            .filter(|((query, _), _)| {
                let count = taken.entry(*query).or_insert(0);
                *count += 1;
                *count <= k
            })
            .map(|((query, _), (score, place))| (query, score, place))
            .collect()
    }
}

fn take_fused(lists: &[RecordBatch; 2], ranked: &[(i32, f64, Place)], schema: &SchemaRef) -> Result<RecordBatch> {
    let table_columns = schema.fields().iter().take(schema.fields().len() - 1);
    let table_columns = table_columns.map(|field| lists[0].schema().index_of(field.name())).collect::<Result<Vec<_>, _>>();
    let table_columns = table_columns.map_err(DataFusionError::from)?;
    let [first, second] = lists.each_ref().map(|list| list.project(&table_columns));
    let (first, second) = (first.map_err(DataFusionError::from)?, second.map_err(DataFusionError::from)?);
    let offset = first.num_rows() as u32;
    let together = concat_batches(&first.schema(), [&first, &second]).map_err(DataFusionError::from)?;
    let rows = UInt32Array::from_iter_values(ranked.iter().map(|(_, _, (list, row))| if *list == 0 { *row } else { offset + row }));
    let mut columns = take_record_batch(&together, &rows).map_err(DataFusionError::from)?.columns().to_vec();
    columns.push(Arc::new(Float64Array::from_iter_values(ranked.iter().map(|(_, score, _)| *score))));
    columns.push(Arc::new(Int32Array::from_iter_values(ranked.iter().map(|(query, _, _)| *query))));
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(QUERY_INDEX, DataType::Int32, false)));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?)
}
