//! Named arguments with gaps: `generate('policy', prompt, temperature => 1.0)`.
//!
//! DataFusion resolves named arguments but wants every earlier optional one to be given. NULL means "the default" for all
//! optional arguments of this crate, so the planner completes a call with NULLs before DataFusion sees it.

use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::logical_expr::{Signature, TypeSignature};
use datafusion::logical_expr_common::signature::Arity;
use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, Ident, Value};

use crate::Error;

/// Adds `name => NULL` for each optional parameter of `signature` that the call leaves out before one that it names.
///
/// Required parameters are never added: their absence stays an error of DataFusion's. Functions without parameter names
/// and calls without named arguments stay as they are.
///
/// # Errors
/// [`Error::UnknownArgument`] if the function has no parameter of that name.
pub fn complete_named_arguments(call: &mut Function, signature: &Signature) -> Result<(), Error> {
    let FunctionArguments::List(list) = &mut call.args else { return Ok(()) };
    let Some(parameters) = &signature.parameter_names else { return Ok(()) };
    let mut given = vec![false; parameters.len()];
    let mut last_named = None;
    for (position, argument) in list.args.iter().enumerate() {
        let index = match argument_name(argument) {
            Some(name) => {
                let index = position_of(name, parameters).ok_or_else(|| unknown(&call.name.to_string(), name, parameters))?;
                last_named = last_named.max(Some(index));
                index
            }
            None => position,
        };
        if let Some(seen) = given.get_mut(index) {
            *seen = true;
        }
    }
    let required = least_arity(&signature.type_signature);
    let gaps = (required..last_named.unwrap_or(0)).filter(|index| !given[*index]);
    list.args.extend(gaps.map(|index| null_argument(&parameters[index])));
    Ok(())
}

fn argument_name(argument: &FunctionArg) -> Option<&Ident> {
    match argument {
        FunctionArg::Named { name, .. } | FunctionArg::ExprNamed { name: Expr::Identifier(name), .. } => Some(name),
        FunctionArg::ExprNamed { .. } | FunctionArg::Unnamed(_) => None,
    }
}

/// Unquoted names match in any case, as identifiers do.
fn position_of(name: &Ident, parameters: &[String]) -> Option<usize> {
    parameters.iter().position(|parameter| match name.quote_style {
        Some(_) => *parameter == name.value,
        None => parameter.eq_ignore_ascii_case(&name.value),
    })
}

fn unknown(function: &str, name: &Ident, parameters: &[String]) -> Error {
    let found = name.value.clone();
    let limit = (found.chars().count() / 3).max(2);
    let nearest = parameters.iter().map(|parameter| (levenshtein(&found, parameter), parameter)).min();
    let nearest = nearest.filter(|(distance, _)| *distance <= limit).map(|(_, parameter)| parameter.clone());
    Error::UnknownArgument { function: function.to_owned(), found, nearest, known: parameters.to_vec() }
}

/// The fewest arguments that a call may have: of the variants of fixed length, since the functions of this crate also have
/// one of any length, only to report wrong calls themselves.
fn least_arity(signature: &TypeSignature) -> usize {
    let fixed = |variant: &TypeSignature| match variant.arity() {
        Arity::Fixed(count) => Some(count),
        Arity::Variable => None,
    };
    match signature {
        TypeSignature::OneOf(variants) => variants.iter().filter_map(fixed).min().unwrap_or(0),
        other => fixed(other).unwrap_or(0),
    }
}

fn null_argument(name: &str) -> FunctionArg {
    FunctionArg::Named {
        name: Ident::new(name),
        arg: FunctionArgExpr::Expr(Expr::value(Value::Null)),
        operator: FunctionArgOperator::RightArrow,
    }
}
