//! Functions that catalog queries call.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf};
use datafusion_pg_catalog::pg_catalog::{self as library, array_bounds_udf, format_type, pg_get_expr_udf, quote_ident_udf};

use super::VECTOR_OID;
use super::tables::Visibility;
use crate::SERVER_VERSION;

/// All of them; `visibility` is what `pg_table_is_visible` asks.
pub(super) fn scalar_functions(catalog_name: &str, visibility: Visibility) -> Vec<ScalarUDF> {
    vec![
        library::create_current_database_udf(catalog_name),
        library::create_current_schema_udf(),
        library::create_current_schemas_udf(),
        library::create_pg_get_userbyid_udf(),
        library::create_pg_get_partkeydef_udf(),
        library::create_pg_relation_is_publishable_udf(),
        library::create_pg_get_statisticsobjdef_columns_udf(),
        library::create_pg_encoding_to_char_udf(),
        library::create_pg_stat_get_numscans(),
        library::create_pg_get_constraintdef(),
        library::create_pg_get_partition_ancestors_udf(),
        pg_get_expr_udf::create_pg_get_expr_udf(),
        quote_ident_udf::create_quote_ident_udf(),
        quote_ident_udf::create_parse_ident_udf(),
        array_bounds_udf::create_array_upper_udf(),
        array_bounds_udf::create_array_lower_udf(),
        ScalarUDF::new_from_impl(FormatType::new()),
        table_is_visible(visibility),
        always_visible("pg_type_is_visible"),
        always_visible("pg_function_is_visible"),
        no_text("obj_description", vec![DataType::Int32, DataType::Utf8]),
        no_text("shobj_description", vec![DataType::Int32, DataType::Utf8]),
        no_text("col_description", vec![DataType::Int32, DataType::Int32]),
        unknown_size("pg_relation_size"),
        unknown_size("pg_table_size"),
        unknown_size("pg_total_relation_size"),
        size_pretty(),
        version(),
    ]
}

/// `pg_table_is_visible(oid)`: whether a table is found without its schema, that is, in `public` or `pg_catalog`.
fn table_is_visible(visibility: Visibility) -> ScalarUDF {
    let is_visible = move |arguments: &[ColumnarValue]| {
        let oids = ColumnarValue::values_to_arrays(arguments)?.remove(0);
        let hidden = visibility.hidden();
        let visible = oids.as_primitive::<Int32Type>().iter().map(|oid| oid.map(|oid| !hidden.contains(&oid)));
        Ok(ColumnarValue::Array(Arc::new(visible.collect::<BooleanArray>())))
    };
    // Volatile: the answer for one oid changes when tables come and go, and it must be asked after pg_class was read.
    create_udf("pg_table_is_visible", vec![DataType::Int32], DataType::Boolean, Volatility::Volatile, Arc::new(is_visible))
}

/// Types and functions have no schema but `pg_catalog`.
fn always_visible(name: &str) -> ScalarUDF {
    let visible = |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))));
    create_udf(name, vec![DataType::Int32], DataType::Boolean, Volatility::Stable, Arc::new(visible))
}

/// A function about comments, of which there are none.
fn no_text(name: &str, arguments: Vec<DataType>) -> ScalarUDF {
    let none = |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Utf8(None)));
    create_udf(name, arguments, DataType::Utf8, Volatility::Stable, Arc::new(none))
}

/// Sizes of tables are not kept: NULL, rather than a number that is wrong.
fn unknown_size(name: &str) -> ScalarUDF {
    let unknown = |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Int64(None)));
    create_udf(name, vec![DataType::Int32], DataType::Int64, Volatility::Stable, Arc::new(unknown))
}

/// `pg_size_pretty(bytes)`.
fn size_pretty() -> ScalarUDF {
    let pretty = |arguments: &[ColumnarValue]| {
        let sizes = ColumnarValue::values_to_arrays(arguments)?.remove(0);
        let texts = sizes.as_primitive::<Int64Type>().iter().map(|bytes| bytes.map(pretty_size));
        Ok(ColumnarValue::Array(Arc::new(texts.collect::<StringArray>())))
    };
    create_udf("pg_size_pretty", vec![DataType::Int64], DataType::Utf8, Volatility::Immutable, Arc::new(pretty))
}

/// As Postgres has it: the next unit from 10240 of the last, rounded half up.
fn pretty_size(bytes: i64) -> String {
    const LIMIT: i64 = 10 * 1024;
    let mut size = bytes;
    for unit in ["bytes", "kB", "MB", "GB", "TB"] {
        if size.abs() < LIMIT {
            return format!("{size} {unit}");
        }
        size = (size + 512 * size.signum()) / 1024;
    }
    format!("{size} PB")
}

/// `version()`: drivers look for the word PostgreSQL and a number behind it.
fn version() -> ScalarUDF {
    let text = format!("PostgreSQL {SERVER_VERSION}");
    let version = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(text.clone()))));
    create_udf("version", Vec::new(), DataType::Utf8, Volatility::Stable, Arc::new(version))
}

/// `format_type(oid, modifier)`: the library's, which does not know vectors.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FormatType {
    inner: ScalarUDF,
}

impl FormatType {
    fn new() -> Self {
        Self { inner: format_type::create_format_type_udf() }
    }
}

impl ScalarUDFImpl for FormatType {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, argument_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(argument_types)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let values = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [oids, modifiers] = values.as_slice() else { return self.inner.invoke_with_args(arguments) };
        let (oids, modifiers) = (cast(oids, &DataType::Int32)?, cast(modifiers, &DataType::Int32)?);
        let formatted = self.inner.invoke_with_args(arguments)?;
        let formatted = formatted.into_array(oids.len())?;
        let names = (0..oids.len()).map(|row| match vector_name(&oids, &modifiers, row) {
            Some(name) => Ok(Some(name)),
            None => Ok(ScalarValue::try_from_array(&formatted, row)?.try_as_str().flatten().map(str::to_string)),
        });
        Ok(ColumnarValue::Array(Arc::new(names.collect::<Result<StringArray>>()?)))
    }
}

/// `vector(384)`; `None` for other types.
fn vector_name(oids: &ArrayRef, modifiers: &ArrayRef, row: usize) -> Option<String> {
    let (oids, modifiers) = (oids.as_primitive::<Int32Type>(), modifiers.as_primitive::<Int32Type>());
    if oids.is_null(row) || oids.value(row) != VECTOR_OID {
        return None;
    }
    match modifiers.is_valid(row).then(|| modifiers.value(row)) {
        Some(width) if width > 0 => Some(format!("vector({width})")),
        _ => Some("vector".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::pretty_size;

    #[test]
    fn sizes_read_as_in_postgres() {
        for (bytes, text) in [(0, "0 bytes"), (10_239, "10239 bytes"), (10_240, "10 kB"), (-10_240, "-10 kB"), (123_456_789, "118 MB")] {
            assert_eq!(pretty_size(bytes), text);
        }
    }
}
