//! Nearest vectors. Exact search reads every vector; an index only proposes rows, whose distances are computed anew.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Float64Array, Int32Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, UInt64Type};
use datafusion::logical_expr::Expr;
use futures::TryStreamExt;
use lance::dataset::ProjectionRequest;
use lance::dataset::scanner::Scanner;
use lance::index::DatasetIndexExt;
use lance_table::format::IndexMetadata;

use super::counts::SearchCounts;
use super::ranking::{Hit, KeyRows, ROW_ID, TopHits, row_id_column};
use super::row_filter::RowFilter;
use super::scan::RowsWithoutDistance;
use crate::index::{in_single_precision, is_vector};
use crate::resident::Measure;
use crate::scan::scan_of;
use crate::{Error, IndexKind, Metric, Result, Table};

/// Rows that an index proposes per row asked for: its distances are approximate, so the right ones may rank lower.
const PROPOSALS_PER_HIT: usize = 4;
const PROPOSALS_MIN: usize = 64;
/// Rows that a walk through a graph in memory keeps: recall of 0.95 and more for k = 10.
const EF_SEARCH: usize = 64;
/// Reading so many vectors in memory is faster than an index on disk.
pub(crate) const SCANNED_ROWS_MAX: usize = 50_000;

/// Products between two chances for other tasks of the worker: a few milliseconds.
const PRODUCTS_AT_ONCE: usize = 8 << 20;

/// How far an approximate search looks: longer searches find more of the nearest rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchEffort {
    /// Rows that a walk through the graph of an hnsw index keeps, at least 1; never fewer than k.
    pub ef_search: usize,
    /// Partitions of an ivf index that are read, at least 1.
    pub probes: usize,
}

impl SearchEffort {
    /// Partitions, unless something else is asked for. Both pgvector's default and where Lance's adaptive one starts are 1, which loses
    /// too many neighbours.
    pub const PROBES: usize = 20;
}

/// What a session has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AskedEffort {
    pub ef_search: Option<usize>,
    pub probes: Option<usize>,
}

impl AskedEffort {
    /// For a search that is not `ORDER BY distance LIMIT k`, and so not bound to pgvector's defaults.
    fn for_rows(self, k: usize) -> SearchEffort {
        let ef_search = self.ef_search.unwrap_or(EF_SEARCH.max(k.saturating_mul(2)));
        SearchEffort { ef_search, probes: self.probes.unwrap_or(SearchEffort::PROBES) }
    }
}

impl Table {
    /// The `k` rows whose `column` is nearest to each query: the table's columns, `query_index` (Int32, position in
    /// `queries`), `distance` (Float64, as pgvector's `<->`, `<=>`, `<#>` by `metric`) and `_rowid` (UInt64), ordered by
    /// query, distance, primary key. Exactly min(k, rows that match `filter` and have a vector) rows per query.
    ///
    /// `exact`: read every vector. Otherwise an index on the column for the same metric proposes rows, if there is one;
    /// a row that it does not propose can be missed, but the distances are right.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`], [`Error::WrongType`] for a column without vectors, [`Error::Width`] for a query of another width,
    /// [`Error::NotSupported`] for a table with a column `distance` or `query_index`, [`Error::Storage`].
    pub async fn vector_search(
        &self,
        column: &str,
        queries: &[Vec<f32>],
        k: usize,
        metric: Metric,
        exact: bool,
        filter: Option<Expr>,
    ) -> Result<RecordBatch> {
        self.vector_search_with(column, queries, k, metric, (!exact).then(AskedEffort::default), filter).await
    }

    /// As [`Self::vector_search`], with the effort of an approximate search; exact without one.
    ///
    /// # Errors
    /// The same.
    pub async fn vector_search_with(
        &self,
        column: &str,
        queries: &[Vec<f32>],
        k: usize,
        metric: Metric,
        effort: Option<AskedEffort>,
        filter: Option<Expr>,
    ) -> Result<RecordBatch> {
        let search = VectorSearch {
            table: self.clone(),
            column: column.to_owned(),
            k,
            metric,
            filter,
            effort: effort.unwrap_or_default().for_rows(k),
            counts: SearchCounts::default(),
        };
        let hits = search.find(queries, effort.is_none()).await?;
        self.vector_result(&hits).await
    }

