//! Arguments that are a text or a list of texts, as gold answers are. A parameter of no type is a list if its value is written as one, `{..}`, and a text if
//! not; what has the type text is a text, and a client is warned if it looks like a list.

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::utils::take_function_args;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use rolloutdb_udfs::postgres::parse_array;
use rolloutdb_udfs::{TextType, TextsArgument, texts_arguments};

use super::each_placeholder;
use crate::engine::progress::Notices;
use crate::engine::typing::is_text;
use crate::error::Result;

/// In the field of a parameter that is a text or a list.
const MARK: &str = "rolloutdb:text_or_list";

/// Characters of a text that a warning shows.
const SHOWN_MAX: usize = 60;

/// What is known of a parameter that is a text, or a list if it is written as one.
pub fn text_or_list_field() -> FieldRef {
    let marked = HashMap::from([(MARK.to_owned(), String::new())]);
    Arc::new(Field::new("", DataType::Utf8, true).with_metadata(marked))
}

/// Whether a parameter is one of these.
pub fn is_text_or_list(field: &Field) -> bool {
    field.metadata().contains_key(MARK)
}

/// The plan with such arguments as calls that read them.
pub fn read(plan: LogicalPlan, notices: &Notices) -> Result<LogicalPlan> {
    let known = known_parameters(&plan)?;
    let read = plan.transform_up_with_subqueries(|node| {
        if !node.expressions().iter().any(|expression| expression.exists(|inner| Ok(takes_texts(inner))).unwrap_or(true)) {
            return Ok(Transformed::no(node));
        }
        let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let read = expression.transform_up(|inner| Ok(of_call(inner, &schema, &known, notices)))?;
            Ok(if read.transformed { Transformed::yes(name.restore(read.data)) } else { read })
        })
    })?;
    Ok(read.data)
}

/// Parameters that have a type from another place.
fn known_parameters(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    let mut known = BTreeSet::new();
    each_placeholder(plan, |placeholder| {
        if placeholder.field.is_some() {
            known.insert(placeholder.id.clone());
        }
    })?;
    Ok(known)
}

fn takes_texts(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(call) if !texts_arguments(call.func.name()).is_empty())
}

fn of_call(expression: Expr, schema: &DFSchema, known: &BTreeSet<String>, notices: &Notices) -> Transformed<Expr> {
    if !takes_texts(&expression) {
        return Transformed::no(expression);
    }
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expression else { return Transformed::no(expression) };
    let kinds = texts_arguments(func.name());
    let mut is_changed = false;
    let mut read = |position: usize, argument: Expr| {
        let Some((name, Some(kind))) = kinds.get(position) else { return argument };
        let called = match &argument {
            Expr::Placeholder(placeholder) if placeholder.field.is_none() && *kind == TextsArgument::TextOrList => {
                (!known.contains(&placeholder.id)).then(|| read_parameter(placeholder.id.clone()))
            }
            other => is_suspicious(other, schema).then(|| Warns::called(other.clone(), format!("{name} of {}()", func.name()), notices)),
        };
        is_changed |= called.is_some();
        called.unwrap_or(argument)
    };
    let args = args.into_iter().enumerate().map(|(position, argument)| read(position, argument)).collect();
    Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), is_changed)
}

/// A text whose values are not known to be none that look like a list.
fn is_suspicious(argument: &Expr, schema: &DFSchema) -> bool {
    match argument {
        Expr::Literal(value, _) => value.try_as_str().flatten().is_some_and(|text| list_of(text).is_some()),
        _ => argument.to_field(schema).is_ok_and(|(_, field)| is_text(field.data_type()) && TextType::of(&field).is_none()),
    }
}

/// The texts of `{..}`; `None` for a text that is no array.
fn list_of(text: &str) -> Option<Vec<Option<String>>> {
    text.trim_start().starts_with('{').then(|| parse_array(text)).flatten().map(|array| array.texts)
}

fn read_parameter(id: String) -> Expr {
    static READER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        let signature = Signature::any(1, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(ReadsParameter { signature }))
    });
    let parameter = Expr::Placeholder(Placeholder::new_with_field(id, Some(text_or_list_field())));
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&READER), vec![parameter]))
}

/// A value as a list of texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadsParameter {
    signature: Signature,
}

fn texts() -> DataType {
    DataType::new_list(DataType::Utf8, true)
}

impl ScalarUDFImpl for ReadsParameter {
    fn name(&self) -> &str {
        "text_or_list"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(texts())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let [value] = take_function_args(self.name(), args.args)?;
        Ok(match value {
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(ScalarValue::try_from_array(&read_texts(&value.to_array()?)?, 0)?),
            ColumnarValue::Array(values) => ColumnarValue::Array(read_texts(&values)?),
        })
    }
}

fn read_texts(values: &ArrayRef) -> DataFusionResult<ArrayRef> {
    if !is_text(values.data_type()) {
        return Ok(cast(values, &texts())?);
    }
    let values = cast(values, &DataType::Utf8)?;
    let mut lists = ListBuilder::new(StringBuilder::new());
    for value in values.as_string::<i32>() {
        let list = value.map(|text| list_of(text).unwrap_or_else(|| vec![Some(text.to_owned())]));
        let is_valid = list.is_some();
        list.into_iter().flatten().for_each(|text| lists.values().append_option(text));
        lists.append(is_valid);
    }
    // The field of the items has the name that the type says.
    Ok(cast(&(Arc::new(lists.finish()) as ArrayRef), &texts())?)
}

/// Gives its argument, and warns once if a text looks like a list.
#[derive(Debug)]
struct Warns {
    of: String,
    notices: Notices,
    has_warned: AtomicBool,
    signature: Signature,
}

impl Warns {
    fn called(value: Expr, of: String, notices: &Notices) -> Expr {
        let signature = Signature::any(1, Volatility::Immutable);
        let function = Self { of, notices: notices.clone(), has_warned: AtomicBool::new(false), signature };
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), vec![value]))
    }

    fn look_at(&self, text: &str) {
        if list_of(text).is_none() || self.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        let shown = if shown.len() < text.len() { format!("{shown}...") } else { shown };
        self.notices.warning(format!(
            "{} is the text {shown}, which looks like an array and counts as one text; cast it to text[], or store arrays",
            self.of
        ));
    }
}

impl PartialEq for Warns {
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of
    }
}

impl Eq for Warns {}

impl Hash for Warns {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of.hash(state);
    }
}

impl ScalarUDFImpl for Warns {
    fn name(&self) -> &str {
        "one_text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(types[0].clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let [value] = take_function_args(self.name(), args.args)?;
        if !self.has_warned.load(Ordering::Relaxed) {
            match &value {
                ColumnarValue::Scalar(value) => value.try_as_str().flatten().into_iter().for_each(|text| self.look_at(text)),
                ColumnarValue::Array(values) if is_text(values.data_type()) => {
                    let texts = cast(values, &DataType::Utf8)?;
                    texts.as_string::<i32>().iter().flatten().for_each(|text| self.look_at(text));
                }
                ColumnarValue::Array(_) => {}
            }
        }
        Ok(value)
    }
}
