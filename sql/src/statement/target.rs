//! What the statements that change a table have in common: the table, the columns that they assign, WITH and RETURNING.

use std::fmt;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::parser;

use crate::ast::{
    self, AssignmentTarget, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, SelectItem, Spanned,
    TableFactor, TableWithJoins, With,
};
use crate::error::{Error, Result};
use crate::name::{Name, Qualified, Separated, column, fold, fold_object_name};
use crate::parser::Parser;

/// `t`, `t AS x`
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub table: ObjectName,
    pub alias: Option<Ident>,
}

impl Target {
    /// `statement`: for the error about what is no table.
    pub(crate) fn from_relation(relation: TableFactor, statement: &str) -> Result<Self> {
        let TableFactor::Table { name, alias, args: None, sample: None, version: None, .. } = relation else {
            return Err(Error::not_supported(format!("{statement} of anything but a table")));
        };
        let alias = match alias {
            Some(alias) if !alias.columns.is_empty() => {
                return Err(Error::not_supported(format!("{statement} with new names for the table's columns")));
            }
            alias => alias.map(|alias| fold(alias.name)),
        };
        Ok(Self { table: fold_object_name(name), alias })
    }

    /// `others_after`: the word that other tables are named after.
    pub(crate) fn from_joins(table: TableWithJoins, statement: &str, others_after: &str) -> Result<Self> {
        if !table.joins.is_empty() {
            return Err(Error::not_supported_but(format!("{statement} of a join"), format!("name the other tables after {others_after}")));
        }
        Self::from_relation(table.relation, statement)
    }

    /// What the statement calls the table.
    #[must_use]
    pub fn name(&self) -> Ident {
        let last = || self.table.0.last().and_then(|part| part.as_ident()).cloned();
        self.alias.clone().or_else(last).unwrap_or_else(|| Ident::new(""))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Qualified(&self.table))?;
        match &self.alias {
            Some(alias) => write!(f, " AS {}", Name(&alias.value)),
            None => Ok(()),
        }
    }
}

/// `column = value`; the value may be the word DEFAULT. Of several columns the value is a subquery: `(a, b) = (SELECT ...)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// At least one.
    pub columns: Vec<Ident>,
    pub value: Expr,
}

/// Reads `a = 1, (b, c) = (2, 3)` as three assignments, and `(b, c) = ROW(2, 3)` too.
pub(crate) fn assignments(parser: &Parser, list: Vec<ast::Assignment>) -> Result<Vec<Assignment>> {
    let mut read = Vec::with_capacity(list.len());
    for ast::Assignment { target, value } in list {
        match target {
            AssignmentTarget::ColumnName(name) => read.push(Assignment { columns: vec![assigned_column(name)?], value }),
            AssignmentTarget::Tuple(names) if names.len() > 1 && is_subquery(&value) => {
                let columns = names.into_iter().map(assigned_column).collect::<Result<_>>()?;
                read.push(Assignment { columns, value: unnested(value) });
            }
            AssignmentTarget::Tuple(names) => {
                let values = row_values(value, names.len())?;
                if names.len() != values.len() {
                    let message = format!("{} columns are set to {} values", names.len(), values.len());
                    return Err(parser.error_at(names[0].span().start, message));
                }
                for (name, value) in names.into_iter().zip(values) {
                    read.push(Assignment { columns: vec![assigned_column(name)?], value });
                }
            }
        }
    }
    Ok(read)
}

/// `(SELECT ...)`, in more parentheses too.
fn is_subquery(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_subquery(inner),
        other => matches!(other, Expr::Subquery(_)),
    }
}

fn unnested(value: Expr) -> Expr {
    match value {
        Expr::Nested(inner) => unnested(*inner),
        other => other,
    }
}

/// The values of `(1, 2)` or `ROW(1, 2)`, what `num_columns` columns are set to.
fn row_values(value: Expr, num_columns: usize) -> Result<Vec<Expr>> {
    match value {
        Expr::Tuple(values) => Ok(values),
        Expr::Function(function) if is_row(&function) => row_arguments(function),
        // `(1)` is no row of one value, and a subquery for one column is a value as any other.
        Expr::Nested(_) | Expr::Subquery(_) if num_columns == 1 => Ok(vec![value]),
        other => {
            Err(Error::not_supported_but(format!("SET of columns in parentheses to {other}"), "write (1, 2), ROW(1, 2) or a subquery"))
        }
    }
}

