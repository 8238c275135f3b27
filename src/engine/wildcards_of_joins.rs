//! `SELECT *` over JOIN .. USING and NATURAL JOIN: the joined columns come first, once each, then the others of the left and of the right relation, as in
//! PostgreSQL. DataFusion leaves one of two joined columns where it is, and which one hangs on the names of their relations.
//!
//! So the columns are written out. Which ones there are the planner says; where it cannot, `*` stays.

use std::ops::ControlFlow;

use datafusion::common::DFSchemaRef;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::TableReference;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins,
    VisitMut, VisitorMut, WildcardAdditionalOptions, With,
};

use super::lateral_names::{folded, relation_name};
use super::using_columns::{Side, merged_value};
use super::visible_queries::VisibleQueries;

/// Writes such wildcards out in all queries of a statement.
pub async fn write_out(statement: &mut Statement, state: &SessionState) {
    let _ = statement.visit(&mut NamedJoins);
    let mut num_left = 0;
    while let Some(found) = find(statement, num_left) {
        match outputs(&found, state).await {
            Some(items) => replace(statement, num_left, items),
            None => num_left += 1,
        }
    }
}

/// Makes a subquery of each join in parentheses that has a name, whose columns are those of `*`.
struct NamedJoins;

impl VisitorMut for NamedJoins {
    type Break = ();

    fn post_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin { table_with_joins, alias: Some(alias) } = relation
            && joins_columns(table_with_joins)
            && let Some(mut query) = query_of_all()
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            select.from = vec![table_with_joins.as_ref().clone()];
            *relation = TableFactor::Derived { lateral: false, subquery: query, alias: Some(alias.clone()), sample: None };
        }
        ControlFlow::Continue(())
    }
}

fn query_of_all() -> Option<Box<Query>> {
    match rolloutdb_sql::parse("SELECT * FROM relation").ok()?.pop() {
        Some(rolloutdb_sql::Statement::Query(query)) => Some(query),
        _ => None,
    }
}

/// What a `*` stands for.
struct Found {
    from: Vec<TableWithJoins>,
    /// The queries of WITH that it may name.
    with: Option<With>,
}

fn find(statement: &mut Statement, place: usize) -> Option<Found> {
    let mut places = Places { visible: VisibleQueries::default(), place, items: None, found: None };
    let _ = statement.visit(&mut places);
    places.found
}

fn replace(statement: &mut Statement, place: usize, items: Vec<SelectItem>) {
    let _ = statement.visit(&mut Places { visible: VisibleQueries::default(), place, items: Some(items), found: None });
}

/// Finds the SELECT of that number among those with such a wildcard, or puts items in the place of it.
struct Places {
    visible: VisibleQueries,
    place: usize,
    items: Option<Vec<SelectItem>>,
    found: Option<Found>,
}

impl VisitorMut for Places {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.visible.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.visible.see_all(query);
        let flow = self.in_body(&mut query.body);
        self.visible.leave(query);
        flow
    }
}

impl Places {
    fn in_body(&mut self, body: &mut SetExpr) -> ControlFlow<()> {
        match body {
            SetExpr::Select(select) => self.in_select(select),
            SetExpr::SetOperation { left, right, .. } => {
                self.in_body(left)?;
                self.in_body(right)
            }
            // A query in parentheses is visited by itself.
            _ => ControlFlow::Continue(()),
        }
    }

    fn in_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let Some(position) = select.projection.iter().position(is_plain_wildcard) else { return ControlFlow::Continue(()) };
        if !select.from.iter().any(joins_columns) {
            return ControlFlow::Continue(());
        }
        if self.place > 0 {
            self.place -= 1;
            return ControlFlow::Continue(());
        }
        match self.items.take() {
            Some(items) => drop(select.projection.splice(position..=position, items)),
            None => self.found = Some(Found { from: select.from.clone(), with: self.visible.with() }),
        }
        ControlFlow::Break(())
    }
}

/// What is replaced in it are joined columns, which are written out here.
fn is_plain_wildcard(item: &SelectItem) -> bool {
    let SelectItem::Wildcard(options) = item else { return false };
    let WildcardAdditionalOptions { opt_ilike, opt_exclude, opt_except, opt_rename, .. } = options;
    opt_ilike.is_none() && opt_exclude.is_none() && opt_except.is_none() && opt_rename.is_none()
}

