//! Functions of one column in FROM, whose column has PostgreSQL's name: that of the alias, as in `SELECT i FROM generate_series(1, 3) AS i`, and without an
//! alias that of the function. DataFusion calls it `value`, or by the text of the call.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, Expr, FunctionArg, FunctionArgExpr, Ident, Statement, TableAlias, TableAliasColumnDef, TableFactor,
    TableFunctionArgs, TimezoneInfo, UnaryOperator, Value, VisitMut, VisitorMut,
};
use rolloutdb_sql::{call, cast};

const SERIES: &str = "generate_series";
const UNNEST: &str = "unnest";

/// Writes the names of columns that are not written.
pub fn write_out(statement: &mut Statement) {
    let _ = statement.visit(&mut Columns);
}

struct Columns;

impl VisitorMut for Columns {
    type Break = ();

    fn post_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        if let Some((SERIES, _)) = function_of_one_column(relation) {
            arguments_of(relation).iter_mut().for_each(read_time);
        }
        if let Some(series) = series_of_parameters(relation) {
            *relation = series;
        }
        if let Some((function, alias)) = function_of_one_column(relation) {
            let alias = alias.get_or_insert_with(|| TableAlias { explicit: true, name: Ident::new(function), columns: vec![], at: None });
            if alias.columns.is_empty() {
                alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
            }
        }
        ControlFlow::Continue(())
    }
}

/// `generate_series(1, $1)` as an array of integers. DataFusion's function of rows wants to know its bounds when it is planned.
fn series_of_parameters(relation: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Table { name, args: Some(TableFunctionArgs { args, .. }), alias, .. } = relation else { return None };
    if !name.0.last()?.as_ident()?.value.eq_ignore_ascii_case(SERIES) {
        return None;
    }
    let bounds = args.iter().map(bound_of_series).collect::<Option<Vec<_>>>()?;
    let own_name = || TableAlias { explicit: true, name: Ident::new(SERIES), columns: vec![], at: None };
    let series = || TableFactor::UNNEST {
        alias: Some(alias.clone().unwrap_or_else(own_name)),
        array_exprs: vec![call(SERIES, bounds)],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    };
    args.iter().any(is_parameter).then(series)
}

fn is_parameter(argument: &FunctionArg) -> bool {
    matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) if matches!(value.value, Value::Placeholder(_)))
}

/// A bound that is an integer, or a parameter; `None` for anything else.
fn bound_of_series(argument: &FunctionArg) -> Option<Expr> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(bound)) = argument else { return None };
    let is_integer = match bound {
        Expr::Value(value) => matches!(value.value, Value::Placeholder(_) | Value::Number(..)),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            matches!(expr.as_ref(), Expr::Value(value) if matches!(value.value, Value::Number(..)))
        }
        Expr::Cast { data_type: SqlType::BigInt(_) | SqlType::Int(_) | SqlType::Integer(_) | SqlType::SmallInt(_), .. } => true,
        _ => false,
    };
    is_integer.then(|| cast(bound.clone(), SqlType::BigInt(None)))
}

fn function_of_one_column(relation: &mut TableFactor) -> Option<(&'static str, &mut Option<TableAlias>)> {
    match relation {
        TableFactor::Table { name, alias, args: Some(_), .. } | TableFactor::Function { name, alias, .. } => {
            let function = name.0.last()?.as_ident()?;
            function.value.eq_ignore_ascii_case(SERIES).then_some((SERIES, alias))
        }
        TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. } if array_exprs.len() == 1 => {
            Some((UNNEST, alias))
        }
        _ => None,
    }
}

fn arguments_of(relation: &mut TableFactor) -> &mut [FunctionArg] {
    match relation {
        TableFactor::Table { args: Some(arguments), .. } => &mut arguments.args,
        TableFactor::Function { args, .. } => args,
        _ => &mut [],
    }
}

/// A date or an instant in quotes as a call of what reads it: its type alone would be read by DataFusion, whose years have four digits.
fn read_time(argument: &mut FunctionArg) {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument else { return };
    let (data_type, text) = match value {
        Expr::TypedString(typed) => (&typed.data_type, typed.value.clone().into_string()),
        Expr::Cast { data_type, expr, .. } => match expr.as_ref() {
            Expr::Value(constant) => (&*data_type, constant.clone().into_string()),
            _ => return,
        },
        _ => return,
    };
    let function = match data_type {
        SqlType::Date => "date_in",
        SqlType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => "timestamp_in",
        SqlType::Timestamp(..) => "timestamptz_in",
        _ => return,
    };
    if let Some(text) = text {
        *value = call(function, [Expr::value(Value::SingleQuotedString(text))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_has_the_name_of_the_alias_or_of_the_function() {
        for (text, expected) in [
            ("SELECT i FROM generate_series(1, 3) AS i", "SELECT i FROM generate_series(1, 3) AS i (i)"),
            ("SELECT * FROM generate_series(1, 3)", "SELECT * FROM generate_series(1, 3) AS generate_series (generate_series)"),
            ("SELECT n FROM generate_series(1, 3) AS s (n)", "SELECT n FROM generate_series(1, 3) AS s (n)"),
            ("SELECT x FROM t, unnest(t.l) AS x", "SELECT x FROM t, UNNEST(t.l) AS x (x)"),
            ("SELECT * FROM unnest([1], [2]) AS x", "SELECT * FROM UNNEST([1], [2]) AS x"),
            ("SELECT * FROM text_search(t, 'a') AS s", "SELECT * FROM text_search(t, 'a') AS s"),
        ] {
            let parsed = rolloutdb_sql::parse(text).expect(text).pop();
            let Some(rolloutdb_sql::Statement::Query(query)) = parsed else { panic!("{text} is no query") };
            let mut statement = Statement::Query(query);
            write_out(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
