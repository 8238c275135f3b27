//! The text after `filter =>` of a search function: a condition over the columns of the table that it searches, planned and typed with the statement.

use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::async_udf::AsyncScalarUDF;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, ExprSchemable, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{Query, Visit, Visitor};
use rolloutdb_catalogs::Table;

use crate::engine::parameter_values::ParameterValues;
use crate::error::{Error, Result};

/// The condition as an expression over the table's bare columns, of type boolean.
///
/// # Errors
/// A syntax error, an unknown column or function, [`Error::WrongType`] for another type, [`Error::NotSupported`] for what one row alone cannot answer:
/// subqueries, aggregates, model calls. Parameters without values stay in it.
pub fn plan_filter(
    text: &str,
    table: &Table,
    parameters: &ParameterValues,
    context: &mut dyn RelationPlannerContext,
) -> DataFusionResult<Expr> {
    let parsed = rolloutdb_sql::parse_expression(text).map_err(Error::from)?;
    // The planner would first ask for the tables of a subquery, which nobody has opened.
    if parsed.visit(&mut Subqueries).is_break() {
        return Err(refusal("a subquery").into());
    }
    let schema = DFSchema::try_from_qualified_schema(table.name(), &table.definition().schema)?;
    let planned = parameters.bind(context.sql_to_expr(parsed, &schema)?)?;
    check_parts(&planned)?;
    let simplify = SimplifyContext::builder().with_schema(schema.clone().into()).build();
    let simplifier = ExprSimplifier::new(simplify);
    let condition = simplifier.simplify(simplifier.coerce(planned, &schema)?)?;
    let data_type = condition.get_type(&schema)?;
    if !matches!(data_type, DataType::Boolean | DataType::Null) {
        let found = data_type.to_string();
        return Err(Error::WrongType { what: format!("the filter \"{text}\""), found, expected: "a condition".to_owned() }.into());
    }
    let bare = condition.cast_to(&DataType::Boolean, &schema)?.transform_up(|inner| match inner {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::from_name(column.name)))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(bare.data)
}

fn check_parts(condition: &Expr) -> Result<()> {
    let mut refused = None;
    condition.apply(|inner| {
        refused = what_is_refused(inner);
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match refused {
        None => Ok(()),
        Some(what) => Err(refusal(what)),
    }
}

fn refusal(what: &str) -> Error {
    Error::NotSupported(format!("{what} is not supported in a filter; put it into a WHERE outside of the search"))
}

/// Stops at the first query within an expression.
struct Subqueries;

impl Visitor for Subqueries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

fn what_is_refused(part: &Expr) -> Option<&'static str> {
    match part {
        Expr::AggregateFunction(_) | Expr::WindowFunction(_) => Some("an aggregate"),
        Expr::ScalarFunction(ScalarFunction { func, .. }) if func.inner().downcast_ref::<AsyncScalarUDF>().is_some() => {
            Some("a model call")
        }
        // The plan of a prepared statement, and the filter in it, is used again.
        Expr::ScalarFunction(ScalarFunction { func, .. }) if func.signature().volatility != Volatility::Immutable => {
            Some("a function whose result changes by itself")
        }
        _ => None,
    }
}
