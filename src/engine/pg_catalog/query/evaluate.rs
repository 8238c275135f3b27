//! The value of an expression for a row.

use super::operators::binary;
use super::run::rows;
use super::{Binary, Context, Env, Expression};
use crate::engine::pg_catalog::functions::cast;
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result};

impl Expression {
    pub(super) fn value(&self, env: &Env<'_>, context: &Context<'_>) -> Result<Value> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Parameter(number) => Ok(context.parameters.get(*number).cloned().unwrap_or(Value::Null)),
            Self::Column { depth, index } => env.column(*depth, *index).cloned(),
            Self::And(operands) => all_of(operands, env, context),
            Self::Or(operands) => any_of(operands, env, context),
            Self::Not(operand) => Ok(negated(operand.value(env, context)?)),
            Self::IsNull(operand) => Ok(Value::Bool(operand.value(env, context)?.is_null())),
            Self::Is(operand, wanted) => Ok(Value::Bool(operand.value(env, context)? == Value::Bool(*wanted))),
            Self::IsDistinct(left, right) => Ok(Value::Bool(left.value(env, context)?.order(&right.value(env, context)?).is_ne())),
            Self::Binary { operator, left, right } => {
                let (left, right) = (left.value(env, context)?, right.value(env, context)?);
                check_length(&[&left, &right])?;
                binary(*operator, &left, &right)
            }
            Self::Quantified { operator, left, list, all } => {
                let (left, list) = (left.value(env, context)?, list.value(env, context)?);
                match list.as_list() {
                    Some(items) => quantified(*operator, &left, items.iter(), *all),
                    None => Ok(Value::Null),
                }
            }
            Self::QuantifiedQuery { operator, left, query, all } => {
                let left = left.value(env, context)?;
                let rows = rows(query, Some(env), context)?;
                if matches!(left, Value::Record(_)) && query.columns.len() > 1 {
                    let records: Vec<Value> = rows.iter().map(|row| Value::Record(row.as_slice().into())).collect();
                    return quantified(*operator, &left, records.iter(), *all);
                }
                quantified(*operator, &left, rows.iter().filter_map(|row| row.first()), *all)
            }
            Self::Exists(query) => Ok(Value::Bool(!rows(query, Some(env), context)?.is_empty())),
            Self::Scalar(query) => match rows(query, Some(env), context)?.as_slice() {
                [] => Ok(Value::Null),
                [row] => Ok(row.first().cloned().unwrap_or(Value::Null)),
                _ => Err(Error::SeveralRows),
            },
            Self::ArrayOf(query) => {
                let rows = rows(query, Some(env), context)?;
                Ok(Value::list(rows.iter().filter_map(|row| row.first().cloned())))
            }
            Self::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    if condition.value(env, context)?.is_true() {
                        return result.value(env, context);
                    }
                }
                otherwise.value(env, context)
            }
            Self::Coalesce(operands) => {
                for operand in operands {
                    let value = operand.value(env, context)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Self::Call { function, arguments, types } => {
                let values = values(arguments, env, context)?;
                check_length(&values.iter().collect::<Vec<_>>())?;
                function.call(context, &values, types)
            }
            Self::Cast { operand, from, to } => cast(operand.value(env, context)?, from, to, context),
            Self::Field(operand, position) => Ok(match operand.value(env, context)? {
                Value::Record(values) => values.get(*position).cloned().unwrap_or(Value::Null),
                _ => Value::Null,
            }),
            Self::Row(items) => Ok(Value::Record(values(items, env, context)?.into())),
            Self::Array(items) => Ok(Value::list(values(items, env, context)?)),
            Self::Item { list, index, first } => {
                let (list, index) = (list.value(env, context)?, index.value(env, context)?.as_int());
                let position = index.and_then(|index| usize::try_from(index.checked_sub(*first)?).ok());
                Ok(list.as_list().zip(position).and_then(|(items, position)| items.get(position).cloned()).unwrap_or(Value::Null))
            }
            Self::Slice { list, from, to, first } => {
                let list = list.value(env, context)?;
                let Some(items) = list.as_list() else { return Ok(Value::Null) };
                let bound = |bound: &Option<Box<Self>>, otherwise: i64| match bound {
                    Some(bound) => Ok::<_, Error>(bound.value(env, context)?.as_int().unwrap_or(otherwise)),
                    None => Ok(otherwise),
                };
                let (from, to) = (bound(from, *first)?.saturating_sub(*first), bound(to, i64::MAX - 1)?.saturating_sub(*first));
                let kept = items.iter().enumerate().filter(|(position, _)| (from..=to).contains(&(*position as i64)));
                Ok(Value::list(kept.map(|(_, item)| item.clone())))
            }
        }
    }

    pub(super) fn is_true(&self, env: &Env<'_>, context: &Context<'_>) -> Result<bool> {
        Ok(self.value(env, context)?.is_true())
    }

    /// Subqueries may read any column of the row.
    pub(super) fn has_subquery(&self) -> bool {
        self.is_subquery() || self.children().into_iter().any(Self::has_subquery)
    }

    /// The columns of the row at hand that it reads outside of subqueries.
    pub(super) fn columns(&self) -> Vec<usize> {
        match self {
            Self::Column { depth: 0, index } => vec![*index],
            other => other.children().into_iter().flat_map(Self::columns).collect(),
        }
    }

    fn is_subquery(&self) -> bool {
        matches!(self, Self::QuantifiedQuery { .. } | Self::Exists(_) | Self::Scalar(_) | Self::ArrayOf(_))
    }

    fn children(&self) -> Vec<&Self> {
        match self {
            Self::Constant(_) | Self::Parameter(_) | Self::Column { .. } | Self::Exists(_) | Self::Scalar(_) | Self::ArrayOf(_) => vec![],
            Self::And(operands) | Self::Or(operands) | Self::Coalesce(operands) | Self::Array(operands) | Self::Row(operands) => {
                operands.iter().collect()
            }
            Self::Call { arguments, .. } => arguments.iter().collect(),
            Self::Not(operand) | Self::IsNull(operand) | Self::Is(operand, _) | Self::Field(operand, _) => vec![operand.as_ref()],
            Self::Cast { operand, .. } | Self::QuantifiedQuery { left: operand, .. } => vec![operand.as_ref()],
            Self::IsDistinct(left, right) | Self::Binary { left, right, .. } => vec![left.as_ref(), right.as_ref()],
            Self::Quantified { left, list, .. } => vec![left.as_ref(), list.as_ref()],
            Self::Item { list, index, .. } => vec![list.as_ref(), index.as_ref()],
            Self::Slice { list, from, to, .. } => {
                let bounds = from.iter().chain(to).map(AsRef::as_ref);
                std::iter::once(list.as_ref()).chain(bounds).collect()
            }
            Self::Case { branches, otherwise } => {
                let branches = branches.iter().flat_map(|(condition, result)| [condition, result]);
                branches.chain([otherwise.as_ref()]).collect()
            }
        }
    }
}

