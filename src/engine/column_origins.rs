//! Which columns of a result are columns of tables, as PostgreSQL tells its clients: `ResultSetMetaData.getTableName` and grids that write a changed cell back
//! ask for it.
//!
//! As there a column is one of a table if the query, and every subquery on the way to it, names it and nothing else: not computed, not of a UNION or
//! a function. A column of a view is one, whatever the view computes it of. It is found in the plan before anything is rewritten in it.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan, TableScan};
use rolloutdb_catalogs::{ObjectKey, Table};

use super::session::Session;
use super::view_names::ViewName;

/// Key of the metadata of a field; only what is told to clients has it.
const KEY: &str = "rolloutdb.origin";

/// The column of a table that a column of a result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// As in `pg_class.oid`.
    pub table: u32,
    /// As in `pg_attribute.attnum`.
    pub column: i16,
}

impl Origin {
    #[must_use]
    pub fn of(field: &Field) -> Option<Self> {
        let (table, column) = field.metadata().get(KEY)?.split_once('.')?;
        Some(Self { table: table.parse().ok()?, column: column.parse().ok()? })
    }

    /// The field with the origin.
    #[must_use]
    pub fn set(self, field: &Field) -> Field {
        let mut metadata = field.metadata().clone();
        metadata.insert(KEY.to_owned(), format!("{}.{}", self.table, self.column));
        field.clone().with_metadata(metadata)
    }
}

/// The columns of a query's rows with their origins; `None`: none has one.
pub fn with_origins(session: &Session, plan: &LogicalPlan, columns: &Schema) -> Option<SchemaRef> {
    let traced: Vec<_> = (0..columns.fields().len()).map(|position| traced(plan, position)).collect();
    let keys: Vec<_> = traced.iter().flatten().map(|column| ObjectKey::relation(&column.schema, &column.table)).collect();
    if keys.is_empty() {
        return None;
    }
    // A number that cannot be given is no reason to show no rows.
    let mut numbers = session.database().shared.catalog.object_numbers(&keys).ok()?.into_iter();
    let with_origin = |(field, traced): (&FieldRef, Option<TableColumn>)| -> FieldRef {
        let Some((traced, table)) = traced.and_then(|traced| Some((traced, numbers.next()?))) else { return Arc::clone(field) };
        match i16::try_from(traced.position + 1) {
            Ok(column) => Arc::new(Origin { table, column }.set(field)),
            Err(_) => Arc::clone(field),
        }
    };
    let fields: Vec<_> = columns.fields().iter().zip(traced).map(with_origin).collect();
    Some(Arc::new(Schema::new_with_metadata(fields, columns.metadata().clone())))
}

struct TableColumn {
    schema: String,
    table: String,
    position: usize,
}

/// The column of a table that an output of a plan is.
fn traced(plan: &LogicalPlan, position: usize) -> Option<TableColumn> {
    match plan {
        LogicalPlan::TableScan(scan) => of_scan(scan, position),
        LogicalPlan::Projection(projection) => of_expression(projection.expr.get(position)?, &projection.input),
        LogicalPlan::Distinct(Distinct::On(distinct)) => of_expression(distinct.select_expr.get(position)?, &distinct.input),
        LogicalPlan::Aggregate(aggregate) => of_expression(aggregate.group_expr.get(position)?, &aggregate.input),
        LogicalPlan::Window(window) if position < window.input.schema().fields().len() => traced(&window.input, position),
        LogicalPlan::Distinct(Distinct::All(input)) => traced(input, position),
        LogicalPlan::SubqueryAlias(alias) => match ViewName::of(&alias.alias) {
            Some(ViewName { schema, view }) => Some(TableColumn { schema, table: view, position }),
            None => traced(&alias.input, position),
        },
        LogicalPlan::Subquery(subquery) => traced(&subquery.subquery, position),
        LogicalPlan::Filter(filter) => traced(&filter.input, position),
        LogicalPlan::Sort(sort) => traced(&sort.input, position),
        LogicalPlan::Limit(limit) => traced(&limit.input, position),
        // The others are INTERSECT and EXCEPT.
        LogicalPlan::Join(join) if matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full) => {
            match position.checked_sub(join.left.schema().fields().len()) {
                None => traced(&join.left, position),
                Some(position) => traced(&join.right, position),
            }
        }
        _ => None,
    }
}