fn is_row(function: &Function) -> bool {
    let is_word = |name: &Ident| name.quote_style.is_none() && name.value.eq_ignore_ascii_case("row");
    matches!(function.name.0.as_slice(), [part] if part.as_ident().is_some_and(is_word))
}

fn row_arguments(function: Function) -> Result<Vec<Expr>> {
    let FunctionArguments::List(list) = function.args else { return Err(Error::not_supported("ROW with a query inside")) };
    let value = |argument: FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Ok(value),
        other => Err(Error::not_supported(format!("ROW({other})"))),
    };
    list.args.into_iter().map(value).collect()
}

/// Postgres allows no table's name here; the field of a composite column is not ours.
fn assigned_column(name: ObjectName) -> Result<Ident> {
    match name.0.as_slice() {
        [part] => part.as_ident().cloned().map(fold),
        _ => None,
    }
    .ok_or_else(|| Error::not_supported_but(format!("SET {name}"), "name the column alone"))
}

/// Whether a value is the word DEFAULT.
#[must_use]
pub fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default"))
}

/// Reads `RETURNING a, b`, or nothing.
pub(crate) fn parse_returning(parser: &mut Parser) -> Result<Vec<SelectItem>> {
    if parser.eat("RETURNING") { parser.comma_separated(|parser| parser.ast(parser::Parser::parse_select_item)) } else { Ok(Vec::new()) }
}

/// RETURNING is answered when the change is made, so that the queries of WITH would see other rows there than in the statement.
pub(crate) fn refuse_with_in_returning(with: Option<&With>, returning: &[SelectItem]) -> Result<()> {
    let tables = with.into_iter().flat_map(|with| &with.cte_tables);
    let names: Vec<Ident> = tables.map(|table| fold(table.alias.name.clone())).collect();
    let is_of_with = |name: &ObjectName| match name.0.as_slice() {
        [part] => part.as_ident().is_some_and(|ident| names.contains(&fold(ident.clone()))),
        _ => false,
    };
    for item in returning {
        let found = ast::visit_relations(item, |name| if is_of_with(name) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        if found.is_break() {
            return Err(Error::not_supported_but("RETURNING from a query of WITH", "read it by a statement of its own"));
        }
    }
    Ok(())
}

/// `WITH a AS (SELECT 1) `
pub(crate) struct WithQueries<'a>(pub Option<&'a With>);

impl fmt::Display for WithQueries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |with| write!(f, "{with} "))
    }
}

/// ` SET a = 1, "B" = 2, (c, d) = (SELECT 3, 4)`
pub(crate) struct SetClause<'a>(pub &'a [Assignment]);

impl fmt::Display for SetClause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Assignment { columns, value }) in self.0.iter().enumerate() {
            let names: Vec<String> = columns.iter().map(|name| column(name).to_string()).collect();
            let assigned = if names.len() == 1 { names.concat() } else { format!("({})", names.join(", ")) };
            write!(f, "{}{assigned} = {value}", if position == 0 { " SET " } else { ", " })?;
        }
        Ok(())
    }
}

/// ` FROM a, b JOIN c`; the word is USING in a DELETE.
pub(crate) struct Others<'a>(pub &'a str, pub &'a [TableWithJoins]);

impl fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            [] => Ok(()),
            others => write!(f, " {} {}", self.0, Separated(others.iter())),
        }
    }
}

/// ` WHERE condition`
pub(crate) struct Where<'a>(pub Option<&'a Expr>);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |condition| write!(f, " WHERE {condition}"))
    }
}

/// ` RETURNING a, b`
pub(crate) struct Returning<'a>(pub &'a [SelectItem]);

impl fmt::Display for Returning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            items => write!(f, " RETURNING {}", Separated(items.iter())),
        }
    }
}
