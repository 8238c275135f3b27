//! What sqlparser reads and we mean differently, changed on the syntax tree; and what DataFusion would quietly misread, refused.

use std::ops::ControlFlow;

use crate::ast::{
    AccessExpr, ArrayElemTypeDef, CastKind, DataType, Expr, FunctionArguments, Query, Select, SetExpr, TableFactor, TableVersion,
    UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
};
use crate::calls::call;
use crate::depth::{DEPTH_MAX, QUERY_DEPTH_MAX, balance};
use crate::error::{Error, Result};
use crate::parser::tag_of;
use crate::postgres_forms::{call_without_parentheses, fetch_as_limit, plain_operator};
use crate::quotes::prints_as_another;
use crate::recursive_names::name_first_parts;
use crate::sqlparser::dialect::PostgreSqlDialect;
use crate::sqlparser::parser::Parser;
use crate::type_modifiers::check_modifiers;

/// Changes every cast to a type of ours into a call of the function that reads it (`'[1,2]'::vector` into `vector_in('[1,2]')`),
/// balances long chains of AND and OR, and refuses queries that write and expressions that are too deep.
pub(crate) fn rewrite(node: &mut impl VisitMut) -> Result<()> {
    match node.visit(&mut Rewriter::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

#[derive(Default)]
struct Rewriter {
    /// Levels of expressions round the one that is visited.
    depth: usize,
    /// Expressions with queries in them, and queries with WITH, round what is visited.
    query_depth: usize,
}

impl Rewriter {
    fn enter_queries(&mut self) -> ControlFlow<Box<Error>> {
        self.query_depth += 1;
        match self.query_depth > QUERY_DEPTH_MAX {
            true => ControlFlow::Break(Box::new(Error::TooDeep { limit: QUERY_DEPTH_MAX, what: "levels of queries within queries" })),
            false => ControlFlow::Continue(()),
        }
    }
}

impl VisitorMut for Rewriter {
    type Break = Box<Error>;

    /// `WITH x AS (DELETE ... RETURNING *) SELECT`: a query by its outside only.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if num_set_operators(&query.body) > DEPTH_MAX {
            return ControlFlow::Break(Box::new(Error::TooDeep { limit: DEPTH_MAX, what: "queries joined by UNION and the like" }));
        }
        if let Some(with) = &mut query.with {
            self.enter_queries()?;
            name_first_parts(with);
        }
        if let Err(error) = fetch_as_limit(query) {
            return ControlFlow::Break(Box::new(error));
        }
        // DataFusion would read the rows and lock none.
        if let Some(lock) = query.locks.first() {
            return ControlFlow::Break(Box::new(Error::not_supported_but(
                format!("SELECT ... {lock}"),
                "no row is locked here: leave it out, and put what must hold into WHERE of the UPDATE or DELETE",
            )));
        }
        match writing_body(&query.body) {
            Some(word) => ControlFlow::Break(Box::new(Error::not_supported_but(
                format!("{word} inside a query"),
                format!("write the {word} as a statement of its own"),
            ))),
            None => ControlFlow::Continue(()),
        }
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        self.query_depth -= usize::from(query.with.is_some());
        ControlFlow::Continue(())
    }

    /// DataFusion would make a table in memory, lost with the session.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        match &select.into {
            Some(into) => ControlFlow::Break(Box::new(Error::not_supported_but(
                "SELECT INTO",
                format!("write CREATE TABLE {} AS SELECT ...", into.name),
            ))),
            None => ControlFlow::Continue(()),
        }
    }

    /// DataFusion would read the whole table.
    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<Self::Break> {
        match relation {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                let instead = "write WHERE random() < 0.1, or ORDER BY random() LIMIT n";
                ControlFlow::Break(Box::new(Error::not_supported_but("TABLESAMPLE", instead)))
            }
            TableFactor::Table { version: Some(TableVersion::VersionAsOf(Expr::Value(value))), .. } => {
                if let Value::Placeholder(text) = &value.value
                    && let Some(tag) = tag_of(text)
                {
                    value.value = Value::SingleQuotedString(tag.to_owned());
                }
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        balance(expr);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let what = "levels of expressions within expressions";
            return ControlFlow::Break(Box::new(Error::TooDeep { limit: DEPTH_MAX, what }));
        }
        if let Some((value, message)) = value_at_period(expr) {
            let (line, column) = (value.span.start.line, value.span.start.column);
            let (message, near) = (message.to_owned(), value.to_string());
            return ControlFlow::Break(Box::new(Error::Syntax { message, line, column, near }));
        }
        if holds_query(expr) { self.enter_queries() } else { ControlFlow::Continue(()) }
    }

    /// Texts in a row are one; it may be one that sqlparser prints as another.
    fn post_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Self::Break> {
        // The escapes of `U&'..'` are read by now.
        if let Value::UnicodeStringLiteral(text) = &mut value.value {
            value.value = Value::SingleQuotedString(std::mem::take(text));
        }
        if let Value::SingleQuotedString(text) | Value::NationalStringLiteral(text) = &mut value.value
            && prints_as_another(text, '\'')
        {
            value.value = Value::EscapedStringLiteral(std::mem::take(text));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        self.query_depth -= usize::from(holds_query(expr));
        if let Expr::Cast { data_type, .. } = expr {
            if let Err(error) = check_modifiers(data_type) {
                return ControlFlow::Break(Box::new(error));
            }
            if let Some(known) = type_of_catalog(data_type) {
                *data_type = known;
            }
        }
        part_operators(expr);
        if let Some(call) = input_call(expr).or_else(|| call_without_parentheses(expr)) {
            *expr = call;
        }
        match plain_operator(expr) {
            Ok(Some(plain)) => *expr = plain,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(Box::new(error)),
        }
        ControlFlow::Continue(())
    }
}

