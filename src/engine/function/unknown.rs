//! Functions that there are not: what was meant, by another system's name of it or by its spelling.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{ObjectName, Statement, TableFactor, Visit, Visitor};
use regex::Regex;

use crate::engine::apply::planner::TableFunction;
use crate::engine::macros;
use crate::error::{Error, Unresolved};
use crate::other_names::function_here;

/// The functions of ours that stand in FROM.
type TableFunctions = HashMap<&'static str, Arc<dyn TableFunction>>;

/// What the parser makes of functions in FROM by itself.
const OF_PARSER: [&str; 2] = ["unnest", "generate_series"];

/// The first function in FROM that is none of those that are known, as an error (42883) with what may have been meant: why a statement cannot be planned.
pub fn in_from(statement: &Statement, state: &SessionState, ours: &TableFunctions) -> Option<Error> {
    match statement.visit(&mut Called { state, ours }) {
        ControlFlow::Break(name) => {
            let advice = advice(&name, &table_names(state, ours), &scalar_names(state), true);
            Some(unknown(&name, &advice))
        }
        ControlFlow::Continue(()) => None,
    }
}

/// The error of a statement that could not be planned, with a better guess if it is about a function that there is not.
pub fn explained(error: Error, state: &SessionState, ours: &TableFunctions) -> Error {
    static INVALID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"Invalid function '([^']+)'").expect("a pattern of ours"));
    let Error::DataFusion(inner) = &error else { return error };
    let text = inner.to_string();
    // What nothing gives a type is a text, as in PostgreSQL.
    if text.contains("SUM not supported for Null") {
        let message = "function sum(text) does not exist: nothing says of what type its values are; cast them, as in $1::bigint".to_owned();
        return Error::Unresolved { kind: Unresolved::Function, message };
    }
    match INVALID.captures(&text) {
        Some(found) => unknown(&found[1], &advice(&found[1], &scalar_names(state), &table_names(state, ours), false)),
        None => error,
    }
}

fn unknown(name: &str, advice: &str) -> Error {
    Error::Unresolved { kind: Unresolved::Function, message: format!("function {name}() does not exist{advice}") }
}

/// `there`: names of the place where it was written; `elsewhere`: those of the other one, in FROM or out of it.
fn advice(name: &str, there: &[String], elsewhere: &[String], is_from: bool) -> String {
    let name = name.to_ascii_lowercase();
    let is_known = |here: &str| there.iter().chain(elsewhere).any(|known| known == here) || here.contains([' ', '(']) || here == "CASE";
    if let Some(here) = function_here(&name).filter(|here| is_known(here)) {
        let call =
            if here.contains([' ', '(']) || here == "CASE" || here.starts_with("current_") { here.to_owned() } else { format!("{here}()") };
        return format!("; here it is {call}");
    }
    if elsewhere.contains(&name) {
        let place = if is_from { "it gives one value: write it in the list of SELECT" } else { "it gives rows: write it in FROM" };
        return format!("; {place}");
    }
    nearest(&name, there).map(|near| format!("; did you mean {near}()?")).unwrap_or_default()
}

/// A name that begins with it, else the one that is spelt most alike. Of a short name every other is spelt alike: one letter may differ, but for the first.
fn nearest(name: &str, known: &[String]) -> Option<String> {
    let longer = known.iter().filter(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('_')));
    if let Some(longer) = longer.min_by_key(|known| (known.len(), (*known).clone())) {
        return Some(longer.clone());
    }
    let limit = match name.chars().count() {
        0..=4 => 1,
        count => (count / 3).max(2),
    };
    let is_alike = |known: &String| limit > 1 || known.chars().next() == name.chars().next();
    let distances = known.iter().filter(|known| is_alike(known)).map(|known| (levenshtein(name, known), known));
    distances.filter(|(distance, _)| *distance <= limit).min().map(|(_, known)| known.clone())
}

fn scalar_names(state: &SessionState) -> Vec<String> {
    state.scalar_functions().keys().chain(state.aggregate_functions().keys()).chain(state.window_functions().keys()).cloned().collect()
}

fn table_names(state: &SessionState, ours: &TableFunctions) -> Vec<String> {
    let given = state.table_functions().keys().cloned();
    let known = ours.keys().copied().chain(macros::names()).chain(OF_PARSER);
    known.map(str::to_owned).chain(given).collect()
}

/// Stops at the first function in FROM that there is not.
struct Called<'a> {
    state: &'a SessionState,
    ours: &'a TableFunctions,
}

impl Called<'_> {
    fn unknown(&self, name: &ObjectName) -> Option<String> {
        // What has a schema is of pg_catalog, whose functions are others.
        let [part] = name.0.as_slice() else { return None };
        let name = part.as_ident()?.value.to_ascii_lowercase();
        let is_known = self.ours.contains_key(name.as_str())
            || self.state.table_functions().contains_key(&name)
            || macros::names().any(|known| known == name)
            || OF_PARSER.contains(&name.as_str());
        (!is_known).then_some(name)
    }
}

impl Visitor for Called<'_> {
    type Break = String;

    fn pre_visit_table_factor(&mut self, relation: &TableFactor) -> ControlFlow<String> {
        let name = match relation {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => self.unknown(name),
            _ => None,
        };
        name.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_meant() {
        let known = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let scalar = known(&["ln", "lower", "f1_score", "exact_match", "log", "string_agg", "current_date"]);
        let tables = known(&["read_jsonl", "read_csv", "text_search", "vector_search", "unnest"]);
        for (name, is_from, expected) in [
            ("f1", false, "; here it is f1_score()"),
            ("em", false, "; here it is exact_match()"),
            ("exact", false, "; did you mean exact_match()?"),
            ("lowerr", false, "; did you mean lower()?"),
            ("lm", false, "; did you mean ln()?"),
            ("qx", false, ""),
            ("group_concat", false, "; here it is string_agg()"),
            ("cosine_similarity", false, "; here it is 1 - cosine_distance(a, b)"),
            ("text_search", false, "; it gives rows: write it in FROM"),
            ("read_json", true, "; here it is read_jsonl()"),
            ("text_serch", true, "; did you mean text_search()?"),
            ("lower", true, "; it gives one value: write it in the list of SELECT"),
        ] {
            let (there, elsewhere) = if is_from { (&tables, &scalar) } else { (&scalar, &tables) };
            assert_eq!(advice(name, there, elsewhere, is_from), expected, "{name}");
        }
    }
}
