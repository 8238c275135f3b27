//! Model calls leave expressions: [`ExtractModelCalls`] hoists each call of an async function (`embed`, `generate`, `rerank`) into an [`Apply`] below the node
//! that uses it, innermost first, each distinct call once.
//!
//! A call of constants alone keeps its value: the model is called once, when the first row asks, wherever in the query the call stands.
//!
//! It runs last among the analyzer rules, after types are coerced, and exactly once: optimizer rules see plain columns afterwards, so none of them can
//! duplicate, fold or move a model call.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::async_udf::AsyncScalarUDF;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use tokio::sync::OnceCell;

use super::join_calls::hoist_from_join;
use super::value_calls;
use super::{Applied, Apply, ApplyFunction, ModelUse};
use crate::engine::function::acts;

#[derive(Debug)]
pub struct ExtractModelCalls;

impl AnalyzerRule for ExtractModelCalls {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let mut calls = Calls { config: Arc::new(config.clone()), of_constants: Vec::new() };
        plan.transform_up_with_subqueries(|node| extract(node, &mut calls)).map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "extract_model_calls"
    }
}

/// What the calls of one plan share.
pub(super) struct Calls {
    config: Arc<ConfigOptions>,
    /// The same call is the same function wherever it stands.
    of_constants: Vec<(Expr, Arc<ModelCall>)>,
}

pub(super) fn extract(plan: LogicalPlan, calls: &mut Calls) -> Result<Transformed<LogicalPlan>> {
    let mut rewritten = plan;
    let mut is_changed = false;
    // Each pass hoists the innermost calls; a nested call becomes innermost in the next one.
    while let Some(innermost) = innermost_calls(&rewritten)? {
        rewritten = hoist(rewritten, &innermost, calls)?;
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

/// Whether something in the plan, analyzed or not, calls a model, an agent or a search.
pub fn calls_model(plan: &LogicalPlan) -> Result<bool> {
    let mut calls = false;
    plan.apply_with_subqueries(|node| {
        let is_call = matches!(node, LogicalPlan::Extension(extension) if extension.node.as_any().is::<Apply>());
        calls = is_call || innermost_calls(node)?.is_some();
        Ok(if calls { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(calls)
}

pub fn async_function(expr: &Expr) -> Option<&Arc<ScalarUDF>> {
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
fn hoist(plan: LogicalPlan, calls: &[Expr], known: &mut Calls) -> Result<LogicalPlan> {
    let name = async_function(&calls[0]).map(|function| function.name().to_owned()).unwrap_or_default();
    match &plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => {
        }
        LogicalPlan::Extension(_) if plan.inputs().len() == 1 => {}
        LogicalPlan::Join(join) => return hoist_from_join(join, known),
        LogicalPlan::Values(values) => {
            let refused = || {
                plan_err!(
                    "rows of VALUES call different models, or some of them none, in one column; write SELECT ... UNION ALL SELECT ..."
                )
            };
            return value_calls::as_projection(values)?.map_or_else(refused, Ok);
        }
        other => return plan_err!("{name}() is not supported in {}; compute it in a subquery first", other.display()),
    }
    let original_schema = Arc::clone(plan.schema());
    let mut input = plan.inputs()[0].clone();
    let mut columns = Vec::with_capacity(calls.len());
    for call in calls {
        let column_name = format!("__{}_{}", async_function(call).map_or("", |function| function.name()), input.schema().fields().len());
        let (applied, column) = apply_call(input, call, known, column_name)?;
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
pub(super) fn apply_call(input: LogicalPlan, call: &Expr, known: &mut Calls, column_name: String) -> Result<(LogicalPlan, Column)> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = call else {
        return plan_err!("a model call must be a function call");
    };
    let args = args.iter().cloned().map(folded_constant).collect::<Result<Vec<_>>>()?;
    let call = Expr::ScalarFunction(ScalarFunction { func: Arc::clone(func), args: args.clone() });
    let function = match known.of_constants.iter().find(|(other, _)| *other == call) {
        Some((_, function)) => Arc::clone(function),
        None => {
            let function = Arc::new(ModelCall::new(func, &args, &call, input.schema(), &known.config)?);
            if function.is_constant() {
                known.of_constants.push((call, Arc::clone(&function)));
            }
            function
        }
    };
    let apply = Apply::try_new(input, function, args, None, vec![column_name.clone()], false)?;
    Ok((apply.into_plan(), Column::from_name(column_name)))
}

/// `'query: ' || 'text'` as one literal, so that a call of it is one of constants.
pub fn folded_constant(argument: Expr) -> Result<Expr> {
    if matches!(argument, Expr::Literal(..)) || !argument.column_refs().is_empty() || argument.is_volatile() {
        return Ok(argument);
    }
    ExprSimplifier::new(SimplifyContext::default()).simplify(argument)
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
    /// Constant arguments keep their value at plan time: the width of `embed`'s vector hangs on the model's name.
    constants: Vec<Option<ColumnarValue>>,
    /// Of a call of constants alone, when it was asked for.
    value: OnceCell<ArrayRef>,
    argument_fields: Vec<FieldRef>,
    return_field: FieldRef,
    schema: SchemaRef,
    config: Arc<ConfigOptions>,
}

impl ModelCall {
    fn new(function: &Arc<ScalarUDF>, arguments: &[Expr], call: &Expr, input: &DFSchema, config: &Arc<ConfigOptions>) -> Result<Self> {
        let return_field = call.to_field(input)?.1;
        Ok(Self {
            function: Arc::clone(function),
            constants: arguments.iter().map(constant).collect(),
            value: OnceCell::new(),
            argument_fields: arguments.iter().map(|argument| Ok(argument.to_field(input)?.1)).collect::<Result<_>>()?,
            // The node that applies it names the column.
            schema: Arc::new(Schema::new(vec![return_field.as_ref().clone()])),
            return_field,
            config: Arc::clone(config),
        })
    }

    /// One value for each of `num_rows` rows.
    async fn values(&self, args: Vec<ColumnarValue>, num_rows: usize) -> crate::error::Result<ArrayRef> {
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
        Ok(function.invoke_async_with_args(call).await?.into_array(num_rows)?)
    }
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

    fn is_constant(&self) -> bool {
        self.constants.iter().all(Option::is_some) && !acts(self.function.name())
    }

    fn model_use(&self) -> ModelUse {
        if self.is_constant() || acts(self.function.name()) { ModelUse::Little } else { ModelUse::EachRow }
    }

    async fn call(&self, arguments: Vec<ArrayRef>, num_rows: usize) -> crate::error::Result<Applied> {
        let values = if self.is_constant() {
            let constants = self.constants.iter().flatten().cloned().collect();
            let value = self.value.get_or_try_init(|| self.values(constants, 1)).await?;
            take(value, &UInt32Array::from(vec![0; num_rows]), None).map_err(DataFusionError::from)?
        } else {
            let args = arguments.into_iter().zip(&self.constants);
            let args = args.map(|(array, constant)| constant.clone().unwrap_or(ColumnarValue::Array(array)));
            self.values(args.collect(), num_rows).await?
        };
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![values]).map_err(DataFusionError::from)?;
        Ok(Applied::row_by_row(batch))
    }
}
