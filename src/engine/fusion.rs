//! One ranking from two: rows near to a query by their vectors, and rows that match its words.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Schema, SchemaRef, UInt64Type};
use datafusion::error::DataFusionError;

use super::retrieval::{QUERY_INDEX, column, groups};
use crate::error::Result;

const ROW_ID: &str = "_rowid";

/// How two ranked lists become one score; larger is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fusion {
    /// Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): the sum of `1 / (constant + rank)` over the lists that have the row.
    ReciprocalRank { constant: f64 },
    /// `vector_weight * v + (1 - vector_weight) * t`, where v and t are the row's scores in the two lists, brought to 0 (the list's last) to 1 (its
    /// first): convex combination with min-max normalisation (Bruch, Gai and Ingber, TOIS 2023, arXiv:2210.11934). A row that a list does not have is 0 in it.
    Weighted { vector_weight: f64 },
}

/// The two lists, in the order in which [`fuse`] takes them, with the columns that a fused row has of each.
const LISTS: [List; 2] = [
    List { score: "distance", is_distance: true, rank: "vector_rank", output: "vector_distance" },
    List { score: "score", is_distance: false, rank: "text_rank", output: "text_score" },
];

struct List {
    /// The column that ranks it.
    score: &'static str,
    is_distance: bool,
    rank: &'static str,
    output: &'static str,
}

/// What fusion adds to the table's columns. The ranks count from 1; where a list does not have the row, its columns are NULL.
pub fn fused_fields() -> Vec<Field> {
    let of_list = |list: &List| [Field::new(list.rank, DataType::Int64, true), Field::new(list.output, DataType::Float64, true)];
    let mut fields = vec![Field::new("score", DataType::Float64, false)];
    fields.extend(LISTS.iter().flat_map(of_list));
    fields
}

/// The best `k` rows of each query, by both lists together: the columns of the table, [`fused_fields`], `query_index`. Rows are the same if their row ids
/// are; equal scores are ordered by row id.
///
/// Each list has the table's columns, the column that ranks it, `query_index` and `_rowid`; the rows of one query stand together, best first.
pub fn fuse(lists: &[RecordBatch; 2], fusion: Fusion, k: usize, table: &SchemaRef) -> Result<RecordBatch> {
    let mut rows = Rows::default();
    for (index, list) in lists.iter().enumerate() {
        add(&mut rows, fusion, index, list)?;
    }
    take_fused(lists, &best(rows, k), table)
}

/// By query and row id.
type Rows = BTreeMap<(i32, u64), Fused>;

/// A row as the lists have it.
#[derive(Debug, Clone, Copy, Default)]
struct Fused {
    score: f64,
    /// In the list that had it first: the list and the row.
    place: (usize, u32),
    /// Rank and score in each list.
    in_lists: [Option<(usize, f64)>; 2],
}

fn add(rows: &mut Rows, fusion: Fusion, index: usize, list: &RecordBatch) -> Result<()> {
    let scores = column(list, LISTS[index].score)?.as_primitive::<Float64Type>().values();
    let queries = column(list, QUERY_INDEX)?.as_primitive::<Int32Type>().values();
    let row_ids = column(list, ROW_ID)?.as_primitive::<UInt64Type>().values();
    for group in groups(queries) {
        let normalised = Normalised::of(&scores[group.clone()]);
        for (position, row) in group.enumerate() {
            let rank = position + 1;
            let fused = rows.entry((queries[row], row_ids[row])).or_insert(Fused { place: (index, row as u32), ..Fused::default() });
            fused.in_lists[index] = Some((rank, scores[row]));
            fused.score += match fusion {
                Fusion::ReciprocalRank { constant } => 1.0 / (constant + rank as f64),
                Fusion::Weighted { vector_weight } if LISTS[index].is_distance => vector_weight * normalised.of_score(scores[row]),
                Fusion::Weighted { vector_weight } => (1.0 - vector_weight) * normalised.of_score(scores[row]),
            };
        }
    }
    Ok(())
}

/// The scores of a list between 0 for its last and 1 for its first.
struct Normalised {
    first: f64,
    last: f64,
}

impl Normalised {
    /// `scores`: best first, those that are no number (the cosine distance of a zero vector) at the end.
    fn of(scores: &[f64]) -> Self {
        let mut numbers = scores.iter().copied().filter(|score| !score.is_nan());
        let first = numbers.next().unwrap_or(0.0);
        Self { first, last: numbers.next_back().unwrap_or(first) }
    }

    /// All are 1 if all are equal.
    fn of_score(&self, score: f64) -> f64 {
        match (score.is_nan(), self.first == self.last) {
            (true, _) => 0.0,
            (false, true) => 1.0,
            (false, false) => (score - self.last) / (self.first - self.last),
        }
    }
}

/// The best `k` of each query, best first.
fn best(rows: Rows, k: usize) -> Vec<(i32, Fused)> {
    let mut all: Vec<_> = rows.into_iter().collect();
    all.sort_by(|((query_a, row_a), a), ((query_b, row_b), b)| {
        query_a.cmp(query_b).then(b.score.total_cmp(&a.score)).then(row_a.cmp(row_b))
    });
    let mut taken: HashMap<i32, usize> = HashMap::new();
    all.retain(|((query, _), _)| {
        let count = taken.entry(*query).or_insert(0);
        *count += 1;
        *count <= k
    });
    all.into_iter().map(|((query, _), fused)| (query, fused)).collect()
}

fn take_fused(lists: &[RecordBatch; 2], best: &[(i32, Fused)], table: &SchemaRef) -> Result<RecordBatch> {
    let positions = table.fields().iter().map(|field| lists[0].schema().index_of(field.name())).collect::<Result<Vec<_>, _>>();
    let positions = positions.map_err(DataFusionError::from)?;
    let [first, second] = lists.each_ref().map(|list| list.project(&positions));
    let (first, second) = (first.map_err(DataFusionError::from)?, second.map_err(DataFusionError::from)?);
    let offset = first.num_rows() as u32;
    let together = concat_batches(&first.schema(), [&first, &second]).map_err(DataFusionError::from)?;
    let row = |fused: &Fused| if fused.place.0 == 0 { fused.place.1 } else { offset + fused.place.1 };
    let rows = UInt32Array::from_iter_values(best.iter().map(|(_, fused)| row(fused)));
    let mut columns = take_record_batch(&together, &rows).map_err(DataFusionError::from)?.columns().to_vec();
    columns.push(Arc::new(Float64Array::from_iter_values(best.iter().map(|(_, fused)| fused.score))));
    for index in 0..LISTS.len() {
        let in_list = || best.iter().map(move |(_, fused)| fused.in_lists[index]);
        let ranks: ArrayRef = Arc::new(in_list().map(|found| found.map(|(rank, _)| rank as i64)).collect::<Int64Array>());
        let scores: ArrayRef = Arc::new(in_list().map(|found| found.map(|(_, score)| score)).collect::<Float64Array>());
        columns.extend([ranks, scores]);
    }
    columns.push(Arc::new(Int32Array::from_iter_values(best.iter().map(|(query, _)| *query))));
    let mut fields: Vec<_> = table.fields().iter().cloned().collect();
    fields.extend(fused_fields().into_iter().map(Arc::new));
    fields.push(Arc::new(Field::new(QUERY_INDEX, DataType::Int32, false)));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?)
}
