//! RolloutDB's functions: Arrow columns in, one Arrow column out.
//!
//! [`metrics`] scores answers and retrieved passages, [`vector`] is pgvector's distances and its text form, [`search`] has
//! the scores of tree search, [`json`] reads JSON, `datetime`, `math`, `array`, `bits` and `text` have what DataFusion computes otherwise than PostgreSQL, [`postgres`] writes values as PostgreSQL does, [`chunk`] cuts texts into
//! passages, [`model`] calls a language model through the small trait [`model::ModelRuntime`].
//! The metrics and scores are plain Rust functions too, because rewards are computed by the same code as evaluations.
//!
//! A function is data (`function::Function`: name, parameters, description, example) and a kernel; its reference entry in
//! `docs/sql.md` and the checks of its arguments come from the same data. No files, no SQL text and no models in here.

mod arguments;
mod array;
mod array_constants;
mod array_in;
mod array_overlap;
mod beside_texts;
mod bits;
mod bytea_in;
pub mod chunk;
mod datetime;
mod error;
mod float_in;
mod format;
mod function;
pub mod hopworld;
mod interval_in;
pub mod json;
mod kept_type;
mod math;
pub mod metrics;
pub mod model;
mod named_arguments;
mod named_type;
mod numeric_in;
mod pg_typeof;
pub mod postgres;
mod quoted_operands;
pub mod quoting;
pub mod search;
mod signed;
pub mod similar;
mod sql_type;
pub mod template;
#[cfg(test)]
mod tests;
mod text;
mod text_in;
mod text_type;
mod uuid_in;
pub mod vector;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::Field;
use datafusion::logical_expr::{AggregateUDF, Documentation, ScalarUDF};

pub use array::in_own_order;
pub use array_constants::ArrayConstantPlanner;
pub use array_overlap::ArrayOverlapPlanner;
pub use beside_texts::{OF_ONE_TYPE, beside_texts, inner_of};
pub use bits::BitOperatorPlanner;
pub use bytea_in::{format_bytea, parse_bytea};
pub use datetime::{TimeOperatorPlanner, later};
pub use error::Error;
pub use function::type_name;
pub use kept_type::{is_unknown, item_type, kept_type, read_constant, telling_type, told_as};
pub use math::{MathOperatorPlanner, checked_sum};
pub use named_arguments::complete_named_arguments;
pub use named_type::NamedType;
pub use numeric_in::{array_field as numeric_array_field, check_digits, field as numeric_field, is_plain_numeric, numeric_type};
pub use quoted_operands::QuotedOperandPlanner;
pub use signed::{COUNTS, WINDOW_NUMBERS, with_integers, with_numbers};
pub use text::unescaped;
pub use text_type::TextType;

use metrics::Formats;
use model::{ModelJudge, ModelRuntime};

/// In the order of the manual, which has those about formats between the two.
const METRICS: &[&[&function::Function]] = &[metrics::FUNCTIONS, metrics::rewards::FUNCTIONS];
const OTHERS: &[&[&function::Function]] = &[
    vector::FUNCTIONS,
    bits::FUNCTIONS,
    search::FUNCTIONS,
    json::FUNCTIONS,
    datetime::FUNCTIONS,
    math::FUNCTIONS,
    array::FUNCTIONS,
    text::FUNCTIONS,
    TYPES,
];

/// Readers and writers of values.
const TYPES: &[&function::Function] = &[
    &uuid_in::FUNCTION,
    &bytea_in::FUNCTION,
    &array_in::FUNCTION,
    &array_overlap::FUNCTION,
    &interval_in::FUNCTION,
    &text_in::TEXT_IN,
    &text_in::TEXT_CAST,
    &numeric_in::FUNCTION,
    &float_in::FLOAT8,
    &float_in::FLOAT4,
    &postgres::text_out::FUNCTION,
    &quoting::QUOTE_IDENT,
    &quoting::QUOTE_LITERAL,
    &quoting::QUOTE_NULLABLE,
    &format::FUNCTION,
    &template::TO_CHAR,
    &similar::SIMILAR_TO,
    &similar::LIKE_ESCAPE,
    &pg_typeof::FUNCTION,
];

/// The functions that need nothing but their arguments.
pub fn scalar_functions() -> Vec<ScalarUDF> {
    METRICS.iter().chain(OTHERS).flat_map(|group| group.iter()).map(|function| function.udf()).collect()
}

