//! Aggregates of PostgreSQL's that DataFusion has not, as calls of those that it has: `json_agg(x)` is a text of the values' JSON with brackets round it,
//! `percentile_disc(0.5) WITHIN GROUP (ORDER BY x)` an item of the array of all values in order.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, OrderByExpr, OrderByOptions, Query, Select, SelectItem, SetExpr, Statement, Value, VisitMut,
    VisitorMut,
};

use rolloutdb_sql::call;

use super::whole_rows::JSON_ROW;
use crate::error::{Error, Result};

/// Between values, and between rows, which PostgreSQL writes on lines of their own.
const BETWEEN_VALUES: &str = ", ";
const BETWEEN_ROWS: &str = ", \n ";

/// Writes such aggregates as calls; the outputs that are nothing else keep their names.
///
/// # Errors
/// [`Error::NotSupported`] for forms that are not there yet.
pub fn rewrite(statement: &mut Statement) -> Result<()> {
    match statement.visit(&mut Forms { depth: 0 }) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Forms {
    /// Outputs of the outermost query have their names already.
    depth: usize,
}

impl VisitorMut for Forms {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            name_outputs(&mut query.body);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        put_distinct_in_order(function);
        match called(function) {
            Ok(None) => {}
            Ok(Some(called)) => *expr = called,
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

fn name_outputs(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => name_outputs_of(select),
        SetExpr::SetOperation { left, .. } => name_outputs(left),
        _ => {}
    }
}

fn name_outputs_of(select: &mut Select) {
    let names: Vec<Option<String>> = select.projection.iter().map(output_name).collect();
    for (item, name) in select.projection.iter_mut().zip(&names) {
        let (SelectItem::UnnamedExpr(expr), Some(name)) = (&*item, name) else { continue };
        // Two of one name would be refused.
        if names.iter().flatten().filter(|other| *other == name).count() == 1 {
            let named = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new(name) };
            *item = named;
        }
    }
}

fn output_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::Function(function)) => name_of(function).filter(|name| is_one(name)),
        _ => None,
    }
}

fn name_of(function: &Function) -> Option<String> {
    let name = function.name.0.last()?.as_ident().filter(|name| name.quote_style.is_none())?;
    Some(name.value.to_ascii_lowercase())
}

fn is_one(name: &str) -> bool {
    matches!(name, "json_agg" | "jsonb_agg" | "json_object_agg" | "jsonb_object_agg" | "row_to_json" | "percentile_disc" | "mode")
}

fn called(function: &Function) -> Result<Option<Expr>> {
    let Some(name) = name_of(function) else { return Ok(None) };
    let arguments = arguments(function);
    Ok(match (name.as_str(), arguments.as_slice()) {
        ("json_agg", [value]) => Some(json_in("json_in", "[", items(function, value), "]")),
        ("jsonb_agg", [value]) => Some(json_in("jsonb_in", "[", items(function, value), "]")),
        ("json_object_agg", [key, value]) => Some(json_in("json_in", "{ ", members(function, key, value), " }")),
        ("jsonb_object_agg", [key, value]) => Some(json_in("jsonb_in", "{ ", members(function, key, value), " }")),
        ("row_to_json", [row]) => Some(call("to_json", [row.clone()])),
        ("percentile_disc", [fraction]) => {
            let Some(values) = ordered_values(function, &name)? else { return Ok(None) };
            Some(call("item_at_fraction", [values, fraction.clone()]))
        }
        ("mode", []) => ordered_values(function, &name)?.map(|values| call("most_frequent", [values])),
        _ => None,
    })
}

/// Of `array_agg(DISTINCT x)` and its kin the values come in order: PostgreSQL sorts them to find the different ones.
fn put_distinct_in_order(function: &mut Function) {
    let is_list = name_of(function).is_some_and(|name| matches!(name.as_str(), "array_agg" | "string_agg"));
    let FunctionArguments::List(list) = &mut function.args else { return };
    if !is_list || list.duplicate_treatment != Some(DuplicateTreatment::Distinct) || !list.clauses.is_empty() {
        return;
    }
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) = list.args.first() {
        let options = OrderByOptions { asc: None, nulls_first: None };
        list.clauses.push(FunctionArgumentClause::OrderBy(vec![OrderByExpr { expr: value.clone(), options, with_fill: None }]));
    }
}

/// The positional arguments; none if there are others.
fn arguments(function: &Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let positional = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    positional.collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn json_in(function: &str, before: &str, joined: Expr, behind: &str) -> Expr {
    call(function, [concatenated(concatenated(text(before), joined), text(behind))])
}

/// `string_agg(coalesce(to_json(value), 'null'), ', ')` with what else the aggregate has.
fn items(function: &Function, value: &Expr) -> Expr {
    let is_row = matches!(value, Expr::Function(row) if name_of(row).as_deref() == Some(JSON_ROW));
    let item = call("coalesce", [call("to_json", [value.clone()]), text("null")]);
    string_agg(function, item, if is_row { BETWEEN_ROWS } else { BETWEEN_VALUES })
}

/// The same of `"key" : value`, which an object has between its braces.
fn members(function: &Function, key: &Expr, value: &Expr) -> Expr {
    let object = call("json_build_object", [key.clone(), value.clone()]);
    let number = |digits: &str| Expr::value(Value::Number(digits.to_owned(), false));
    let member = call("right", [call("left", [object, number("-1")]), number("-1")]);
    string_agg(function, member, BETWEEN_VALUES)
}

fn string_agg(function: &Function, item: Expr, separator: &str) -> Expr {
    let FunctionArguments::List(list) = &function.args else { return item };
    let args = [item, text(separator)].map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))).into();
    let args = FunctionArguments::List(FunctionArgumentList { args, ..list.clone() });
    Expr::Function(Function { name: ObjectName::from(vec![Ident::new("string_agg")]), args, ..function.clone() })
}

/// `array_agg(value ORDER BY value) FILTER (WHERE value IS NOT NULL)` of `WITHIN GROUP (ORDER BY value)`. `None` without that, which is an error elsewhere.
fn ordered_values(function: &Function, name: &str) -> Result<Option<Expr>> {
    let [order] = function.within_group.as_slice() else { return Ok(None) };
    if function.over.is_some() {
        return Err(Error::NotSupported(format!("{name} with OVER is not supported; group rows in a subquery")));
    }
    let OrderByExpr { expr: value, .. } = order;
    // Constants are in every order, and one that is a number would be a position.
    let is_constant = matches!(value, Expr::Value(_));
    let is_there = Expr::IsNotNull(Box::new(value.clone()));
    let filter = match &function.filter {
        Some(filter) => Expr::BinaryOp { left: Box::new(Expr::Nested(filter.clone())), op: BinaryOperator::And, right: Box::new(is_there) },
        None => is_there,
    };
    let args = FunctionArgumentList {
        duplicate_treatment: None::<DuplicateTreatment>,
        args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(value.clone()))],
        clauses: if is_constant { Vec::new() } else { vec![FunctionArgumentClause::OrderBy(vec![order.clone()])] },
    };
    let aggregate = Function {
        name: ObjectName::from(vec![Ident::new("array_agg")]),
        args: FunctionArguments::List(args),
        filter: Some(Box::new(filter)),
        within_group: Vec::new(),
        ..function.clone()
    };
    Ok(Some(Expr::Function(aggregate)))
}

fn concatenated(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::StringConcat, right: Box::new(right) }
}

fn text(value: &str) -> Expr {
    Expr::value(Value::SingleQuotedString(value.to_owned()))
}
