//! Calls: aggregates, window functions, lists among the outputs or in FROM, and plain functions.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function as AstFunction, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    OrderByExpr, WindowType,
};

use super::bind::{Binder, direction, only_type};
use super::bind_expression::{Place, Typed, array_of};
use super::bind_select::last;
use super::{Aggregate, AggregateFunction, Binary, BindError, BindResult, Expression, Extra, Window, WindowFunction};
use crate::engine::pg_catalog::functions::{self, Function};
use crate::engine::pg_catalog::types::{Kind, PgType, UNKNOWN};
use crate::engine::pg_catalog::value::Value;

const TEXT: PgType = PgType::One(Kind::Text);

/// What stands between the parentheses of a call.
#[derive(Default)]
struct Arguments<'a> {
    values: Vec<&'a Expr>,
    /// `count(*)`
    is_wildcard: bool,
    distinct: bool,
    order: &'a [OrderByExpr],
}

impl Binder<'_> {
    pub(super) fn call(&self, call: &AstFunction, place: &Place<'_>) -> BindResult<Typed> {
        let name = last(&call.name)?;
        if let FunctionArguments::Subquery(query) = &call.args
            && name == "array"
        {
            let plan = self.query(query, Some(place.scope), place.with)?;
            let pg_type = array_of(&only_type(&plan))?;
            return Ok((Expression::ArrayOf(Arc::new(plan)), pg_type));
        }
        if !call.within_group.is_empty() || call.null_treatment.is_some() {
            return Err(BindError::NotHere);
        }
        let arguments = arguments(&call.args)?;
        if let Some(over) = &call.over {
            return self.window(&name, over, &arguments, place);
        }
        if let Some(function) = aggregate_named(&name) {
            return self.aggregate(function, &arguments, call.filter.as_deref(), place);
        }
        if arguments.is_wildcard || arguments.distinct || !arguments.order.is_empty() || call.filter.is_some() {
            return Err(BindError::NotHere);
        }
        let values = arguments.values.iter().map(|value| self.expression(value, place)).collect::<BindResult<Vec<_>>>()?;
        self.named_call_at(&name, values, Some(place))
    }

    pub(super) fn named_call(&self, name: &str, arguments: Vec<Typed>) -> BindResult<Typed> {
        self.named_call_at(name, arguments, None)
    }

    /// A function of values. A list of rows goes where the SELECT makes rows of it.
    fn named_call_at(&self, name: &str, arguments: Vec<Typed>, place: Option<&Place<'_>>) -> BindResult<Typed> {
        match name {
            "coalesce" => {
                let (values, pg_type) = self.unified(arguments)?;
                return Ok((Expression::Coalesce(values), pg_type));
            }
            "greatest" | "least" => {
                let (values, pg_type) = self.unified(arguments)?;
                let function = functions::find(name, values.len()).ok_or(BindError::NotHere)?;
                return self.function_call(function, values.into_iter().map(|value| (value, pg_type.clone())).collect());
            }
            "nullif" => return self.null_if(arguments),
            "row" => return self.row(arguments),
            "unnest" => {
                let (list, item) = self.unnest_call(arguments)?;
                return Ok((place.ok_or(BindError::NotHere)?.extra(Extra::Unnest(list))?, item));
            }
            _ => {}
        }
        let function = functions::find(name, arguments.len()).ok_or(BindError::NotHere)?;
        let (call, pg_type) = self.function_call(function, arguments)?;
        if function.is_set {
            return Ok((place.ok_or(BindError::NotHere)?.extra(Extra::Unnest(call))?, pg_type));
        }
        Ok((call, pg_type))
    }

    fn function_call(&self, function: &'static Function, arguments: Vec<Typed>) -> BindResult<Typed> {
        let mut values = Vec::with_capacity(arguments.len());
        let mut types = Vec::with_capacity(arguments.len());
        for (position, (value, from)) in arguments.into_iter().enumerate() {
            let to = function.parameter(position);
            let needs_cast = match (&from, &to) {
                (_, PgType::One(Kind::Any | Kind::AnyArray | Kind::AnyElement)) => false,
                (PgType::One(from), PgType::One(to)) => {
                    *from == Kind::Unknown || (to.is_text() && !from.is_text()) || (to.names_object() && from.is_text())
                }
                (PgType::One(Kind::Unknown), PgType::Many(_)) => true,
                _ => false,
            };
            if needs_cast {
                values.push(self.cast(value, &from, &to)?);
                types.push(to);
            } else {
                values.push(value);
                types.push(if from.is_unknown() { TEXT } else { from });
            }
        }
        let returns = function.returns(&types).ok_or(BindError::NotHere)?;
        Ok((Expression::Call { function, arguments: values, types }, returns))
    }

    fn null_if(&self, arguments: Vec<Typed>) -> BindResult<Typed> {
        let (values, pg_type) = self.unified(arguments)?;
        let [left, right] = <[Expression; 2]>::try_from(values).map_err(|_| BindError::NotHere)?;
        let equal = Expression::Binary { operator: Binary::Equal, left: Box::new(left.clone()), right: Box::new(right) };
        let branches = vec![(equal, Expression::Constant(Value::Null))];
        Ok((Expression::Case { branches, otherwise: Box::new(left) }, pg_type))
    }

    /// The list that `unnest` makes rows of, and the type of these; several lists side by side are rows of fields.
    pub(super) fn unnest_call(&self, lists: Vec<Typed>) -> BindResult<Typed> {
        let mut arrays = Vec::with_capacity(lists.len());
        for (list, from) in lists {
            match from {
                from if from.is_unknown() => arrays.push((self.cast(list, &UNKNOWN, &PgType::Many(Kind::Text))?, PgType::Many(Kind::Text))),
                known => arrays.push((list, known)),
            }
        }
        if let [(list, pg_type)] = arrays.as_slice() {
            return Ok((list.clone(), pg_type.item()));
        }
        let function = functions::find("unnest", arrays.len()).ok_or(BindError::NotHere)?;
        self.function_call(function, arrays)
    }

    /// A function in FROM: the list of its rows, and their type. A function of one value has one row.
    pub(super) fn set_call(&self, name: &str, arguments: &[FunctionArg], place: &Place<'_>) -> BindResult<Typed> {
        let values = arguments.iter().map(|argument| self.expression(plain(argument)?, place)).collect::<BindResult<Vec<_>>>()?;
        if name == "unnest" {
            return self.unnest_call(values);
        }
        let function = functions::find(name, values.len()).ok_or(BindError::NotHere)?;
        let (call, pg_type) = self.function_call(function, values)?;
        Ok((if function.is_set { call } else { Expression::Array(vec![call]) }, pg_type))
    }

    fn aggregate(
        &self,
        function: AggregateFunction,
        arguments: &Arguments<'_>,
        filter: Option<&Expr>,
        place: &Place<'_>,
    ) -> BindResult<Typed> {
        let inner = Place::plain(place.scope, place.with);
        let mut values = Vec::with_capacity(arguments.values.len());
        let mut types = Vec::with_capacity(arguments.values.len());
        for value in &arguments.values {
            let (value, pg_type) = self.expression(value, &inner)?;
            let pg_type = if pg_type.is_unknown() { TEXT } else { pg_type };
            let is_joined = function == AggregateFunction::StringAgg;
            values.push(if is_joined { self.as_text(value, &pg_type)? } else { value });
            types.push(pg_type);
        }
        let filter = match filter {
            Some(filter) => Some(self.expression(filter, &inner)?.0),
            None => None,
        };
        let order = self.sort_expressions(arguments.order, &inner)?;
        let returns = match (function, types.first()) {
            (AggregateFunction::Count, _) => PgType::One(Kind::Int8),
            (AggregateFunction::BoolAnd | AggregateFunction::BoolOr, Some(_)) => PgType::One(Kind::Bool),
            (AggregateFunction::Average, Some(_)) => PgType::One(Kind::Float8),
            (AggregateFunction::StringAgg, Some(_)) if types.len() == 2 => TEXT,
            (AggregateFunction::ArrayAgg, Some(item)) => array_of(item)?,
            (AggregateFunction::Sum, Some(PgType::One(Kind::Float4 | Kind::Float8 | Kind::Numeric))) => PgType::One(Kind::Float8),
            (AggregateFunction::Sum, Some(_)) => PgType::One(Kind::Int8),
            (AggregateFunction::Min | AggregateFunction::Max, Some(of)) => of.clone(),
            _ => return Err(BindError::NotHere),
        };
        let aggregate = Aggregate { function, arguments: values, distinct: arguments.distinct, filter, order };
        Ok((place.extra(Extra::Aggregate(aggregate))?, returns))
    }

    fn window(&self, name: &str, over: &WindowType, arguments: &Arguments<'_>, place: &Place<'_>) -> BindResult<Typed> {
        let function = match name {
            "row_number" => WindowFunction::RowNumber,
            "rank" => WindowFunction::Rank,
            "dense_rank" => WindowFunction::DenseRank,
            _ => return Err(BindError::NotHere),
        };
        let WindowType::WindowSpec(window) = over else { return Err(BindError::NotHere) };
        if window.window_name.is_some() || window.window_frame.is_some() || !arguments.values.is_empty() {
            return Err(BindError::NotHere);
        }
        let partition = window.partition_by.iter().map(|key| Ok(self.expression(key, place)?.0)).collect::<BindResult<_>>()?;
        let order = self.sort_expressions(&window.order_by, place)?;
        Ok((place.extra(Extra::Window(Window { function, partition, order }))?, PgType::One(Kind::Int8)))
    }

    fn sort_expressions(&self, order: &[OrderByExpr], place: &Place<'_>) -> BindResult<Vec<(Expression, bool, bool)>> {
        let key = |key: &OrderByExpr| -> BindResult<(Expression, bool, bool)> {
            let (descending, nulls_first) = direction(key);
            Ok((self.expression(&key.expr, place)?.0, descending, nulls_first))
        };
        order.iter().map(key).collect()
    }
}

