//! Expressions that stand for others, made rather than read.

use crate::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
};

/// `function(arguments)`.
pub fn call(function: &str, arguments: impl IntoIterator<Item = Expr>) -> Expr {
    let args = arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))).collect();
    call_with(Ident::new(function), FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }))
}

/// `function`, which is a call without parentheses.
pub(crate) fn call_without_list(function: Ident) -> Expr {
    call_with(function, FunctionArguments::None)
}

/// `CAST(expr AS data_type)`.
pub fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

fn call_with(function: Ident, args: FunctionArguments) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![function]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args,
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
