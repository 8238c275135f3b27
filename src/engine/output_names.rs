//! Names of output columns as PostgreSQL gives them: `count` for `count(*)`, `?column?` for `1 + 1`, and two of one name where a query asks for that.
//!
//! To DataFusion an expression without an alias has its text for a name, and no two columns may have one name. [`distinct`] gives repeated ones an alias
//! before planning, and [`OutputNames::restored`] names the columns of the plan. A relation of its own for each output lets names repeat.
//!
//! This is for the outermost SELECT; [`subqueries`] is for those in FROM and after WITH.

mod postgres;
pub mod subqueries;

use std::collections::HashMap;
use std::ops::ControlFlow;

use arrow::datatypes::Schema;
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr as SqlExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Value, VisitMut, VisitorMut, visit_expressions,
};

use crate::error::{Error, Result};
pub use postgres::{folded, name_of};

/// Starts the aliases that [`distinct`] gives and the relations of outputs.
const OUTPUT: &str = "__output";

/// All conditions on subqueries are taken for one another: in DataFusion's names IN and EXISTS stand without what they are about.
const CONDITION_ON_SUBQUERY: &str = "in or exists (subquery)";

/// The names that the outputs of a query have for its client.
#[derive(Debug, Default)]
pub struct OutputNames {
    /// `None` for an output that keeps its own; empty if a wildcard makes positions unknown.
    by_position: Vec<Option<String>>,
    by_alias: HashMap<String, String>,
}

/// Gives outputs that DataFusion would take for one another an alias, and says what all of them are called.
pub fn distinct(query: &mut Query) -> OutputNames {
    let mut names = of(query);
    order_by_outputs(query);
    subqueries::order_by_names(query);
    let has_order = query.order_by.is_some();
    if let Some(select) = outermost(&mut query.body) {
        names.by_alias = alias_repeated(select, has_order);
    }
    names
}

/// As [`distinct`], with an alias for every output that is not a column, nor has one.
pub fn all_distinct(query: &mut Query) -> OutputNames {
    let mut names = distinct(query);
    if let Some(select) = outermost(&mut query.body) {
        names.by_alias.extend(alias_where(select, |item| matches!(item, SelectItem::UnnamedExpr(expr) if column_name(expr).is_none())));
    }
    names
}

/// Whether DataFusion has taken outputs for one another. It has no other word for that.
pub fn is_clash(error: &Error) -> bool {
    error.to_string().contains("require unique expression names")
}

/// Gives ORDER BY of a SELECT DISTINCT the positions of outputs that it repeats, in which DataFusion looks for columns alone.
fn order_by_outputs(query: &mut Query) {
    let (SetExpr::Select(select), Some(order_by)) = (query.body.as_ref(), &mut query.order_by) else { return };
    if select.distinct != Some(Distinct::Distinct) || select.projection.iter().any(is_wildcard) {
        return;
    }
    let OrderByKind::Expressions(keys) = &mut order_by.kind else { return };
    for key in keys.iter_mut().filter(|key| !matches!(key.expr, SqlExpr::Identifier(_))) {
        let is_key = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(output) | SelectItem::ExprWithAlias { expr: output, .. } if *output == key.expr);
        if let Some(position) = select.projection.iter().position(is_key) {
            key.expr = SqlExpr::value(Value::Number((position + 1).to_string(), false));
        }
    }
}

/// What the outputs of a query are called.
pub fn of(query: &Query) -> OutputNames {
    let items = leftmost(&query.body).map(|select| select.projection.as_slice()).unwrap_or_default();
    let by_position = if items.iter().any(is_wildcard) { Vec::new() } else { items.iter().map(given_name).collect() };
    OutputNames { by_position, by_alias: HashMap::new() }
}

/// # Errors
/// 42701 if two columns have one name, which those of a table or a view may not.
pub fn check_unique(columns: &Schema) -> Result<()> {
    let repeated = columns
        .fields()
        .iter()
        .enumerate()
        .find(|(position, field)| columns.fields().iter().take(*position).any(|earlier| earlier.name() == field.name()));
    match repeated {
        Some((_, field)) => Err(rolloutdb_catalogs::Error::DuplicateColumn { name: field.name().clone() }.into()),
        None => Ok(()),
    }
}

impl OutputNames {
    /// Whether some output has another name than DataFusion's.
    pub fn differ(&self) -> bool {
        !self.by_alias.is_empty() || self.by_position.iter().any(Option::is_some)
    }