fn arguments(given: &FunctionArguments) -> BindResult<Arguments<'_>> {
    let list = match given {
        FunctionArguments::None => return Ok(Arguments::default()),
        FunctionArguments::Subquery(_) => return Err(BindError::NotHere),
        FunctionArguments::List(list) => list,
    };
    let mut arguments = Arguments { distinct: list.duplicate_treatment == Some(DuplicateTreatment::Distinct), ..Arguments::default() };
    for clause in &list.clauses {
        match clause {
            FunctionArgumentClause::OrderBy(order) => arguments.order = order,
            _ => return Err(BindError::NotHere),
        }
    }
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] => arguments.is_wildcard = true,
        given => arguments.values = given.iter().map(plain).collect::<BindResult<_>>()?,
    }
    Ok(arguments)
}

fn plain(argument: &FunctionArg) -> BindResult<&Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Ok(value),
        _ => Err(BindError::NotHere),
    }
}

fn aggregate_named(name: &str) -> Option<AggregateFunction> {
    Some(match name {
        "count" => AggregateFunction::Count,
        "min" => AggregateFunction::Min,
        "max" => AggregateFunction::Max,
        "sum" => AggregateFunction::Sum,
        "avg" => AggregateFunction::Average,
        "bool_and" | "every" => AggregateFunction::BoolAnd,
        "bool_or" => AggregateFunction::BoolOr,
        "array_agg" => AggregateFunction::ArrayAgg,
        "string_agg" => AggregateFunction::StringAgg,
        _ => return None,
    })
}
