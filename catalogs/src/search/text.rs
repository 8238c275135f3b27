//! Best texts by BM25, through Lance's inverted index (k1 = 1.2, b = 0.75,
//! `idf = ln(1 + (N - n + 0.5) / (n + 0.5))`, term weight `idf * (k1 + 1) * tf / (tf + k1 * (1 - b + b * length / mean))`), or from the words in memory.
//!
//! Phrases and boolean queries are always Lance's, fuzzy ones always ours: Lance does not analyze fuzzy words as it analyzes texts, and does not look for
//! them in rows that came after the index.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Float32Type, UInt64Type};
use datafusion::logical_expr::Expr;
use futures::{StreamExt, TryStreamExt, stream};
use lance_index::scalar::FullTextSearchQuery;
use lance_index::scalar::inverted::query::FtsQuery;

use super::loose_phrase::LoosePhrase;
use super::ranking::{Hit, KeyRows, ROW_ID, row_id_column};
use super::row_filter::RowFilter;
use super::text_query::{Operator, TextQuery, has_phrase};
use crate::catalog::PUBLIC_SCHEMA;
use crate::index::TextIndex;
use crate::scan::scan_of;
use crate::{Error, Result, Table};

const SCORE: &str = "_score";
/// Rows asked for beyond k, so that equal scores at the end can usually be ordered by key without asking again.
const TIES_MIN: usize = 32;
/// Searches on disk that wait for each other's reads.
const SEARCHES_AT_ONCE: usize = 8;

impl Table {
    /// The `k` rows whose `column` matches each query best: the table's columns, `query_index` (Int32, position in `queries`), `score` (Float64, BM25,
    /// larger is better) and `_rowid` (UInt64), ordered by query, score, primary key. Exactly min(k, rows that match and meet `filter`) rows per query.
    ///
    /// Rows written after the index was built are found too; their scores, until `optimize_indexes`, rest on the word
    /// statistics that the search has at hand.
    ///
    /// # Errors
    /// [`Error::NotReady`] without a bm25 index on the column, or one without positions for a phrase, [`Error::UnknownColumn`], [`Error::WrongType`] for a
    /// column that is not text, [`Error::NotSupported`] for a table with a column `score` or `query_index`, [`Error::Storage`].
    pub async fn text_search(&self, column: &str, queries: &[TextQuery], k: usize, filter: Option<&Expr>) -> Result<RecordBatch> {
        let index = self.searched_index(column).await?;
        let hits = match k {
            0 => vec![Vec::new(); queries.len()],
            _ => TextSearch { table: self, index, k, filter }.find(queries).await?,
        };
        let row_ids: Vec<u64> = hits.iter().flatten().map(|hit| hit.row_id).collect();
        let of_query = |(query, hits): (usize, &Vec<Hit>)| std::iter::repeat_n(i32::try_from(query).unwrap_or(i32::MAX), hits.len());
        let query_index: ArrayRef = Arc::new(Int32Array::from_iter_values(hits.iter().enumerate().flat_map(of_query)));
        let score: ArrayRef = Arc::new(Float64Array::from_iter_values(hits.iter().flatten().map(|hit| -hit.distance)));
        let extra = vec![
            (Field::new("query_index", DataType::Int32, false), query_index),
            (Field::new("score", DataType::Float64, false), score),
            row_id_column(&row_ids),
        ];
        self.take_with(&row_ids, extra).await
    }

    async fn searched_index(&self, column: &str) -> Result<TextIndex> {
        let data_type = self.definition().schema.field(self.column(column)?).data_type();
        if data_type != &DataType::Utf8 {
            return Err(Error::WrongType {
                what: format!("column \"{column}\" of table \"{}\"", self.name()),
                found: data_type.to_string(),
                expected: "text".to_owned(),
            });
        }
        self.text_index(column).await?.ok_or_else(|| {
            let (schema, table, column) = (self.schema_name(), quoted(self.name()), quoted(column));
            let table = if schema == PUBLIC_SCHEMA { table } else { format!("{}.{table}", quoted(schema)) };
            Error::NotReady(format!("text search needs an index: CREATE INDEX ON {table} USING bm25 ({column})"))
        })
    }
}

/// A name as one writes it in SQL.
fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|character| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// One call of [`Table::text_search`].
struct TextSearch<'a> {
    table: &'a Table,
    index: TextIndex,
    k: usize,
    filter: Option<&'a Expr>,
}

