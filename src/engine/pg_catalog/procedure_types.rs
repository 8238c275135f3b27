//! Of what types arguments and results of the engine's functions are, as far as that is known without a query: `"any"` where there are several.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::{ReturnFieldArgs, ScalarUDF};

use super::types::{Kind, PgType, column_type};

/// The aggregates of DataFusion and ours, one line for each type that they take.
pub const AGGREGATES: &[(&str, &[Kind], Kind)] = &[
    ("array_agg", &[Kind::AnyElement], Kind::AnyArray),
    ("avg", &[Kind::Int8], Kind::Float8),
    ("avg", &[Kind::Float8], Kind::Float8),
    ("avg", &[Kind::Numeric], Kind::Numeric),
    ("avg", &[Kind::Vector], Kind::Vector),
    ("avg", &[Kind::Halfvec], Kind::Halfvec),
    ("bool_and", &[Kind::Bool], Kind::Bool),
    ("bool_or", &[Kind::Bool], Kind::Bool),
    ("ci95", &[Kind::Float8], Kind::Float8),
    ("corr", &[Kind::Float8, Kind::Float8], Kind::Float8),
    ("count", &[Kind::Any], Kind::Int8),
    ("covar_pop", &[Kind::Float8, Kind::Float8], Kind::Float8),
    ("covar_samp", &[Kind::Float8, Kind::Float8], Kind::Float8),
    ("json_agg", &[Kind::AnyElement], Kind::Json),
    ("json_object_agg", &[Kind::Any, Kind::Any], Kind::Json),
    ("jsonb_agg", &[Kind::AnyElement], Kind::Jsonb),
    ("jsonb_object_agg", &[Kind::Any, Kind::Any], Kind::Jsonb),
    ("max", &[Kind::AnyElement], Kind::AnyElement),
    ("min", &[Kind::AnyElement], Kind::AnyElement),
    ("mode", &[Kind::AnyElement], Kind::AnyElement),
    ("percentile_cont", &[Kind::Float8, Kind::Float8], Kind::Float8),
    ("percentile_disc", &[Kind::Float8, Kind::AnyElement], Kind::AnyElement),
    ("stddev", &[Kind::Float8], Kind::Float8),
    ("stddev_pop", &[Kind::Float8], Kind::Float8),
    ("stddev_samp", &[Kind::Float8], Kind::Float8),
    ("string_agg", &[Kind::Text, Kind::Text], Kind::Text),
    ("sum", &[Kind::Int8], Kind::Int8),
    ("sum", &[Kind::Float8], Kind::Float8),
    ("sum", &[Kind::Numeric], Kind::Numeric),
    ("sum", &[Kind::Vector], Kind::Vector),
    ("sum", &[Kind::Halfvec], Kind::Halfvec),
    ("var_pop", &[Kind::Float8], Kind::Float8),
    ("var_samp", &[Kind::Float8], Kind::Float8),
];

/// What functions of models give, whatever the model.
const OF_MODELS: &[(&str, Kind)] = &[
    ("apply_chat_template", Kind::Text),
    ("embed", Kind::Vector),
    ("generate", Kind::Text),
    ("judge", Kind::Float8),
    ("judge_relevance", Kind::Float8),
    ("judge_reply", Kind::Text),
    ("rerank", Kind::Float8),
];

/// Argument types and result of a function of DataFusion's.
pub type Signature = (Vec<u32>, u32);

/// Of those of DataFusion's functions whose types follow from their signatures.
static BUILT_IN: LazyLock<HashMap<String, Signature>> = LazyLock::new(|| {
    let functions = SessionStateDefaults::default_scalar_functions();
    functions.iter().filter_map(|function| Some((function.name().to_owned(), signature(function)?))).collect()
});

/// `None`: they are not known.
pub fn of_built_in(name: &str) -> Option<&'static Signature> {
    BUILT_IN.get(name)
}

/// The number of the type that a function of ours gives; `None`: of several.
pub fn of_ours(name: &str) -> Option<u32> {
    static OURS: LazyLock<HashMap<&'static str, u32>> = LazyLock::new(|| {
        let of_models = OF_MODELS.iter().map(|(name, kind)| (*name, kind.info().oid));
        rolloutdb_udfs::return_fields().into_iter().filter_map(|(name, field)| Some((name, number(&field)?))).chain(of_models).collect()
    });
    OURS.get(name).copied()
}

/// `None` for a type that PostgreSQL's clients have no name of.
fn number(field: &Field) -> Option<u32> {
    let innermost = match field.data_type() {
        DataType::List(item) => item.data_type(),
        other => other,
    };
    let is_known = !matches!(
        innermost,
        DataType::Null | DataType::Int8 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 | DataType::Map(..)
    );
    match is_known.then(|| column_type(field).0)? {
        PgType::One(kind) => Some(kind.info().oid),
        PgType::Many(kind) => Some(kind.info().array_oid),
        _ => None,
    }
}

fn signature(function: &ScalarUDF) -> Option<Signature> {
    let mut found: Option<Signature> = None;
    for types in function.signature().type_signature.get_example_types() {
        let fields: Vec<FieldRef> = types.into_iter().map(|data_type| Arc::new(Field::new("", data_type, true))).collect();
        let Some(arguments) = fields.iter().map(|field| number(field)).collect::<Option<Vec<_>>>() else { continue };
        let constants = vec![None; fields.len()];
        let returned = function.return_field_from_args(ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &constants });
        let Some(returned) = returned.ok().and_then(|field| number(&field)) else { continue };
        found = Some(match found {
            None => (arguments, returned),
            Some((known, of_known)) if known.len() == arguments.len() => {
                let any = |left: u32, right: u32| if left == right { left } else { Kind::Any.info().oid };
                (known.into_iter().zip(arguments).map(|(left, right)| any(left, right)).collect(), any(of_known, returned))
            }
            Some(_) => return None,
        });
    }
    found
}