fn of_expression(expression: &Expr, input: &LogicalPlan) -> Option<TableColumn> {
    match expression {
        Expr::Alias(alias) => of_expression(&alias.expr, input),
        Expr::Column(column) => traced(input, input.schema().maybe_index_of_column(column)?),
        _ => None,
    }
}

/// What a view reads has a name of its own in the plan, as has an older version of a table: neither is a column of the table that the query names.
fn of_scan(scan: &TableScan, position: usize) -> Option<TableColumn> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = (provider.as_ref() as &dyn std::any::Any).downcast_ref::<Table>()?;
    if scan.table_name.table() != table.name() {
        return None;
    }
    let name = scan.projected_schema.field(position).name();
    let position = table.definition().schema.index_of(name).ok()?;
    Some(TableColumn { schema: table.schema_name().to_owned(), table: table.name().to_owned(), position })
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;
    use crate::{Database, Result};

    /// The tables and numbers of the columns of a query, `-` for one that is of none.
    async fn origins(session: &Session, sql: &str) -> Result<String> {
        let statement = session.parse(sql)?.remove(0);
        let columns = session.describe(&statement).await?.columns;
        let relations = ["a", "b", "seen", "over_seen"].map(|name| ObjectKey::relation("public", name));
        let numbers = session.database().shared.catalog.object_numbers(&relations)?;
        let letter = |table: u32| ["a", "b", "v", "o"][numbers.iter().position(|number| *number == table).expect("one of these")];
        let name = |field: &FieldRef| match Origin::of(field) {
            Some(Origin { table, column }) => format!("{}{column}", letter(table)),
            None => "-".to_owned(),
        };
        Ok(columns.fields().iter().map(name).collect::<Vec<_>>().join(" "))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn plain_columns_are_those_of_their_tables_and_views() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        for sql in [
            "CREATE TABLE a (id bigint PRIMARY KEY, word text, v vector(2))",
            "CREATE TABLE b (id bigint PRIMARY KEY, a_id bigint)",
            "CREATE VIEW seen AS SELECT id, word, id * 2 AS twice FROM a",
            "CREATE VIEW over_seen AS SELECT id AS number FROM seen",
        ] {
            session.sql(sql).await?.try_collect::<Vec<_>>().await?;
        }
        for (sql, expected) in [
            ("SELECT word, id AS number FROM a", "a2 a1"),
            ("SELECT * FROM a WHERE id = 1 ORDER BY id LIMIT 3", "a1 a2 a3"),
            ("SELECT id FROM a ORDER BY v <-> '[1,0]' LIMIT 3", "a1"),
            ("SELECT x.id, y.a_id, x.id + 1 FROM a x LEFT JOIN b y ON y.a_id = x.id", "a1 b2 -"),
            ("SELECT s.number, s.twice FROM (SELECT id AS number, id * 2 AS twice FROM a) s", "a1 -"),
            ("WITH w AS (SELECT word FROM a) SELECT word, word FROM w", "a2 a2"),
            ("SELECT DISTINCT word FROM a", "a2"),
            ("SELECT word, count(*) FROM a GROUP BY word", "a2 -"),
            ("SELECT id FROM a UNION ALL SELECT id FROM b", "-"),
            ("SELECT id FROM a EXCEPT SELECT id FROM b", "-"),
            ("SELECT word, twice, twice + 1 FROM seen", "v2 v3 -"),
            ("SELECT s.w FROM seen AS s (i, w, t) JOIN b ON b.id = s.i", "v2"),
            ("SELECT seen.id, a.id FROM seen JOIN a ON a.id = seen.id", "v1 a1"),
            ("SELECT number FROM (SELECT id AS number FROM seen WHERE word = 'x' ORDER BY id LIMIT 1) s", "v1"),
            ("SELECT number FROM over_seen", "o1"),
            ("SELECT upper(word), 1, (SELECT max(id) FROM b) FROM a", "- - -"),
            ("SELECT n FROM generate_series(1, 3) AS g (n)", "-"),
        ] {
            assert_eq!(origins(&session, sql).await?, expected, "{sql}");
        }
        Ok(())
    }
}
