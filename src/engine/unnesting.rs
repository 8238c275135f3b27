//! Subqueries that name columns of the query round them, in any place and of any shape, as joins.
//!
//! DataFusion joins a scalar subquery by conditions `column = outer column` of its WHERE alone, an EXISTS where rows are filtered, and a LATERAL of few
//! shapes. The others are unnested here (Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015): the different values of the columns that a subquery
//! names are a relation of their own, the [`Domain`]; every node of the subquery carries that relation's columns along ([`carried`]); and the rows round the
//! subquery are joined with what it gave for their values, by IS NOT DISTINCT FROM.
//!
//! Inner subqueries are unnested before outer ones. One that reads nothing of the query next to it, but of one farther out, becomes a join there all the
//! same, so that no reference passes over a query.

mod carried;
mod domain;
mod left_to_datafusion;
mod names;
mod on_conditions;
mod references;
mod shared_rows;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, ExprSchemable, Filter, Join, LogicalPlan, LogicalPlanBuilder, Sort, Subquery, lit};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::rewrite_set_comparison::RewriteSetComparison;
use datafusion::optimizer::{OptimizerContext, OptimizerRule};

use self::carried::Carrier;
use self::domain::Domain;
use self::left_to_datafusion::{is_joined_exists, is_joined_value, is_marked_exists};
use self::names::Names;
use self::references::{is_subquery, outer_columns, with_own_references};
use super::apply::lateral::check_calls;
use super::single_row::{gathered, only_value};

pub use self::shared_rows::SharedRowsPlanner;

#[derive(Debug)]
pub struct Unnesting;

impl AnalyzerRule for Unnesting {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !references::has_any(&plan)? {
            return Ok(plan);
        }
        let names = Names::not_in(&plan)?;
        let unnested = plan.transform_up_with_subqueries(|node| unnested(with_own_schema(node)?, &names))?.data;
        check_calls(&unnested)?;
        Ok(unnested)
    }

    fn name(&self) -> &str {
        "unnesting"
    }
}

/// A node over inputs that were unnested: values of subqueries may be NULL where the node was made without that.
fn with_own_schema(node: LogicalPlan) -> Result<LogicalPlan> {
    match node {
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_) => node.recompute_schema(),
        other => Ok(other),
    }
}

fn unnested(node: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Join(join) => match lateral(&join, names)? {
            Some(plan) => Ok(Transformed::yes(plan)),
            None => on_conditions::unnested(join, names),
        },
        LogicalPlan::Sort(sort) => {
            let shown: Vec<Expr> = sort.input.schema().columns().into_iter().map(Expr::Column).collect();
            let (sort, is_wider) = with_columns_of_keys(sort)?;
            let sorted = of_one_input(LogicalPlan::Sort(sort), names)?;
            if is_wider { sorted.map_data(|sorted| LogicalPlanBuilder::from(sorted).project(shown)?.build()) } else { Ok(sorted) }
        }
        other if other.inputs().len() == 1 => of_one_input(other, names),
        other => Ok(Transformed::no(other)),
    }
}

/// A node whose expressions read the values of its subqueries from a join below it.
fn of_one_input(node: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    if !references::names_outer_columns(&node)? {
        return Ok(Transformed::no(node));
    }
    // Comparisons with ANY and ALL as EXISTS.
    let node = RewriteSetComparison::new().rewrite(node, &OptimizerContext::new())?.data;
    let mut rows = Rows::new(node.inputs()[0].clone(), names);
    let is_run_by_datafusion = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_));
    rows.values_may_stay = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Projection(_));
    rows.tests_may_stay = is_run_by_datafusion;
    let is_filter = matches!(node, LogicalPlan::Filter(_));
    let preserver = NamePreserver::new(&node);
    let keeps_names = matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_));
    let expressions = node.expressions().into_iter().map(|expression| {
        let name = preserver.save(&expression);
        let read = if is_filter { rows.read_conjuncts(expression)? } else { rows.read(expression)? };
        Ok(if keeps_names { name.restore(read) } else { read })
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    let columns: Vec<Expr> = node.schema().columns().into_iter().map(Expr::Column).collect();
    let (plan, is_joined) = (node.with_new_exprs(expressions, vec![rows.plan])?, rows.is_joined);
    let hands_on = !matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_));
    match is_joined && hands_on {
        true => Ok(Transformed::yes(LogicalPlanBuilder::from(plan).project(columns)?.build()?)),
        false => Ok(Transformed::yes(plan)),
    }
}