/// `'a'. 1e10`, in which sqlparser takes the number for a field, and `1 .a`, which it prints as another text; with what is wrong.
fn value_at_period(expr: &Expr) -> Option<(&ValueWithSpan, &'static str)> {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return None };
    if let (Expr::Value(number), Some(AccessExpr::Dot(_))) = (root.as_ref(), access_chain.first())
        && matches!(number.value, Value::Number(..))
    {
        return Some((number, "a number has no fields"));
    }
    access_chain.iter().find_map(|access| match access {
        AccessExpr::Dot(Expr::Value(value)) => Some((value, "expected a name after the period")),
        _ => None,
    })
}

fn holds_query(expr: &Expr) -> bool {
    match expr {
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => true,
        Expr::Function(function) => matches!(function.args, FunctionArguments::Subquery(_)),
        _ => false,
    }
}

/// The length of a chain of set operations; it leans to the left.
fn num_set_operators(mut body: &SetExpr) -> usize {
    let mut count = 0;
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
        count += 1;
    }
    count
}

fn writing_body(body: &SetExpr) -> Option<&'static str> {
    match body {
        SetExpr::Insert(_) => Some("INSERT"),
        SetExpr::Update(_) => Some("UPDATE"),
        SetExpr::Delete(_) => Some("DELETE"),
        SetExpr::Merge(_) => Some("MERGE"),
        SetExpr::SetOperation { left, right, .. } => writing_body(left).or_else(|| writing_body(right)),
        // A query in parentheses is visited by itself.
        SetExpr::Query(_) | SetExpr::Select(_) | SetExpr::Values(_) | SetExpr::Table(_) => None,
    }
}

/// Parentheses between two operators before a value: sqlparser prints `- -1` as `--1`, which is a comment.
fn part_operators(expr: &mut Expr) {
    if let Expr::UnaryOp { op, expr: operand } = expr
        && *op != UnaryOperator::Not
        && begins_with_operator(operand)
    {
        let inner = std::mem::replace(operand.as_mut(), Expr::value(Value::Null));
        **operand = Expr::Nested(Box::new(inner));
    }
}

