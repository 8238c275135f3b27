//! Which columns of a table a search reads: what the caller names, else what only one column can be.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use rolloutdb_catalogs::{Metric, Table};
use rolloutdb_sql::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::retrieval::{RetrievalOptions, RetrieverKind};
use crate::error::{Error, Result};

#[derive(Debug, Clone)]
pub struct VectorColumn {
    pub name: String,
    /// Embeds query texts; without one a query must be a vector or a vector's text.
    pub model: Option<String>,
    pub metric: Metric,
    pub is_exact: bool,
}

/// The vector column and the text column that a search of this kind reads. For a hybrid search `column` may name either.
///
/// # Errors
/// [`Error::NotReady`] if the table has no column of the kind, [`Error::InvalidParameter`] if it has several, [`Error::MissingColumn`].
pub fn searched_columns(table: &Table, kind: RetrieverKind, options: &RetrievalOptions) -> Result<(Option<VectorColumn>, Option<String>)> {
    let (vectors, texts) = (vector_candidates(table), text_candidates(table));
    let named = |candidates: &[&str]| options.column.filter(|name| kind != RetrieverKind::Hybrid || candidates.contains(name));
    if let Some(name) = options.column
        && !vectors.contains(&name)
        && !texts.contains(&name)
    {
        return Err(missing(table, "the", name, &[vectors, texts].concat()));
    }
    let vector = || vector_column(table, &vectors, named(&vectors), options);
    let text = || text_column(table, &texts, named(&texts));
    Ok(match kind {
        RetrieverKind::Vector => (Some(vector()?), None),
        RetrieverKind::Text => (None, Some(text()?)),
        RetrieverKind::Hybrid => (Some(vector()?), Some(text()?)),
    })
}

/// The text that a reranking model reads of a row: the one asked for, the one searched, the one that the vectors are made of, or the only one it can be.
///
/// # Errors
/// As [`searched_columns`].
pub fn reranked_column(table: &Table, text: Option<&str>, vector: Option<&VectorColumn>, named: Option<&str>) -> Result<String> {
    let candidates = text_candidates(table);
    let source = vector.and_then(|vector| embedded_column(table.definition().generated.get(&vector.name)?));
    let source = source.filter(|source| candidates.contains(&source.as_str()));
    match named.or(text).or(source.as_deref()) {
        Some(name) => choose(table, "text", &candidates, Some(name)),
        None => text_column(table, &candidates, None),
    }
}

fn vector_candidates(table: &Table) -> Vec<&str> {
    let is_vector = |field: &&Arc<Field>| matches!(field.data_type(), DataType::FixedSizeList(..));
    table.definition().schema.fields().iter().filter(is_vector).map(|field| field.name().as_str()).collect()
}

fn text_candidates(table: &Table) -> Vec<&str> {
    let is_text = |field: &&Arc<Field>| matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8);
    table.definition().schema.fields().iter().filter(is_text).map(|field| field.name().as_str()).collect()
}

fn vector_column(table: &Table, candidates: &[&str], named: Option<&str>, options: &RetrievalOptions) -> Result<VectorColumn> {
    let definition = table.definition();
    let name = choose(table, "vector", candidates, named)?;
    let model = match options.model {
        Some(model) => Some(model.to_owned()),
        None => definition.generated.get(&name).and_then(|expression| embedding_model(expression)),
    };
    let metric = match options.metric {
        None => Metric::Cosine,
        Some(metric) => metric_named(metric)?,
    };
    Ok(VectorColumn { name, model, metric, is_exact: options.exact.unwrap_or(true) })
}

fn metric_named(metric: &str) -> Result<Metric> {
    match metric {
        "cosine" => Ok(Metric::Cosine),
        "l2" => Ok(Metric::L2),
        "dot" => Ok(Metric::Dot),
        other => Err(Error::InvalidParameter {
            name: "metric".to_owned(),
            found: format!("'{other}'"),
            expected: "'cosine', 'l2' or 'dot'".to_owned(),
        }),
    }
}

/// The column asked for, the one named `contents`, the only text column that is no key, or the only one.
fn text_column(table: &Table, candidates: &[&str], named: Option<&str>) -> Result<String> {
    let conventional = candidates.iter().copied().find(|name| *name == "contents");
    let is_key = |name: &&str| table.definition().primary_key.iter().any(|key| key == name);
    let mut no_keys = candidates.iter().copied().filter(|name| !is_key(name));
    let only = no_keys.next().filter(|_| no_keys.next().is_none());
    choose(table, "text", candidates, named.or(conventional).or(only))
}

fn choose(table: &Table, kind: &str, candidates: &[&str], preferred: Option<&str>) -> Result<String> {
    match (preferred, candidates) {
        (Some(name), _) if candidates.contains(&name) => Ok(name.to_owned()),
        (Some(name), _) => Err(missing(table, kind, name, candidates)),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(Error::NotReady(format!(
            "table \"{}\" has no {kind} column to search{}",
            table.name(),
            if kind == "vector" { "; for its words use text_search(), or retriever = 'text'" } else { "" }
        ))),
        (None, several) => Err(Error::InvalidParameter {
            name: "column".to_owned(),
            found: "nothing".to_owned(),
            expected: format!("one of {}", several.join(", ")),
        }),
    }
}

fn missing(table: &Table, kind: &str, name: &str, known: &[&str]) -> Error {
    Error::MissingColumn {
        of: format!("{kind} search in {}", table.name()),
        name: name.to_owned(),
        known: known.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The model in a generated column's `embed('model', ...)`.
fn embedding_model(expression: &str) -> Option<String> {
    match embedding_arguments(expression)?.into_iter().next()? {
        Expr::Value(value) => value.value.into_string(),
        _ => None,
    }
}

/// The column in a generated column's `embed('model', column)`.
fn embedded_column(expression: &str) -> Option<String> {
    match embedding_arguments(expression)?.into_iter().nth(1)? {
        Expr::Identifier(name) if name.quote_style.is_none() => Some(name.value.to_ascii_lowercase()),
        Expr::Identifier(name) => Some(name.value),
        _ => None,
    }
}

/// The arguments of a call of `embed`.
fn embedding_arguments(expression: &str) -> Option<Vec<Expr>> {
    let Expr::Function(function) = rolloutdb_sql::parse_expression(expression).ok()? else { return None };
    let FunctionArguments::List(arguments) = function.args else { return None };
    let is_embed = function.name.to_string().eq_ignore_ascii_case("embed");
    let value = |argument: FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    };
    if is_embed { arguments.args.into_iter().map(value).collect() } else { None }
}
