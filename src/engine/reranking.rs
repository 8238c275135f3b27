//! A second ranking of what a search found, by a model that reads the query and the row together.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{cast, take_record_batch};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion::error::DataFusionError;
use rolloutdb_udfs::model::ModelRuntime;

use super::retrieval::{QUERY_INDEX, column, groups};
use crate::error::Result;

const RERANK_SCORE: &str = "rerank_score";

#[derive(Debug, Clone)]
pub struct Reranking {
    pub model: String,
    /// The text that the model reads of a row.
    pub column: String,
}

impl Reranking {
    /// What it adds to the rows: NULL for a row without a text, or with one that the model cannot read, which comes last.
    pub fn field() -> Field {
        Field::new(RERANK_SCORE, DataType::Float64, true)
    }

    /// The best `k` rows of each query by the model's scores, equal ones as they were found, with [`Self::field`]; all pairs are scored together.
    ///
    /// `found`: rows of a search with `query_index`, those of one query together, best first. `queries`: their texts.
    pub async fn rank(&self, found: &RecordBatch, queries: &[String], k: usize, models: &dyn ModelRuntime) -> Result<RecordBatch> {
        let of_query = column(found, QUERY_INDEX)?.as_primitive::<Int32Type>().values();
        let passages = cast(column(found, &self.column)?, &DataType::Utf8).map_err(DataFusionError::from)?;
        let passages = passages.as_string::<i32>();
        let with_text: Vec<usize> = (0..found.num_rows()).filter(|row| passages.is_valid(*row)).collect();
        let mut scores = vec![None; found.num_rows()];
        if !with_text.is_empty() {
            let asked = StringArray::from_iter_values(with_text.iter().map(|row| &queries[of_query[*row] as usize]));
            let read = StringArray::from_iter_values(with_text.iter().map(|row| passages.value(*row)));
            let scored = models.rerank(&self.model, &asked, &read).await?;
            for (row, score) in with_text.into_iter().zip(&scored) {
                scores[row] = score;
            }
        }
        let ranked = UInt32Array::from_iter_values(groups(of_query).flat_map(|rows| best(rows, &scores, k)).map(|row| row as u32));
        let scores: ArrayRef = Arc::new(Float64Array::from(scores));
        let mut fields: Vec<_> = found.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Self::field()));
        let columns = found.columns().iter().cloned().chain([scores]).collect();
        let scored = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(DataFusionError::from)?;
        Ok(take_record_batch(&scored, &ranked).map_err(DataFusionError::from)?)
    }
}

/// Some scores before none, larger ones first, equal ones in their order.
fn best(rows: Range<usize>, scores: &[Option<f64>], k: usize) -> Vec<usize> {
    let mut rows: Vec<usize> = rows.collect();
    rows.sort_by(|a, b| {
        scores[*b]
            .is_some()
            .cmp(&scores[*a].is_some())
            .then_with(|| scores[*b].unwrap_or_default().total_cmp(&scores[*a].unwrap_or_default()))
    });
    rows.truncate(k);
    rows
}
