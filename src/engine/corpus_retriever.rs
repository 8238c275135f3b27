//! A version of a table as an agent's corpus: its search, and how its rows become passages.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use rolloutdb_catalogs::Table;

use super::retrieval::{Queries, Retrieval, RetrievalOptions, RetrieverKind};
use super::retrieval_cache::{Origin, Passages, RetrievalCache, SearchedCorpus};
use crate::agent::{self, Passage, RetrievalCounters, Retriever};
use crate::error::{Error, Result};
use crate::models::{Runtime, count_retrieval};

/// A table as a corpus: which column is what, and how it is searched.
#[derive(Debug)]
pub struct Corpus {
    retrieval: Retrieval,
    id_column: String,
    contents_column: String,
    title_column: Option<String>,
}

/// Searches of a corpus for one statement, each done once.
pub struct CorpusRetriever {
    corpus: Arc<Corpus>,
    searched: Arc<SearchedCorpus>,
    cache: Arc<RetrievalCache>,
    counters: Arc<RetrievalCounters>,
}

impl Corpus {
    /// # Errors
    /// [`Error::MissingColumn`] for a table that is no corpus; what [`Retrieval::new`] finds wrong.
    pub fn new(table: Arc<Table>, kind: agent::RetrieverKind, models: Arc<Runtime>) -> Result<Self> {
        let definition = table.definition().clone();
        let kind = match kind {
            agent::RetrieverKind::Text => RetrieverKind::Text,
            agent::RetrieverKind::Vector => RetrieverKind::Vector,
            agent::RetrieverKind::Hybrid => RetrieverKind::Hybrid,
        };
        let has = |name: &str| definition.schema.index_of(name).is_ok();
        let id_column = match definition.primary_key.as_slice() {
            [key] => key.clone(),
            _ if has("id") => "id".to_owned(),
            _ => return Err(missing(&table, "id")),
        };
        let contents_column = ["contents", "text"].into_iter().find(|name| has(name)).ok_or_else(|| missing(&table, "contents"))?;
        // By convention `contents` starts with its title; a `text` does not.
        let title_column = (contents_column == "text" && has("title")).then(|| "title".to_owned());
        let retrieval = Retrieval::new(table, kind, models, &RetrievalOptions::default())?;
        Ok(Self { retrieval, id_column, contents_column: contents_column.to_owned(), title_column })
    }

    pub fn table(&self) -> &Arc<Table> {
        self.retrieval.table()
    }

    async fn search(self: Arc<Self>, query: String, k: usize) -> Result<Passages> {
        let (found, _) = self.retrieval.search(&Queries::Texts(vec![query]), k).await?;
        let texts = |name: &str| -> Result<Vec<String>> {
            let column = found.column_by_name(name).ok_or_else(|| Error::Internal(format!("search gave no column {name}")))?;
            let column = cast(column, &DataType::Utf8).map_err(DataFusionError::from)?;
            let column = column.as_string::<i32>();
            Ok((0..column.len()).map(|row| if column.is_null(row) { String::new() } else { column.value(row).to_owned() }).collect())
        };
        let (ids, contents) = (texts(&self.id_column)?, texts(&self.contents_column)?);
        let titles = self.title_column.as_deref().map(texts).transpose()?;
        Ok(ids
            .into_iter()
            .zip(contents)
            .enumerate()
            .map(|(row, (id, contents))| Passage { id, title: titles.as_ref().map(|titles| titles[row].clone()), contents })
            .collect())
    }
}

impl CorpusRetriever {
    /// Searches of this corpus, which `cache` keeps.
    ///
    /// # Errors
    /// [`Error::UnknownObject`] if its vectors' model was dropped.
    pub fn new(corpus: Corpus, cache: Arc<RetrievalCache>) -> Result<Self> {
        let table = corpus.table();
        let (identity, version) = (table.identity(), table.version());
        let searched = SearchedCorpus { table: identity, version, retriever: corpus.retrieval.fingerprint()? };
        cache.open(&searched);
        Ok(Self { corpus: Arc::new(corpus), searched: Arc::new(searched), cache, counters: Arc::default() })
    }
}

#[async_trait]
impl Retriever for CorpusRetriever {
    async fn search(&self, query: &str, k: usize) -> Result<Passages> {
        let search = || Arc::clone(&self.corpus).search(query.to_owned(), k);
        let (passages, origin) = self.cache.passages(&self.searched, query, k, search).await?;
        let is_known = origin == Origin::Known;
        self.counters.add(is_known);
        count_retrieval(is_known);
        Ok(passages)
    }

    fn corpus_version(&self) -> u64 {
        self.searched.version
    }

    fn counters(&self) -> Arc<RetrievalCounters> {
        Arc::clone(&self.counters)
    }
}

fn missing(table: &Table, column: &str) -> Error {
    Error::MissingColumn {
        of: format!("corpus {}", table.name()),
        name: column.to_owned(),
        known: table.definition().schema.fields().iter().map(|field| field.name().clone()).collect(),
    }
}
