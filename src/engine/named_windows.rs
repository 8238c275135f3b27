//! Windows by name: `OVER w` and `OVER (w ORDER BY o)` of `WINDOW w AS (PARTITION BY x)`, written out as one window each.
//!
//! DataFusion knows `OVER w` in the list of SELECT alone; of a window that refines another one it takes what is written there, without the other's parts.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, NamedWindowDefinition, NamedWindowExpr, OrderBy, Query, Select, SelectItem, SetExpr, Statement, VisitMut,
    VisitorMut, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};

use super::with_names::folded;
use crate::error::{Error, Result};

/// Writes the windows of all queries of a statement out.
///
/// # Errors
/// [`Error::UnknownObject`] for a window that is not there, or is defined behind the one that names it; [`Error::InvalidWindow`] for one that would
/// override parts of another, or copy its frame, and for a frame that cannot be.
pub fn write_out(statement: &mut Statement) -> Result<()> {
    match statement.visit(&mut Queries) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Queries;

impl VisitorMut for Queries {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        match write_out_body(&mut query.body, query.order_by.as_mut()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

fn write_out_body(body: &mut SetExpr, order_by: Option<&mut OrderBy>) -> Result<()> {
    match body {
        SetExpr::Select(select) => write_out_select(select, order_by),
        SetExpr::SetOperation { left, right, .. } => {
            write_out_body(left, None)?;
            write_out_body(right, None)
        }
        // A query in parentheses is visited by itself.
        _ => Ok(()),
    }
}

fn write_out_select(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<()> {
    let mut written = Written { windows: Windows::of(std::mem::take(&mut select.named_window))?, depth: 0 };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            written_in(expr, &mut written)?;
        }
    }
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        written_in(keys, &mut written)?;
    }
    written_in(&mut select.qualify, &mut written)?;
    match order_by {
        Some(order_by) => written_in(order_by, &mut written),
        None => Ok(()),
    }
}

fn written_in(part: &mut impl VisitMut, written: &mut Written) -> Result<()> {
    match part.visit(written) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The windows of one SELECT, written out, in their order.
struct Windows(Vec<(Ident, WindowSpec)>);

impl Windows {
    fn of(definitions: Vec<NamedWindowDefinition>) -> Result<Self> {
        let mut windows = Self(Vec::with_capacity(definitions.len()));
        for NamedWindowDefinition(name, definition) in definitions {
            if windows.find(&name).is_some() {
                return Err(Error::InvalidWindow(format!("window {} is already defined", quoted(&name))));
            }
            let window = match definition {
                NamedWindowExpr::NamedWindow(other) => windows.get(&other)?.clone(),
                NamedWindowExpr::WindowSpec(window) => windows.refined(window)?,
            };
            windows.0.push((name, window));
        }
        Ok(windows)
    }

    fn find(&self, name: &Ident) -> Option<&WindowSpec> {
        self.0.iter().find(|(known, _)| folded(known) == folded(name)).map(|(_, window)| window)
    }

    fn get(&self, name: &Ident) -> Result<&WindowSpec> {
        self.find(name).ok_or_else(|| Error::UnknownObject {
            kind: "window",
            name: folded(name),
            known: self.0.iter().map(|(known, _)| folded(known)).collect(),
        })
    }

    /// The window with the parts of the one that it names.
    fn refined(&self, mut window: WindowSpec) -> Result<WindowSpec> {
        if let Some(name) = window.window_name.take() {
            let base = self.get(&name)?;
            let refused = |what: &str| Err(Error::InvalidWindow(format!("cannot {what} of window {}", quoted(&name))));
            if !window.partition_by.is_empty() {
                return refused("override PARTITION BY clause");
            }
            if !window.order_by.is_empty() && !base.order_by.is_empty() {
                return refused("override ORDER BY clause");
            }
            if base.window_frame.is_some() {
                let has_own = !window.order_by.is_empty() || window.window_frame.is_some();
                let advice = if has_own { "name one without a frame" } else { "omit the parentheses in this OVER clause" };
                let name = quoted(&name);
                return Err(Error::InvalidWindow(format!("cannot copy window {name} because it has a frame clause; {advice}")));
            }
            window.partition_by.clone_from(&base.partition_by);
            if window.order_by.is_empty() {
                window.order_by.clone_from(&base.order_by);
            }
        }
        check_frame(&window)?;
        Ok(window)
    }
}

fn quoted(name: &Ident) -> String {
    format!("\"{}\"", folded(name))
}

/// Of frames that PostgreSQL refuses when it reads or analyzes them.
fn check_frame(window: &WindowSpec) -> Result<()> {
    use WindowFrameBound::{CurrentRow, Following, Preceding};
    let Some(frame) = &window.window_frame else { return Ok(()) };
    let end = frame.end_bound.as_ref().unwrap_or(&CurrentRow);
    let has_offset = [&frame.start_bound, end].into_iter().any(|bound| matches!(bound, Preceding(Some(_)) | Following(Some(_))));
    let fault = match (&frame.start_bound, end) {
        (Following(None), _) => "frame start cannot be UNBOUNDED FOLLOWING",
        (_, Preceding(None)) => "frame end cannot be UNBOUNDED PRECEDING",
        (CurrentRow, Preceding(_)) => "frame starting from current row cannot have preceding rows",
        (Following(_), CurrentRow | Preceding(_)) => "frame starting from following row cannot have preceding rows",
        _ if frame.units == WindowFrameUnits::Range && has_offset && window.order_by.len() != 1 => {
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column"
        }
        _ if frame.units == WindowFrameUnits::Groups && window.order_by.is_empty() => "GROUPS mode requires an ORDER BY clause",
        _ => return Ok(()),
    };
    Err(Error::InvalidWindow(fault.to_owned()))
}

/// Puts the windows in the place of their names, outside of queries within.
struct Written {
    windows: Windows,
    depth: usize,
}

impl VisitorMut for Written {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let Some(over) = function.over.take_if(|_| self.depth == 0) else { return ControlFlow::Continue(()) };
        let window = match over {
            WindowType::NamedWindow(name) => self.windows.get(&name).cloned(),
            WindowType::WindowSpec(window) => self.windows.refined(window),
        };
        match window {
            Ok(window) => {
                function.over = Some(WindowType::WindowSpec(window));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_out(sql: &str) -> Result<String> {
        let parsed = rolloutdb_sql::parse(sql).expect("it parses").pop();
        let Some(rolloutdb_sql::Statement::Query(query)) = parsed else { panic!("a query: {sql}") };
        let mut statement = Statement::Query(query);
        write_out(&mut statement)?;
        Ok(statement.to_string())
    }

    #[test]
    fn windows_have_the_parts_of_those_that_they_name() {
        for (sql, expected) in [
            ("SELECT sum(x) OVER w FROM t WINDOW w AS (PARTITION BY a)", "SELECT sum(x) OVER (PARTITION BY a) FROM t"),
            (
                "SELECT sum(x) OVER (w ORDER BY o) FROM t WINDOW w AS (PARTITION BY a)",
                "SELECT sum(x) OVER (PARTITION BY a ORDER BY o) FROM t",
            ),
            (
                "SELECT 1 + sum(x) OVER (v ROWS 1 PRECEDING) FROM t WINDOW w AS (PARTITION BY a), v AS (w ORDER BY o)",
                "SELECT 1 + sum(x) OVER (PARTITION BY a ORDER BY o ROWS 1 PRECEDING) FROM t",
            ),
            (
                "SELECT a FROM t WINDOW w AS (PARTITION BY a) ORDER BY sum(x) OVER W",
                "SELECT a FROM t ORDER BY sum(x) OVER (PARTITION BY a)",
            ),
        ] {
            assert_eq!(written_out(sql).expect(sql), expected);
        }
    }

    #[test]
    fn what_postgres_refuses_is_refused() {
        for (sql, state) in [
            ("SELECT sum(x) OVER v FROM t WINDOW w AS (ORDER BY a)", "42704"),
            ("SELECT sum(x) OVER (v ORDER BY a) FROM t", "42704"),
            ("SELECT 1 FROM t WINDOW v AS (w ORDER BY a), w AS (PARTITION BY a)", "42704"),
            ("SELECT sum(x) OVER (w PARTITION BY a) FROM t WINDOW w AS (ORDER BY a)", "42P20"),
            ("SELECT sum(x) OVER (w ORDER BY b) FROM t WINDOW w AS (ORDER BY a)", "42P20"),
            ("SELECT sum(x) OVER (w) FROM t WINDOW w AS (ORDER BY a ROWS 1 PRECEDING)", "42P20"),
            ("SELECT 1 FROM t WINDOW w AS (ORDER BY a), w AS (ORDER BY b)", "42P20"),
            ("SELECT sum(x) OVER (ROWS BETWEEN CURRENT ROW AND 1 PRECEDING) FROM t", "42P20"),
        ] {
            assert_eq!(written_out(sql).expect_err(sql).sqlstate(), state, "{sql}");
        }
    }
}