/// The functions that ask `formats` how much of its protocol's format a trajectory keeps.
pub fn format_functions(formats: &Arc<dyn Formats>) -> Vec<ScalarUDF> {
    metrics::rewards::FORMAT_FUNCTIONS.iter().map(|function| function.udf(formats)).collect()
}

/// The aggregates over metrics.
pub fn aggregate_functions() -> Vec<AggregateUDF> {
    vec![metrics::ci95::function(), metrics::paired_test::function()]
}

/// The functions that answer through `runtime`, and those whose answers `judge` reads.
pub fn model_functions(runtime: &Arc<dyn ModelRuntime>, judge: &Arc<dyn ModelJudge>) -> Vec<ScalarUDF> {
    let functions = [model::embed::function, model::generate::function, model::apply_chat_template::function, model::rerank::function];
    let functions = functions.map(|function| function(Arc::clone(runtime)));
    let judging = model::judge::functions(runtime, judge).into_iter().chain([model::judge_relevance::function(runtime, judge)]);
    functions.into_iter().chain(judging).collect()
}

/// Name and reference entry of every function of this crate, in the order of the manual.
///
/// `ScalarUDF::documentation` would lack the model functions: DataFusion's wrapper round an asynchronous function drops it.
pub fn documentation() -> Vec<(String, Documentation)> {
    let aggregates = aggregate_functions();
    scalar_interfaces()
        .map(|interface| (interface.name.to_owned(), interface.documentation()))
        .chain(aggregates.iter().filter_map(|f| Some((f.name().to_owned(), f.documentation()?.clone()))))
        .collect()
}

/// Of each function but the aggregates, the names in `pg_type` of its arguments' types; `None` for an argument that takes several.
pub fn argument_types() -> HashMap<&'static str, Vec<Option<&'static str>>> {
    let types = |interface: &function::Interface| interface.parameters.iter().map(|parameter| parameter.kind.pg_type()).collect();
    scalar_interfaces().map(|interface| (interface.name, types(interface))).collect()
}

/// What an argument is that may be a list of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextsArgument {
    /// A list; a text alone is one of it.
    List,
    /// A text, or a list.
    TextOrList,
}

/// Which arguments of a function may be lists of texts, by position; `None` for one of another type, and for a function that is none of ours.
#[must_use]
pub fn texts_arguments(function: &str) -> &'static [(&'static str, Option<TextsArgument>)] {
    type Arguments = Vec<(&'static str, Option<TextsArgument>)>;
    static KNOWN: LazyLock<HashMap<&'static str, Arguments>> = LazyLock::new(|| {
        let of = |kind: function::Kind| match kind {
            function::Kind::TextList => Some(TextsArgument::List),
            function::Kind::Texts => Some(TextsArgument::TextOrList),
            _ => None,
        };
        let arguments =
            |interface: &function::Interface| interface.parameters.iter().map(|parameter| (parameter.name, of(parameter.kind))).collect();
        let known = scalar_interfaces().map(|interface| (interface.name, arguments(interface)));
        known.filter(|(_, arguments): &(_, Arguments)| arguments.iter().any(|(_, kind)| kind.is_some())).collect()
    });
    KNOWN.get(function).map_or(&[], Vec::as_slice)
}

/// Of each function whose result has one type whatever it is called with, that type.
pub fn return_fields() -> HashMap<&'static str, Field> {
    let functions = METRICS.iter().chain(OTHERS).flat_map(|group| group.iter());
    functions.filter_map(|function| Some((function.interface.name, function.return_field()?))).collect()
}

fn scalar_interfaces() -> impl Iterator<Item = &'static function::Interface> {
    let of_formats = metrics::rewards::FORMAT_FUNCTIONS.iter().map(|function| &function.interface);
    let models = [
        &model::embed::INTERFACE,
        &model::generate::INTERFACE,
        &model::apply_chat_template::INTERFACE,
        &model::rerank::INTERFACE,
        &model::judge::JUDGE,
        &model::judge::JUDGE_REPLY,
        &model::judge_relevance::INTERFACE,
    ];
    interfaces(METRICS).chain(of_formats).chain(interfaces(OTHERS)).chain(models)
}

fn interfaces(groups: &'static [&'static [&'static function::Function]]) -> impl Iterator<Item = &'static function::Interface> {
    groups.iter().flat_map(|group| group.iter()).map(|function| &function.interface)
}
