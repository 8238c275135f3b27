//! Expressions: names to columns, literals to values, operators to what they do for the types of their operands.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, DateTimeField, Expr, Query, Subscript, TrimWhereField, UnaryOperator, Value as Literal,
    ValueWithSpan,
};

use super::bind::{Binder, With, only_type, wider};
use super::bind_rows::row_items;
use super::scope::Scope;
use super::sql_names::{operator_of, pg_type, yields_bool};
use super::{Binary, BindError, BindResult, Context, Env, Expression, Extra};
use crate::engine::output_names::folded;
use crate::engine::pg_catalog::types::{Kind, PgType, UNKNOWN};
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Unresolved};

pub(super) type Typed = (Expression, PgType);

pub(super) const BOOL: PgType = PgType::One(Kind::Bool);
pub(super) const TEXT: PgType = PgType::One(Kind::Text);
const INT4: PgType = PgType::One(Kind::Int4);

/// Where an expression stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub scope: &'p Scope<'p>,
    pub with: &'p With,
    /// Where aggregates, window functions and lists go that a SELECT computes first; `None`: they may not stand here.
    pub extras: Option<&'p RefCell<Vec<Extra>>>,
    /// Of a row of FROM, behind which the extras are.
    pub width: usize,
}

impl<'p> Place<'p> {
    /// In a condition, where there are no aggregates.
    pub fn plain(scope: &'p Scope<'p>, with: &'p With) -> Self {
        Self { scope, with, extras: None, width: 0 }
    }

    /// The column that will hold what a SELECT computes first.
    pub fn extra(&self, extra: Extra) -> BindResult<Expression> {
        let mut extras = self.extras.ok_or(BindError::NotHere)?.borrow_mut();
        extras.push(extra);
        Ok(Expression::Column { depth: 0, index: self.width + extras.len() - 1 })
    }
}

