//! Arrays and records where a function takes a text: PostgreSQL has no such function. DataFusion would print them, in Arrow's notation.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use crate::engine::typing::{is_text, sql_type_of};
use crate::error::{Error, Result, Unresolved};

/// Functions whose arguments are of any type, and are printed as PostgreSQL prints them.
const OF_ANY_TYPE: [&str; 2] = ["concat", "concat_ws"];

/// # Errors
/// [`Error::Unresolved`] (42883) for the first call with one.
pub fn check(plan: &LogicalPlan) -> Result<()> {
    let mut wrong = None;
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                wrong = printed(inner, &schema);
                Ok(if wrong.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    })?;
    match wrong {
        None => Ok(()),
        Some(Printed { function, arguments, nested }) => {
            let message = format!("function {function}({arguments}) does not exist: it takes a text where {nested} is given");
            Err(Error::Unresolved { kind: Unresolved::Function, message })
        }
    }
}

/// A call that would print a list.
struct Printed {
    function: String,
    /// Their types.
    arguments: String,
    nested: String,
}

fn printed(expression: &Expr, schema: &DFSchema) -> Option<Printed> {
    let (function, args) = match expression {
        Expr::ScalarFunction(call) => (call.func.name(), &call.args),
        Expr::AggregateFunction(call) => (call.func.name(), &call.params.args),
        _ => return None,
    };
    if OF_ANY_TYPE.contains(&function) || !args.iter().any(|argument| argument.get_type(schema).is_ok_and(|found| found.is_nested())) {
        return None;
    }
    let fields =
        args.iter().map(|argument| argument.to_field(schema).map(|(_, field)| field)).collect::<Result<Vec<FieldRef>, _>>().ok()?;
    let taken = match expression {
        Expr::ScalarFunction(call) => fields_with_udf(&fields, call.func.as_ref()),
        Expr::AggregateFunction(call) => fields_with_udf(&fields, call.func.as_ref()),
        _ => return None,
    };
    let taken = taken.ok()?;
    let is_printed = |found: &DataType, taken: &DataType| found.is_nested() && is_text(taken);
    let nested = fields.iter().zip(&taken).find(|(found, taken)| is_printed(found.data_type(), taken.data_type()))?.0;
    let arguments = fields.iter().map(|field| sql_type_of(field)).collect::<Vec<_>>().join(", ");
    Some(Printed { function: function.to_owned(), arguments, nested: sql_type_of(nested) })
}