    /// Width of the vectors of `column`.
    ///
    /// # Errors
    /// [`Error::UnknownColumn`], [`Error::WrongType`].
    pub fn vector_width(&self, column: &str) -> Result<usize> {
        let field = self.definition().schema.field(self.column(column)?).clone();
        match field.data_type() {
            DataType::FixedSizeList(_, width) if is_vector(field.data_type()) => Ok(usize::try_from(*width).unwrap_or(0)),
            other => Err(Error::WrongType {
                what: format!("column \"{column}\" of table \"{}\"", self.name()),
                found: other.to_string(),
                expected: "vector".to_owned(),
            }),
        }
    }

    async fn vector_result(&self, hits: &[Vec<Hit>]) -> Result<RecordBatch> {
        let row_ids: Vec<u64> = hits.iter().flatten().map(|hit| hit.row_id).collect();
        let of_query = |(query, hits): (usize, &Vec<Hit>)| vec![i32::try_from(query).unwrap_or(i32::MAX); hits.len()];
        let query_index: ArrayRef = Arc::new(Int32Array::from_iter_values(hits.iter().enumerate().flat_map(of_query)));
        let distance = hits.iter().flatten().map(|hit| hit.distance);
        let distance: ArrayRef = Arc::new(Float64Array::from_iter_values(distance));
        let extra = vec![
            (Field::new("query_index", DataType::Int32, false), query_index),
            (Field::new("distance", DataType::Float64, false), distance),
            row_id_column(&row_ids),
        ];
        self.take_with(&row_ids, extra).await
    }
}

/// # Errors
/// [`Error::Width`], [`Error::NotFinite`].
fn check_queries(table: &str, column: &str, width: usize, queries: &[Vec<f32>]) -> Result<()> {
    let (table, column) = (table.to_owned(), column.to_owned());
    if let Some(query) = queries.iter().find(|query| query.len() != width) {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        return Err(Error::Width { table, column, found: number(query.len()), expected: number(width) });
    }
    match queries.iter().flatten().find(|number| !number.is_finite()) {
        Some(number) => Err(Error::NotFinite { table, column, found: if number.is_nan() { "NaN" } else { "infinite value" } }),
        None => Ok(()),
    }
}

/// One call of [`Table::vector_search`].
#[derive(Clone)]
pub(crate) struct VectorSearch {
    pub(crate) table: Table,
    pub(crate) column: String,
    pub(crate) k: usize,
    pub(crate) metric: Metric,
    pub(crate) filter: Option<Expr>,
    pub(crate) effort: SearchEffort,
    pub(crate) counts: SearchCounts,
}

impl VectorSearch {
    /// The best rows of each query, best first.
    pub(crate) async fn find(&self, queries: &[Vec<f32>], exact: bool) -> Result<Vec<Vec<Hit>>> {
        check_queries(self.table.name(), &self.column, self.table.vector_width(&self.column)?, queries)?;
        if self.k == 0 || queries.is_empty() {
            return Ok(vec![Vec::new(); queries.len()]);
        }
        if let Some(hits) = self.resident(queries, exact).await? {
            return Ok(hits);
        }
        let filter = self.table.row_filter(self.filter.as_ref()).await?;
        let index = if exact { None } else { self.table.index_on(&self.column, &IndexKind::VECTOR, Some(self.metric)).await? };
        match index {
            None => self.exact(queries, &filter).await,
            Some(index) => self.indexed(&index, queries, &filter).await,
        }
    }

    /// Whether there may be rows of these. Only the vectors in memory tell that there are none.
    pub(crate) async fn may_find(&self, rows: RowsWithoutDistance) -> Result<bool> {
        let zero_vector = rows.zero_vector && !self.table.has_index(&self.column, &IndexKind::VECTOR, Some(self.metric)).await?;
        if !rows.no_vector && !zero_vector {
            return Ok(false);
        }
        let Some(resident) = self.table.resident(&self.table.column_names(), 1).await? else { return Ok(true) };
        let Some(vectors) = resident.vectors(&self.table, &self.column) else { return Ok(true) };
        let lacks = |is_meant: bool, has_all: bool| is_meant && !has_all;
        Ok(lacks(rows.no_vector, vectors.present.count() == resident.num_rows()) || lacks(zero_vector, !vectors.has_zeros))
    }

