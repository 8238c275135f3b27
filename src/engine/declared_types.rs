//! Parameters whose types a client has said: in `Parse` of the protocol, or as in `PREPARE s (jsonb)`.
//!
//! Where the statement takes one for another type, or for none, it is written as a cast, `CAST($1 AS jsonb)`, into what is kept of the statement. So the
//! types of columns, and which operators and functions are meant, follow from it alike when the statement is described, planned to be kept, and run.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Ident, Query, SelectItem, SetExpr, Value, VisitMut, VisitorMut};
use futures::FutureExt;
use rolloutdb_sql::{Assignment, ConflictAction, Statement};
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::vector::is_any_vector;

use super::output_names::name_of;
use super::parameter_types::{is_preferred, is_text_or_list};
use super::prepared::PreparedStatement;
use super::session::Session;
use super::statement;
use super::typing::{is_text, sql_type_of};
use crate::error::Result;

/// The statement prepared with these types of its parameters, in their order; `None`: nothing was said of this one. `is_fixed`: whether a parameter has
/// been of its type before, so that a text is no longer read as something else.
///
/// # Errors
/// As [`Session::describe`].
pub async fn prepared(
    session: &Session,
    statement: Statement,
    types: &[Option<FieldRef>],
    is_fixed: &(dyn Fn(usize) -> bool + Sync),
) -> Result<PreparedStatement> {
    // What reads the catalog alone, and is not DataFusion's to run, knows the types of it.
    if let Statement::Query(query) = &statement
        && let Some(description) = statement::describe_of_catalog(session, query, types).boxed().await?
    {
        return Ok(PreparedStatement::new(statement, description));
    }
    let found = session.describe(&statement).await;
    let parameters = found.as_ref().ok().map(|description| description.parameters.as_slice());
    let open = open(types, parameters, !matches!(statement, Statement::Query(_)), is_fixed);
    let mut typed = statement.clone();
    if !write(&mut typed, &casts(&open, found.is_err())?) || open.iter().all(Option::is_none) {
        return Ok(PreparedStatement::new(statement, found?));
    }
    let numerics: Vec<_> = open.iter().map(|declared| declared.clone().filter(|declared| found.is_ok() && is_decimal(declared))).collect();
    let described = match &typed {
        Statement::Query(query) => statement::describe_declared(session, query, &numerics).boxed().await,
        _ => session.describe(&typed).await,
    };
    match described {
        Ok(mut description) => {
            // Their values come with the digits that they are written with.
            for (parameter, _) in description.parameters.iter_mut().zip(&numerics).filter(|(_, numeric)| numeric.is_some()) {
                *parameter = None;
            }
            Ok(PreparedStatement::new(typed, description).made_of(statement))
        }
        Err(error) if (0..types.len()).any(is_fixed) => Err(error),
        // It may be right with the types that it gives its parameters by itself: a text that a client sends as another type.
        Err(error) => found.map(|description| PreparedStatement::new(statement, description)).map_err(|_| error),
    }
}

/// The types of those parameters that the statement takes for something else. `found`: what it takes them for; `None`: it is no statement without their
/// types. `assigns`: whether they may be new values of columns, which numbers of every type become.
fn open(
    types: &[Option<FieldRef>],
    found: Option<&[Option<FieldRef>]>,
    assigns: bool,
    is_fixed: &dyn Fn(usize) -> bool,
) -> Vec<Option<FieldRef>> {
    let is_taken = |position: usize, declared: &FieldRef| match found.map(|found| found.get(position).and_then(Option::as_ref)) {
        None => false,
        // Without a type it is a text.
        Some(None) => is_plain_text(declared),
        // What was said to be a text is one.
        Some(Some(found)) if is_text_or_list(found) => false,
        Some(Some(found)) if is_preferred(found) => is_plain_text(declared) || found.data_type().equals_datatype(declared.data_type()),
        Some(Some(found)) if is_fixed(position) && is_plain_text(declared) => is_plain_text(found),
        Some(Some(found)) => takes(found, declared) || (assigns && is_number(found) && is_number(declared)),
    };
    types.iter().enumerate().map(|(position, declared)| declared.clone().filter(|declared| !is_taken(position, declared))).collect()
}

