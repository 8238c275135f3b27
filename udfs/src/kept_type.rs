//! json, jsonb and uuid, and arrays and records of them, through expressions whose value is that of an operand.
//!
//! That a text is one of these its field says. DataFusion makes a new field for `coalesce(key, $1)`, which would be text: here the operands tell what it is,
//! and a function that changes no value says so to what reads it.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ExprSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::named_type::NamedType;
use crate::numeric_in::is_plain_numeric;
use crate::text_in::TEXT_CAST;

/// The type that the values of an expression have; `None` for texts and everything else.
#[must_use]
pub fn kept_type(expression: &Expr, schema: &dyn ExprSchema) -> Option<NamedType> {
    told_type(expression, schema).or_else(|| type_of_operands(expression, schema, &|operand| kept_type(operand, schema)))
}

/// The expression as one that says what it is, where it does not by itself and its operands do; constants in quotes among its operands are read as values of that type.
#[must_use]
pub fn telling_type(expression: &Expr, schema: &dyn ExprSchema) -> Option<Expr> {
    let told = told_type(expression, schema);
    if let Expr::ScalarSubquery(_) = expression {
        // When it runs, only its values are there.
        return told.map(|named| told_as(expression.clone(), named));
    }
    match told {
        Some(_) => None,
        // Operands have been told before.
        None => type_of_operands(expression, schema, &|operand| told_type(operand, schema))
            .map(|named| told_as(with_read_constants(expression.clone(), &named), named)),
    }
}

/// The expression, whose values are of the type, as one that says so.
#[must_use]
pub fn told_as(expression: Expr, named: NamedType) -> Expr {
    let function = TellsType { name: named.to_string(), named, signature: Signature::any(1, Volatility::Immutable) };
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), vec![expression]))
}

/// A constant in quotes as a value of the type, which is one of texts or of arrays of them.
#[must_use]
pub fn read_constant(constant: Expr, named: &NamedType) -> Expr {
    let name = Expr::Literal(ScalarValue::from(named.to_string()), None);
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(TEXT_CAST.udf()), vec![constant, name]))
}

/// Whether an expression takes the type of what stands beside it: NULL, a constant in quotes, or a parameter of no type.
#[must_use]
pub fn is_unknown(expression: &Expr, schema: &dyn ExprSchema) -> bool {
    is_quoted(expression) || expression.get_type(schema).is_ok_and(|data_type| data_type.is_null())
}

fn is_quoted(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(ScalarValue::Utf8(_), None))
}

fn told_type(expression: &Expr, schema: &dyn ExprSchema) -> Option<NamedType> {
    NamedType::of_field(&expression.to_field(schema).ok()?.1)
}

/// What is known of the type of an operand.
type OfOperand<'a> = &'a dyn Fn(&Expr) -> Option<NamedType>;

fn type_of_operands(expression: &Expr, schema: &dyn ExprSchema, of: OfOperand<'_>) -> Option<NamedType> {
    match expression {
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Case(Case { when_then_expr, else_expr, .. }) => {
            let values = when_then_expr.iter().map(|(_, then)| then.as_ref());
            common_type(values.chain(else_expr.as_deref()), schema, of)
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => type_of_call(func.name(), args, schema, of),
        _ => None,
    }
}

fn type_of_call(function: &str, args: &[Expr], schema: &dyn ExprSchema, of: OfOperand<'_>) -> Option<NamedType> {
    match function {
        "coalesce" | "nvl" | "greatest" | "least" | "array_concat" => common_type(args.iter(), schema, of),
        "make_array" => Some(common_type(args.iter(), schema, &|item| within(item, schema, of))?.array()),
        "named_struct" => NamedType::record(args.iter().skip(1).step_by(2).map(|value| within(value, schema, of)).collect()),
        "struct" => NamedType::record(args.iter().map(|value| within(value, schema, of)).collect()),
        "get_field" => column_type(args, schema, of),
        "nullif" | "array_append" | "array_remove" | "array_slice" | "array_distinct" | "array_sort" | "array_reverse" => of(args.first()?),
        "array_prepend" => of(args.get(1)?),
        "array_element" => of(args.first()?)?.item(),
        _ => None,
    }
}

/// The type of a value within an array or a record, which has no field there to tell of a numeric.
fn within(value: &Expr, schema: &dyn ExprSchema, of: OfOperand<'_>) -> Option<NamedType> {
    of(value).or_else(|| is_plain_numeric(&value.to_field(schema).ok()?.1).then_some(NamedType::Numeric))
}

/// The type of the items of arrays that an aggregate makes of the values of an expression.
#[must_use]
pub fn item_type(value: &Expr, schema: &dyn ExprSchema) -> Option<NamedType> {
    within(value, schema, &|value| kept_type(value, schema))
}

/// The type of the column of a record that a constant names.
fn column_type(args: &[Expr], schema: &dyn ExprSchema, of: OfOperand<'_>) -> Option<NamedType> {
    let [record, Expr::Literal(name, _)] = args else { return None };
    let (DataType::Struct(fields), Some(Some(name))) = (record.get_type(schema).ok()?, name.try_as_str()) else { return None };
    of(record)?.column(fields.iter().position(|field| field.name() == name)?)
}

/// The type that all operands have which have any.
fn common_type<'a>(operands: impl Iterator<Item = &'a Expr>, schema: &dyn ExprSchema, of: OfOperand<'_>) -> Option<NamedType> {
    let mut common = None;
    for operand in operands.filter(|operand| !is_unknown(operand, schema)) {
        let found = of(operand)?;
        if common.as_ref().is_some_and(|common| *common != found) {
            return None;
        }
        common = Some(found);
    }
    common
}

