//! Comparisons within expressions: operators, IN, BETWEEN, CASE, NULLIF, arrays that are searched, keys of windows and of ordered aggregates.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, Between, Case, InList, InSubquery, ScalarFunction, SetComparison, WindowFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, Subquery, lit, when};

use super::one_form::{Zero, one_form, with_zero};
use super::{is_float, stored};
use crate::engine::nearest_neighbours::has_distance;

/// The functions whose result depends on which of their values are equal.
const SEARCHES: [&str; 8] = [
    "array_has",
    "array_has_any",
    "array_has_all",
    "array_position",
    "array_positions",
    "array_overlap",
    "array_remove",
    "array_remove_all",
];

/// Whether an expression may be one that is rewritten.
pub fn compares(expression: &Expr) -> bool {
    match expression {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => is_comparison(*op),
        Expr::InList(_) | Expr::Between(_) | Expr::InSubquery(_) | Expr::SetComparison(_) | Expr::WindowFunction(_) => true,
        Expr::Case(case) => case.expr.is_some(),
        Expr::AggregateFunction(call) => call.params.distinct || !call.params.order_by.is_empty(),
        Expr::ScalarFunction(call) => call.name() == "nullif" || SEARCHES.contains(&call.name()),
        _ => false,
    }
}

/// Whether a condition compares floats with those of the query round it, so that it needs their one form.
pub fn depends_on_outer_form(condition: &Expr, schema: &dyn ExprSchema) -> Result<bool> {
    condition.exists(|inner| {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = inner else { return Ok(false) };
        let is_outer = left.contains_outer() || right.contains_outer();
        let is_variable = !is_constant(left) && !is_constant(right);
        Ok(is_outer && is_variable && is_comparison(*op) && (is_float(left, schema) || is_float(right, schema)))
    })
}

/// The expression with its comparisons of floats as PostgreSQL makes them.
pub fn within(expression: Expr, rows: Rows) -> Result<Transformed<Expr>> {
    if !expression.exists(|inner| Ok(compares(inner)))? {
        return Ok(Transformed::no(expression));
    }
    expression.transform_up(|inner| rewritten(inner, rows))
}

/// What an expression is computed from.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub schema: &'a dyn ExprSchema,
    pub inputs: &'a [&'a LogicalPlan],
}

impl Rows<'_> {
    /// A column of a table, whose bits a filter that goes down to the storage has to see; and a distance, by which nearest rows are found. Neither has a
    /// NaN with a sign: a table stores none. One that was computed may have.
    fn keeps_form(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Column(column) => self.inputs.iter().any(|input| stored::is_stored(column, input)),
            other => has_distance(other),
        }
    }
}

fn rewritten(expression: Expr, rows: Rows) -> Result<Transformed<Expr>> {
    let schema = rows.schema;
    let of_floats = |side: &Expr| is_float(side, schema);
    Ok(match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) && (of_floats(&left) || of_floats(&right)) => {
            binary(*left, op, *right, rows)
        }
        Expr::Between(between) if of_floats(&between.expr) => Transformed::yes(of_between(between, rows)),
        Expr::InList(list) if of_floats(&list.expr) => Transformed::yes(of_list(list, rows)),
        Expr::Case(Case { expr: Some(value), when_then_expr, else_expr }) if of_floats(&value) => {
            let arms = when_then_expr.into_iter().map(|(when, then)| (Box::new(one_form(*when)), then)).collect();
            Transformed::yes(Expr::Case(Case { expr: Some(Box::new(one_form(*value))), when_then_expr: arms, else_expr }))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) if of_floats(&expr) => {
            let subquery = in_one_form(subquery)?;
            Transformed::yes(Expr::InSubquery(InSubquery { expr: Box::new(one_form(*expr)), subquery, negated }))
        }
        Expr::SetComparison(comparison) if of_floats(&comparison.expr) => {
            let subquery = in_one_form(comparison.subquery.clone())?;
            Transformed::yes(Expr::SetComparison(SetComparison { expr: Box::new(one_form(*comparison.expr)), subquery, ..comparison }))
        }
        Expr::ScalarFunction(call) if call.args.iter().any(of_floats) => of_call(call, schema)?,
        Expr::AggregateFunction(call) => of_aggregate(call, schema),
        Expr::WindowFunction(call) => of_window(call, schema),
        other => Transformed::no(other),
    })
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether it is the same for all rows and needs none of them.
fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(..) | Expr::Placeholder(_) => true,
        Expr::Cast(cast) => is_constant(&cast.expr),
        Expr::Negative(inner) => is_constant(inner),
        _ => false,
    }
}

fn binary(left: Expr, op: Operator, right: Expr, rows: Rows) -> Transformed<Expr> {
    let compared = |left: Expr, op: Operator, right: Expr| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)));
    // Rules that make joins of subqueries look for a column beside the outer one. They get none in which the form counts: see [`depends_on_outer_form`].
    if left.contains_outer() || right.contains_outer() {
        return Transformed::no(compared(left, op, right));
    }
    if let (Some(turned), true, true) = (op.swap(), is_constant(&left), rows.keeps_form(&right)) {
        let swapped = binary(right.clone(), turned, left.clone(), rows);
        return if swapped.transformed { swapped } else { Transformed::no(compared(left, op, right)) };
    }
    if rows.keeps_form(&left) && is_constant(&right) {
        if !may_be_zero(&right) || (has_distance(&left) && !matches!(right, Expr::Literal(..))) {
            return Transformed::no(compared(left, op, right));
        }
        if let Some((op, zero)) = bound(op) {
            return Transformed::yes(compared(left, op, with_zero(zero, right)));
        }
        if matches!(right, Expr::Literal(..)) && matches!(op, Operator::Eq | Operator::NotEq) {
            let zeros = [Zero::Negative, Zero::Positive].map(|zero| with_zero(zero, right.clone()));
            return Transformed::yes(Expr::InList(InList::new(Box::new(left), zeros.to_vec(), op == Operator::NotEq)));
        }
    }
    Transformed::yes(compared(one_form(left), op, one_form(right)))
}

