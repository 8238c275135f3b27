//! The way from a sort down to the scan of one table: projections, aliases, conditions that stay above the scan, and model calls of constants.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};
use rolloutdb_catalogs::QueryVector;

use super::distance::{constant_vector, vector_parameter};
use super::query::{ModelQuery, SubqueryVector};
use crate::engine::apply::{Apply, ApplyFunction};

/// The relation of a column that stands for the value of a model call; the name says the call, so that two of one call are one column.
const MODEL_CALL: &str = "__model_call";

pub struct Path {
    pub scan: TableScan,
    /// Over the columns of the scan: those that were asked for, then the conditions of filters on the way.
    pub expressions: Vec<Expr>,
    calls: Vec<(Column, Arc<dyn ApplyFunction>)>,
}

impl Path {
    /// From `plan` down, with expressions over its columns. The error is why there is none.
    pub fn to_scan(plan: &LogicalPlan, expressions: Vec<Expr>) -> Result<Self, String> {
        match plan {
            LogicalPlan::TableScan(scan) => Ok(Self { scan: scan.clone(), expressions, calls: Vec::new() }),
            LogicalPlan::Projection(projection) => {
                let below = |position: usize| projection.expr.get(position).cloned().map(Expr::unalias);
                Self::to_scan(&projection.input, all_below(plan, expressions, below)?)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let below = |position: usize| Some(Expr::Column(Column::from(alias.input.schema().qualified_field(position))));
                Self::to_scan(&alias.input, all_below(plan, expressions, below)?)
            }
            LogicalPlan::Filter(filter) => {
                let conditions = split_conjunction(&filter.predicate).into_iter().cloned().map(Expr::unalias);
                Self::to_scan(&filter.input, expressions.into_iter().chain(conditions).collect())
            }
            LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<Apply>() {
                Some(apply) if apply.function.is_constant() => Self::through_call(plan, apply, expressions),
                Some(apply) => Err(format!("{} is called for each row", apply.function.name())),
                None => Err(format!("{} stands between the table and the sort", extension.node.name())),
            },
            other => Err(format!("{} stands between the table and the sort", kind(other))),
        }
    }

    fn through_call(plan: &LogicalPlan, apply: &Apply, expressions: Vec<Expr>) -> Result<Self, String> {
        let value = Column::new(Some(MODEL_CALL), apply.call_text());
        let num_columns = apply.input.schema().fields().len();
        let below = |position: usize| {
            Some(Expr::Column(match position < num_columns {
                true => Column::from(apply.input.schema().qualified_field(position)),
                false => value.clone(),
            }))
        };
        let mut path = Self::to_scan(&apply.input, all_below(plan, expressions, below)?)?;
        path.calls.push((value.clone(), Arc::clone(&apply.function)));
        Ok(path)
    }

    /// What a scan is to be near to, given as the constant, the parameter or the value of a model call in a distance.
    pub fn query(&self, expression: &Expr) -> Option<QueryVector> {
        match expression {
            of_subquery if is_of_subquery(of_subquery) => {
                Some(QueryVector::Later(Arc::new(SubqueryVector { expression: of_subquery.clone() })))
            }
            Expr::Cast(cast) => self.query(&cast.expr),
            Expr::Column(column) => {
                let (column, function) = self.calls.iter().find(|(known, _)| known == column)?;
                Some(QueryVector::Later(Arc::new(ModelQuery { function: Arc::clone(function), text: column.name.clone() })))
            }
            other => match vector_parameter(other) {
                Some(id) => Some(QueryVector::Parameter(id.to_owned())),
                None => constant_vector(other).map(QueryVector::Constant),
            },
        }
    }
}

/// Whether a query vector is the value of a subquery, as it is or in a cast.
pub fn is_of_subquery(expression: &Expr) -> bool {
    match expression {
        Expr::Cast(cast) => is_of_subquery(&cast.expr),
        other => matches!(other, Expr::ScalarSubquery(_)),
    }
}

/// Whether a column of [`Path::expressions`] is the value of a model call.
pub fn is_model_call(column: &Column) -> bool {
    column.relation.as_ref().is_some_and(|relation| relation.table() == MODEL_CALL)
}

/// The expressions over the columns of `plan` as expressions over what is below it.
pub fn all_below(plan: &LogicalPlan, expressions: Vec<Expr>, below: impl Fn(usize) -> Option<Expr>) -> Result<Vec<Expr>, String> {
    expressions.into_iter().map(|expression| replaced(plan, expression, &below)).collect()
}

/// The expression with each column of `plan` as what is below it. The value of a model call stays what it is.
fn replaced(plan: &LogicalPlan, expression: Expr, below: impl Fn(usize) -> Option<Expr>) -> Result<Expr, String> {
    let mut unknown = None;
    let replaced = expression.transform_up(|inner| match &inner {
        Expr::Column(column) if is_model_call(column) => Ok(Transformed::no(inner)),
        Expr::Column(column) => match plan.schema().maybe_index_of_column(column).and_then(&below) {
            Some(expression) => Ok(Transformed::yes(expression)),
            None => {
                unknown = Some(column.clone());
                Ok(Transformed::no(inner))
            }
        },
        _ => Ok(Transformed::no(inner)),
    });
    match (replaced, unknown) {
        (Ok(replaced), None) => Ok(replaced.data),
        (_, unknown) => Err(format!("column {} is not one of the table", unknown.map(|column| column.name).unwrap_or_default())),
    }
}

/// A node in SQL's words.
fn kind(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Join(_) => "a join",
        LogicalPlan::Aggregate(_) => "a GROUP BY",
        LogicalPlan::Distinct(_) => "DISTINCT",
        LogicalPlan::Union(_) => "UNION",
        LogicalPlan::Window(_) => "a window function",
        LogicalPlan::Limit(_) => "another LIMIT",
        LogicalPlan::Sort(_) => "another ORDER BY",
        LogicalPlan::Unnest(_) => "unnest",
        _ => "something else",
    }
}
