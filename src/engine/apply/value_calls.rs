//! Model calls in VALUES, where no node below could compute them: the rows of calls become rows of their arguments, and a projection calls the model for all
//! of them at once.

use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Values};

use super::extract::async_function;

/// The same rows as a projection; `None` where a column has calls of different models, or calls beside other values, in several rows.
pub(super) fn as_projection(values: &Values) -> Result<Option<LogicalPlan>> {
    let typed = |expression: Expr, column: usize, schema: &DFSchema| {
        let field = values.schema.field(column);
        Ok::<_, datafusion::error::DataFusionError>(expression.cast_to(field.data_type(), schema)?.alias(field.name()))
    };
    if let [row] = values.values.as_slice() {
        let nothing = DFSchema::empty();
        let expressions =
            row.iter().enumerate().map(|(column, value)| typed(value.clone(), column, &nothing)).collect::<Result<Vec<_>>>()?;
        return LogicalPlanBuilder::empty(true).project(expressions)?.build().map(Some);
    }
    let mut rows: Vec<Vec<Expr>> = vec![Vec::new(); values.values.len()];
    let mut columns = Vec::with_capacity(values.schema.fields().len());
    for column in 0..values.schema.fields().len() {
        let cells: Vec<&Expr> = values.values.iter().map(|row| &row[column]).collect();
        if !cells.iter().any(|cell| holds_call(cell)) {
            columns.push(Column::Plain(rows[0].len()));
            rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell.clone()));
            continue;
        }
        let Some(calls) = cells.into_iter().map(call_of).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let (first, model) = (calls[0], calls[0].args.first());
        let is_same = |call: &&ScalarFunction| call.func == first.func && call.args.first() == model && call.args.len() == first.args.len();
        if !calls.iter().all(is_same) || first.args.is_empty() {
            return Ok(None);
        }
        columns.push(Column::Call { first: rows[0].len(), call: first.clone() });
        for (row, call) in rows.iter_mut().zip(calls) {
            row.extend(call.args[1..].iter().cloned());
        }
    }
    let arguments = LogicalPlanBuilder::values(rows)?.build()?;
    let schema = arguments.schema().clone();
    let argument = |position: usize| Expr::Column(schema.qualified_field(position).into());
    let expressions = columns.into_iter().enumerate().map(|(column, kind)| match kind {
        Column::Plain(position) => typed(argument(position), column, &schema),
        Column::Call { first, call: ScalarFunction { func, args } } => {
            let model = args[0].clone();
            let args = std::iter::once(model).chain((1..args.len()).map(|place| argument(first + place - 1))).collect();
            typed(Expr::ScalarFunction(ScalarFunction { func, args }), column, &schema)
        }
    });
    let expressions = expressions.collect::<Result<Vec<_>>>()?;
    LogicalPlanBuilder::new(arguments).project(expressions)?.build().map(Some)
}

enum Column {
    /// Position among the rows of arguments.
    Plain(usize),
    /// Position of the first argument after the model.
    Call { first: usize, call: ScalarFunction },
}

fn holds_call(expression: &Expr) -> bool {
    expression.exists(|inner| Ok(async_function(inner).is_some())).unwrap_or(true)
}

/// A call of a model whose arguments hold none.
fn call_of(cell: &Expr) -> Option<&ScalarFunction> {
    // The cast to the column's type, which the projection does.
    let cell = match cell {
        Expr::Cast(cast) => cast.expr.as_ref(),
        cell => cell,
    };
    match cell {
        Expr::ScalarFunction(call) if async_function(cell).is_some() && !call.args.iter().any(holds_call) => Some(call),
        _ => None,
    }
}
