//! The nodes of a subquery, each with the columns of the [`Domain`] beside its own: what it gives, it gives for each of the values.

mod aggregates;
mod joins;
mod sets;

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, TableReference};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, FetchType, Limit, LogicalPlan, LogicalPlanBuilder, SkipType, Sort, SortExpr, SubqueryAlias, Unnest, Window, lit,
};

use super::domain::{Domain, hide};
use super::names::Names;
use super::references::outer_columns;
use super::shared_rows::{shared, shared_input};
use crate::engine::apply::Apply;
use crate::error::Error;

/// Rewrites a subquery for a domain.
pub struct Carrier<'a> {
    domain: &'a Domain,
    names: &'a Names,
    /// Rows that several parts of the subquery share, and what they are with the columns of the domain.
    shared: RefCell<Vec<(LogicalPlan, LogicalPlan)>>,
}

/// A plan with the columns of the domain, those of the subquery, and perhaps others that nobody names.
#[derive(Debug, Clone)]
pub struct Carried {
    pub plan: LogicalPlan,
    /// The order of the last ORDER BY, over columns of `keys`.
    order: Vec<SortExpr>,
    /// What every node hands on for the order.
    keys: Vec<Column>,
}

/// Whether each row of the domain could stand for itself: nothing in the plan has another meaning for several rows together.
pub fn is_row_wise(plan: &LogicalPlan) -> Result<bool> {
    if outer_columns(plan)?.is_empty() {
        return Ok(true);
    }
    match plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Unnest(_) => is_row_wise(plan.inputs()[0]),
        LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<Apply>() {
            Some(apply) => is_row_wise(&apply.input),
            None => Ok(false),
        },
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            let (left, right) = (outer_columns(&join.left)?.is_empty(), outer_columns(&join.right)?.is_empty());
            Ok((left || right) && is_row_wise(&join.left)? && is_row_wise(&join.right)?)
        }
        _ => Ok(false),
    }
}

impl<'a> Carrier<'a> {
    pub fn new(domain: &'a Domain, names: &'a Names) -> Self {
        Self { domain, names, shared: RefCell::default() }
    }

    pub fn carried(&self, plan: &LogicalPlan) -> Result<Carried> {
        if !matches!(plan, LogicalPlan::Sort(_)) && !self.reads(plan)? {
            return self.beside(plan);
        }
        match plan {
            LogicalPlan::Subquery(subquery) => self.carried(&subquery.subquery),
            LogicalPlan::SubqueryAlias(alias) => self.renamed(alias),
            LogicalPlan::Projection(projection) => {
                let values = projection.expr.iter().map(|value| self.bind(value.clone().unalias())).collect::<Result<Vec<_>>>()?;
                self.select(self.carried(&projection.input)?, values, plan)
            }
            LogicalPlan::Filter(filter) => {
                let condition = self.bind(filter.predicate.clone())?;
                self.carried(&filter.input)?.changed(|builder| builder.filter(condition))
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.sorted(sort),
            LogicalPlan::Limit(limit) => self.limited(limit),
            LogicalPlan::Join(join) => self.joined(join),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate),
            LogicalPlan::Distinct(distinct) => self.distinct(distinct),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::Window(window) => self.windows(window),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<Apply>() {
                Some(apply) => self.applied(apply),
                None => self.shared(plan),
            },
            LogicalPlan::RecursiveQuery(_) => refused("WITH RECURSIVE"),
            other => refused(&other.display().to_string()),
        }
    }

    /// Whether a plan names columns of the rows round the subquery.
    fn reads(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(outer_columns(plan)?.iter().any(|column| self.domain.carried(column).is_some()))
    }

    /// The expression over the carried columns.
    fn bind(&self, expression: Expr) -> Result<Expr> {
        let bound = expression.transform_up(|inner| {
            Ok(match &inner {
                Expr::OuterReferenceColumn(_, column) => match self.domain.carried(column) {
                    Some(carried) => Transformed::yes(Expr::Column(carried.clone())),
                    None => Transformed::no(inner),
                },
                _ => Transformed::no(inner),
            })
        });
        Ok(bound?.data)
    }

    fn binds(&self, expressions: &[Expr]) -> Result<Vec<Expr>> {
        expressions.iter().cloned().map(|expression| self.bind(expression)).collect()
    }

    fn bind_keys(&self, keys: &[SortExpr]) -> Result<Vec<SortExpr>> {
        let bound = |key: &SortExpr| Ok(SortExpr { expr: self.bind(key.expr.clone())?, asc: key.asc, nulls_first: key.nulls_first });
        keys.iter().map(bound).collect()
    }

    /// A part that reads nothing: all of it for each of the values.
    fn beside(&self, plan: &LogicalPlan) -> Result<Carried> {
        let rows = LogicalPlanBuilder::from(self.domain.plan.clone());
        let plan = match plan {
            LogicalPlan::EmptyRelation(empty) if empty.produce_one_row && empty.schema.fields().is_empty() => rows.build()?,
            other => rows.cross_join(other.clone())?.build()?,
        };
        Ok(Carried { plan, order: Vec::new(), keys: Vec::new() })
    }

    /// The columns of `shape` have these values; carried ones stay.
    fn select(&self, carried: Carried, values: Vec<Expr>, shape: &LogicalPlan) -> Result<Carried> {
        let named = values.into_iter().zip(shape.schema().iter()).map(|(value, (relation, field))| named(value, relation, field.name()));
        let keys = carried.keys.iter().cloned().map(Expr::Column);
        let all: Vec<Expr> = self.domain.columns().into_iter().chain(keys).chain(named).collect();
        carried.changed(|builder| builder.project(all))
    }

