//! Operators and forms of PostgreSQL's that DataFusion does not plan, or plans otherwise, as calls of functions: `~ n`, `|/ x`, `extract(..)`,
//! `AT TIME ZONE`, `substring(text FROM 'pattern')`, `list[2:]`, `localtimestamp`.
//!
//! This comes after outputs have their names and queries of the catalog are told from others: both go by what was written.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, DataType as SqlType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, Statement, Subscript, TimezoneInfo, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use rolloutdb_sql::{call, cast};

/// PostgreSQL's other names of functions.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("ceiling", "ceil"),
    ("every", "bool_and"),
    ("variance", "var_samp"),
    ("statement_timestamp", "now"),
    ("transaction_timestamp", "now"),
];

/// The end of a slice that has none written: more items than an array has.
const LAST_ITEM: i64 = 2_147_483_647;
/// As many subscripts below zero stay different; more items than are left has no array either.
const SUBSCRIPTS_APART: i64 = 1_000_000_000;

/// Writes such forms as calls.
pub fn rewrite(statement: &mut Statement) {
    let _ = statement.visit(&mut Forms);
}

struct Forms;

impl VisitorMut for Forms {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundFieldAccess { access_chain, .. } => access_chain.iter_mut().for_each(write_bounds),
            Expr::Function(function) => name_as_datafusion(function),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: power } if is_power(power) => *expr = power_of_negative(power),
            _ => {}
        }
        if let Some(called) = called(expr) {
            *expr = called;
        }
        ControlFlow::Continue(())
    }
}

fn called(expr: &Expr) -> Option<Expr> {
    Some(match expr {
        Expr::UnaryOp { op, expr } => {
            let function = match op {
                UnaryOperator::PGAbs => "abs",
                UnaryOperator::PGSquareRoot => "sqrt",
                UnaryOperator::PGCubeRoot => "cbrt",
                UnaryOperator::BitwiseNot => "bitwise_not",
                _ => return None,
            };
            call(function, [expr.as_ref().clone()])
        }
        Expr::Extract { field, expr, .. } => call("extract", [text(field.to_string().trim_matches(['\'', '"'])), expr.as_ref().clone()]),
        Expr::AtTimeZone { timestamp, time_zone } => call("timezone", [time_zone.as_ref().clone(), timestamp.as_ref().clone()]),
        Expr::Substring { expr, substring_from: Some(pattern), substring_for: None, shorthand: false, .. } if is_text(pattern) => {
            call("textregexsubstr", [expr.as_ref().clone(), pattern.as_ref().clone()])
        }
        Expr::BinaryOp { left, op: BinaryOperator::Overlaps, right } => overlaps(left, right)?,
        Expr::Function(function) => of_clock(&function.name, &function.args)?,
        Expr::Identifier(name) => of_clock(&ObjectName::from(vec![name.clone()]), &FunctionArguments::None)?,
        _ => return None,
    })
}

/// `(start, end) OVERLAPS (start, end)`, where an interval is a length and the earlier of two times is the start: as PostgreSQL's, whose periods end before
/// their end, unless they are one point.
fn overlaps(left: &Expr, right: &Expr) -> Option<Expr> {
    let [first, second] = [bounds(left)?, bounds(right)?].map(|[from, to]| {
        let of = |function: &str| call(function, [from.clone(), to.clone()]);
        [of("least"), of("greatest")]
    });
    let compare =
        |left: &Expr, op: BinaryOperator, right: &Expr| Expr::BinaryOp { left: Box::new(left.clone()), op, right: Box::new(right.clone()) };
    let when = |condition: Expr, result: Expr| CaseWhen { condition, result };
    Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![
            when(compare(&first[0], BinaryOperator::Gt, &second[0]), compare(&first[0], BinaryOperator::Lt, &second[1])),
            when(compare(&first[0], BinaryOperator::Lt, &second[0]), compare(&second[0], BinaryOperator::Lt, &first[1])),
        ],
        else_result: Some(Box::new(compare(&first[0], BinaryOperator::Eq, &second[0]))),
    })
}