impl Binder<'_> {
    pub(super) fn expression(&self, tree: &Expr, place: &Place<'_>) -> BindResult<Typed> {
        match tree {
            Expr::Identifier(name) => {
                let name = folded(name);
                match place.scope.resolve(None, &name) {
                    // `row_to_json(t)`: no column has the name, and a table has.
                    Err(unknown) => place.scope.whole_row(&name).ok_or(unknown),
                    found => found,
                }
            }
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., relation, column] => place.scope.resolve(Some(&folded(relation)), &folded(column)),
                _ => Err(BindError::NotHere),
            },
            Expr::Value(value) => self.literal(&value.value),
            Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => self.expression(inner, place),
            Expr::IsNull(operand) => Ok((Expression::IsNull(Box::new(self.expression(operand, place)?.0)), BOOL)),
            Expr::IsNotNull(operand) => Ok((not(Expression::IsNull(Box::new(self.expression(operand, place)?.0))), BOOL)),
            Expr::IsTrue(operand) => self.is(operand, true, false, place),
            Expr::IsNotTrue(operand) => self.is(operand, true, true, place),
            Expr::IsFalse(operand) => self.is(operand, false, false, place),
            Expr::IsNotFalse(operand) => self.is(operand, false, true, place),
            Expr::IsDistinctFrom(left, right) => Ok((self.distinct(left, right, place)?, BOOL)),
            Expr::IsNotDistinctFrom(left, right) => Ok((not(self.distinct(left, right, place)?), BOOL)),
            Expr::InList { expr, list, negated } => self.in_list(expr, list, *negated, place),
            Expr::InSubquery { expr, subquery, negated } => {
                let (operator, all) = if *negated { (Binary::NotEqual, true) } else { (Binary::Equal, false) };
                self.quantified_query(expr, operator, subquery, all, place)
            }
            Expr::Between { expr, negated, low, high } => {
                let from = self.compared(Binary::GreaterOrEqual, expr, low, place)?;
                let to = self.compared(Binary::LessOrEqual, expr, high, place)?;
                Ok((not_if(*negated, Expression::And(vec![from, to])), BOOL))
            }
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right, place),
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                self.escaped_like(Binary::Like { ignore_case: false, negated: *negated }, expr, pattern, escape_char.as_ref(), place)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.escaped_like(Binary::Like { ignore_case: true, negated: *negated }, expr, pattern, escape_char.as_ref(), place)
            }
            Expr::AnyOp { left, compare_op, right, .. } => self.quantified(left, compare_op, right, false, place),
            Expr::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true, place),
            Expr::UnaryOp { op, expr } => self.unary(*op, expr, place),
            Expr::Cast { expr, data_type, .. } => {
                let to = pg_type(data_type)?;
                let (operand, from) = self.expression(expr, place)?;
                Ok((self.cast(operand, &from, &to)?, to))
            }
            Expr::Function(call) => self.call(call, place),
            Expr::Case { operand, conditions, else_result, .. } => self.case(operand.as_deref(), conditions, else_result.as_deref(), place),
            Expr::Exists { subquery, negated } => {
                let plan = self.query(subquery, Some(place.scope), place.with)?;
                Ok((not_if(*negated, Expression::Exists(Arc::new(plan))), BOOL))
            }
            Expr::Subquery(query) => {
                let plan = self.query(query, Some(place.scope), place.with)?;
                let pg_type = only_type(&plan);
                Ok((Expression::Scalar(Arc::new(plan)), pg_type))
            }
            Expr::Array(array) => {
                let items = array.elem.iter().map(|item| self.expression(item, place)).collect::<BindResult<_>>()?;
                let (items, item) = self.unified(items)?;
                Ok((Expression::Array(items), array_of(&item)?))
            }
            Expr::CompoundFieldAccess { root, access_chain } => self.accessed(root, access_chain, place),
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut arguments = vec![self.expression(expr, place)?];
                arguments.push(match substring_from {
                    Some(from) => self.expression(from, place)?,
                    // `substring(text for 3)` begins at the first character.
                    None => (Expression::Constant(Value::Int(1)), INT4),
                });
                if let Some(length) = substring_for {
                    arguments.push(self.expression(length, place)?);
                }
                self.named_call("substring", arguments)
            }
            Expr::Position { expr, r#in } => {
                let arguments = vec![self.expression(r#in, place)?, self.expression(expr, place)?];
                self.named_call("strpos", arguments)
            }
            Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let function = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                // `trim(what FROM text)`, `trim(text, what)`
                let characters = trim_what.as_deref().into_iter().chain(trim_characters.iter().flatten());
                let arguments = std::iter::once(expr.as_ref()).chain(characters).map(|argument| self.expression(argument, place));
                self.named_call(function, arguments.collect::<BindResult<_>>()?)
            }
            Expr::Extract { field: DateTimeField::Epoch, expr, .. } => self.seconds(expr, place),
            // Times are shown in UTC alone.
            Expr::AtTimeZone { timestamp, time_zone } if is_utc(time_zone) => {
                let (value, from) = self.expression(timestamp, place)?;
                match from {
                    PgType::One(Kind::Timestamptz) => Ok((value, PgType::One(Kind::Timestamp))),
                    PgType::One(Kind::Timestamp) => Ok((value, PgType::One(Kind::Timestamptz))),
                    _ => Err(BindError::NotHere),
                }
            }
            Expr::Tuple(items) => {
                let items = items.iter().map(|item| self.expression(item, place)).collect::<BindResult<_>>()?;
                self.row(items)
            }
            _ => Err(BindError::NotHere),
        }
    }

    /// The seconds of an instant since 1970, or those between two.
    fn seconds(&self, tree: &Expr, place: &Place<'_>) -> BindResult<Typed> {
        let micros = match tree {
            Expr::Nested(inner) => return self.seconds(inner, place),
            Expr::BinaryOp { left, op: BinaryOperator::Minus, right } => {
                let (left, right) = (self.instant(left, place)?, self.instant(right, place)?);
                Expression::Binary { operator: Binary::Subtract, left: Box::new(left), right: Box::new(right) }
            }
            instant => self.instant(instant, place)?,
        };
        let per_second = Box::new(Expression::Constant(Value::Float(1e6)));
        Ok((Expression::Binary { operator: Binary::Divide, left: Box::new(micros), right: per_second }, PgType::One(Kind::Numeric)))
    }

    fn instant(&self, tree: &Expr, place: &Place<'_>) -> BindResult<Expression> {
        match self.expression(tree, place)? {
            (value, PgType::One(Kind::Timestamp | Kind::Timestamptz)) => Ok(value),
            _ => Err(BindError::NotHere),
        }
    }

    fn literal(&self, literal: &Literal) -> BindResult<Typed> {
        let (value, pg_type) = match literal {
            Literal::Null => (Value::Null, UNKNOWN),
            Literal::Boolean(value) => (Value::Bool(*value), BOOL),
            Literal::Number(digits, _) => match (digits.parse::<i64>(), digits.parse::<f64>()) {
                (Ok(value), _) if i32::try_from(value).is_ok() => (Value::Int(value), INT4),
                (Ok(value), _) => (Value::Int(value), PgType::One(Kind::Int8)),
                // More digits than a double holds are for the planner.
                (Err(_), Ok(value)) if digits.len() <= 15 => (Value::Float(value), PgType::One(Kind::Numeric)),
                _ => return Err(BindError::NotHere),
            },
            Literal::SingleQuotedString(text) | Literal::EscapedStringLiteral(text) | Literal::UnicodeStringLiteral(text) => {
                (Value::text(text), UNKNOWN)
            }
            Literal::DollarQuotedString(text) => (Value::text(&text.value), UNKNOWN),
            Literal::Placeholder(name) => return self.parameter(name),
            _ => return Err(BindError::NotHere),
        };
        Ok((Expression::Constant(value), pg_type))
    }

    fn parameter(&self, name: &str) -> BindResult<Typed> {
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok()).filter(|number| (1..=65_535).contains(number));
        let number = number.ok_or(BindError::NotHere)?;
        let mut parameters = self.parameters.borrow_mut();
        if parameters.len() < number {
            parameters.resize(number, None);
        }
        let pg_type = parameters[number - 1].clone().unwrap_or(UNKNOWN);
        Ok((Expression::Parameter(number - 1), pg_type))
    }

    /// A cast; of a literal now, so that what cannot be read is told before anything runs.
    pub(super) fn cast(&self, operand: Expression, from: &PgType, to: &PgType) -> BindResult<Expression> {
        if let Expression::Parameter(number) = operand
            && let Some(known) = self.parameters.borrow_mut().get_mut(number)
        {
            known.get_or_insert_with(|| to.clone());
        }
        let is_constant = matches!(operand, Expression::Constant(_));
        let is_text = matches!(operand, Expression::Constant(Value::Text(_)));
        let cast = Expression::Cast { operand: Box::new(operand), from: from.clone(), to: to.clone() };
        if !is_constant {
            return Ok(cast);
        }
        // These are texts here, and would neither compute nor compare.
        if is_text && matches!(to, PgType::One(Kind::Date | Kind::Time | Kind::Interval)) {
            return Err(BindError::NotHere);
        }
        let env = Env { row: &[], base: 0, left: None, outer: None };
        Ok(Expression::Constant(cast.value(&env, &Context::new(self.snapshot, &[]))?))
    }

    /// Both operands in types that compare: a literal has that of the other.
    fn alike(&self, left: Typed, right: Typed) -> BindResult<(Expression, Expression, PgType)> {
        let ((left, left_type), (right, right_type)) = (left, right);
        match (left_type.is_unknown(), right_type.is_unknown()) {
            (true, false) => Ok((self.cast(left, &left_type, &comparable(&right_type))?, right, right_type)),
            (false, true) => Ok((left, self.cast(right, &right_type, &comparable(&left_type))?, left_type)),
            (true, true) => Ok((self.cast(left, &left_type, &TEXT)?, self.cast(right, &right_type, &TEXT)?, TEXT)),
            (false, false) => {
                let pg_type = wider(&left_type, &right_type);
                Ok((left, right, pg_type))
            }
        }
    }

    pub(super) fn compared(&self, operator: Binary, left: &Expr, right: &Expr, place: &Place<'_>) -> BindResult<Expression> {
        if let (Some(lefts), Some(rights), Binary::Equal | Binary::NotEqual) = (row_items(left), row_items(right), operator) {
            let equal = self.rows_equal(lefts, rights, place)?;
            return Ok(not_if(operator == Binary::NotEqual, equal));
        }
        let (left, right, _) = self.alike(self.expression(left, place)?, self.expression(right, place)?)?;
        Ok(Expression::Binary { operator, left: Box::new(left), right: Box::new(right) })
    }

    fn distinct(&self, left: &Expr, right: &Expr, place: &Place<'_>) -> BindResult<Expression> {
        let (left, right, _) = self.alike(self.expression(left, place)?, self.expression(right, place)?)?;
        Ok(Expression::IsDistinct(Box::new(left), Box::new(right)))
    }

    fn is(&self, operand: &Expr, wanted: bool, negated: bool, place: &Place<'_>) -> BindResult<Typed> {
        let (operand, pg_type) = self.expression(operand, place)?;
        let operand = self.cast_if_unknown(operand, &pg_type, &BOOL)?;
        Ok((not_if(negated, Expression::Is(Box::new(operand), wanted)), BOOL))
    }

    fn in_list(&self, operand: &Expr, list: &[Expr], negated: bool, place: &Place<'_>) -> BindResult<Typed> {
        let alternatives = list.iter().map(|item| self.compared(Binary::Equal, operand, item, place)).collect::<BindResult<_>>()?;
        Ok((not_if(negated, Expression::Or(alternatives)), BOOL))
    }

    fn quantified_query(&self, left: &Expr, operator: Binary, query: &Query, all: bool, place: &Place<'_>) -> BindResult<Typed> {
        if let Some(items) = row_items(left) {
            return self.quantified_rows(items, operator, query, all, place);
        }
        let (left, from) = self.expression(left, place)?;
        let plan = self.query(query, Some(place.scope), place.with)?;
        let left = match only_type(&plan) {
            to if to.is_unknown() => left,
            to => self.cast_if_unknown(left, &from, &comparable(&to))?,
        };
        Ok((Expression::QuantifiedQuery { operator, left: Box::new(left), query: Arc::new(plan), all }, BOOL))
    }

    fn quantified(&self, left: &Expr, operator: &BinaryOperator, right: &Expr, all: bool, place: &Place<'_>) -> BindResult<Typed> {
        let operator = operator_of(operator).ok_or(BindError::NotHere)?;
        if let Expr::Subquery(query) = right {
            return self.quantified_query(left, operator, query, all, place);
        }
        let ((left, left_type), (list, list_type)) = (self.expression(left, place)?, self.expression(right, place)?);
        let list = match (list_type.is_unknown(), left_type.kind()) {
            (true, Some(kind)) if kind != Kind::Unknown => self.cast(list, &list_type, &array_of(&comparable(&left_type))?)?,
            (true, _) => self.cast(list, &list_type, &PgType::Many(Kind::Text))?,
            (false, _) => list,
        };
        let left = match list_type.item() {
            item if item.is_unknown() => left,
            item => self.cast_if_unknown(left, &left_type, &comparable(&item))?,
        };
        Ok((Expression::Quantified { operator, left: Box::new(left), list: Box::new(list), all }, BOOL))
    }

    fn like(&self, operator: Binary, left: &Expr, right: &Expr, place: &Place<'_>) -> BindResult<Typed> {
        let ((left, left_type), (right, right_type)) = (self.expression(left, place)?, self.expression(right, place)?);
        let (left, right) = (self.as_text(left, &left_type)?, self.as_text(right, &right_type)?);
        Ok((Expression::Binary { operator, left: Box::new(left), right: Box::new(right) }, BOOL))
    }

    fn escaped_like(
        &self,
        operator: Binary,
        text: &Expr,
        pattern: &Expr,
        escape: Option<&ValueWithSpan>,
        place: &Place<'_>,
    ) -> BindResult<Typed> {
        let Some(escape) = escape else { return self.like(operator, text, pattern, place) };
        let (text, text_type) = self.expression(text, place)?;
        let text = self.as_text(text, &text_type)?;
        let (pattern, _) = self.named_call("like_escape", vec![self.expression(pattern, place)?, self.literal(&escape.value)?])?;
        Ok((Expression::Binary { operator, left: Box::new(text), right: Box::new(pattern) }, BOOL))
    }

    /// A value as text: of a name of an object its text, of a text itself.
    pub(super) fn as_text(&self, value: Expression, from: &PgType) -> BindResult<Expression> {
        match from.kind() {
            Some(kind) if kind.is_text() && kind != Kind::Unknown => Ok(value),
            _ => self.cast(value, from, &TEXT),
        }
    }

    fn binary(&self, left: &Expr, operator: &BinaryOperator, right: &Expr, place: &Place<'_>) -> BindResult<Typed> {
        match operator {
            BinaryOperator::And | BinaryOperator::Or => {
                let mut operands = Vec::new();
                for operand in [left, right] {
                    let (operand, pg_type) = self.expression(operand, place)?;
                    operands.push(self.cast_if_unknown(operand, &pg_type, &BOOL)?);
                }
                return Ok((if *operator == BinaryOperator::And { Expression::And(operands) } else { Expression::Or(operands) }, BOOL));
            }
            BinaryOperator::StringConcat => return self.concatenated(left, right, place),
            _ => {}
        }
        let operator = operator_of(operator).ok_or(BindError::NotHere)?;
        if matches!(operator, Binary::Regex { .. } | Binary::Like { .. }) {
            return self.like(operator, left, right, place);
        }
        if row_items(left).is_some() && row_items(right).is_some() && matches!(operator, Binary::Equal | Binary::NotEqual) {
            return Ok((self.compared(operator, left, right, place)?, BOOL));
        }
        let (left, right, pg_type) = self.alike(self.expression(left, place)?, self.expression(right, place)?)?;
        // The time between two instants is an interval, which DataFusion computes.
        if !yields_bool(operator) && pg_type.kind().is_some_and(Kind::is_time) {
            return Err(BindError::NotHere);
        }
        let pg_type = if yields_bool(operator) { BOOL } else { pg_type };
        Ok((Expression::Binary { operator, left: Box::new(left), right: Box::new(right) }, pg_type))
    }

    /// `||` of texts, or of arrays and their items.
    fn concatenated(&self, left: &Expr, right: &Expr, place: &Place<'_>) -> BindResult<Typed> {
        let ((left, left_type), (right, right_type)) = (self.expression(left, place)?, self.expression(right, place)?);
        let is_list = |pg_type: &PgType| matches!(pg_type, PgType::Many(_));
        let (operator, left, right, pg_type) = match (is_list(&left_type), is_list(&right_type)) {
            (true, true) => (Binary::ConcatenateLists, left, right, left_type),
            (true, false) => (Binary::Append, left, self.cast_if_unknown(right, &right_type, &left_type.item())?, left_type),
            (false, true) => (Binary::Prepend, self.cast_if_unknown(left, &left_type, &right_type.item())?, right, right_type),
            (false, false) => (Binary::Concatenate, self.as_text(left, &left_type)?, self.as_text(right, &right_type)?, TEXT),
        };
        Ok((Expression::Binary { operator, left: Box::new(left), right: Box::new(right) }, pg_type))
    }

    fn unary(&self, operator: UnaryOperator, operand: &Expr, place: &Place<'_>) -> BindResult<Typed> {
        let (operand, pg_type) = self.expression(operand, place)?;
        match operator {
            UnaryOperator::Not => Ok((not(self.cast_if_unknown(operand, &pg_type, &BOOL)?), BOOL)),
            UnaryOperator::Plus => Ok((operand, pg_type)),
            UnaryOperator::Minus => {
                let zero = Box::new(Expression::Constant(Value::Int(0)));
                Ok((Expression::Binary { operator: Binary::Subtract, left: zero, right: Box::new(operand) }, pg_type))
            }
            _ => Err(BindError::NotHere),
        }
    }

    fn case(&self, operand: Option<&Expr>, conditions: &[CaseWhen], otherwise: Option<&Expr>, place: &Place<'_>) -> BindResult<Typed> {
        let mut when = Vec::with_capacity(conditions.len());
        let mut results = Vec::with_capacity(conditions.len() + 1);
        for CaseWhen { condition, result } in conditions {
            when.push(match operand {
                Some(operand) => self.compared(Binary::Equal, operand, condition, place)?,
                None => {
                    let (condition, pg_type) = self.expression(condition, place)?;
                    self.cast_if_unknown(condition, &pg_type, &BOOL)?
                }
            });
            results.push(self.expression(result, place)?);
        }
        results.push(match otherwise {
            Some(otherwise) => self.expression(otherwise, place)?,
            None => (Expression::Constant(Value::Null), UNKNOWN),
        });
        let (mut results, pg_type) = self.unified(results)?;
        let otherwise = Box::new(results.pop().unwrap_or(Expression::Constant(Value::Null)));
        Ok((Expression::Case { branches: when.into_iter().zip(results).collect(), otherwise }, pg_type))
    }

    /// Values of which one will be the result, in one type.
    pub(super) fn unified(&self, values: Vec<Typed>) -> BindResult<(Vec<Expression>, PgType)> {
        let known = values.iter().fold(UNKNOWN, |known, (_, pg_type)| wider(&known, pg_type));
        let target = if known.is_unknown() { TEXT } else { known };
        let cast = |(value, from): Typed| match (from.kind(), &target) {
            // The names of objects beside texts.
            (Some(kind), PgType::One(to)) if kind.names_object() && to.is_text() => self.cast(value, &from, &target),
            _ => self.cast_if_unknown(value, &from, &target),
        };
        Ok((values.into_iter().map(cast).collect::<BindResult<_>>()?, target))
    }

    /// `(row).field`, `list[1]`, `list[1:2]`
    fn accessed(&self, root: &Expr, chain: &[AccessExpr], place: &Place<'_>) -> BindResult<Typed> {
        // `relation.column[1]` is read as a column with two accesses.
        let (root, chain) = match (root, chain) {
            (Expr::Identifier(relation), [AccessExpr::Dot(Expr::Identifier(column)), rest @ ..]) if !rest.is_empty() => {
                (Expr::CompoundIdentifier(vec![relation.clone(), column.clone()]), rest)
            }
            _ => (root.clone(), chain),
        };
        let (mut value, mut pg_type) = self.expression(&root, place)?;
        for access in chain {
            (value, pg_type) = match access {
                AccessExpr::Dot(Expr::Identifier(name)) => field(value, &pg_type, &folded(name))?,
                AccessExpr::Dot(_) => return Err(BindError::NotHere),
                AccessExpr::Subscript(Subscript::Index { index }) => {
                    let index = self.expression(index, place)?.0;
                    let (list, index) = (Box::new(value), Box::new(index));
                    (Expression::Item { list, index, first: first_number(&pg_type) }, pg_type.item())
                }
                AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                    let bound = |bound: &Option<Expr>| -> BindResult<Option<Box<Expression>>> {
                        bound.as_ref().map(|bound| Ok(Box::new(self.expression(bound, place)?.0))).transpose()
                    };
                    let (from, to) = (bound(lower_bound)?, bound(upper_bound)?);
                    (Expression::Slice { list: Box::new(value), from, to, first: first_number(&pg_type) }, array_of(&pg_type.item())?)
                }
                AccessExpr::Subscript(_) => return Err(BindError::NotHere),
            };
        }
        Ok((value, pg_type))
    }
}