    /// From memory, when the table is searched often. `None`: not there, or an index on disk is the better way.
    async fn resident(&self, queries: &[Vec<f32>], exact: bool) -> Result<Option<Vec<Vec<Hit>>>> {
        let table = &self.table;
        if !table.is_answered_in_memory(self.filter.as_ref()) {
            return Ok(None);
        }
        let Some(mut resident) = table.resident(&table.column_names(), queries.len()).await? else { return Ok(None) };
        let index = if exact { None } else { table.graph_index(&self.column, self.metric).await? };
        let mut is_walk = false;
        if let Some(index) = &index {
            let Some(with_graph) = table.with_graph(resident, index).await? else { return Ok(None) };
            resident = with_graph;
            table.extend_graph_if_due(&resident, index);
            is_walk = resident.graph(&index.name).is_some();
        }
        let index_on_disk = !exact && !is_walk && table.has_index(&self.column, &IndexKind::VECTOR, Some(self.metric)).await?;
        if index_on_disk && resident.num_rows() > SCANNED_ROWS_MAX {
            return Ok(None);
        }
        let products = resident.num_rows() * queries.iter().map(Vec::len).sum::<usize>();
        // A walk through a graph is over before another thread would have begun.
        let is_short = products < PRODUCTS_AT_ONCE || (is_walk && self.filter.is_none() && queries.len() == 1);
        let (search, queries) = (self.clone(), queries.to_vec());
        let work = move || {
            let graph = index.as_ref().map(|index| (index.name.as_str(), search.effort.ef_search.max(search.k)));
            resident.nearest(&search, &queries, graph)
        };
        if is_short {
            return work().map(Some);
        }
        match tokio::task::spawn_blocking(work).await {
            Ok(hits) => hits.map(Some),
            Err(error) => Err(Error::NotReady(format!("the search of table \"{}\" did not end: {error}", table.name()))),
        }
    }

    /// One pass over the vectors for all queries.
    async fn exact(&self, queries: &[Vec<f32>], filter: &RowFilter) -> Result<Vec<Vec<Hit>>> {
        self.counts.by_every_vector.add(queries.len());
        let measures: Vec<Measure<'_>> = queries.iter().map(|query| Measure::new(self.metric, query)).collect();
        let mut tops: Vec<TopHits> = queries.iter().map(|_| TopHits::new(self.k)).collect();
        let mut scanner = self.scanner(&self.needed_columns(), filter)?;
        scanner.scan_in_order(false);
        let failed = |source| Error::storage(self.table.name(), source);
        let mut batches = scanner.try_into_stream().await.map_err(failed)?;
        let width = queries.iter().map(Vec::len).sum::<usize>().max(1);
        let rows_at_once = (PRODUCTS_AT_ONCE / width).max(1);
        while let Some(batch) = batches.try_next().await.map_err(failed)? {
            for start in (0..batch.num_rows()).step_by(rows_at_once) {
                self.rank(&batch.slice(start, rows_at_once.min(batch.num_rows() - start)), &measures, &mut tops)?;
                tokio::task::yield_now().await;
            }
        }
        Ok(tops.into_iter().map(TopHits::into_sorted).collect())
    }

    /// The index proposes, the vectors decide. Where it proposes fewer than k rows (few matches, a strict filter), the
    /// query is answered exactly.
    pub(crate) async fn indexed(&self, index: &str, queries: &[Vec<f32>], filter: &RowFilter) -> Result<Vec<Vec<Hit>>> {
        let mut hits = Vec::with_capacity(queries.len());
        for query in queries {
            let proposed = self.propose(index, query, filter).await?;
            let mut top = [TopHits::new(self.k)];
            if !proposed.is_empty() {
                let rows = self.read_vectors(&proposed).await?;
                self.rank(&rows, &[Measure::new(self.metric, query)], &mut top)?;
            }
            let [top] = top;
            let found = top.into_sorted();
            hits.push(match found.len() < self.k {
                true => self.exact(std::slice::from_ref(query), filter).await?.remove(0),
                false => {
                    self.counts.by_index.add(1);
                    found
                }
            });
        }
        Ok(hits)
    }

    async fn propose(&self, index: &str, query: &[f32], filter: &RowFilter) -> Result<Vec<u64>> {
        let failed = |source| Error::storage(self.table.name(), source);
        let num_proposals = self.k.saturating_mul(PROPOSALS_PER_HIT).max(PROPOSALS_MIN);
        let mut scanner = self.scanner(&[], filter)?;
        let query = self.in_column_type(query)?;
        scanner.prefilter(true).nearest(&self.column, query.as_ref(), num_proposals).map_err(failed)?;
        let probes = if self.table.index_kind(index) == Some(IndexKind::Hnsw) { SearchEffort::PROBES } else { self.effort.probes };
        scanner.nprobes(probes).distance_metric(self.metric.lance_type()).disable_scoring_autoprojection();
        scanner.ef(self.effort.ef_search.max(num_proposals));
        self.choose_index(&mut scanner, index).await?;
        let rows = scanner.try_into_batch().await.map_err(failed)?;
        let row_ids = rows.column_by_name(ROW_ID).map(|column| column.as_primitive::<UInt64Type>().values().to_vec());
        let mut row_ids = row_ids.unwrap_or_default();
        row_ids.sort_unstable();
        row_ids.dedup();
        Ok(row_ids)
    }

