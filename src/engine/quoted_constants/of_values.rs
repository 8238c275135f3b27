//! Constants in quotes, and NULL, below or above a cast in VALUES, for which DataFusion would find no common type.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, SetExpr, Statement, Value, ValueWithSpan, Values, VisitMut,
    VisitorMut,
};
use rolloutdb_sql::{call, cast};

/// What casts of texts to these types are by now.
const INPUTS: [&str; 6] = ["json_in", "jsonb_in", "uuid_in", "bytea_in", "text_in", "text_cast"];

/// Casts them too, where a value of their column is a cast.
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
            if is_constant(value) {
                *value = match &reader {
                    // NULL is of every type of vectors.
                    Reader::Function(_) if is_null(value) => continue,
                    Reader::Function(function) => call(function, [value.clone()]),
                    Reader::Call(call) => with_first_argument(call, value.clone()),
                    Reader::Type(data_type) => cast(value.clone(), data_type.clone()),
                };
            }
        }
    }
}

enum Reader {
    Function(&'static str),
    /// `uuid_in('..')`, of which another text may be the first argument.
    Call(Box<Function>),
    Type(DataType),
}

/// What reads a text of the type that a value is cast to; by now most casts to vectors are calls.
fn reader(value: &Expr) -> Option<Reader> {
    let of_vectors = |name: String| match name.to_ascii_lowercase().as_str() {
        "vector" | "vector_in" => Some(Reader::Function("vector_in")),
        "halfvec" | "halfvec_in" => Some(Reader::Function("halfvec_in")),
        _ => None,
    };
    match value {
        Expr::Nested(inner) => reader(inner),
        Expr::Function(function) if INPUTS.contains(&function.name.to_string().as_str()) => Some(Reader::Call(Box::new(function.clone()))),
        Expr::Function(function) => of_vectors(function.name.to_string()),
        Expr::Cast { data_type: DataType::Custom(name, _), .. } if of_vectors(name.to_string()).is_some() => of_vectors(name.to_string()),
        Expr::Cast { data_type, .. } => Some(Reader::Type(data_type.clone())),
        Expr::TypedString(typed) => Some(Reader::Type(typed.data_type.clone())),
        _ => None,
    }
}

fn with_first_argument(call: &Function, value: Expr) -> Expr {
    let mut call = call.clone();
    if let FunctionArguments::List(list) = &mut call.args
        && let Some(first) = list.args.first_mut()
    {
        *first = FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
    }
    Expr::Function(call)
}

fn is_constant(value: &Expr) -> bool {
    is_null(value) || matches!(value, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }))
}

fn is_null(value: &Expr) -> bool {
    matches!(value, Expr::Value(ValueWithSpan { value: Value::Null, .. }))
}