/// The items of the catalog's own vectors of numbers count from 0.
fn first_number(list: &PgType) -> i64 {
    if matches!(list, PgType::One(Kind::Int2Vector | Kind::OidVector)) { 0 } else { 1 }
}

fn field(value: Expression, of: &PgType, name: &str) -> BindResult<Typed> {
    let PgType::Record(fields) = of else { return Err(BindError::NotHere) };
    match fields.iter().position(|(known, _)| known == name) {
        Some(position) => Ok((Expression::Field(Box::new(value), position), fields[position].1.clone())),
        None => {
            let message = format!("the row has no field {name}");
            Err(BindError::Wrong(Error::Unresolved { kind: Unresolved::Column, message }))
        }
    }
}

pub(super) fn array_of(item: &PgType) -> BindResult<PgType> {
    match item {
        PgType::One(Kind::Unknown) => Ok(PgType::Many(Kind::Text)),
        PgType::One(kind) => Ok(PgType::Many(*kind)),
        PgType::Record(fields) => Ok(PgType::Records(Arc::clone(fields))),
        PgType::Many(_) | PgType::Records(_) => Err(BindError::NotHere),
    }
}

/// What a literal becomes beside a value of this type. Beside a name of one character it is not cut to one.
pub(super) fn comparable(of: &PgType) -> PgType {
    match of {
        PgType::One(kind) if kind.is_text() => TEXT,
        PgType::Many(kind) if kind.is_text() => PgType::Many(Kind::Text),
        other => other.clone(),
    }
}

fn is_utc(time_zone: &Expr) -> bool {
    let Expr::Value(value) = time_zone else { return false };
    matches!(&value.value, Literal::SingleQuotedString(name) if name.eq_ignore_ascii_case("utc"))
}

fn not(operand: Expression) -> Expression {
    Expression::Not(Box::new(operand))
}

fn not_if(negated: bool, operand: Expression) -> Expression {
    if negated { not(operand) } else { operand }
}
