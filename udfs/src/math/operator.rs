//! PostgreSQL's operators `^` and `^@`.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::functions::{math, string};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// `a ^ b` is a power in double precision, `a ^@ b` asks whether a text begins with another.
#[derive(Debug, Default)]
pub struct MathOperatorPlanner;

impl ExprPlanner for MathOperatorPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, _: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let planned = match expr.op {
            BinaryOperator::PGExp => {
                let double = |operand: Expr| cast(operand, DataType::Float64);
                math::power().call(vec![double(expr.left), double(expr.right)])
            }
            BinaryOperator::PGStartsWith => string::starts_with().call(vec![expr.left, expr.right]),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        Ok(PlannerResult::Planned(planned))
    }
}