impl TextSearch<'_> {
    async fn find(&self, queries: &[TextQuery]) -> Result<Vec<Vec<Hit>>> {
        let is_fuzzy = queries.iter().any(TextQuery::is_fuzzy);
        if queries.iter().all(TextQuery::is_bag_of_words)
            && let Some(hits) = self.in_memory(queries, is_fuzzy).await?
        {
            return Ok(hits);
        }
        if is_fuzzy {
            let table = self.table.name();
            return Err(Error::NotReady(format!(
                "fuzzy search reads the words of a table in memory, and there is no room for table \"{table}\"; search for its exact words"
            )));
        }
        self.on_disk(queries).await
    }

    /// From the words in memory, when the table is searched often, or if it `must` be.
    async fn in_memory(&self, queries: &[TextQuery], must: bool) -> Result<Option<Vec<Vec<Hit>>>> {
        let table = self.table;
        if !table.is_answered_in_memory(self.filter) {
            return if must { Err(Error::NotSupported("a filter of a fuzzy search can not read a vector".to_owned())) } else { Ok(None) };
        }
        if must {
            table.state.heat.raise();
        }
        let Some(resident) = table.resident_words(&self.index, &table.column_names(), queries.len()).await? else {
            return if must { table.best_texts_of_version(&self.index, queries, self.k, self.filter).await } else { Ok(None) };
        };
        let (table, index, k, filter) = (table.clone(), self.index.clone(), self.k, self.filter.cloned());
        // One query takes microseconds.
        let is_short = !must && queries.len() == 1;
        let queries = queries.to_vec();
        let work = move || resident.best_texts(&table, &index, &queries, k, filter.as_ref());
        if is_short {
            return work().map(Some);
        }
        match tokio::task::spawn_blocking(work).await {
            Ok(hits) => hits.map(Some),
            Err(error) => Err(Error::NotReady(format!("the search of table \"{}\" did not end: {error}", self.table.name()))),
        }
    }

    async fn on_disk(&self, queries: &[TextQuery]) -> Result<Vec<Vec<Hit>>> {
        let mut analyzer = self.index.params.build().map_err(|source| Error::storage(self.table.name(), source))?;
        let mut on_disk = Vec::with_capacity(queries.len());
        for query in queries {
            let loose = LoosePhrase::of(query, &mut analyzer)?;
            // All words of a loose phrase, of which the rows with the phrase are chosen.
            let query = match query {
                TextQuery::Phrase { words, .. } if loose.is_some() => {
                    TextQuery::Words { words: words.clone(), operator: Operator::And }.to_lance(&self.index.column, &mut analyzer)
                }
                query => query.to_lance(&self.index.column, &mut analyzer),
            };
            on_disk.push((query, loose));
        }
        let needs_positions =
            |(query, loose): &(Option<FtsQuery>, Option<LoosePhrase>)| loose.is_some() || query.as_ref().is_some_and(has_phrase);
        if on_disk.iter().any(needs_positions) && !self.index.params.has_positions() {
            return Err(self.needs_positions());
        }
        let filter = self.table.row_filter(self.filter).await?;
        let searches = on_disk.into_iter().map(|(query, loose)| self.best_texts(query, loose, &filter));
        stream::iter(searches).buffered(SEARCHES_AT_ONCE).try_collect().await
    }

    fn needs_positions(&self) -> Error {
        let (table, TextIndex { name, column, .. }) = (self.table.name(), &self.index);
        Error::NotReady(format!(
            "a phrase needs an index with the positions of words: DROP INDEX {name}; \
             CREATE INDEX {name} ON {table} USING bm25 ({column}) WITH (with_position = true)"
        ))
    }

    /// Asks for more and more rows until the k-th best is certain: more rows than matched, or a last score below it.
    async fn best_texts(&self, query: Option<FtsQuery>, loose: Option<LoosePhrase>, filter: &RowFilter) -> Result<Vec<Hit>> {
        let Some(query) = query else { return Ok(Vec::new()) };
        let mut limit = self.k.saturating_add(TIES_MIN);
        loop {
            let mut hits = self.matching_texts(query.clone(), limit, filter).await?;
            hits.sort();
            let is_complete = hits.len() < limit;
            let last = hits.last().map(|last| last.distance);
            if let Some(loose) = &loose {
                hits = self.with_phrase(hits, loose).await?;
            }
            let last_is_worse = last.zip(hits.get(self.k - 1)).is_some_and(|(last, kth)| last > kth.distance);
            if is_complete || last_is_worse {
                hits.truncate(self.k);
                return Ok(hits);
            }
            limit = limit.saturating_mul(4);
        }
    }

    /// The rows whose texts have the phrase.
    async fn with_phrase(&self, hits: Vec<Hit>, phrase: &LoosePhrase) -> Result<Vec<Hit>> {
        let mut analyzer = self.index.params.build().map_err(|source| Error::storage(self.table.name(), source))?;
        let row_ids: Vec<u64> = hits.iter().map(|hit| hit.row_id).collect();
        let position = self.table.definition().schema.index_of(&self.index.column)?;
        let texts = self.table.take_columns(&row_ids, &[position]).await?;
        let texts = texts[0].as_string::<i32>();
        let mut with_phrase = Vec::new();
        for (hit, text) in hits.into_iter().zip(texts) {
            if text.is_some_and(|text| phrase.is_in(text, &mut analyzer)) {
                with_phrase.push(hit);
            }
        }
        Ok(with_phrase)
    }

    async fn matching_texts(&self, query: FtsQuery, limit: usize, filter: &RowFilter) -> Result<Vec<Hit>> {
        let table = self.table;
        let failed = |source| Error::storage(table.name(), source);
        let mut scanner = scan_of(&table.dataset);
        let mut columns = table.definition().primary_key.clone();
        columns.push(SCORE.to_owned());
        scanner.full_text_search(FullTextSearchQuery::new_query(query)).map_err(failed)?.prefilter(true).with_row_id();
        scanner.project(&columns).map_err(failed)?;
        scanner.limit(i64::try_from(limit).ok(), None).map_err(failed)?;
        filter.apply(&mut scanner);
        let rows = scanner.try_into_batch().await.map_err(failed)?;
        let scores = rows.column(rows.schema().index_of(SCORE)?).as_primitive::<Float32Type>();
        let row_ids = rows.column(rows.schema().index_of(ROW_ID)?).as_primitive::<UInt64Type>();
        let keys = KeyRows::new(table, &rows)?;
        let hit = |row| Hit { distance: -f64::from(scores.value(row)), key: keys.key(row), row_id: row_ids.value(row) };
        Ok((0..rows.num_rows()).filter(|row| scores.is_valid(*row)).map(hit).collect())
    }
}