/// Both ends of a period.
fn bounds(period: &Expr) -> Option<[Expr; 2]> {
    let Expr::Tuple(parts) = period else { return None };
    let [start, end] = parts.as_slice() else { return None };
    let is_length = matches!(end, Expr::Interval(_) | Expr::Cast { data_type: SqlType::Interval { .. }, .. });
    let end = match is_length {
        true => Expr::BinaryOp { left: Box::new(start.clone()), op: BinaryOperator::Plus, right: Box::new(end.clone()) },
        false => end.clone(),
    };
    Some([start.clone(), end])
}

fn is_power(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::PGExp, .. })
}

/// `-2 ^ 2`, which the parser reads as `-(2 ^ 2)`: in PostgreSQL the sign belongs to the number.
fn power_of_negative(power: &Expr) -> Expr {
    match power {
        Expr::BinaryOp { left, op: BinaryOperator::PGExp, right } => {
            Expr::BinaryOp { left: Box::new(power_of_negative(left)), op: BinaryOperator::PGExp, right: right.clone() }
        }
        base => Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(base.clone()) },
    }
}

/// `localtime`, `localtimestamp`, and `age` of one instant, which ends today.
fn of_clock(name: &ObjectName, arguments: &FunctionArguments) -> Option<Expr> {
    let name = name.0.last()?.as_ident().filter(|name| name.quote_style.is_none())?.value.to_ascii_lowercase();
    match (name.as_str(), arguments) {
        ("localtimestamp", FunctionArguments::None) => Some(cast(call("now", []), SqlType::Timestamp(None, TimezoneInfo::None))),
        ("localtime", FunctionArguments::None) => Some(cast(call("now", []), SqlType::Time(None, TimezoneInfo::None))),
        ("age", FunctionArguments::List(list)) => match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(start))] => Some(call("age", [call("current_date", []), start.clone()])),
            _ => None,
        },
        _ => None,
    }
}

fn name_as_datafusion(function: &mut Function) {
    let Some(name) = function.name.0.last().and_then(|part| part.as_ident()) else { return };
    let other = OTHER_NAMES.iter().find(|(known, _)| name.value.eq_ignore_ascii_case(known));
    if let Some((_, known)) = other {
        function.name = ObjectName::from(vec![Ident::new(*known)]);
    }
}

/// Of `list[2:]` and `list[:2]` the bound that is not written. Of a subscript below 0, from which DataFusion counts from the end, one beyond every array: there is
/// no item either, and two of them stay two.
fn write_bounds(access: &mut AccessExpr) {
    let AccessExpr::Subscript(subscript) = access else { return };
    match subscript {
        Subscript::Slice { lower_bound, upper_bound, .. } => {
            lower_bound.get_or_insert_with(|| number(1));
            upper_bound.get_or_insert_with(|| number(LAST_ITEM));
        }
        Subscript::Index { index } => {
            if let Some(below) = below_zero(index) {
                *index = number(LAST_ITEM - below.min(SUBSCRIPTS_APART));
            }
        }
    }
}

/// The number behind the sign of a negative constant.
fn below_zero(expr: &Expr) -> Option<i64> {
    let Expr::UnaryOp { op: UnaryOperator::Minus, expr } = expr else { return None };
    let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) = expr.as_ref() else { return None };
    digits.parse().ok().filter(|number| *number > 0)
}

fn is_text(expr: &Expr) -> bool {
    use Value::{DollarQuotedString, EscapedStringLiteral, SingleQuotedString};
    match expr {
        Expr::Value(ValueWithSpan { value, .. }) => {
            matches!(value, SingleQuotedString(_) | EscapedStringLiteral(_) | DollarQuotedString(_))
        }
        Expr::Cast { data_type, .. } => matches!(data_type, SqlType::Text | SqlType::Varchar(_)),
        Expr::Nested(inner) => is_text(inner),
        _ => false,
    }
}

fn text(value: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(value.to_owned()))
}

fn number(number: i64) -> Expr {
    Expr::value(Value::Number(number.to_string(), false))
}
