//! Constants in quotes below or above a vector in VALUES, which DataFusion would find no common type for.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::ast::{DataType, Expr, SetExpr, Statement, Value, ValueWithSpan, Values, VisitMut, VisitorMut};
use rolloutdb_sql::call;

/// Reads them as vectors too, where a value of their column is a cast to a type of vectors.
pub fn write_out(statement: &mut Statement) {
    let _ = statement.visit(&mut Columns);
}

struct Columns;

impl VisitorMut for Columns {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Values(values) = query.body.as_mut() {
            read_constants(values);
        }
        ControlFlow::Continue(())
    }
}

fn read_constants(values: &mut Values) {
    let width = values.rows.iter().map(|row| row.content.len()).min().unwrap_or(0);
    for position in 0..width {
        let Some(reader) = values.rows.iter().find_map(|row| reader(&row.content[position])) else { continue };
        for row in &mut values.rows {
            let value = &mut row.content[position];
            if is_quoted(value) {
                *value = call(reader, [value.clone()]);
            }
        }
    }
}

/// The function that reads a vector of the type that a value is cast to; by now most such casts are calls.
fn reader(value: &Expr) -> Option<&'static str> {
    let named = |name: String| match name.to_ascii_lowercase().as_str() {
        "vector" | "vector_in" => Some("vector_in"),
        "halfvec" | "halfvec_in" => Some("halfvec_in"),
        _ => None,
    };
    match value {
        Expr::Nested(inner) => reader(inner),
        Expr::Function(function) => named(function.name.to_string()),
        Expr::Cast { data_type: DataType::Custom(name, _), .. } => named(name.to_string()),
        _ => None,
    }
}

fn is_quoted(value: &Expr) -> bool {
    matches!(value, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }))
}
