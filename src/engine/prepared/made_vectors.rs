//! Vectors that a model makes of parameters, as `embed('m', $1)` in `ORDER BY v <=> embed('m', $1)`: parameters too, whose values are known before a run.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};

use crate::engine::apply::extract::async_function;
use crate::engine::parameter_values::ParameterValues;
use crate::error::Result;

pub struct MadeVectors {
    /// The calls, with the type of each vector.
    calls: Vec<(Expr, DataType)>,
    state: SessionState,
}

impl std::fmt::Debug for MadeVectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.calls.iter().map(|(call, _)| call.to_string())).finish()
    }
}

impl MadeVectors {
    /// The plan with a parameter in the place of each call, numbered after those that it has.
    pub fn of(plan: LogicalPlan, num_parameters: usize, state: &SessionState) -> Result<(LogicalPlan, Self)> {
        let mut calls: Vec<(Expr, DataType)> = Vec::new();
        let plan = plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let replaced = expression.transform_down(|inner| {
                    let Some(field) = made_of_parameters(&inner) else { return Ok(Transformed::no(inner)) };
                    let known = calls.iter().position(|(call, _)| *call == inner);
                    let position = known.unwrap_or_else(|| {
                        calls.push((inner, field.data_type().clone()));
                        calls.len() - 1
                    });
                    let id = format!("${}", num_parameters + position + 1);
                    Ok(Transformed::yes(Expr::Placeholder(Placeholder::new_with_field(id, Some(field)))))
                })?;
                Ok(if replaced.transformed { Transformed::yes(name.restore(replaced.data)) } else { replaced })
            })
        })?;
        Ok((plan.data, Self { calls, state: state.clone() }))
    }

    /// Calls the models; `None` if one gives NULL or a vector of another type than before.
    pub async fn make(&self, parameters: &[ScalarValue]) -> Result<Option<Vec<ScalarValue>>> {
        if self.calls.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let known = ParameterValues::all(parameters);
        let calls = self.calls.iter().enumerate().map(|(position, (call, _))| Ok(known.bind(call.clone())?.alias(position.to_string())));
        let plan = LogicalPlanBuilder::empty(true).project(calls.collect::<Result<Vec<_>>>()?)?.build()?;
        let rows = DataFrame::new(self.state.clone(), plan).collect().await?;
        let Some(row) = rows.iter().find(|batch| batch.num_rows() > 0) else { return Ok(None) };
        let values = row.columns().iter().map(|column| ScalarValue::try_from_array(column, 0));
        let values = values.collect::<datafusion::error::Result<Vec<_>>>()?;
        let is_same = |(value, (_, data_type)): (&ScalarValue, &(Expr, DataType))| !value.is_null() && value.data_type() == *data_type;
        Ok(values.iter().zip(&self.calls).all(is_same).then_some(values))
    }
}

/// The field of the vector, if an expression is a call of a model for one, with nothing in it but constants and parameters, and one of these at least.
fn made_of_parameters(expression: &Expr) -> Option<Arc<arrow::datatypes::Field>> {
    async_function(expression)?;
    let Expr::ScalarFunction(ScalarFunction { args, .. }) = expression else { return None };
    let is_known = args.iter().all(|argument| argument.column_refs().is_empty() && !argument.contains_outer() && !argument.is_volatile());
    let has_parameter = expression.exists(|inner| Ok(matches!(inner, Expr::Placeholder(_)))).ok()?;
    let has_call_within = args.iter().any(|argument| argument.exists(|inner| Ok(async_function(inner).is_some())).unwrap_or(true));
    if !is_known || !has_parameter || has_call_within {
        return None;
    }
    let field = expression.to_field(&DFSchema::empty()).ok()?.1;
    matches!(field.data_type(), DataType::FixedSizeList(..)).then_some(field)
}