    /// The plan of the query with these names.
    pub fn restored(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let schema = plan.schema();
        let is_positional = self.by_position.len() == schema.fields().len();
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(position, field)| {
                let by_position = if is_positional { self.by_position[position].as_ref() } else { None };
                let name = self.by_alias.get(field.name()).or(by_position).unwrap_or(field.name());
                subqueries::shown(name)
            })
            .collect();
        if names.iter().zip(schema.fields()).all(|(name, field)| name == field.name()) {
            return Ok(plan);
        }
        let outputs = schema.columns().into_iter().zip(&names).enumerate();
        let outputs: Vec<Expr> = outputs.map(|(position, (column, name))| output(position, column, name)).collect();
        Ok(LogicalPlanBuilder::from(plan).project(outputs)?.build()?)
    }
}

fn output(position: usize, column: Column, name: &str) -> Expr {
    Expr::Column(column).alias_qualified(Some(format!("{OUTPUT}_{position}")), name)
}

/// The SELECT whose outputs are those of the query.
fn outermost(body: &mut SetExpr) -> Option<&mut Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => outermost(&mut query.body),
        _ => None,
    }
}

/// The SELECT that names the outputs: of a UNION the first one.
fn leftmost(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => leftmost(&query.body),
        SetExpr::SetOperation { left, .. } => leftmost(left),
        _ => None,
    }
}

fn is_wildcard(item: &SelectItem) -> bool {
    !matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
}

/// PostgreSQL's name of an expression that DataFusion names by its text.
fn given_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) if column_name(expression).is_none() => name_of(expression),
        _ => None,
    }
}

/// The name of a column that is an output as it is.
fn column_name(expression: &SqlExpr) -> Option<&Ident> {
    match expression {
        SqlExpr::Identifier(name) => Some(name),
        SqlExpr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    }
}

/// Gives an alias to what is there already, in the sense of DataFusion; the aliases, with the names that they stand for. `has_order`: ORDER BY may name a
/// column of which an output is a cast, and to DataFusion both have one name.
fn alias_repeated(select: &mut Select, has_order: bool) -> HashMap<String, String> {
    let has_wildcard = select.projection.iter().any(is_wildcard);
    // The keys of ORDER BY have to be outputs of a SELECT DISTINCT as they are.
    let may_be_of_wildcard = has_wildcard && select.distinct.is_none();
    let mut seen: Vec<Key> = Vec::new();
    alias_where(select, |item| {
        let Some(key) = Key::of(item) else { return false };
        let is_repeated = seen.iter().any(|earlier| key.is_as(earlier))
            || (may_be_of_wildcard && !key.is_alias())
            || (has_order && is_cast_of_column(item));
        seen.push(key);
        is_repeated
    })
}

/// Gives some outputs an alias; the aliases, with the names that they stand for.
fn alias_where(select: &mut Select, mut is_meant: impl FnMut(&SelectItem) -> bool) -> HashMap<String, String> {
    let mut aliases = HashMap::new();
    for (position, item) in select.projection.iter_mut().enumerate() {
        let (true, Some((expr, name))) = (is_meant(item), expression_and_name(item)) else { continue };
        let alias = format!("{OUTPUT}_{position}");
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', alias.clone()) };
        aliases.insert(alias, name);
    }
    aliases
}

fn is_cast_of_column(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) => column_name(expr).is_none() && column_name(&without_casts(expr)).is_some(),
        _ => false,
    }
}

/// An output, and what the client is to see of its name; `None` for one whose name is not known.
fn expression_and_name(item: &SelectItem) -> Option<(SqlExpr, String)> {
    match item {
        SelectItem::UnnamedExpr(expr) => {
            let name = column_name(expr).map(folded).or_else(|| name_of(expr))?;
            Some((expr.clone(), name))
        }
        SelectItem::ExprWithAlias { expr, alias } => Some((expr.clone(), folded(alias))),
        _ => None,
    }
}

