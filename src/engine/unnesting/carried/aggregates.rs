//! Aggregates of each value. Without GROUP BY there is a row for every value, also where no row of the subquery has it: `count(*)` is 0 there.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, Join, JoinConstraint, LogicalPlan, LogicalPlanBuilder, SortExpr, lit};

use super::super::domain::{hide, join_by_values};
use super::super::names::column;
use super::{Carried, Carrier, refused};

impl Carrier<'_> {
    pub(super) fn aggregated(&self, aggregate: &Aggregate) -> Result<Carried> {
        let is_whole = aggregate.group_expr.is_empty();
        if has_empty_group(aggregate) {
            return refused("GROUPING SETS, ROLLUP or CUBE with a group of all rows");
        }
        let (carried, mark) = match is_whole {
            true => self.every_value(&aggregate.input).map(|(carried, mark)| (carried, Some(Expr::Column(mark))))?,
            false => (self.carried(&aggregate.input)?, None),
        };
        let of_values = aggregate.aggr_expr.iter().map(|expression| self.of_value(expression, mark.as_ref(), &carried.order));
        let of_values = of_values.collect::<Result<Vec<_>>>()?;
        let groups = aggregate.group_expr.iter().map(|group| self.group(group)).collect::<Result<Vec<_>>>()?;
        let groups: Vec<Expr> = self.domain.columns().into_iter().chain(groups).collect();
        let plan = Aggregate::try_new(Arc::new(carried.plan), groups, of_values)?;
        Ok(Carried { plan: LogicalPlan::Aggregate(plan), order: Vec::new(), keys: Vec::new() })
    }

    fn group(&self, group: &Expr) -> Result<Expr> {
        let bound = self.bind(group.clone())?;
        Ok(if bound == *group { bound } else { bound.alias(group.schema_name().to_string()) })
    }

    /// The aggregate over rows that the subquery has, under its name, in the order of a subquery within it.
    fn of_value(&self, expression: &Expr, mark: Option<&Expr>, order: &[SortExpr]) -> Result<Expr> {
        if is_of_outer_query(expression)? {
            return refused("an aggregate over columns of the query round it alone, which is one of that query,");
        }
        let (relation, name) = expression.qualified_name();
        let filtered = self.bind(expression.clone().unalias())?.transform_up(|inner| {
            Ok(match inner {
                Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
                    if let Some(mark) = mark {
                        let given = params.filter.take().map(|filter| *filter);
                        params.filter = conjunction(std::iter::once(mark.clone()).chain(given)).map(Box::new);
                    }
                    if params.order_by.is_empty() && !params.distinct && !func.order_sensitivity().is_insensitive() {
                        params.order_by = order.to_vec();
                    }
                    Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
                }
                other => Transformed::no(other),
            })
        });
        Ok(filtered?.data.alias_qualified(relation, name))
    }

    /// The rows of the input with a mark that is true, and a row without it for each value that has none.
    fn every_value(&self, input: &LogicalPlan) -> Result<(Carried, Column)> {
        let mark = self.names.next("row");
        let marked = |plan: LogicalPlan| {
            let columns = plan.schema().columns().into_iter().map(Expr::Column).chain([hide(lit(true), &mark)]);
            LogicalPlanBuilder::from(plan).project(columns.collect::<Vec<_>>())?.build()
        };
        if let Some((rows, condition)) = self.rows_and_condition(input)? {
            let (domain, rows) = (Arc::new(self.domain.plan.clone()), Arc::new(marked(rows)?));
            let equality = NullEquality::NullEqualsNothing;
            let join = Join::try_new(domain, rows, Vec::new(), condition, JoinType::Left, JoinConstraint::On, equality, false)?;
            return Ok((Carried { plan: LogicalPlan::Join(join), order: Vec::new(), keys: Vec::new() }, mark));
        }
        let Carried { plan, order, keys } = self.carried(input)?;
        let relation = self.names.relation();
        let renamed: Vec<Column> = (1..=self.domain.hidden.len()).map(|number| column(&relation, number)).collect();
        let values = self.domain.columns().into_iter().zip(&renamed).map(|(value, name)| hide(value, name));
        let others = input.schema().columns().into_iter().chain(keys.iter().cloned()).map(Expr::Column);
        let rows = LogicalPlanBuilder::from(plan).project(values.chain(others).collect::<Vec<_>>())?.build()?;
        let on = self.domain.columns().into_iter().zip(renamed.into_iter().map(Expr::Column)).collect();
        let plan = join_by_values(self.domain.plan.clone(), marked(rows)?, on, None, JoinType::Left)?;
        Ok((Carried { plan, order, keys }, mark))
    }

    /// The input as rows that read nothing, and a condition that picks those of a value; `None` where it is more than that.
    fn rows_and_condition(&self, input: &LogicalPlan) -> Result<Option<(LogicalPlan, Option<Expr>)>> {
        if !self.reads(input)? {
            return Ok((!matches!(input, LogicalPlan::Sort(_))).then(|| (input.clone(), None)));
        }
        let LogicalPlan::Filter(filter) = input else { return Ok(None) };
        let is_one_relation = !filter.input.exists(|node| Ok(matches!(node, LogicalPlan::Join(_) | LogicalPlan::Sort(_))))?;
        if !is_one_relation || self.reads(&filter.input)? {
            return Ok(None);
        }
        let (of_values, of_rows): (Vec<&Expr>, Vec<&Expr>) =
            split_conjunction(&filter.predicate).into_iter().partition(|conjunct| conjunct.contains_outer());
        // What DataFusion joins itself, it joins below a filter alone.
        if of_values.iter().any(|conjunct| super::super::left_to_datafusion::has_subquery(conjunct)) {
            return Ok(None);
        }
        let mut rows = LogicalPlanBuilder::from(filter.input.as_ref().clone());
        if let Some(condition) = conjunction(of_rows.into_iter().cloned()) {
            rows = rows.filter(condition)?;
        }
        let condition = of_values.into_iter().cloned().map(|conjunct| self.bind(conjunct)).collect::<Result<Vec<_>>>()?;
        Ok(Some((rows.build()?, conjunction(condition))))
    }
}

/// Whether the arguments of an aggregate name columns, and none of its own query.
fn is_of_outer_query(expression: &Expr) -> Result<bool> {
    expression.exists(|inner| {
        let Expr::AggregateFunction(AggregateFunction { params, .. }) = inner else { return Ok(false) };
        let names_own = params.args.iter().any(|argument| !argument.column_refs().is_empty());
        Ok(!names_own && params.args.iter().any(Expr::contains_outer))
    })
}

/// Whether one of several groupings is that of all rows, which has a row also where there are none.
fn has_empty_group(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().any(|group| match group {
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        _ => false,
    })
}
