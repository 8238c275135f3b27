//! Functions in FROM: each may name columns of the relations before it, with or without LATERAL, as in PostgreSQL.
//!
//! DataFusion's planner gives these columns to what stands after LATERAL alone. What is a function of one array (`generate_series`, `string_to_table`,
//! `regexp_split_to_table`) and names columns, or has WITH ORDINALITY, becomes `unnest` of that array.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, JoinOperator, ObjectName, Query, SetExpr,
    Statement, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};

use super::apply::ordinality::ORDINALITY;

const UNNEST: &str = "unnest";

/// Functions of rows, and those whose value is the array of these rows.
const ARRAYS_OF_ROWS: [(&str, &str); 3] =
    [("generate_series", "generate_series"), ("regexp_split_to_table", "regexp_split_to_array"), ("string_to_table", "string_to_array")];

/// Writes LATERAL before the functions that name columns.
pub fn write_out(statement: &mut Statement) {
    let _ = statement.visit(&mut Calls);
}

struct Calls;

impl VisitorMut for Calls {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        in_body(&mut query.body);
        ControlFlow::Continue(())
    }
}

fn in_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => select.from.iter_mut().for_each(in_tables),
        SetExpr::SetOperation { left, right, .. } => {
            in_body(left);
            in_body(right);
        }
        _ => {}
    }
}

fn in_tables(tables: &mut TableWithJoins) {
    in_factor(&mut tables.relation, true);
    for join in &mut tables.joins {
        // What stands there can not hang on the rows before: each of its rows stays.
        let is_of_own = matches!(
            join.join_operator,
            JoinOperator::Right(_)
                | JoinOperator::RightOuter(_)
                | JoinOperator::FullOuter(_)
                | JoinOperator::RightSemi(_)
                | JoinOperator::RightAnti(_)
        );
        in_factor(&mut join.relation, !is_of_own);
    }
}

fn in_factor(factor: &mut TableFactor, may_be_lateral: bool) {
    if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
        return in_tables(table_with_joins);
    }
    let Some(call) = Call::of(factor) else { return };
    if let Some(unnested) = call.unnested() {
        *factor = unnested;
    } else if may_be_lateral && names_columns(&call.arguments) {
        let Call { name, arguments: args, alias, with_ordinality } = call;
        *factor = TableFactor::Function { lateral: true, name, args, with_ordinality, alias };
    }
}

/// A call in FROM.
struct Call {
    name: ObjectName,
    arguments: Vec<FunctionArg>,
    alias: Option<TableAlias>,
    with_ordinality: bool,
}

impl Call {
    fn of(factor: &TableFactor) -> Option<Self> {
        let (name, arguments, alias, with_ordinality) = match factor {
            TableFactor::Table { name, alias, args: Some(arguments), with_ordinality, .. } => {
                (name, &arguments.args, alias, *with_ordinality)
            }
            TableFactor::Function { name, args, alias, with_ordinality, .. } => (name, args, alias, *with_ordinality),
            _ => return None,
        };
        Some(Self { name: name.clone(), arguments: arguments.clone(), alias: alias.clone(), with_ordinality })
    }

    fn function(&self) -> Option<String> {
        let name = self.name.0.last()?.as_ident()?;
        Some(name.value.to_ascii_lowercase())
    }

    /// The call as `unnest`; `None` where it is none, or a series of constants, which makes its rows without an array.
    fn unnested(&self) -> Option<TableFactor> {
        let function = self.function()?;
        let (alias, with_ordinality) = (self.alias.clone(), self.with_ordinality);
        let unnest =
            |alias, array_exprs| TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_offset_alias: None, with_ordinality };
        if function == UNNEST {
            return Some(unnest(alias, values(&self.arguments)?));
        }
        let (_, array) = ARRAYS_OF_ROWS.iter().find(|(name, _)| *name == function)?;
        if function == "generate_series" && !with_ordinality && !names_columns(&self.arguments) {
            return None;
        }
        let alias = named_columns(alias, &function, with_ordinality);
        Some(unnest(Some(alias), vec![call_of(array, self.arguments.clone())]))
    }
}

/// The alias with the names of a function's one column, and of its number.
fn named_columns(alias: Option<TableAlias>, function: &str, with_ordinality: bool) -> TableAlias {
    let mut alias = alias.unwrap_or_else(|| TableAlias { explicit: true, name: Ident::new(function), columns: vec![], at: None });
    let column = |name| TableAliasColumnDef { name, data_type: None };
    if alias.columns.is_empty() {
        alias.columns.push(column(alias.name.clone()));
    }
    if with_ordinality && alias.columns.len() == 1 {
        alias.columns.push(column(Ident::new(ORDINALITY)));
    }
    alias
}

fn values(arguments: &[FunctionArg]) -> Option<Vec<Expr>> {
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    arguments.iter().map(value).collect()
}

fn call_of(name: &str, args: Vec<FunctionArg>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// Whether arguments name columns, or hold queries that may.
pub fn names_columns(arguments: &[FunctionArg]) -> bool {
    struct Columns;
    impl Visitor for Columns {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::CompoundFieldAccess { .. } | Expr::Subquery(_) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    arguments.iter().any(|argument| argument.visit(&mut Columns).is_break())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_name_columns_are_lateral() {
        for (text, expected) in [
            ("SELECT 1 FROM q, text_search(w, q.x) AS h", "SELECT 1 FROM q, LATERAL text_search(w, q.x) AS h"),
            ("SELECT 1 FROM hopworld_passages(seed => 7)", "SELECT 1 FROM hopworld_passages(seed => 7)"),
            ("SELECT 1 FROM t RIGHT JOIN f(t.a) AS g ON true", "SELECT 1 FROM t RIGHT JOIN f(t.a) AS g ON true"),
            ("SELECT 1 FROM t, generate_series(1, t.n) AS i", "SELECT 1 FROM t, UNNEST(generate_series(1, t.n)) AS i (i)"),
            ("SELECT 1 FROM generate_series(1, 3) AS i", "SELECT 1 FROM generate_series(1, 3) AS i"),
            ("SELECT 1 FROM t, LATERAL unnest(t.l) AS x", "SELECT 1 FROM t, UNNEST(t.l) AS x"),
            (
                "SELECT 1 FROM string_to_table('a b', ' ') WITH ORDINALITY",
                "SELECT 1 FROM UNNEST(string_to_array('a b', ' ')) WITH ORDINALITY AS string_to_table (string_to_table, ordinality)",
            ),
        ] {
            let parsed = rolloutdb_sql::parse(text).expect(text).pop();
            let Some(rolloutdb_sql::Statement::Query(query)) = parsed else { panic!("{text} is no query") };
            let mut statement = Statement::Query(query);
            write_out(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