fn has_condition_on_subquery(expression: &SqlExpr) -> bool {
    visit_expressions(expression, |inner| match inner {
        SqlExpr::InSubquery { .. } | SqlExpr::Exists { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// What DataFusion tells outputs apart by.
enum Key {
    Alias(String),
    Column {
        relation: Option<String>,
        name: String,
    },
    /// Its text, without casts.
    Expression(String),
}

impl Key {
    fn of(item: &SelectItem) -> Option<Self> {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(Self::Alias(folded(alias))),
            SelectItem::UnnamedExpr(expression) => Some(Self::of_expression(without_casts(expression))),
            _ => None,
        }
    }

    fn of_expression(expression: SqlExpr) -> Self {
        match &expression {
            SqlExpr::Identifier(name) => Self::Column { relation: None, name: folded(name) },
            SqlExpr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., relation, name] => Self::Column { relation: Some(folded(relation)), name: folded(name) },
                _ => Self::Expression(expression.to_string()),
            },
            SqlExpr::Subquery(query) => Self::of_subquery(query),
            condition if has_condition_on_subquery(condition) => Self::Expression(CONDITION_ON_SUBQUERY.to_owned()),
            other => Self::Expression(other.to_string().to_lowercase()),
        }
    }

    /// A subquery goes by the name of its one output, without a relation.
    fn of_subquery(query: &Query) -> Self {
        let item = leftmost(&query.body).and_then(|select| select.projection.first());
        match item.and_then(Self::of) {
            Some(Self::Column { name, .. }) => Self::Alias(name),
            Some(key) => key,
            None => Self::Expression(query.to_string().to_lowercase()),
        }
    }

    fn is_alias(&self) -> bool {
        matches!(self, Self::Alias(_))
    }

    fn is_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Column { relation: Some(a), name }, Self::Column { relation: Some(b), name: other }) => a == b && name == other,
            (Self::Column { name, .. } | Self::Alias(name), Self::Column { name: other, .. } | Self::Alias(other)) => name == other,
            (Self::Expression(text), Self::Expression(other)) => text == other,
            _ => false,
        }
    }
}

fn without_casts(expression: &SqlExpr) -> SqlExpr {
    let mut expression = expression.clone();
    let _ = expression.visit(&mut Casts);
    expression
}

struct Casts;

impl VisitorMut for Casts {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut SqlExpr) -> ControlFlow<()> {
        match expr {
            SqlExpr::Cast { expr: inner, .. } | SqlExpr::Nested(inner) => *expr = inner.as_ref().clone(),
            SqlExpr::TypedString(typed) => *expr = SqlExpr::Value(typed.value.clone()),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(sql: &str) -> Query {
        match rolloutdb_sql::parse(sql).expect("it parses").pop() {
            Some(rolloutdb_sql::Statement::Query(query)) => *query,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn only_repeated_outputs_get_an_alias() {
        for (given, distinct_ones) in [
            ("SELECT a, a, t.a, b FROM t", r#"SELECT a, a AS "__output_1", t.a AS "__output_2", b FROM t"#),
            ("SELECT x.a, y.a, count(*), COUNT(*) FROM t", r#"SELECT x.a, y.a, count(*), COUNT(*) AS "__output_3" FROM t"#),
            ("SELECT a AS x, b AS x, x FROM t", r#"SELECT a AS x, b AS "__output_1", x AS "__output_2" FROM t"#),
            ("SELECT a, CAST(a AS BIGINT), 1, 2 FROM t", r#"SELECT a, CAST(a AS BIGINT) AS "__output_1", 1, 2 FROM t"#),
            ("SELECT *, a, b + 1 AS c FROM t", r#"SELECT *, a AS "__output_1", b + 1 AS c FROM t"#),
            ("SELECT DISTINCT *, a FROM t", "SELECT DISTINCT *, a FROM t"),
            ("SELECT (SELECT 1), (SELECT 2), 1", r#"SELECT (SELECT 1), (SELECT 2), 1 AS "__output_2""#),
        ] {
            let mut query = query(given);
            distinct(&mut query);
            assert_eq!(query.to_string(), distinct_ones);
        }
    }

    #[test]
    fn outputs_have_their_names() {
        let names = of(&query("SELECT a, t.b, count(*), 1 + 1, c AS d FROM t"));
        assert_eq!(names.by_position, [None, None, Some("count".to_owned()), Some("?column?".to_owned()), None]);
        assert!(names.differ() && !of(&query("SELECT *, count(*) FROM t")).differ());
        assert_eq!(of(&query("SELECT max(a) FROM t UNION SELECT 1")).by_position, [Some("max".to_owned())]);
        let mut repeated = query("SELECT a, a FROM t");
        assert_eq!(distinct(&mut repeated).by_alias, HashMap::from([("__output_1".to_owned(), "a".to_owned())]));
    }
}
