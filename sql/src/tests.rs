//! Goldens, one `check` for every statement; properties; bounds. `UPDATE_EXPECT=1 cargo test -p rolloutdb-sql` fills goldens.

mod client_copy;
mod definitions;
mod depth;
mod grants;
mod properties;
mod roles;
mod work;

use expect_test::Expect;

use crate::ast::{Expr, Select, SelectItem, SetExpr};
use crate::*;

/// Reads the text and prints every statement with its tag, or the error with its place; what is printed must read as the same.
#[track_caller]
fn check(text: &str, expected: Expect) {
    let printed = match parse(text) {
        Ok(statements) => statements.iter().map(print_and_read).collect::<Vec<_>>().join("\n"),
        Err(error) => match error.position(text) {
            Some(position) => format!("{error} [at character {position}]"),
            None => error.to_string(),
        },
    };
    expected.assert_eq(&printed);
}

#[track_caller]
fn print_and_read(statement: &Statement) -> String {
    let printed = statement.to_string();
    assert_eq!(parse(&printed).as_deref(), Ok(std::slice::from_ref(statement)), "{printed}");
    format!("{} | {printed}", statement.tag())
}

#[track_caller]
fn parse_one(text: &str) -> Statement {
    let mut statements = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0)
}

/// Checks how the operators of `SELECT <text>` group, with every binary operation in brackets.
#[track_caller]
fn check_grouping(text: &str, expected: Expect) {
    let Statement::Query(query) = parse_one(&format!("SELECT {text}")) else { panic!("{text} is no query") };
    let SetExpr::Select(select) = *query.body else { panic!("{text} is no select") };
    let Select { projection, .. } = *select;
    let [SelectItem::UnnamedExpr(expr)] = projection.as_slice() else { panic!("{text} is no single expression") };
    expected.assert_eq(&grouped(expr));
}

fn grouped(expr: &Expr) -> String {
    match expr {
        Expr::BinaryOp { left, op, right } => format!("[{} {op} {}]", grouped(left), grouped(right)),
        Expr::Between { expr, low, high, .. } => format!("[{} between {} and {}]", grouped(expr), grouped(low), grouped(high)),
        Expr::Nested(inner) => grouped(inner),
        other => other.to_string(),
    }
}

/// sqlparser takes quotes in a row for escaped ones when it prints them.
#[test]
fn texts_with_quotes_print_as_they_read() {
    for (text, printed) in [
        ("SELECT 'a''''b'", r"SELECT E'a\'\'b'"),
        (r"SELECT 'a\''b'", r"SELECT E'a\\\'b'"),
        ("SELECT 'a''b'", "SELECT 'a''b'"),
        ("SELECT DATE '2024'''''", r"SELECT DATE E'2024\'\''"),
        ("UNLOAD MODEL '''''@0'", "UNLOAD MODEL '''''@0'"),
    ] {
        let statements = parse(text).expect(text);
        assert_eq!(statements[0].to_string(), printed);
        assert_eq!(parse(printed), Ok(statements));
    }
}
