//! Best texts by BM25, through Lance's inverted index (k1 = 1.2, b = 0.75,
//! `idf = ln(1 + (N - n + 0.5) / (n + 0.5))`, term weight `idf * (k1 + 1) * tf / (tf + k1 * (1 - b + b * length / mean))`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Float32Type, UInt64Type};
use datafusion::logical_expr::Expr;
use lance_index::scalar::FullTextSearchQuery;

use super::ranking::{Hit, KeyRows, ROW_ID, row_id_column};
use crate::{Error, IndexKind, Result, Table};

const SCORE: &str = "_score";
/// Rows asked for beyond k, so that equal scores at the end can usually be ordered by key without asking again.
const TIES_MIN: usize = 32;

impl Table {
    /// The `k` rows whose `column` matches the words of `query` best: the table's columns and `score` (Float64, BM25,
    /// larger is better) and `_rowid` (UInt64), ordered by score, then primary key. Only rows with at least one of the words are in it. Any
    /// text is a query; one without words (empty, punctuation, stop words only) has no rows.
    ///
    /// Rows written after the index was built are found too; their scores, until `optimize_indexes`, rest on the word
    /// statistics that the search has at hand.
    ///
    /// # Errors
    /// [`Error::NotReady`] without a bm25 index on the column, [`Error::UnknownColumn`], [`Error::WrongType`] for a
    /// column that is not text, [`Error::NotSupported`] for a table with a column `score`, [`Error::Storage`].
    pub async fn text_search(&self, column: &str, query: &str, k: usize, filter: Option<Expr>) -> Result<RecordBatch> {
        self.check_text_column(column).await?;
        let hits = match k {
            0 => Vec::new(),
            _ => match self.best_resident_texts(column, query, k, filter.as_ref()).await? {
                Some(hits) => hits,
                None => self.best_texts(column, query, k, filter.as_ref()).await?,
            },
        };
        let row_ids: Vec<u64> = hits.iter().map(|hit| hit.row_id).collect();
        let score: ArrayRef = Arc::new(Float64Array::from_iter_values(hits.iter().map(|hit| -hit.distance)));
        self.take_with(&row_ids, vec![(Field::new("score", DataType::Float64, false), score), row_id_column(&row_ids)]).await
    }

    async fn check_text_column(&self, column: &str) -> Result<()> {
        let data_type = self.definition().schema.field(self.column(column)?).data_type();
        if data_type != &DataType::Utf8 {
            return Err(Error::WrongType {
                what: format!("column \"{column}\" of table \"{}\"", self.name()),
                found: data_type.to_string(),
                expected: "text".to_owned(),
            });
        }
        if self.has_index(column, &[IndexKind::Bm25], None).await? {
            return Ok(());
        }
        let table = self.name();
        Err(Error::NotReady(format!("text search needs an index: CREATE INDEX {table}_{column}_bm25 ON {table} USING bm25 ({column})")))
    }

    /// From the words in memory, when the table is searched often.
    async fn best_resident_texts(&self, column: &str, query: &str, k: usize, filter: Option<&Expr>) -> Result<Option<Vec<Hit>>> {
        let Some(index) = self.text_index(column).await? else { return Ok(None) };
        match self.resident_words(&index, &self.column_names()).await? {
            Some(resident) => resident.best_texts(self, &index, query, k, filter).map(Some),
            None => Ok(None),
        }
    }

    /// Asks for more and more rows until the k-th best is certain: more rows than matched, or a last score below it.
    async fn best_texts(&self, column: &str, query: &str, k: usize, filter: Option<&Expr>) -> Result<Vec<Hit>> {
        let mut limit = k.saturating_add(TIES_MIN);
        loop {
            let mut hits = self.matching_texts(column, query, limit, filter).await?;
            hits.sort();
            let is_complete = hits.len() < limit;
            let last_is_worse = hits.last().zip(hits.get(k - 1)).is_some_and(|(last, kth)| last.distance > kth.distance);
            if is_complete || last_is_worse {
                hits.truncate(k);
                return Ok(hits);
            }
            limit = limit.saturating_mul(4);
        }
    }

    async fn matching_texts(&self, column: &str, query: &str, limit: usize, filter: Option<&Expr>) -> Result<Vec<Hit>> {
        let failed = |source| Error::storage(self.name(), source);
        let mut scanner = self.dataset.scan();
        let words = FullTextSearchQuery::new(query.to_owned()).with_column(column.to_owned()).map_err(failed)?;
        let mut columns = self.definition().primary_key.clone();
        columns.push(SCORE.to_owned());
        scanner.full_text_search(words).map_err(failed)?.prefilter(true).with_row_id();
        scanner.project(&columns).map_err(failed)?;
        scanner.limit(i64::try_from(limit).ok(), None).map_err(failed)?;
        if let Some(filter) = filter {
            scanner.filter_expr(filter.clone());
        }
        let rows = scanner.try_into_batch().await.map_err(failed)?;
        let scores = rows.column(rows.schema().index_of(SCORE)?).as_primitive::<Float32Type>();
        let row_ids = rows.column(rows.schema().index_of(ROW_ID)?).as_primitive::<UInt64Type>();
        let keys = KeyRows::new(self, &rows)?;
        let hit = |row| Hit { distance: -f64::from(scores.value(row)), key: keys.key(row), row_id: row_ids.value(row) };
        Ok((0..rows.num_rows()).filter(|row| scores.is_valid(*row)).map(hit).collect())
    }
}
