//! `+`, `-` and `*` of integers that fail where the result has no place, as in PostgreSQL (22003).
//!
//! DataFusion's operators wrap around, and nothing in a plan can tell them not to. So the analyzer puts functions in their place, which arrive at the
//! same numbers, or at none; a constant expression is folded by the same functions.

use std::any::Any;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use arrow::compute::kernels::numeric::{add, mul, neg, sub};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;

#[derive(Debug)]
pub struct CheckedIntegers;

impl AnalyzerRule for CheckedIntegers {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let (schema, names) = (schema_of(&node)?, NamePreserver::new(&node));
            node.map_expressions(|expression| {
                let name = names.save(&expression);
                let rewritten = checked(expression, &schema)?;
                Ok(if rewritten.transformed { rewritten.update_data(|expression| name.restore(expression)) } else { rewritten })
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "checked_integers"
    }
}

/// What the expressions of a node are made over: its inputs, or for a scan all columns of its table, which filters may name.
fn schema_of(node: &LogicalPlan) -> Result<DFSchema> {
    match node {
        LogicalPlan::TableScan(scan) => DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema()),
        other => Ok(merge_schema(&other.inputs())),
    }
}

/// The expression with the functions in the place of the operators on integers.
fn checked(expression: Expr, schema: &dyn ExprSchema) -> Result<Transformed<Expr>> {
    expression.transform_up(|inner| {
        let operation = match &inner {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let operation = Operation::of(*op);
                operation.filter(|_| integer(left, schema).is_some_and(|left| integer(right, schema) == Some(left)))
            }
            Expr::Negative(operand) => integer(operand, schema).map(|_| Operation::Negate),
            _ => None,
        };
        let Some(operation) = operation else { return Ok(Transformed::no(inner)) };
        let args = match inner {
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
            Expr::Negative(operand) => vec![*operand],
            other => return Ok(Transformed::no(other)),
        };
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func: operation.function(), args })))
    })
}

/// The type of an expression, if it is an integer. That of a parameter is not always known; its operator stays as it is.
fn integer(expression: &Expr, schema: &dyn ExprSchema) -> Option<DataType> {
    match expression {
        // As its operand's, without the names that DataFusion makes of all that is below.
        Expr::ScalarFunction(call) if Operation::of_call(call).is_some() => integer(call.args.first()?, schema),
        other => other.get_type(schema).ok().filter(|found| matches!(found, DataType::Int16 | DataType::Int32 | DataType::Int64)),
    }
}

/// What is computed, of one integer or two of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 4]> = LazyLock::new(|| {
    [Operation::Add, Operation::Subtract, Operation::Multiply, Operation::Negate].map(|operation| {
        let num_arguments = if operation == Operation::Negate { 1 } else { 2 };
        Arc::new(ScalarUDF::from(CheckedOperation { operation, signature: Signature::any(num_arguments, Volatility::Immutable) }))
    })
});

impl Operation {
    fn of(operator: Operator) -> Option<Self> {
        match operator {
            Operator::Plus => Some(Self::Add),
            Operator::Minus => Some(Self::Subtract),
            Operator::Multiply => Some(Self::Multiply),
            _ => None,
        }
    }

    fn of_call(call: &ScalarFunction) -> Option<Self> {
        (call.func.inner().as_ref() as &dyn Any).downcast_ref::<CheckedOperation>().map(|function| function.operation)
    }

    fn function(self) -> Arc<ScalarUDF> {
        Arc::clone(&FUNCTIONS[self as usize])
    }

    /// Between two operands, or before one.
    fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract | Self::Negate => "-",
            Self::Multiply => "*",
        }
    }
}

/// The function of an operation.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedOperation {
    operation: Operation,
    signature: Signature,
}

impl ScalarUDFImpl for CheckedOperation {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Negate => "checked_negate",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        // DataFusion asks with a NULL in the place of an aggregate what a subquery gives without rows.
        let known = arguments.iter().find(|argument| !argument.is_null()).or(arguments.first());
        known.cloned().ok_or_else(|| DataFusionError::Internal(format!("{} without arguments", self.name())))
    }

    /// NULL only where an argument is, as the operators: plans that were made for these say so.
    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    /// As the operators name their columns, so that whatever goes by the name of an expression finds it.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let mut name = String::new();
        write_name(&mut name, self.operation, arguments)?;
        Ok(name)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = match (self.operation, arguments.args.as_slice()) {
            (_, values) if values.iter().any(|value| value.data_type().is_null()) => {
                return Ok(ColumnarValue::Scalar(ScalarValue::try_from(arguments.return_type())?));
            }
            (Operation::Add, [left, right]) => apply(left, right, add),
            (Operation::Subtract, [left, right]) => apply(left, right, sub),
            (Operation::Multiply, [left, right]) => apply(left, right, mul),
            (Operation::Negate, [ColumnarValue::Array(values)]) => neg(values).map(ColumnarValue::Array).map_err(DataFusionError::from),
            (Operation::Negate, [ColumnarValue::Scalar(value)]) => value.arithmetic_negate().map(ColumnarValue::Scalar),
            (_, values) => Err(DataFusionError::Internal(format!("{} of {} arguments", self.name(), values.len()))),
        };
        result.map_err(|error| match error {
            DataFusionError::ArrowError(error, _) if matches!(*error, ArrowError::ArithmeticOverflow(_)) => {
                let name = match arguments.return_type() {
                    DataType::Int16 => "smallint",
                    DataType::Int32 => "integer",
                    _ => "bigint",
                };
                DataFusionError::from(ArrowError::ArithmeticOverflow(format!("{name} out of range")))
            }
            other => other,
        })
    }
}

/// All into one text: one per operand would be copied as often as operators are nested.
fn write_name(name: &mut String, operation: Operation, arguments: &[Expr]) -> Result<()> {
    for (index, argument) in arguments.iter().enumerate() {
        match (operation, index) {
            (Operation::Negate, _) => name.push_str("(- "),
            (_, 0) => {}
            (other, _) => write!(name, " {} ", other.sign())?,
        }
        let nested = match argument {
            Expr::ScalarFunction(call) => Operation::of_call(call).map(|inner| (inner, &call.args)),
            _ => None,
        };
        match nested {
            Some((inner, arguments)) => write_name(name, inner, arguments)?,
            None => write!(name, "{}", argument.schema_name())?,
        }
    }
    if operation == Operation::Negate {
        name.push(')');
    }
    Ok(())
}