/// Arrays in quotes are no texts of an item.
fn with_read_constants(expression: Expr, named: &NamedType) -> Expr {
    let read = |operand: Expr, named: &NamedType| match &operand {
        Expr::Literal(ScalarValue::Utf8(Some(_)), None) if matches!(named, NamedType::Text(_)) => read_constant(operand, named),
        _ => operand,
    };
    match expression {
        Expr::Case(Case { expr, when_then_expr, else_expr }) => Expr::Case(Case {
            expr,
            when_then_expr: when_then_expr.into_iter().map(|(when, then)| (when, Box::new(read(*then, named)))).collect(),
            else_expr: else_expr.map(|value| Box::new(read(*value, named))),
        }),
        Expr::ScalarFunction(ScalarFunction { func, args }) => {
            let read_as = match func.name() {
                "coalesce" | "nvl" | "greatest" | "least" | "nullif" => named.clone(),
                "make_array" => named.clone().item().unwrap_or_else(|| named.clone()),
                _ => return Expr::ScalarFunction(ScalarFunction { func, args }),
            };
            let args = args.into_iter().map(|argument| read(argument, &read_as)).collect();
            Expr::ScalarFunction(ScalarFunction { func, args })
        }
        other => other,
    }
}

/// Gives its argument, and says of what type it is. It is called as the type, which EXPLAIN shows.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TellsType {
    named: NamedType,
    name: String,
    signature: Signature,
}

impl ScalarUDFImpl for TellsType {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [found] = datafusion::common::utils::take_function_args(&self.name, types)?;
        Ok(self.named.data_type(found))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let [found] = datafusion::common::utils::take_function_args(&self.name, args.arg_fields)?;
        Ok(Arc::new(self.named.field(&self.name, found.data_type())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = datafusion::common::utils::take_function_args(&self.name, args.args)?;
        let wanted = args.return_field.data_type();
        if value.data_type() == *wanted {
            return Ok(value);
        }
        // Of a NULL, and of other layouts of texts.
        Ok(match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(cast(&array, wanted)?),
            ColumnarValue::Scalar(scalar) => ColumnarValue::Scalar(scalar.cast_to(wanted)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::common::DFSchema;
    use datafusion::common::tree_node::{Transformed, TreeNode};
    use datafusion::functions::expr_fn::{coalesce, get_field, named_struct, nullif};
    use datafusion::functions_nested::expr_fn::{array_element, make_array};
    use datafusion::logical_expr::{col, lit, when};

    use super::*;
    use crate::text_type::TextType;

    fn schema() -> DFSchema {
        let (key, other) = (TextType::Uuid.field("key", true), TextType::Uuid.field("other", true));
        let fields = vec![key, other, TextType::Jsonb.field("doc", true), Field::new("words", DataType::Utf8, true)];
        DFSchema::from_unqualified_fields(fields.into(), Default::default()).expect("names differ")
    }

    #[test]
    fn operands_of_one_type_tell_it() {
        let schema = schema();
        let null = || lit(ScalarValue::Null);
        let of = |expression: &Expr| kept_type(expression, &schema).map(|named| named.to_string());
        for (expression, expected) in [
            (coalesce(vec![col("key"), col("other")]), Some("uuid")),
            (coalesce(vec![null(), col("doc"), lit("{}")]), Some("jsonb")),
            (nullif(col("doc"), lit("{}")), Some("jsonb")),
            (when(lit(true), col("key")).otherwise(null()).expect("a case"), Some("uuid")),
            (make_array(vec![col("key"), null()]), Some("uuid[]")),
            (array_element(make_array(vec![coalesce(vec![col("key"), null()])]), lit(1)), Some("uuid")),
            (coalesce(vec![col("key"), col("words")]), None),
            (coalesce(vec![col("key"), col("doc")]), None),
            (make_array(vec![make_array(vec![col("key")])]), Some("uuid[][]")),
            (named_struct(vec![lit("a"), lit(1), lit("b"), col("doc")]), Some("(,jsonb)")),
            (get_field(named_struct(vec![lit("a"), lit(1), lit("b"), col("doc")]), "b"), Some("jsonb")),
            (make_array(vec![named_struct(vec![lit("b"), col("doc")])]), Some("(jsonb)[]")),
            (make_array(vec![null()]), None),
            (col("words"), None),
        ] {
            assert_eq!(of(&expression).as_deref(), expected, "{expression}");
            // From the innermost one on, as the engine's rule goes.
            let told = expression.transform_up(|inner| {
                Ok(match telling_type(&inner, &schema) {
                    Some(told) => Transformed::yes(told),
                    None => Transformed::no(inner),
                })
            });
            let told = told.expect("nothing fails").data;
            let field = told.to_field(&schema).expect("typed").1;
            assert_eq!(NamedType::of_field(&field).map(|named| named.to_string()).as_deref(), expected, "{told}");
        }
    }
}
