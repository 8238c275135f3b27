//! CREATE INDEX, DROP INDEX, REINDEX.

use std::collections::BTreeMap;

use arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::Expr as SqlExpr;
use rolloutdb_catalogs::{IndexDefinition, IndexKind, Metric, Table};
use rolloutdb_sql::{CreateIndex, DropIndex, OptionValue, Reindex, Statement};
use rolloutdb_udfs::TextType;

use super::{done, quoted_name, table_name};
use crate::engine::casts::is_vector;
use crate::engine::index_builds::Listed;
use crate::engine::planning::plan_query;
use crate::engine::session::{Response, Session};
use crate::engine::typing::sql_type_of;
use crate::error::{Error, Result};

/// One of pgvector's operator classes.
#[derive(Debug, Clone, Copy)]
struct OperatorClass {
    name: &'static str,
    /// The type of the columns that it is for.
    type_name: &'static str,
    distance: ClassDistance,
}

/// What an operator class orders by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClassDistance {
    /// One that the storage has an index for.
    Of(Metric),
    /// `<+>` and `<%>`, in pgvector of hnsw alone.
    HnswOnly,
    /// `<~>`.
    Hamming,
    /// The order of values, of btree.
    Values,
}

const fn class(name: &'static str, type_name: &'static str, distance: ClassDistance) -> OperatorClass {
    OperatorClass { name, type_name, distance }
}

const OPERATOR_CLASSES: &[OperatorClass] = &[
    class("vector_cosine_ops", "vector", ClassDistance::Of(Metric::Cosine)),
    class("vector_l2_ops", "vector", ClassDistance::Of(Metric::L2)),
    class("vector_ip_ops", "vector", ClassDistance::Of(Metric::Dot)),
    class("vector_l1_ops", "vector", ClassDistance::HnswOnly),
    class("vector_ops", "vector", ClassDistance::Values),
    class("halfvec_cosine_ops", "halfvec", ClassDistance::Of(Metric::Cosine)),
    class("halfvec_l2_ops", "halfvec", ClassDistance::Of(Metric::L2)),
    class("halfvec_ip_ops", "halfvec", ClassDistance::Of(Metric::Dot)),
    class("halfvec_l1_ops", "halfvec", ClassDistance::HnswOnly),
    class("halfvec_ops", "halfvec", ClassDistance::Values),
    class("bit_hamming_ops", "bit", ClassDistance::Hamming),
    class("bit_jaccard_ops", "bit", ClassDistance::HnswOnly),
];

/// The most bits of an index in pgvector.
const INDEXED_BITS_MAX: usize = 64_000;

impl OperatorClass {
    fn is_of(&self, kind: IndexKind) -> bool {
        match self.distance {
            ClassDistance::Of(_) => kind.is_vector(),
            ClassDistance::HnswOnly => kind == IndexKind::Hnsw,
            ClassDistance::Hamming => matches!(kind, IndexKind::Hnsw | IndexKind::IvfFlat),
            ClassDistance::Values => kind == IndexKind::BTree,
        }
    }

    fn metric(&self) -> Option<Metric> {
        match self.distance {
            ClassDistance::Of(metric) => Some(metric),
            _ => None,
        }
    }
}

pub async fn create(session: &Session, create: &CreateIndex) -> Result<Response> {
    let kind = method(&create.using)?;
    let class = create.operator_class.as_deref().map(operator_class).transpose()?;
    check_method(create, kind, class)?;
    let (schema, table) = table_name(&create.table)?;
    let table = session.database().shared.catalog.table(&schema, &table).await?;
    let field = indexed_field(session, create, &table).await?;
    if let (Some(class), Some(field)) = (class, &field) {
        check_operator_class(create, kind, class, field)?;
    }
    let name = match &create.name {
        Some(name) => name.clone(),
        None => free_name(session, create, &table).await?,
    };
    let unbuilt = unbuilt_key(create, kind, class, field.as_ref());
    let metric = class.and_then(|class| class.metric());
    let column = create.column.value.clone();
    let definition = IndexDefinition { name, column, kind, metric, options: index_options(create), unbuilt };
    let build = listed(session, "CREATE INDEX", &table, &definition.name);
    match table.create_index_watched(&definition, create.if_not_exists, &build.progress).await? {
        false => session.notices().notice(format!("index \"{}\" already exists, skipping", definition.name)),
        true if definition.unbuilt.is_some() => session
            .notices()
            .notice(format!("index \"{}\" is known and not built: nothing here would read it, and queries read all rows", definition.name)),
        true => {}
    }
    Ok(done("CREATE INDEX"))
}

fn operator_class(name: &str) -> Result<OperatorClass> {
    OPERATOR_CLASSES.iter().find(|known| known.name == name).copied().ok_or_else(|| Error::UnknownObject {
        kind: "operator class",
        name: name.to_owned(),
        known: OPERATOR_CLASSES.iter().map(|known| known.name.to_owned()).collect(),
    })
}