fn begins_with_operator(expr: &Expr) -> bool {
    match expr {
        Expr::UnaryOp { op, .. } => *op != UnaryOperator::Not,
        Expr::BinaryOp { left: first, .. }
        | Expr::Cast { kind: CastKind::DoubleColon, expr: first, .. }
        | Expr::CompoundFieldAccess { root: first, .. } => begins_with_operator(first),
        _ => false,
    }
}

/// The type that `pg_catalog.int8` is, and arrays of it: drivers write types with their schema. `None` for any other name.
fn type_of_catalog(data_type: &DataType) -> Option<DataType> {
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(item, length)) = data_type {
        return Some(DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(type_of_catalog(item)?), *length)));
    }
    let DataType::Custom(name, modifiers) = data_type else { return None };
    let [schema, name] = name.0.as_slice() else { return None };
    let (schema, name) = (schema.as_ident()?, name.as_ident()?);
    // `"char"` is one byte, and no char.
    if !schema.value.eq_ignore_ascii_case("pg_catalog") || (name.quote_style.is_some() && name.value == "char") {
        return None;
    }
    let text = match modifiers.is_empty() {
        true => name.value.clone(),
        false => format!("{}({})", name.value, modifiers.join(", ")),
    };
    Parser::new(&PostgreSqlDialect {}).try_with_sql(&text).ok()?.parse_data_type().ok()
}

/// The call that a cast to a type of ours means, since Arrow has no such cast: `vector_in('[1,2]')` for `'[1,2]'::vector`, `vector_in($1, 384)`
/// for `CAST($1 AS vector(384))`, `json_in(x)` for `x::json`. `None` for any other cast.
///
/// Casts of columns, arrays and NULL to `vector` stay casts: these Arrow can do.
fn input_call(expr: &Expr) -> Option<Expr> {
    let Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, data_type, .. } = expr else { return None };
    let function = match data_type {
        DataType::JSON => "json_in",
        DataType::JSONB => "jsonb_in",
        DataType::Uuid => "uuid_in",
        // Arrow would take the characters of `'\x01'` for bytes; a parameter comes as bytes.
        DataType::Bytea if text_or_parameter(inner).is_some_and(|operand| !is_parameter(operand)) => "bytea_in",
        _ => return vector_input_call(inner, data_type),
    };
    Some(call(function, std::iter::once(inner.as_ref().clone())))
}

fn vector_input_call(inner: &Expr, data_type: &DataType) -> Option<Expr> {
    let (function, argument, dimension) = match vector_dimension(data_type, "vector") {
        Some(dimension) => ("vector_in", text_or_parameter(inner)?, dimension),
        None => ("halfvec_in", inner, vector_dimension(data_type, "halfvec")?),
    };
    let dimension = dimension.map(|dimension| Expr::value(Value::Number(dimension, false)));
    Some(call(function, std::iter::once(argument.clone()).chain(dimension)))
}

/// `Some(Some("384"))` for `vector(384)`, `Some(None)` for `vector`, `None` for a type of another name.
fn vector_dimension(data_type: &DataType, name_of_type: &str) -> Option<Option<String>> {
    let DataType::Custom(name, modifiers) = data_type else { return None };
    let is_vector = name.0.last()?.as_ident()?.value.eq_ignore_ascii_case(name_of_type);
    match modifiers.as_slice() {
        [] if is_vector => Some(None),
        [dimension] if is_vector && dimension.parse::<u32>().is_ok() => Some(Some(dimension.clone())),
        _ => None,
    }
}

fn text_or_parameter(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Nested(inner) => text_or_parameter(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_) | Value::DollarQuotedString(_) | Value::Placeholder(_) => {
                Some(expr)
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_parameter(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)))
}
