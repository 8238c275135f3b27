//! Comparisons of rows, `(a, b) = (c, d)`, as comparisons of their columns, whose NULL says that it is not known. DataFusion compares the rows as values,
//! of which NULL is a value like others.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Select, Statement, UnaryOperator, Value, VisitMut,
    VisitorMut,
};

use crate::error::{Error, Result};

mod subqueries;

/// Writes such comparisons out.
///
/// # Errors
/// [`Error::ColumnCount`] for rows of different lengths.
pub fn write_out(statement: &mut Statement) -> Result<()> {
    match statement.visit(&mut Comparisons) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Comparisons;

impl VisitorMut for Comparisons {
    type Break = Box<Error>;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        select.selection.iter_mut().for_each(subqueries::as_conditions);
        ControlFlow::Continue(())
    }

    /// Rows within rows are compared by the comparisons that are made of their columns.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match compared(expr) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(written)) => {
                *expr = Expr::Nested(Box::new(written));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

fn compared(expr: &Expr) -> Result<Option<Expr>> {
    Ok(match expr {
        Expr::BinaryOp { left, op, right } => match rows(left, right)? {
            Some((left, right)) => by_columns(&left, op, &right),
            None => match (columns(left), right.as_ref()) {
                (Some(row), Expr::Subquery(subquery)) => subqueries::with_row_of(&row, op, subquery),
                _ => None,
            },
        },
        Expr::InSubquery { expr, subquery, negated } => columns(expr).and_then(|row| subqueries::in_subquery(&row, subquery, *negated)),
        Expr::IsDistinctFrom(left, right) => rows(left, right)?.map(|(left, right)| any(each(&left, &right, distinct))),
        Expr::IsNotDistinctFrom(left, right) => {
            let not_distinct = |left: &Expr, right: &Expr| Expr::IsNotDistinctFrom(Box::new(left.clone()), Box::new(right.clone()));
            rows(left, right)?.map(|(left, right)| all(each(&left, &right, not_distinct)))
        }
        Expr::InList { expr, list, negated } if columns(expr).is_some() => in_list(expr, list)?.map(|found| negated_if(*negated, found)),
        Expr::Between { expr, negated, low, high } => match (rows(expr, low)?, rows(expr, high)?) {
            (Some((row, low)), Some((_, high))) => {
                let bounds = [by_columns(&row, &BinaryOperator::GtEq, &low), by_columns(&row, &BinaryOperator::LtEq, &high)];
                Some(negated_if(*negated, all(bounds.into_iter().flatten())))
            }
            _ => None,
        },
        Expr::IsNull(row) => columns(row).map(|columns| all(columns.into_iter().map(|column| Expr::IsNull(Box::new(column))))),
        Expr::IsNotNull(row) => columns(row).map(|columns| all(columns.into_iter().map(|column| Expr::IsNotNull(Box::new(column))))),
        _ => None,
    })
}

/// The columns of `(a, b)` and `ROW(a, b)`.
fn columns(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(columns) => Some(columns.clone()),
        Expr::Nested(inner) => columns(inner),
        Expr::Function(function) => columns_of_call(function),
        _ => None,
    }
}

fn columns_of_call(function: &Function) -> Option<Vec<Expr>> {
    let [name] = function.name.0.as_slice() else { return None };
    let name = name.as_ident().filter(|name| name.quote_style.is_none())?;
    let FunctionArguments::List(list) = &function.args else { return None };
    if !name.value.eq_ignore_ascii_case("row") || list.args.is_empty() {
        return None;
    }
    let columns = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(column)) => Some(column.clone()),
        _ => None,
    });
    columns.collect()
}

fn rows(left: &Expr, right: &Expr) -> Result<Option<(Vec<Expr>, Vec<Expr>)>> {
    match (columns(left), columns(right)) {
        (Some(left), Some(right)) if left.len() != right.len() => {
            Err(Error::ColumnCount("unequal number of entries in row expressions".to_owned()))
        }
        (Some(left), Some(right)) => Ok(Some((left, right))),
        _ => Ok(None),
    }
}

/// `None` for an operator that is no comparison.
fn by_columns(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    let equal = |left: &Expr, right: &Expr| binary(left, BinaryOperator::Eq, right);
    match op {
        BinaryOperator::Eq => Some(all(each(left, right, equal))),
        BinaryOperator::NotEq => Some(any(each(left, right, |left, right| binary(left, BinaryOperator::NotEq, right)))),
        BinaryOperator::Lt | BinaryOperator::Gt => Some(by_first_difference(left, op.clone(), op.clone(), right)),
        BinaryOperator::LtEq => Some(by_first_difference(left, BinaryOperator::Lt, op.clone(), right)),
        BinaryOperator::GtEq => Some(by_first_difference(left, BinaryOperator::Gt, op.clone(), right)),
        _ => None,
    }
}

/// `a < c OR a = c AND b <= d`: `last` compares the last columns.
fn by_first_difference(left: &[Expr], before: BinaryOperator, last: BinaryOperator, right: &[Expr]) -> Expr {
    match (left, right) {
        ([left], [right]) => binary(left, last, right),
        ([left, later @ ..], [right, later_right @ ..]) if !later.is_empty() => {
            let is_decided = binary(left, before.clone(), right);
            let rest = by_first_difference(later, before, last, later_right);
            any([is_decided, all([binary(left, BinaryOperator::Eq, right), rest])])
        }
        // Rows have columns.
        _ => Expr::value(Value::Null),
    }
}

fn in_list(row: &Expr, list: &[Expr]) -> Result<Option<Expr>> {
    let equals = list.iter().map(|item| Ok(rows(row, item)?.and_then(|(left, right)| by_columns(&left, &BinaryOperator::Eq, &right))));
    Ok(equals.collect::<Result<Option<Vec<Expr>>>>()?.map(any))
}

fn each<'a>(left: &'a [Expr], right: &'a [Expr], compare: impl Fn(&Expr, &Expr) -> Expr + 'a) -> impl Iterator<Item = Expr> + 'a {
    left.iter().zip(right).map(move |(left, right)| compare(left, right))
}

fn distinct(left: &Expr, right: &Expr) -> Expr {
    Expr::IsDistinctFrom(Box::new(left.clone()), Box::new(right.clone()))
}

fn binary(left: &Expr, op: BinaryOperator, right: &Expr) -> Expr {
    let nested = |expr: &Expr| Box::new(Expr::Nested(Box::new(expr.clone())));
    Expr::BinaryOp { left: nested(left), op, right: nested(right) }
}

fn all(conditions: impl IntoIterator<Item = Expr>) -> Expr {
    joined(conditions, BinaryOperator::And)
}

fn any(conditions: impl IntoIterator<Item = Expr>) -> Expr {
    joined(conditions, BinaryOperator::Or)
}

fn joined(conditions: impl IntoIterator<Item = Expr>, op: BinaryOperator) -> Expr {
    let nested = |expr: Expr| Expr::Nested(Box::new(expr));
    let joined = conditions.into_iter().map(nested).reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    });
    joined.unwrap_or_else(|| Expr::value(Value::Null))
}

fn negated_if(is_negated: bool, condition: Expr) -> Expr {
    match is_negated {
        true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(condition))) },
        false => condition,
    }
}
