//! CREATE INDEX, DROP INDEX, REINDEX.

use std::collections::BTreeMap;

use rolloutdb_catalogs::{IndexDefinition, IndexKind, Metric, Table};
use rolloutdb_sql::{CreateIndex, DropIndex, OptionValue, Reindex};

use super::{done, table_name};
use crate::engine::index_builds::Listed;
use crate::engine::session::{Response, Session};
use crate::engine::typing::sql_type_of;
use crate::error::{Error, Result};

/// pgvector's operator classes, each with its distance and the type of the columns that it is for.
const OPERATOR_CLASSES: &[(&str, (Metric, &str))] = &[
    ("vector_cosine_ops", (Metric::Cosine, "vector")),
    ("vector_l2_ops", (Metric::L2, "vector")),
    ("vector_ip_ops", (Metric::Dot, "vector")),
    ("halfvec_cosine_ops", (Metric::Cosine, "halfvec")),
    ("halfvec_l2_ops", (Metric::L2, "halfvec")),
    ("halfvec_ip_ops", (Metric::Dot, "halfvec")),
];

pub async fn create(session: &Session, create: &CreateIndex) -> Result<Response> {
    let kind = method(&create.using)?;
    let class = create.operator_class.as_deref().map(|class| find(OPERATOR_CLASSES, class, "operator class")).transpose()?;
    if class.is_some() && !kind.is_vector() {
        return Err(Error::InvalidParameter {
            name: "operator class".to_owned(),
            found: create.operator_class.clone().unwrap_or_default(),
            expected: format!("none: an index USING {} has no distance", create.using),
        });
    }
    let (schema, table) = table_name(&create.table)?;
    let name = create.name.clone().unwrap_or_else(|| format!("{table}_{}_idx", create.column.value));
    let metric = class.map(|(metric, _)| metric);
    let definition = IndexDefinition { name, column: create.column.value.clone(), kind, metric, options: index_options(create) };
    let table = session.database().shared.catalog.table(&schema, &table).await?;
    if let Some((metric, accepted)) = class {
        check_operator_class(create, metric, accepted, &table)?;
    }
    let build = listed(session, "CREATE INDEX", &table, &definition.name);
    if !table.create_index_watched(&definition, create.if_not_exists, &build.progress).await? {
        session.notices().notice(format!("index \"{}\" already exists, skipping", definition.name));
    }
    Ok(done("CREATE INDEX"))
}

/// That the operator class is for the type of the column; what is no vector at all the catalog refuses.
fn check_operator_class(create: &CreateIndex, metric: Metric, accepted: &str, table: &Table) -> Result<()> {
    let column = &create.column.value;
    let Ok(field) = table.definition().schema.field_with_name(column) else { return Ok(()) };
    let found = sql_type_of(field);
    let type_name = found.split('(').next().unwrap_or_default();
    match OPERATOR_CLASSES.iter().find(|known| known.1 == (metric, type_name)) {
        Some((right, _)) if accepted != type_name => Err(Error::WrongType {
            what: format!("operator class \"{}\"", create.operator_class.as_deref().unwrap_or_default()),
            found: format!("for {accepted}"),
            expected: format!("{right} for column \"{column}\", which is {found}"),
        }),
        _ => Ok(()),
    }
}

/// An access method by its name in SQL.
fn method(name: &str) -> Result<IndexKind> {
    let kinds = IndexKind::ALL.map(|kind| (kind.name(), kind));
    let aliases = [("fts", IndexKind::Bm25)];
    find(&[kinds.as_slice(), &aliases].concat(), name, "index method")
}

fn find<T: Copy>(known: &[(&str, T)], name: &str, kind: &'static str) -> Result<T> {
    known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| Error::UnknownObject {
        kind,
        name: name.to_owned(),
        known: known.iter().map(|(known, _)| (*known).to_owned()).collect(),
    })
}

fn listed(session: &Session, command: &'static str, table: &Table, index: &str) -> Listed {
    let builds = &session.database().shared.index_builds;
    builds.list(session.notices(), command, (table.schema_name(), table.name(), index))
}

fn index_options(create: &CreateIndex) -> BTreeMap<String, String> {
    let text = |value: &OptionValue| match value {
        OptionValue::Text(text) => text.clone(),
        other => other.to_string(),
    };
    create.options.iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

pub async fn drop(session: &Session, drop: &DropIndex) -> Result<Response> {
    let (schema, name) = table_name(&drop.name)?;
    match session.database().shared.catalog.find_index(&schema, &name).await {
        Ok(table) => table.drop_index(&name).await?,
        Err(rolloutdb_catalogs::Error::UnknownIndex { .. }) if drop.if_exists => {
            session.notices().notice(format!("index \"{name}\" does not exist, skipping"));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(done("DROP INDEX"))
}

/// Each index is built anew in a commit of its own.
pub async fn reindex(session: &Session, reindex: &Reindex) -> Result<Response> {
    let catalog = &session.database().shared.catalog;
    match reindex {
        Reindex::Index(name) => {
            let (schema, name) = table_name(name)?;
            let table = catalog.find_index(&schema, &name).await?;
            rebuild(session, &table, &name).await?;
        }
        Reindex::Table(name) => {
            let (schema, name) = table_name(name)?;
            let table = catalog.table(&schema, &name).await?;
            for index in table.indexes().await? {
                rebuild(session, &table, &index.name).await?;
            }
        }
    }
    Ok(done("REINDEX"))
}

async fn rebuild(session: &Session, table: &Table, index: &str) -> Result<()> {
    let build = listed(session, "REINDEX", table, index);
    Ok(table.rebuild_index_watched(index, &build.progress).await?)
}