/// What is written for parameters, by their names. A numeric is itself, with all of its digits, and has ten behind the point as a cast; it is written as
/// one where only its type makes a statement of the text.
fn casts(open: &[Option<FieldRef>], with_numerics: bool) -> Result<BTreeMap<String, SqlExpr>> {
    let mut casts = BTreeMap::new();
    for (position, declared) in open.iter().enumerate() {
        let Some(declared) = declared else { continue };
        if with_numerics || !is_decimal(declared) {
            let name = format!("${}", position + 1);
            casts.insert(name.clone(), rolloutdb_sql::parse_expression(&format!("CAST({name} AS {})", sql_type_of(declared)))?);
        }
    }
    Ok(casts)
}

/// Whether a parameter of the type that was found takes what a client sends as another: a number that is not larger, an earlier kind of time, or a text,
/// which is read.
fn takes(found: &Field, declared: &Field) -> bool {
    if is_plain_text(declared) {
        return true;
    }
    let is_json = |field: &Field| matches!(TextType::of(field), Some(TextType::Json | TextType::Jsonb));
    if TextType::of(declared).is_some() {
        return TextType::of(found) == TextType::of(declared) || (is_json(found) && is_json(declared));
    }
    if is_any_vector(declared) {
        return is_any_vector(found) || matches!(found.data_type(), DataType::FixedSizeList(..));
    }
    if TextType::of_items(declared).is_some() {
        return TextType::of_items(found) == TextType::of_items(declared);
    }
    match (found.data_type(), declared.data_type()) {
        (DataType::List(found), DataType::List(declared)) => takes(found, declared),
        (DataType::FixedSizeList(..), DataType::List(item)) => item.data_type().is_numeric(),
        (DataType::Timestamp(..), DataType::Timestamp(..) | DataType::Date32) => true,
        (found, sent) if found.equals_datatype(sent) => true,
        (found, sent) if found.is_numeric() && sent.is_numeric() => takes_number(found, sent),
        (found, sent) => sent.is_numeric() && is_text(found),
    }
}

fn takes_number(found: &DataType, sent: &DataType) -> bool {
    let width = |data_type: &DataType| data_type.primitive_width().unwrap_or(usize::MAX);
    match (found, sent) {
        _ if sent.is_integer() && found.is_integer() => width(sent) <= width(found),
        _ if sent.is_floating() && found.is_floating() => width(sent) <= width(found),
        _ => sent.is_integer(),
    }
}

fn is_plain_text(field: &Field) -> bool {
    is_text(field.data_type()) && TextType::of(field).is_none()
}

fn is_decimal(field: &FieldRef) -> bool {
    matches!(field.data_type(), DataType::Decimal128(..))
}

fn is_number(field: &FieldRef) -> bool {
    field.data_type().is_numeric()
}

/// Writes casts in the place of the parameters of a query, of a statement that reads one, or of a change of rows; whether it is one of these.
fn write(statement: &mut Statement, casts: &BTreeMap<String, SqlExpr>) -> bool {
    let mut casts = Casts(casts);
    match statement {
        Statement::Query(query) => casts.query(query),
        Statement::CreateTable(create) => create.query.iter_mut().for_each(|query| casts.query(query)),
        Statement::CreateModel(create) => create.using.iter_mut().for_each(|query| casts.query(query)),
        Statement::GenerateRollouts(generate) => casts.query(&mut generate.query),
        Statement::Train(train) => {
            casts.query(&mut train.query);
            train.validate.iter_mut().for_each(|query| casts.query(query));
        }
        Statement::Async(statement) => return write(statement, casts.0),
        Statement::Insert(insert) => {
            casts.within(&mut insert.with);
            casts.within(&mut insert.source);
            if let Some(conflict) = &mut insert.on_conflict
                && let ConflictAction::Update { assignments, condition } = &mut conflict.action
            {
                casts.assigned(assignments);
                casts.within(condition);
            }
            casts.within(&mut insert.returning);
        }
        Statement::Update(update) => {
            casts.within(&mut update.with);
            casts.assigned(&mut update.assignments);
            casts.within(&mut update.from);
            casts.within(&mut update.condition);
            casts.within(&mut update.returning);
        }
        Statement::Delete(delete) => {
            casts.within(&mut delete.with);
            casts.within(&mut delete.using);
            casts.within(&mut delete.condition);
            casts.within(&mut delete.returning);
        }
        _ => return false,
    }
    true
}

