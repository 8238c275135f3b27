//! `ARRAY[q.v]` as `make_array(q.v)`: DataFusion looks for the columns of an array within the query alone, and for those of a call in the relations before
//! a LATERAL too.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Array, Expr, VisitMut, VisitorMut};

use crate::error::{Error, Result};

/// The argument with calls in the place of arrays.
pub fn with_array_calls(argument: &Expr) -> Result<Expr> {
    let mut argument = argument.clone();
    match argument.visit(&mut Arrays) {
        ControlFlow::Continue(()) => Ok(argument),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Arrays;

impl VisitorMut for Arrays {
    type Break = Error;

    /// Inner ones first.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Array(Array { elem, .. }) = expr else { return ControlFlow::Continue(()) };
        let elements: Vec<String> = elem.iter().map(ToString::to_string).collect();
        match rolloutdb_sql::parse_expression(&format!("make_array({})", elements.join(", "))) {
            Ok(call) => *expr = call,
            Err(error) => return ControlFlow::Break(error.into()),
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_calls() -> Result<()> {
        for (array, call) in [
            ("ARRAY[q.v, 'it''s']", "make_array(q.v, 'it''s')"),
            ("ARRAY[ARRAY[1.5], NULL]", "make_array(make_array(1.5), NULL)"),
            ("upper(q.x)", "upper(q.x)"),
        ] {
            assert_eq!(with_array_calls(&rolloutdb_sql::parse_expression(array)?)?.to_string(), call);
        }
        Ok(())
    }
}