    fn renamed(&self, alias: &SubqueryAlias) -> Result<Carried> {
        let columns = alias.input.schema().columns().into_iter().map(Expr::Column).collect();
        self.select(self.carried(&alias.input)?, columns, &LogicalPlan::SubqueryAlias(alias.clone()))
    }

    fn sorted(&self, sort: &Sort) -> Result<Carried> {
        let keys = self.bind_keys(&sort.expr)?;
        let carried = self.carried(&sort.input)?;
        let relation = self.names.relation();
        let names: Vec<Column> = (1..=keys.len()).map(|number| super::names::column(&relation, number)).collect();
        let columns = self.domain.columns().into_iter().chain(sort.input.schema().columns().into_iter().map(Expr::Column));
        let all: Vec<Expr> = columns.chain(keys.iter().zip(&names).map(|(key, name)| hide(key.expr.clone(), name))).collect();
        let order = keys.iter().zip(&names);
        let order = order.map(|(key, name)| SortExpr { expr: Expr::Column(name.clone()), asc: key.asc, nulls_first: key.nulls_first });
        let order = order.collect();
        Ok(Carried { plan: LogicalPlanBuilder::from(carried.plan).project(all)?.build()?, order, keys: names })
    }

    /// A condition on the place that a row has among those of its values.
    fn limited(&self, limit: &Limit) -> Result<Carried> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (limit.get_skip_type()?, limit.get_fetch_type()?) else {
            return refused("LIMIT or OFFSET of something else than a number");
        };
        let carried = self.carried(&limit.input)?;
        let place = row_number().partition_by(self.domain.columns()).order_by(carried.order.clone()).build()?;
        let numbered = carried.changed(|builder| builder.window([place]))?;
        let schema = numbered.plan.schema();
        let place = Expr::Column(Column::from(schema.qualified_field(schema.fields().len() - 1)));
        let mut condition = place.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            condition = condition.and(place.lt_eq(lit(skip.saturating_add(fetch) as u64)));
        }
        let columns = limit.input.schema().columns().into_iter().map(Expr::Column).collect();
        self.select(numbered.changed(|builder| builder.filter(condition))?, columns, &limit.input)
    }

    /// Window functions see the rows of one value of the domain.
    fn windows(&self, window: &Window) -> Result<Carried> {
        let carried = self.carried(&window.input)?;
        let partitioned = window.window_expr.iter().map(|expression| self.partitioned(expression)).collect::<Result<Vec<_>>>()?;
        let given = carried.plan.schema().fields().len();
        let carried = carried.changed(|builder| builder.window(partitioned))?;
        let computed = carried.plan.schema().columns().into_iter().skip(given);
        let columns = window.input.schema().columns().into_iter().chain(computed).map(Expr::Column).collect();
        self.select(carried, columns, &LogicalPlan::Window(window.clone()))
    }

    fn partitioned(&self, expression: &Expr) -> Result<Expr> {
        let partitioned = self.bind(expression.clone())?.transform_up(|inner| {
            Ok(match inner {
                Expr::WindowFunction(mut function) => {
                    let WindowFunction { params, .. } = function.as_mut();
                    params.partition_by = self.domain.columns().into_iter().chain(std::mem::take(&mut params.partition_by)).collect();
                    Transformed::yes(Expr::WindowFunction(function))
                }
                other => Transformed::no(other),
            })
        });
        Ok(partitioned?.data)
    }

    fn unnest(&self, unnest: &Unnest) -> Result<Carried> {
        let Carried { plan, order, keys } = self.carried(&unnest.input)?;
        let plan = Unnest::try_new(Arc::new(plan), unnest.exec_columns.clone(), unnest.options.clone())?;
        Ok(Carried { plan: LogicalPlan::Unnest(plan), order, keys })
    }

    /// Parts that share rows share them still.
    fn shared(&self, plan: &LogicalPlan) -> Result<Carried> {
        let known = self.shared.borrow().iter().find(|(known, _)| known == plan).map(|(_, carried)| carried.clone());
        let plan = match (known, shared_input(plan)) {
            (Some(known), _) => known,
            (None, None) => return refused(&plan.display().to_string()),
            (None, Some(input)) => {
                let columns = self.domain.columns().into_iter().chain(plan.schema().columns().into_iter().map(Expr::Column));
                let rows = LogicalPlanBuilder::from(self.carried(input)?.plan).project(columns)?.build()?;
                let rows = shared(rows);
                self.shared.borrow_mut().push((plan.clone(), rows.clone()));
                rows
            }
        };
        Ok(Carried { plan, order: Vec::new(), keys: Vec::new() })
    }

    fn applied(&self, apply: &Apply) -> Result<Carried> {
        let arguments = self.binds(&apply.arguments)?;
        let Carried { plan, order, keys } = self.carried(&apply.input)?;
        let (function, names) = (Arc::clone(&apply.function), apply.column_names().to_vec());
        let plan = Apply::try_new(plan, function, arguments, apply.qualifier().cloned(), names, apply.is_outer)?.into_plan();
        Ok(Carried { plan, order, keys })
    }
}

impl Carried {
    fn changed(self, change: impl FnOnce(LogicalPlanBuilder) -> Result<LogicalPlanBuilder>) -> Result<Self> {
        Ok(Self { plan: change(LogicalPlanBuilder::from(self.plan))?.build()?, ..self })
    }
}

/// The name of a column in `relation`.
fn named(expression: Expr, relation: Option<&TableReference>, name: &str) -> Expr {
    match &expression {
        Expr::Column(column) if column.relation.as_ref() == relation && column.name == name => expression,
        _ => expression.alias_qualified(relation.cloned(), name),
    }
}

fn refused<T>(what: &str) -> Result<T> {
    Err(Error::NotSupported(format!("{what} in a subquery that names columns of the query round it is not supported; write a join")).into())
}
