//! Values that are made large: a function that can make more than it is given asks before it makes it.
//!
//! `repeat('x', 1000000000)` is a second of work and a gigabyte that no operator counts, in a batch of 8,192 rows more than any machine has. So the analyzer puts
//! [`Bounded`] round the functions that can grow their arguments, and round `||`. It knows from the arguments how much will come out ([`size`]), refuses a value that is
//! larger than PostgreSQL lets one be (54000), and takes the rest from the memory of the statement (53200) for as long as the column is held
//! ([`counted`]). Projections and filters over such calls take their rows in pieces that fit ([`pieces`]).
//!
//! Functions that make at most a few times of what they read, as `upper`, are left alone, and aggregates count what they hold themselves.

mod bounded;
mod concatenation;
mod counted;
mod pieces;
mod size;

use std::any::Any;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use super::session_memory::SessionMemory;
use bounded::{Bounded, Memory};
use concatenation::Concatenation;

pub use bounded::{VALUE_BYTES_MAX, without_large_constants};
pub use pieces::InPieces;
pub use size::bytes_of_rows;

/// The last of the rules that know the functions of the statement by what they are.
#[derive(Debug)]
pub struct LargeValues {
    pub memory: Arc<SessionMemory>,
}

impl AnalyzerRule for LargeValues {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            // The rows of VALUES are computed one after the other when the plan is made, and all of them are kept.
            let is_kept = matches!(node, LogicalPlan::Values(_));
            let inputs = node.inputs().into_iter().cloned().collect::<Vec<_>>();
            let mut made = None;
            node.map_expressions(|expression| {
                if !expression.exists(|inner| Ok(may_grow(inner)))? {
                    return Ok(Transformed::no(expression));
                }
                let name = names.save(&expression);
                let schema = merge_schema(&inputs.iter().collect::<Vec<_>>());
                let memory = made
                    .get_or_insert_with(|| if is_kept { Memory::of_all_calls(&self.memory) } else { Memory::of_each_call(&self.memory) });
                let bounded = expression.transform_up(|inner| {
                    Ok(match inner {
                        Expr::ScalarFunction(call) if is_bounded(&call) => Transformed::no(Expr::ScalarFunction(call)),
                        Expr::ScalarFunction(call) => match size::of(call.func.name()) {
                            Some(growth) => {
                                let func = Bounded::function(call.func, growth, memory.clone());
                                Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args: call.args }))
                            }
                            None => Transformed::no(Expr::ScalarFunction(call)),
                        },
                        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
                            match operands(*left, *right, |operand| operand.get_type(&schema)) {
                                Ok(args) => {
                                    let func = Bounded::function(Concatenation::function(), size::JOINING, memory.clone());
                                    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
                                }
                                Err((left, right)) => {
                                    Transformed::no(Expr::BinaryExpr(BinaryExpr::new(left, Operator::StringConcat, right)))
                                }
                            }
                        }
                        other => Transformed::no(other),
                    })
                })?;
                Ok(bounded.update_data(|expression| name.restore(expression)))
            })
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "large_values"
    }
}

fn may_grow(expression: &Expr) -> bool {
    match expression {
        Expr::ScalarFunction(call) => size::of(call.func.name()).is_some() && !is_bounded(call),
        Expr::BinaryExpr(binary) => binary.op == Operator::StringConcat,
        _ => false,
    }
}

/// Plans are analyzed more than once where one statement is made of another.
fn is_bounded(call: &ScalarFunction) -> bool {
    (call.func.inner().as_ref() as &dyn Any).is::<Bounded>()
}

/// What `||` is between, those of `||` on the left among them: a chain of many is one call. The two as they were, if they are not texts.
fn operands(
    left: Expr,
    right: Expr,
    type_of: impl Fn(&Expr) -> Result<arrow::datatypes::DataType>,
) -> std::result::Result<Vec<Expr>, (Box<Expr>, Box<Expr>)> {
    let is_chain = |expression: &Expr| matches!(expression, Expr::ScalarFunction(call) if Concatenation::is_function(call));
    let takes = |expression: &Expr| type_of(expression).is_ok_and(|found| Concatenation::takes(&found));
    // A chain is of texts, and whoever reads its type reads that of each link.
    let both = if is_chain(&left) { takes(&right) } else { takes(&left) && type_of(&left).ok() == type_of(&right).ok() };
    if !both {
        return Err((Box::new(left), Box::new(right)));
    }
    let mut operands = match left {
        Expr::ScalarFunction(call) if Concatenation::is_function(&call) => call.args,
        other => vec![other],
    };
    operands.push(right);
    Ok(operands)
}

#[cfg(test)]
mod tests;