struct Casts<'a>(&'a BTreeMap<String, SqlExpr>);

impl Casts<'_> {
    fn query(&mut self, query: &mut Query) {
        self.keep_names(&mut query.body);
        self.within(query);
    }

    fn within(&mut self, part: &mut impl VisitMut) {
        let _ = VisitMut::visit(part, self);
    }

    /// Columns that clients see keep the names that they have without casts.
    fn keep_names(&mut self, body: &mut SetExpr) {
        let select = match body {
            SetExpr::Select(select) => select,
            SetExpr::Query(query) => return self.keep_names(&mut query.body),
            SetExpr::SetOperation { left, .. } => return self.keep_names(left),
            _ => return,
        };
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expression) = item else { continue };
            let mut cast = expression.clone();
            self.within(&mut cast);
            let name = name_of(expression);
            if let Some(name) = name.filter(|name| Some(name) != name_of(&cast).as_ref()) {
                *item = SelectItem::ExprWithAlias { expr: cast, alias: Ident::with_quote('"', name) };
            }
        }
    }

    fn assigned(&mut self, assignments: &mut [Assignment]) {
        assignments.iter_mut().for_each(|assignment| self.within(&mut assignment.value));
    }
}

impl VisitorMut for Casts<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut SqlExpr) -> ControlFlow<()> {
        if let SqlExpr::Value(value) = expression
            && let Value::Placeholder(name) = &value.value
            && let Some(cast) = self.0.get(name)
        {
            *expression = cast.clone();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rolloutdb_udfs::vector::{any_vector_field, vector_type};

    use super::*;
    use crate::Database;
    use crate::engine::typing::sql_type_of;

    fn plain(data_type: DataType) -> Field {
        Field::new("", data_type, true)
    }

    #[test]
    fn a_found_type_stays_where_it_takes_what_is_sent() {
        let (uuid, jsonb) = (TextType::Uuid.field("", true), TextType::Jsonb.field("", true));
        let (decimal, interval) =
            (plain(DataType::Decimal128(10, 2)), plain(DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano)));
        let instant = plain(DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("+00:00".into())));
        for (found, sent) in [
            (plain(DataType::Int64), plain(DataType::Int32)),
            (plain(DataType::Int64), plain(DataType::Utf8)),
            (decimal.clone(), plain(DataType::Int64)),
            (plain(DataType::Float64), plain(DataType::Float32)),
            (plain(DataType::Utf8), plain(DataType::Int32)),
            (uuid.clone(), uuid.clone()),
            (jsonb.clone(), TextType::Json.field("", true)),
            (TextType::Uuid.array_field("", true), TextType::Uuid.array_field("", true)),
            (plain(DataType::new_list(DataType::Int64, true)), plain(DataType::new_list(DataType::Int32, true))),
            (plain(vector_type(3)), any_vector_field("")),
            (plain(vector_type(3)), plain(DataType::new_list(DataType::Float64, true))),
            (instant.clone(), plain(DataType::Date32)),
        ] {
            assert!(takes(&found, &sent), "{found} {sent}");
        }
        for (found, sent) in [
            (plain(DataType::Int32), plain(DataType::Int64)),
            (plain(DataType::Int64), plain(DataType::Float64)),
            (plain(DataType::Int64), decimal),
            (plain(DataType::Utf8), uuid.clone()),
            (plain(DataType::new_list(DataType::Utf8, true)), TextType::Uuid.array_field("", true)),
            (jsonb, uuid),
            (instant, interval),
            (plain(DataType::Utf8), any_vector_field("")),
        ] {
            assert!(!takes(&found, &sent), "{found} {sent}");
        }
    }

    /// The types of a statement's columns and parameters with what is said of these, in SQL's words.
    async fn described(session: &Session, sql: &str, declared: &[Option<Field>]) -> Result<String> {
        let declared: Vec<_> = declared.iter().cloned().map(|field| field.map(Arc::new)).collect();
        let prepared = session.prepare_declared(session.parse(sql)?.remove(0), &declared).await?;
        let description = prepared.description();
        let columns: Vec<_> = description.columns.fields().iter().map(|field| sql_type_of(field)).collect();
        let parameters: Vec<_> =
            description.parameters.iter().map(|field| field.as_ref().map_or("?".to_owned(), |field| sql_type_of(field))).collect();
        Ok(format!("{} <- {}", columns.join(", "), parameters.join(", ")))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn operators_and_columns_are_of_the_types_that_were_said() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        session.sql("CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz, u uuid, n integer)").await?;
        let (jsonb, uuid) = (TextType::Jsonb.field("", true), TextType::Uuid.field("", true));
        let interval = plain(DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano));
        let long = plain(DataType::Int64);
        for (sql, declared, expected) in [
            ("SELECT $1", vec![Some(uuid.clone())], "uuid <- uuid"),
            ("SELECT $1 -> 'a', $1 ->> 'a'", vec![Some(jsonb.clone())], "jsonb, text <- jsonb"),
            ("SELECT now() - $1", vec![Some(interval.clone())], "timestamptz <- interval"),
            ("SELECT abs($1)", vec![Some(plain(DataType::Int32))], "integer <- integer"),
            ("SELECT $1 > $2", vec![Some(long.clone()), Some(long.clone())], "boolean <- bigint, bigint"),
            ("SELECT $1 + $2", vec![Some(long.clone()), Some(plain(DataType::Float64))], "double precision <- bigint, double precision"),
            ("SELECT $1", vec![Some(TextType::Uuid.array_field("", true))], "uuid[] <- uuid[]"),
            ("SELECT a FROM (SELECT $1) AS t (a)", vec![Some(uuid.clone())], "uuid <- uuid"),
            ("SELECT id FROM t WHERE id = $1", vec![Some(plain(DataType::Int32))], "bigint <- bigint"),
            ("SELECT id FROM t WHERE u = ANY($1)", vec![Some(TextType::Uuid.array_field("", true))], "bigint <- uuid[]"),
            ("SELECT id FROM t WHERE at > now() - $1", vec![Some(interval.clone())], "bigint <- interval"),
            ("UPDATE t SET at = at - $1 WHERE id = $2", vec![Some(interval.clone()), None], " <- interval, bigint"),
            ("DELETE FROM t WHERE at < now() - $1", vec![Some(interval)], " <- interval"),
            ("INSERT INTO t (id, u, n) VALUES ($1, $2, $3)", vec![Some(long.clone()), Some(uuid), Some(long)], " <- bigint, uuid, integer"),
        ] {
            assert_eq!(described(&session, sql, &declared).await?, expected, "{sql}");
        }
        let prepared = session.prepare_declared(session.parse("SELECT $1, $1 AS a")?.remove(0), &[Some(Arc::new(jsonb))]).await?;
        let names: Vec<_> = prepared.description().columns.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["?column?", "a"]);
        assert_eq!(&**prepared.printed(), "SELECT $1, $1 AS a");
        Ok(())
    }
}
