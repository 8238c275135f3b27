//! Model calls leave expressions: [`ExtractModelCalls`] hoists each call of an async function (`embed`, `generate`, `rerank`) into an [`Apply`] below the node
//! that uses it, innermost first, each distinct call once.
//!
//! It runs last among the analyzer rules, after types are coerced, and exactly once: optimizer rules see plain columns afterwards, so none of them can
//! duplicate, fold or move a model call.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::AsyncScalarUDF;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use super::join_calls::hoist_from_join;
use super::{Applied, Apply, ApplyFunction};

#[derive(Debug)]
pub struct ExtractModelCalls;

impl AnalyzerRule for ExtractModelCalls {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let config = Arc::new(config.clone());
        plan.transform_up_with_subqueries(|node| extract(node, &config)).map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "extract_model_calls"
    }
}

pub(super) fn extract(plan: LogicalPlan, config: &Arc<ConfigOptions>) -> Result<Transformed<LogicalPlan>> {
    let mut rewritten = plan;
    let mut is_changed = false;
    // Each pass hoists the innermost calls; a nested call becomes innermost in the next one.
    while let Some(calls) = innermost_calls(&rewritten)? {
        rewritten = hoist(rewritten, &calls, config)?;
        is_changed = true;
    }
    Ok(if is_changed { Transformed::yes(rewritten) } else { Transformed::no(rewritten) })
}

/// The distinct async calls in the node's expressions that hold no other async call.
fn innermost_calls(plan: &LogicalPlan) -> Result<Option<Vec<Expr>>> {
    let expressions = plan.expressions();
    let calls = innermost_in(&expressions)?;
    Ok((!calls.is_empty()).then_some(calls))
}

/// The same in expressions.
pub(super) fn innermost_in<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> Result<Vec<Expr>> {
    let mut calls: Vec<Expr> = Vec::new();
    for expression in expressions {
        expression.apply(|inner| {
            if async_function(inner).is_some() && !calls.contains(inner) && !holds_inner_call(inner)? {
                calls.push(inner.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(calls)
}

pub(super) fn async_function(expr: &Expr) -> Option<&Arc<ScalarUDF>> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, .. }) if func.inner().downcast_ref::<AsyncScalarUDF>().is_some() => Some(func),
        _ => None,
    }
}

fn holds_inner_call(call: &Expr) -> Result<bool> {
    let Expr::ScalarFunction(ScalarFunction { args, .. }) = call else { return Ok(false) };
    for argument in args {
        if argument.exists(|inner| Ok(async_function(inner).is_some()))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `node(f(call))` over its input becomes `node(f(column))` over `Apply(input, call)`, projected back to the node's own columns.
fn hoist(plan: LogicalPlan, calls: &[Expr], config: &Arc<ConfigOptions>) -> Result<LogicalPlan> {
    let name = async_function(&calls[0]).map(|function| function.name().to_owned()).unwrap_or_default();
    match &plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => {
        }
        LogicalPlan::Extension(_) if plan.inputs().len() == 1 => {}
        LogicalPlan::Join(join) => return hoist_from_join(join, config),
        other => return plan_err!("{name}() is not supported in {}; compute it in a subquery first", other.display()),
    }
    let original_schema = Arc::clone(plan.schema());
    let mut input = plan.inputs()[0].clone();
    let mut columns = Vec::with_capacity(calls.len());
    for call in calls {
        let column_name = format!("__{}_{}", async_function(call).map_or("", |function| function.name()), input.schema().fields().len());
        let (applied, column) = apply_call(input, call, config, column_name)?;
        input = applied;
        columns.push((call, column));
    }
    let name_preserver = NamePreserver::new(&plan);
    let expressions = plan
        .expressions()
        .into_iter()
        .map(|expr| {
            let saved_name = name_preserver.save(&expr);
            Ok(saved_name.restore(replace_calls(expr, &columns)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let rebuilt = plan.with_new_exprs(expressions, vec![input])?;
    if rebuilt.schema().fields().len() == original_schema.fields().len() {
        return Ok(rebuilt);
    }
    let original_columns = original_schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::new(rebuilt).project(original_columns)?.build()
}

/// The expression with the columns of calls in their place.
pub(super) fn replace_calls(expression: Expr, columns: &[(&Expr, Column)]) -> Result<Expr> {
    let replaced = expression.transform_up(|inner| {
        Ok(match columns.iter().find(|(call, _)| **call == inner) {
            Some((_, column)) => Transformed::yes(Expr::Column(column.clone())),
            None => Transformed::no(inner),
        })
    })?;
    Ok(replaced.data)
}

/// The call in a node over `input`, and the column of its answers.
pub(super) fn apply_call(
    input: LogicalPlan,
    call: &Expr,
    config: &Arc<ConfigOptions>,
    column_name: String,
) -> Result<(LogicalPlan, Column)> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = call else {
        return plan_err!("a model call must be a function call");
    };
    let schema = input.schema();
    let return_field = call.to_field(schema)?.1;
    let argument_fields = args.iter().map(|argument| Ok(argument.to_field(schema)?.1)).collect::<Result<Vec<_>>>()?;
    let function = ModelCall {
        function: Arc::clone(func),
        // Constant arguments keep their value at plan time: the width of `embed`'s vector hangs on the model's name.
        constants: args.iter().map(constant).collect(),
        argument_fields,
        schema: Arc::new(Schema::new(vec![return_field.as_ref().clone().with_name(&column_name)])),
        return_field,
        config: Arc::clone(config),
    };
    let apply = Apply::try_new(input, Arc::new(function), args.clone(), None, vec![column_name.clone()], false)?;
    Ok((apply.into_plan(), Column::from_name(column_name)))
}

fn constant(argument: &Expr) -> Option<ColumnarValue> {
    match argument {
        Expr::Literal(value, _) => Some(ColumnarValue::Scalar(value.clone())),
        _ => None,
    }
}

/// A call of an async scalar function as an [`ApplyFunction`]: one row in, one row out.
#[derive(Debug)]
struct ModelCall {
    function: Arc<ScalarUDF>,
    constants: Vec<Option<ColumnarValue>>,
    argument_fields: Vec<FieldRef>,
    return_field: FieldRef,
    schema: SchemaRef,
    config: Arc<ConfigOptions>,
}

#[async_trait]
impl ApplyFunction for ModelCall {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn is_row_preserving(&self) -> bool {
        true
    }

    fn batch_rows(&self) -> usize {
        1024
    }

    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> crate::error::Result<Applied> {
        let args = arguments
            .into_iter()
            .zip(&self.constants)
            .map(|(array, constant)| constant.clone().unwrap_or(ColumnarValue::Array(array)))
            .collect();
        let call = ScalarFunctionArgs {
            args,
            arg_fields: self.argument_fields.clone(),
            number_rows: num_rows,
            return_field: Arc::clone(&self.return_field),
            config_options: Arc::clone(&self.config),
        };
        let Some(function) = self.function.inner().downcast_ref::<AsyncScalarUDF>() else {
            return Err(crate::error::Error::Internal(format!("{} is not an async function", self.function.name())));
        };
        let value = function.invoke_async_with_args(call).await?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![value.into_array(num_rows)?])
            .map_err(datafusion::error::DataFusionError::from)?;
        Ok(Applied::row_by_row(batch))
    }
}