fn joins_columns(table: &TableWithJoins) -> bool {
    let within = |relation: &TableFactor| matches!(relation, TableFactor::NestedJoin { table_with_joins, alias: None } if joins_columns(table_with_joins));
    let is_one = |constraint: &JoinConstraint| matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural);
    within(&table.relation)
        || table.joins.iter().any(|join| {
            within(&join.relation) || side_and_constraint(&join.join_operator).is_some_and(|(_, constraint)| is_one(constraint))
        })
}

fn side_and_constraint(operator: &JoinOperator) -> Option<(Side, &JoinConstraint)> {
    match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => Some((Side::Either, constraint)),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => Some((Side::Left, constraint)),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => Some((Side::Right, constraint)),
        JoinOperator::FullOuter(constraint) => Some((Side::Full, constraint)),
        JoinOperator::CrossJoin(constraint) => Some((Side::Either, constraint)),
        _ => None,
    }
}

/// `None`: not all columns are known.
async fn outputs(found: &Found, state: &SessionState) -> Option<Vec<SelectItem>> {
    let schema = planned_from(found, state).await?;
    let mut outputs = Vec::new();
    for table in &found.from {
        outputs.extend(of_joins(table, &schema)?);
    }
    Some(outputs.into_iter().map(Output::item).collect())
}

async fn planned_from(found: &Found, state: &SessionState) -> Option<DFSchemaRef> {
    let Some(rolloutdb_sql::Statement::Query(mut query)) = rolloutdb_sql::parse("SELECT 1 AS one").ok()?.pop() else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.from.clone_from(&found.from);
    query.with.clone_from(&found.with);
    let statement = PlannerStatement::Statement(Box::new(Statement::Query(query)));
    match Box::pin(state.statement_to_plan(statement)).await.ok()? {
        LogicalPlan::Projection(projection) => Some(projection.input.schema().clone()),
        _ => None,
    }
}

/// A column of a join.
#[derive(Clone)]
struct Output {
    name: String,
    value: Expr,
    is_joined: bool,
}

impl Output {
    fn item(self) -> SelectItem {
        match self.is_joined {
            true => SelectItem::ExprWithAlias { expr: self.value, alias: Ident::with_quote('"', self.name) },
            false => SelectItem::UnnamedExpr(self.value),
        }
    }
}

fn of_joins(table: &TableWithJoins, schema: &DFSchemaRef) -> Option<Vec<Output>> {
    let mut left = of_relation(&table.relation, schema)?;
    for join in &table.joins {
        let mut right = of_relation(&join.relation, schema)?;
        let (side, constraint) = side_and_constraint(&join.join_operator)?;
        let mut columns = Vec::new();
        for name in joined_names(constraint, &left, &right)? {
            let (from_left, from_right) = (taken(&mut left, &name)?, taken(&mut right, &name)?);
            let value = merged_value(side, Some(from_left.value), Some(from_right.value))?;
            columns.push(Output { name, value, is_joined: true });
        }
        columns.append(&mut left);
        columns.append(&mut right);
        left = columns;
    }
    Some(left)
}

fn joined_names(constraint: &JoinConstraint, left: &[Output], right: &[Output]) -> Option<Vec<String>> {
    match constraint {
        JoinConstraint::Using(names) => names.iter().map(|name: &ObjectName| Some(folded(name.0.last()?.as_ident()?))).collect(),
        JoinConstraint::Natural => {
            let is_common = |output: &&Output| right.iter().any(|other| other.name == output.name);
            Some(left.iter().filter(is_common).map(|output| output.name.clone()).collect())
        }
        _ => Some(Vec::new()),
    }
}

/// The one column of that name.
fn taken(outputs: &mut Vec<Output>, name: &str) -> Option<Output> {
    let position = outputs.iter().position(|output| output.name == name)?;
    let found = outputs.remove(position);
    (!outputs.iter().any(|output| output.name == name)).then_some(found)
}

fn of_relation(relation: &TableFactor, schema: &DFSchemaRef) -> Option<Vec<Output>> {
    if let TableFactor::NestedJoin { table_with_joins, alias: None } = relation {
        return of_joins(table_with_joins, schema);
    }
    let name = relation_name(relation)?;
    let known = folded(&name);
    let is_its = |qualifier: Option<&TableReference>| qualifier.is_some_and(|qualifier| qualifier.table() == known);
    let columns = schema.iter().filter(|(qualifier, _)| is_its(*qualifier)).map(|(_, field)| Output {
        name: field.name().clone(),
        value: Expr::CompoundIdentifier(vec![name.clone(), Ident::with_quote('"', field.name())]),
        is_joined: false,
    });
    Some(columns.collect::<Vec<_>>()).filter(|columns| !columns.is_empty())
}