/// That the access method has the operator class.
fn check_method(create: &CreateIndex, kind: IndexKind, class: Option<OperatorClass>) -> Result<()> {
    let Some(class) = class.filter(|class| !class.is_of(kind)) else { return Ok(()) };
    if !kind.is_vector() && class.distance != ClassDistance::Values {
        return Err(Error::InvalidParameter {
            name: "operator class".to_owned(),
            found: class.name.to_owned(),
            expected: format!("none: an index USING {} has no distance", create.using),
        });
    }
    let known = OPERATOR_CLASSES.iter().filter(|known| known.is_of(kind)).map(|known| known.name.to_owned()).collect();
    Err(Error::UnknownObject { kind: "operator class", name: format!("{}\" for access method \"{}", class.name, create.using), known })
}

/// What is indexed; `None`: a column that there is not, which the catalog refuses.
async fn indexed_field(session: &Session, create: &CreateIndex, table: &Table) -> Result<Option<Field>> {
    let Some(expression) = &create.expression else {
        return Ok(table.definition().schema.field_with_name(&create.column.value).ok().cloned());
    };
    let text = format!("SELECT {expression} FROM {}", quoted_name(&[table.schema_name(), table.name()]));
    let Some(Statement::Query(query)) = rolloutdb_sql::parse(&text)?.pop() else {
        return Err(Error::Internal(format!("not a query: {text}")));
    };
    let planned = plan_query(session, &query, &[]).await?;
    Ok(Some(planned.plan.schema().field(0).as_ref().clone()))
}

/// That the operator class is for what is indexed; a column that is no vector at all the catalog refuses.
fn check_operator_class(create: &CreateIndex, kind: IndexKind, class: OperatorClass, field: &Field) -> Result<()> {
    let found = sql_type_of(field);
    let type_name = found.split('(').next().unwrap_or_default();
    if let Some(length) = TextType::of(field).filter(|found| found.is_bits()).and_then(TextType::length)
        && length as usize > INDEXED_BITS_MAX
    {
        return Err(rolloutdb_udfs::Error::TooManyDimensions { type_name: "an index of bits", max: INDEXED_BITS_MAX }.into());
    }
    if class.type_name == type_name {
        return Ok(());
    }
    let right = OPERATOR_CLASSES.iter().find(|known| known.distance == class.distance && known.type_name == type_name && known.is_of(kind));
    let of_bits = class.type_name == "bit" || create.expression.is_some();
    match right {
        None if !of_bits => Ok(()),
        right => Err(Error::WrongType {
            what: format!("operator class \"{}\"", class.name),
            found: format!("for {}", class.type_name),
            expected: match right {
                Some(right) => format!("{} for column \"{}\", which is {found}", right.name, create.column.value),
                None => format!("a value of that type, found {found}"),
            },
        }),
    }
}

/// The key of an index that is not built: on an expression, by a distance that the storage has no index for, or over the order of vectors.
fn unbuilt_key(create: &CreateIndex, kind: IndexKind, class: Option<OperatorClass>, field: Option<&Field>) -> Option<String> {
    let is_of_order = kind == IndexKind::BTree && field.is_some_and(|field| is_vector(field.data_type()));
    let is_by_other_distance = class.is_some_and(|class| class.metric().is_none());
    if create.expression.is_none() && !is_of_order && !is_by_other_distance {
        return None;
    }
    let key = match &create.expression {
        Some(expression) => format!("({expression})"),
        None => quoted_name(&[&create.column.value]),
    };
    Some(class.map_or(key.clone(), |class| format!("{key} {}", class.name)))
}

/// `t_v_idx`, or with the first number that makes it a new name, as PostgreSQL names indexes.
async fn free_name(session: &Session, create: &CreateIndex, table: &Table) -> Result<String> {
    let catalog = &session.database().shared.catalog;
    let key = match create.expression.as_deref() {
        // What a cast to a type of vectors is by now.
        Some(SqlExpr::Function(call)) if matches!(call.name.to_string().as_str(), "vector_in" | "halfvec_in") => {
            create.column.value.as_str()
        }
        Some(SqlExpr::Function(call)) => call.name.0.last().and_then(|part| part.as_ident()).map_or("expr", |name| name.value.as_str()),
        Some(SqlExpr::Cast { .. }) | None => create.column.value.as_str(),
        Some(_) => "expr",
    };
    let stem = format!("{}_{key}_idx", table.name());
    let mut number = 0;
    loop {
        let name = if number == 0 { stem.clone() } else { format!("{stem}{number}") };
        match catalog.find_index(table.schema_name(), &name).await {
            Err(rolloutdb_catalogs::Error::UnknownIndex { .. }) => return Ok(name),
            Err(error) => return Err(error.into()),
            Ok(_) => number += 1,
        }
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