/// Bytes of texts that a function may be given: most make as much of them, and `replace` the square.
const TEXTS_MAX: usize = 1 << 20;

/// # Errors
/// 53200 for texts that no catalog has.
fn check_length(values: &[&Value]) -> Result<()> {
    let bytes: usize = values.iter().filter_map(|value| value.as_str()).map(str::len).sum();
    match bytes > TEXTS_MAX {
        true => Err(Error::OutOfMemory(format!(
            "texts of {bytes} bytes are more than a query about the catalog computes with; make them shorter"
        ))),
        false => Ok(()),
    }
}

pub(super) fn values(expressions: &[Expression], env: &Env<'_>, context: &Context<'_>) -> Result<Vec<Value>> {
    expressions.iter().map(|expression| expression.value(env, context)).collect()
}

fn all_of(operands: &[Expression], env: &Env<'_>, context: &Context<'_>) -> Result<Value> {
    let mut result = Value::Bool(true);
    for operand in operands {
        match operand.value(env, context)? {
            Value::Bool(false) => return Ok(Value::Bool(false)),
            Value::Null => result = Value::Null,
            _ => {}
        }
    }
    Ok(result)
}

fn any_of(operands: &[Expression], env: &Env<'_>, context: &Context<'_>) -> Result<Value> {
    let mut result = Value::Bool(false);
    for operand in operands {
        match operand.value(env, context)? {
            Value::Bool(true) => return Ok(Value::Bool(true)),
            Value::Null => result = Value::Null,
            _ => {}
        }
    }
    Ok(result)
}

fn negated(value: Value) -> Value {
    match value {
        Value::Bool(value) => Value::Bool(!value),
        _ => Value::Null,
    }
}

/// ANY is an OR over the items, ALL an AND.
fn quantified<'v>(operator: Binary, left: &Value, items: impl Iterator<Item = &'v Value>, all: bool) -> Result<Value> {
    let mut result = Value::Bool(all);
    for item in items {
        match binary(operator, left, item)? {
            Value::Bool(value) if value != all => return Ok(Value::Bool(value)),
            Value::Null => result = Value::Null,
            _ => {}
        }
    }
    Ok(result)
}