    /// Lance compares a query with vectors of its own precision only.
    fn in_column_type(&self, query: &[f32]) -> Result<ArrayRef> {
        let schema = &self.table.definition().schema;
        let item = match schema.field_with_name(&self.column)?.data_type() {
            DataType::FixedSizeList(item, _) => item.data_type().clone(),
            other => other.clone(),
        };
        Ok(cast(&Float32Array::from(query.to_vec()), &item)?)
    }

    /// Of several indexes on a column Lance takes the first, and none when that is for another metric. Where it could take a wrong one it is
    /// told the parts of the right one, and which fragments to search beside them.
    async fn choose_index(&self, scanner: &mut Scanner, index: &str) -> Result<()> {
        let failed = |source| Error::storage(self.table.name(), source);
        let dataset = &self.table.dataset;
        let field = dataset.schema().field(&self.column).map(|field| field.id);
        let indexes = dataset.load_indices().await.map_err(failed)?;
        let is_on_column = |other: &&IndexMetadata| other.fields.first().copied() == field;
        if indexes.iter().filter(is_on_column).all(|other| other.name == index) {
            return Ok(());
        }
        let covers_rows = |part: &&IndexMetadata| part.fragment_bitmap.as_ref().is_some_and(|fragments| !fragments.is_empty());
        let parts: Vec<_> = indexes.iter().filter(|other| other.name == index).filter(covers_rows).map(|part| part.uuid).collect();
        if parts.is_empty() {
            scanner.use_index(false);
        } else {
            scanner.with_fragments(dataset.fragments().to_vec());
            scanner.with_index_segments(parts).map_err(failed)?;
        }
        Ok(())
    }

    /// The needed columns of `row_ids`, with the row ids beside them.
    async fn read_vectors(&self, row_ids: &[u64]) -> Result<RecordBatch> {
        let projection = ProjectionRequest::from_columns(self.needed_columns(), self.table.dataset.schema());
        let rows = self.table.dataset.take_rows(row_ids, projection).await;
        let rows = rows.map_err(|source| Error::storage(self.table.name(), source))?;
        let mut named: Vec<(String, ArrayRef)> = Vec::with_capacity(rows.num_columns() + 1);
        for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
            named.push((field.name().clone(), column.clone()));
        }
        named.push((ROW_ID.to_owned(), Arc::new(arrow::array::UInt64Array::from(row_ids.to_vec()))));
        Ok(RecordBatch::try_from_iter(named)?)
    }

    /// The vectors and the primary key.
    fn needed_columns(&self) -> Vec<String> {
        let mut columns = vec![self.column.clone()];
        columns.extend(self.table.definition().primary_key.iter().cloned());
        columns
    }

    fn scanner(&self, columns: &[String], filter: &RowFilter) -> Result<Scanner> {
        let mut scanner = scan_of(&self.table.dataset);
        scanner.project(columns).map_err(|source| Error::storage(self.table.name(), source))?;
        scanner.with_row_id();
        filter.apply(&mut scanner);
        Ok(scanner)
    }

    /// Offers the rows of `batch` to each query's top; rows without a vector match no query.
    fn rank(&self, batch: &RecordBatch, measures: &[Measure<'_>], tops: &mut [TopHits]) -> Result<()> {
        let vectors = &in_single_precision(batch.column(batch.schema().index_of(&self.column)?).as_fixed_size_list())?;
        let row_ids = batch.column(batch.schema().index_of(ROW_ID)?).as_primitive::<UInt64Type>().values();
        let keys = KeyRows::new(&self.table, batch)?;
        for (measure, top) in measures.iter().zip(tops) {
            for row in 0..vectors.len() {
                if vectors.is_valid(row) {
                    top.offer(measure.to(vector(vectors, row)), row_ids[row], || keys.key(row));
                }
            }
        }
        Ok(())
    }
}

fn vector(vectors: &FixedSizeListArray, row: usize) -> &[f32] {
    let width = usize::try_from(vectors.value_length()).unwrap_or(0);
    let values: &[f32] = vectors.values().as_primitive::<Float32Type>().values();
    let start = usize::try_from(vectors.value_offset(row)).unwrap_or(0);
    &values[start..start + width]
}