/// A sort whose subqueries name columns that the list of SELECT leaves out stands over these too: whether it does.
fn with_columns_of_keys(sort: Sort) -> Result<(Sort, bool)> {
    let LogicalPlan::Projection(projection) = sort.input.as_ref() else { return Ok((sort, false)) };
    let mut missing: Vec<Column> = Vec::new();
    for key in &sort.expr {
        key.expr.apply(|inner| {
            if let Some(subquery) = is_subquery(inner) {
                for column in outer_columns(&subquery.subquery)? {
                    let is_below = projection.input.schema().has_column(&column) && !sort.input.schema().has_column(&column);
                    if is_below && !missing.contains(&column) {
                        missing.push(column);
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if missing.is_empty() {
        return Ok((sort, false));
    }
    let all = projection.expr.iter().cloned().chain(missing.into_iter().map(Expr::Column));
    let input = LogicalPlanBuilder::from(projection.input.as_ref().clone()).project(all.collect::<Vec<_>>())?.build()?;
    Ok((Sort { input: Arc::new(input), ..sort }, true))
}

/// The rows round subqueries, with the values of those that were met so far.
struct Rows<'a> {
    /// As they are without.
    source: LogicalPlan,
    plan: LogicalPlan,
    names: &'a Names,
    is_joined: bool,
    /// Whether DataFusion runs scalar subqueries in the node over the rows, and whether it runs EXISTS and IN.
    values_may_stay: bool,
    tests_may_stay: bool,
    /// Whether what is read is no conjunct by itself: then a test is a mark of each row.
    is_within: bool,
}

impl<'a> Rows<'a> {
    fn new(source: LogicalPlan, names: &'a Names) -> Self {
        Self { plan: source.clone(), source, names, is_joined: false, values_may_stay: false, tests_may_stay: false, is_within: true }
    }

    /// The same of each conjunct by itself, where rows are filtered.
    fn read_conjuncts(&mut self, expression: Expr) -> Result<Expr> {
        let conjuncts = split_conjunction_owned(expression).into_iter().map(|conjunct| {
            let tested = if let Expr::Not(inner) = &conjunct { inner.as_ref() } else { &conjunct };
            self.is_within = !matches!(tested, Expr::Exists(_));
            self.read(conjunct)
        });
        Ok(conjunction(conjuncts.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true)))
    }

    /// The expression with columns in the place of subqueries.
    fn read(&mut self, expression: Expr) -> Result<Expr> {
        let read = expression.transform_up(|inner| {
            Ok(match inner {
                Expr::ScalarSubquery(subquery) => Transformed::yes(self.value(with_own_references(subquery))?),
                Expr::Exists(Exists { subquery, negated }) => Transformed::yes(self.test(with_own_references(subquery), negated)?),
                Expr::InSubquery(test) => Transformed::yes(self.is_in(test)?),
                other => Transformed::no(other),
            })
        });
        Ok(read?.data)
    }

    fn value(&mut self, subquery: Subquery) -> Result<Expr> {
        let stays = self.values_may_stay && self.reads_these_only(&subquery) && is_joined_value(&subquery.subquery)?;
        if subquery.outer_ref_columns.is_empty() || stays {
            return Ok(Expr::ScalarSubquery(subquery));
        }
        let Some(list) = gathered(&subquery)? else { return self.joined_value(&subquery.subquery) };
        Ok(only_value(self.joined_value(&list.subquery)?, &subquery))
    }

    /// The value of a subquery that gives one row at most.
    fn joined_value(&mut self, subquery: &LogicalPlan) -> Result<Expr> {
        let column = self.names.next("value");
        let value = |plan: &LogicalPlan| Expr::Column(Column::from(plan.schema().qualified_field(0)));
        let value = value(subquery).alias_qualified(column.relation.clone(), &column.name);
        self.join(subquery, |builder, hidden| builder.project(hidden.into_iter().chain([value])))?;
        Ok(Expr::Column(column))
    }

    fn is_in(&mut self, test: InSubquery) -> Result<Expr> {
        let InSubquery { expr: value, subquery, negated } = test;
        let subquery = with_own_references(subquery);
        if subquery.outer_ref_columns.is_empty() && !value.contains_outer() {
            return Ok(Expr::InSubquery(InSubquery { expr: value, subquery, negated }));
        }
        // DataFusion casts a column of the subquery under its old name, which clashes with it where a condition needs it too.
        let is_of_type = value.get_type(self.plan.schema())? == *subquery.subquery.schema().field(0).data_type();
        let stays = self.tests_may_stay && self.reads_these_only(&subquery) && !value.contains_outer() && is_of_type;
        if stays && is_joined_exists(&subquery.subquery)? {
            return Ok(Expr::InSubquery(InSubquery { expr: value, subquery, negated }));
        }
        let element = Expr::Column(Column::from(subquery.subquery.schema().qualified_field(0)));
        let is_equal = element.eq(references::as_outer(*value, self.plan.schema())?);
        let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone()).filter(is_equal)?.build()?;
        self.test(with_own_references(Subquery { subquery: Arc::new(rows), ..subquery }), negated)
    }

    /// Whether there is a row.
    fn test(&mut self, subquery: Subquery, negated: bool) -> Result<Expr> {
        // Its join for marks by other conditions than equalities can not always be planned.
        let is_joined = if self.is_within { is_marked_exists(&subquery.subquery)? } else { is_joined_exists(&subquery.subquery)? };
        let stays = self.tests_may_stay && self.reads_these_only(&subquery) && is_joined;
        if subquery.outer_ref_columns.is_empty() || stays {
            return Ok(Expr::Exists(Exists { subquery, negated }));
        }
        let mark = self.names.next("mark");
        let marked = lit(true).alias_qualified(mark.relation.clone(), &mark.name);
        self.join(&subquery.subquery, |builder, hidden| builder.project(hidden.into_iter().chain([marked]))?.distinct())?;
        let mark = Expr::Column(mark);
        Ok(if negated { mark.is_null() } else { mark.is_not_null() })
    }

    fn reads_these_only(&self, subquery: &Subquery) -> bool {
        subquery.outer_ref_columns.iter().all(|outer| match outer {
            Expr::OuterReferenceColumn(_, column) => self.source.schema().has_column(column),
            _ => false,
        })
    }

    /// Joins the rows with what `select` makes of the subquery for each different value of the columns that it names.
    fn join(
        &mut self,
        subquery: &LogicalPlan,
        select: impl FnOnce(LogicalPlanBuilder, Vec<Expr>) -> Result<LogicalPlanBuilder>,
    ) -> Result<()> {
        let columns = outer_columns(subquery)?;
        // A value that a subquery before gave is a column of the joined rows alone.
        let is_of_source = columns.iter().all(|column| self.source.schema().has_column(column) || !self.plan.schema().has_column(column));
        let mut rows = std::mem::take(&mut self.plan);
        let source = if is_of_source { &mut self.source } else { &mut rows };
        let columns: Vec<Column> = columns.into_iter().filter(|column| source.schema().has_column(column)).collect();
        let domain = Domain::of(source, columns, self.names)?;
        if is_of_source && !self.is_joined {
            rows = self.source.clone();
        }
        let given = match domain.is_empty() {
            true => subquery.clone(),
            false => Carrier::new(&domain, self.names).carried(subquery)?.plan,
        };
        let given = select(LogicalPlanBuilder::from(given), domain.columns())?.build()?;
        self.plan = domain.join(rows, given, JoinType::Left, None)?;
        self.is_joined = true;
        Ok(())
    }
}

/// A join whose right side names columns of its left; `None` for any other.
fn lateral(join: &Join, names: &Names) -> Result<Option<LogicalPlan>> {
    let schema = join.left.schema();
    let columns: Vec<Column> = outer_columns(&join.right)?.into_iter().filter(|column| schema.has_column(column)).collect();
    if columns.is_empty() {
        return Ok(None);
    }
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return datafusion::common::plan_err!("LATERAL works after CROSS JOIN, JOIN or LEFT JOIN, not {}", join.join_type);
    }
    let on = join.on.iter().cloned().map(|(left, right)| left.eq(right));
    let condition = conjunction(join.filter.iter().cloned().chain(on));
    let all: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let plan = match join.join_type == JoinType::Inner && carried::is_row_wise(&join.right)? {
        true => {
            let domain = Domain::of_all_rows(&join.left, names)?;
            let rows = Carrier::new(&domain, names).carried(&join.right)?.plan;
            let shown = domain.restored().chain(join.right.schema().columns().into_iter().map(Expr::Column));
            let rows = LogicalPlanBuilder::from(rows).project(shown.collect::<Vec<_>>())?.build()?;
            match condition {
                Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::new(rows))?),
                None => rows,
            }
        }
        false => {
            let mut left = join.left.as_ref().clone();
            let domain = Domain::of(&mut left, columns, names)?;
            let rows = Carrier::new(&domain, names).carried(&join.right)?.plan;
            let shown = domain.columns().into_iter().chain(join.right.schema().columns().into_iter().map(Expr::Column));
            let rows = LogicalPlanBuilder::from(rows).project(shown)?.build()?;
            domain.join(left, rows, join.join_type, condition)?
        }
    };
    Ok(Some(LogicalPlanBuilder::from(plan).project(all)?.build()?))
}