/// The sign of a zero with which a column that has both of them compares right.
fn bound(operator: Operator) -> Option<(Operator, Zero)> {
    match operator {
        Operator::Lt | Operator::GtEq => Some((operator, Zero::Negative)),
        Operator::Gt | Operator::LtEq => Some((operator, Zero::Positive)),
        _ => None,
    }
}

/// All but constants that are known to be other numbers, or a NaN without a sign.
fn may_be_zero(constant: &Expr) -> bool {
    let Expr::Literal(value, _) = constant else { return true };
    let is_plain = |number: f64| if number.is_nan() { number.is_sign_positive() } else { number != 0.0 };
    match value {
        ScalarValue::Float64(Some(number)) => !is_plain(*number),
        ScalarValue::Float32(Some(number)) => !is_plain(f64::from(*number)),
        ScalarValue::Float16(Some(number)) => !is_plain(f64::from(number.to_f32())),
        ScalarValue::Float64(None) | ScalarValue::Float32(None) | ScalarValue::Float16(None) => false,
        _ => true,
    }
}

fn of_between(Between { expr, negated, low, high }: Between, rows: Rows) -> Expr {
    if rows.keeps_form(&expr) && is_constant(&low) && is_constant(&high) {
        let (low, high) = (Box::new(with_zero(Zero::Negative, *low)), Box::new(with_zero(Zero::Positive, *high)));
        return Expr::Between(Between { expr, negated, low, high });
    }
    let form = |side: Box<Expr>| Box::new(one_form(*side));
    Expr::Between(Between { expr: form(expr), negated, low: form(low), high: form(high) })
}

fn of_list(InList { expr, list, negated }: InList, rows: Rows) -> Expr {
    if !rows.keeps_form(&expr) || !list.iter().all(|value| matches!(value, Expr::Literal(..))) {
        let list = list.into_iter().map(one_form).collect();
        return Expr::InList(InList { expr: Box::new(one_form(*expr)), list, negated });
    }
    let mut values = Vec::with_capacity(list.len() + 1);
    for value in list {
        if may_be_zero(&value) {
            values.push(with_zero(Zero::Negative, value.clone()));
        }
        values.push(with_zero(Zero::Positive, value));
    }
    Expr::InList(InList { expr, list: values, negated })
}

/// The query with its one column in its one form.
fn in_one_form(subquery: Subquery) -> Result<Subquery> {
    let plan = subquery.subquery.as_ref().clone();
    let columns = plan.schema().columns();
    let expressions = columns.into_iter().map(|column| {
        let (relation, name) = (column.relation.clone(), column.name.clone());
        one_form(Expr::Column(column)).alias_qualified(relation, name)
    });
    let plan: LogicalPlan = LogicalPlanBuilder::from(plan).project(expressions.collect::<Vec<_>>())?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

fn of_call(call: ScalarFunction, schema: &dyn ExprSchema) -> Result<Transformed<Expr>> {
    if call.name() == "nullif" && call.args.len() == 2 {
        let (value, other) = (call.args[0].clone(), call.args[1].clone());
        let is_equal = one_form(value.clone()).eq(one_form(other));
        let null = ScalarValue::try_from(&value.get_type(schema)?)?;
        return Ok(Transformed::yes(when(is_equal, lit(null)).otherwise(value)?));
    }
    if !SEARCHES.contains(&call.name()) {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    // An index finds a number in a column of arrays; a zero among the numbers it does not look for.
    if let [Expr::Column(_), Expr::Literal(value, _)] = call.args.as_slice()
        && !value.data_type().is_nested()
        && !may_be_zero(&call.args[1])
    {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    let args = call.args.into_iter().map(one_form).collect();
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { args, ..call })))
}

fn of_aggregate(mut call: AggregateFunction, schema: &dyn ExprSchema) -> Transformed<Expr> {
    let mut is_changed = false;
    if call.params.distinct {
        for argument in &mut call.params.args {
            is_changed |= put_in_form(argument, schema);
        }
    }
    is_changed |= order(&mut call.params.order_by, schema);
    Transformed::new_transformed(Expr::AggregateFunction(call), is_changed)
}

fn of_window(mut call: Box<WindowFunction>, schema: &dyn ExprSchema) -> Transformed<Expr> {
    let mut is_changed = order(&mut call.params.order_by, schema);
    for key in &mut call.params.partition_by {
        is_changed |= put_in_form(key, schema);
    }
    Transformed::new_transformed(Expr::WindowFunction(call), is_changed)
}

fn order(keys: &mut [SortExpr], schema: &dyn ExprSchema) -> bool {
    keys.iter_mut().fold(false, |is_changed, key| put_in_form(&mut key.expr, schema) | is_changed)
}

fn put_in_form(expression: &mut Expr, schema: &dyn ExprSchema) -> bool {
    let is_one = is_float(expression, schema) && !matches!(expression, Expr::Literal(..));
    if is_one {
        *expression = one_form(std::mem::replace(expression, Expr::Literal(ScalarValue::Null, None)));
    }
    is_one
}
