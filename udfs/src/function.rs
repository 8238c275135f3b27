//! What a function is to this crate: data and a kernel, turned into DataFusion's `ScalarUDF` in one place.
//!
//! Arguments are checked against [`Parameter`]s when the statement is planned, and cast when the kernel asks for them.
//! DataFusion's own coercion (`TypeSignature::UserDefined`) is not used: it turns our typed errors into text, and its
//! wrapper round asynchronous functions does not call it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, DocSection, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::Error;
use crate::arguments::Arguments;
use crate::numeric_in;
use crate::text_in;
use crate::text_type::TextType;

/// What an argument may be, in the user's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// One text, or a list of texts; a list of integers reads as their digits, so that integer keys can be compared.
    Texts,
    /// As [`Self::Texts`], where a text alone is a list of one: a parameter of no type is a list.
    TextList,
    Integer,
    Boolean,
    /// Any number; computed in double precision.
    Number,
    /// A vector or list of numbers, or pgvector's text form.
    Vector,
    TextOrInteger,
    Any,
    /// All arguments from here on, of any type.
    Rest,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub description: &'static str,
}

/// The part of a function that a user sees.
#[derive(Debug)]
pub(crate) struct Interface {
    pub name: &'static str,
    /// Heading of the manual.
    pub section: &'static str,
    pub description: &'static str,
    pub parameters: &'static [Parameter],
    /// How many of the parameters a call must give; the others are optional and come last.
    pub required: usize,
    /// A statement and what it returns, run by the tests.
    pub example: (&'static str, &'static str),
}

/// The type of the result.
#[derive(Debug)]
pub(crate) enum Returns {
    Always(DataType),
    /// From the arguments' types, and their values where those are literals.
    Computed(fn(&[DataType], &[Option<&ScalarValue>]) -> Result<DataType>),
    /// From what is known of the arguments beside their types too.
    Field(fn(&[FieldRef], &[Option<&ScalarValue>]) -> Result<Field>),
    /// Text of this type.
    Text(TextType),
    /// `jsonb` if the first argument is, else `json`.
    Part,
    /// Text, or an array of texts, of the type that the second argument names.
    NamedText,
    /// `numeric` without declared digits.
    Numeric,
}

/// A pure function: its interface, the type of its result and the kernel that computes a column of `Arguments::num_rows`.
#[derive(Debug)]
pub(crate) struct Function {
    pub interface: Interface,
    pub returns: Returns,
    pub kernel: fn(&Arguments) -> Result<ArrayRef>,
}

impl Kind {
    fn accepts(self, found: &DataType) -> bool {
        match self {
            _ if found.is_null() => true,
            Self::Text => is_text(found),
            Self::Texts | Self::TextList => is_text(found) || element(found).is_some_and(|e| is_text(e) || e.is_integer() || e.is_null()),
            Self::Integer => found.is_integer(),
            Self::Boolean => found == &DataType::Boolean,
            Self::Number => found.is_numeric(),
            Self::Vector => is_text(found) || is_vector(found),
            Self::TextOrInteger => is_text(found) || found.is_integer(),
            Self::Any | Self::Rest => true,
        }
    }

    /// The name in `pg_type` of the one type that it takes, those that become it by themselves aside. `None`: several.
    pub fn pg_type(self) -> Option<&'static str> {
        match self {
            Self::Text => Some("text"),
            Self::Integer => Some("int8"),
            Self::Boolean => Some("bool"),
            Self::Number => Some("float8"),
            Self::Texts | Self::TextList | Self::Vector | Self::TextOrInteger | Self::Any | Self::Rest => None,
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Texts => "text or text[]",
            Self::TextList => "text[]",
            Self::Integer => "an integer",
            Self::Boolean => "true or false",
            Self::Number => "a number",
            Self::Vector => "a vector or a list of numbers",
            Self::TextOrInteger => "text or an integer",
            Self::Any | Self::Rest => "any value",
        }
    }
}

/// A list of numbers of any layout; an empty `ARRAY[]` has elements of type NULL.
pub(crate) fn is_vector(data_type: &DataType) -> bool {
    element(data_type).is_some_and(|e| e.is_numeric() || e.is_null())
}

pub(crate) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

/// The type in SQL's words, for messages.
#[must_use]
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        text if is_text(text) => "text".to_owned(),
        DataType::FixedSizeList(item, width) if item.data_type() == &DataType::Float32 => format!("vector({width})"),
        DataType::FixedSizeList(item, width) if item.data_type() == &DataType::Float16 => format!("halfvec({width})"),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("{}[]", type_name(item.data_type()))
        }
        DataType::Null => "unknown".to_owned(),
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int16 => "smallint".to_owned(),
        DataType::Int32 => "integer".to_owned(),
        DataType::Int64 => "bigint".to_owned(),
        DataType::Int8 | DataType::UInt8 => "smallint".to_owned(),
        DataType::UInt16 => "integer".to_owned(),
        DataType::UInt32 | DataType::UInt64 => "bigint".to_owned(),
        DataType::Float16 | DataType::Float32 => "real".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        numeric if *numeric == numeric_in::numeric_type() => "numeric".to_owned(),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("numeric({precision},{scale})"),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "bytea".to_owned(),
        DataType::Date32 | DataType::Date64 => "date".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time".to_owned(),
        DataType::Timestamp(_, None) => "timestamp".to_owned(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".to_owned(),
        DataType::Interval(_) | DataType::Duration(_) => "interval".to_owned(),
        DataType::Struct(_) => "record".to_owned(),
        DataType::Dictionary(_, values) => type_name(values),
        DataType::RunEndEncoded(_, values) => type_name(values.data_type()),
        DataType::ListView(item) | DataType::LargeListView(item) => format!("{}[]", type_name(item.data_type())),
        DataType::Map(..) | DataType::Union(..) => "json".to_owned(),
        other => other.to_string(),
    }
}

fn element(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => Some(field.data_type()),
        _ => None,
    }
}

impl Interface {
    /// The allowed numbers of arguments, positional or by name, and then any number: [`Interface::check`] says what is wrong
    /// with a call, where DataFusion would call it an internal error.
    pub fn signature(&self, volatility: Volatility) -> Signature {
        let counts = (self.required..=self.parameters.len()).map(TypeSignature::Any);
        let mut signature = Signature::one_of(counts.chain([TypeSignature::VariadicAny]).collect(), volatility);
        signature.parameter_names = Some(self.parameters.iter().map(|parameter| parameter.name.to_owned()).collect());
        signature
    }

    /// # Errors
    /// [`Error::ArgumentCount`] for too few or too many arguments, [`Error::ArgumentType`] for the first one that its
    /// parameter does not accept.
    pub fn check(&self, found: &[DataType]) -> Result<()> {
        let is_variadic = self.parameters.last().is_some_and(|last| last.kind == Kind::Rest);
        let most = if is_variadic { usize::MAX } else { self.parameters.len() };
        if !(self.required..=most).contains(&found.len()) {
            return Err(Error::ArgumentCount { found: found.len(), syntax: self.syntax() }.into());
        }
        let wrong = self.parameters.iter().zip(found).find(|(parameter, found)| !parameter.kind.accepts(found));
        wrong.map_or(Ok(()), |(parameter, found)| {
            let (argument, expected) = (parameter.name, parameter.kind.expected());
            Err(Error::ArgumentType { function: self.name, argument, found: type_name(found), expected }.into())
        })
    }

    /// The error that `parameters[index]` is `found` where `expected` was.
    pub fn argument_error(&self, index: usize, found: impl ToString, expected: impl ToString) -> Error {
        let argument = self.parameters[index].name;
        Error::Argument { function: self.name, argument, found: found.to_string(), expected: expected.to_string() }
    }

    /// The value of argument `index`, which counts something.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is less than 1.
    pub fn positive(&self, index: usize, found: i64) -> Result<usize, Error> {
        usize::try_from(found).ok().filter(|count| *count > 0).ok_or_else(|| self.argument_error(index, found, "1 or more"))
    }

    pub fn documentation(&self) -> Documentation {
        let section = DocSection { include: true, label: self.section, description: None };
        let (statement, result) = self.example;
        let mut builder = Documentation::builder(section, self.description, self.syntax())
            .with_sql_example(format!("```sql\n{statement};\n-- {result}\n```"));
        for parameter in self.parameters {
            builder = builder.with_argument(parameter.name, parameter.description);
        }
        builder.build()
    }

    /// `name(a, b[, c[, d]])`
    fn syntax(&self) -> String {
        let (required, optional) = self.parameters.split_at(self.required);
        let required = required.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
        let is_first = |index: usize| index == 0 && required.is_empty();
        let opened = optional.iter().enumerate().map(|(index, p)| format!("[{}{}", if is_first(index) { "" } else { ", " }, p.name));
        let opened: String = opened.collect();
        format!("{}({required}{opened}{})", self.name, "]".repeat(optional.len()))
    }
}

impl Returns {
    fn data_type(&self, arguments: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
        match self {
            Self::Always(data_type) => Ok(data_type.clone()),
            Self::Computed(compute) => compute(arguments, literals),
            Self::Field(compute) => {
                let fields: Vec<FieldRef> = arguments.iter().map(|found| Arc::new(Field::new("", found.clone(), true))).collect();
                Ok(compute(&fields, literals)?.data_type().clone())
            }
            // Of an array only where the name of the type is known: see `Registered::return_field_from_args`.
            Self::Text(_) | Self::Part | Self::NamedText => Ok(DataType::Utf8),
            Self::Numeric => Ok(numeric_in::numeric_type()),
        }
    }
}

impl Function {
    /// What it gives, whatever its arguments; `None`: that depends on them.
    pub fn return_field(&self) -> Option<Field> {
        let name = self.interface.name;
        match &self.returns {
            Returns::Always(data_type) => Some(Field::new(name, data_type.clone(), true)),
            Returns::Text(text_type) => Some(text_type.field(name, true)),
            Returns::Numeric => Some(numeric_in::field(name)),
            Returns::Computed(_) | Returns::Field(_) | Returns::Part | Returns::NamedText => None,
        }
    }

    pub fn udf(&'static self) -> ScalarUDF {
        let signature = self.interface.signature(Volatility::Immutable);
        // Here json and jsonb are read alike, so each function has both of PostgreSQL's names, but for those that give values of the type.
        const OF_ONE_TYPE: [&str; 5] = ["in", "build_object", "build_array", "strip_nulls", "row"];
        let alias =
            self.interface.name.strip_prefix("json_").filter(|rest| !OF_ONE_TYPE.contains(rest)).map(|rest| format!("jsonb_{rest}"));
        // What DataFusion calls the function that this one stands in the place of.
        let others: &[&str] = match self.interface.name {
            "array_to_string" => &["list_to_string", "array_join", "list_join"],
            _ => &[],
        };
        let aliases = alias.into_iter().chain(others.iter().map(|name| (*name).to_owned())).collect();
        let documentation = self.interface.documentation();
        ScalarUDF::new_from_impl(Registered { function: self, signature, aliases, documentation })
    }
}

/// A [`Function`] as DataFusion wants it. Two are equal if they have the same name.
#[derive(Debug)]
struct Registered {
    function: &'static Function,
    signature: Signature,
    aliases: Vec<String>,
    documentation: Documentation,
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.function.interface.name == other.function.interface.name
    }
}

impl Eq for Registered {}

impl Hash for Registered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.interface.name.hash(state);
    }
}

impl ScalarUDFImpl for Registered {
    fn name(&self) -> &str {
        self.function.interface.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.interface.check(arg_types)?;
        self.function.returns.data_type(arg_types, &vec![None; arg_types.len()])
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        self.function.interface.check(&types)?;
        let (function, name) = (self.function, self.name());
        Ok(Arc::new(match &function.returns {
            Returns::Text(text_type) => text_type.field(name, true),
            Returns::Part => part_type(args.arg_fields).field(name, true),
            Returns::NamedText => {
                let type_name = args.scalar_arguments.get(1).copied().flatten();
                text_in::type_of(&function.interface, &types[0], type_name)?.field(name, &types[0])
            }
            Returns::Numeric => numeric_in::field(name),
            Returns::Field(compute) => compute(args.arg_fields, args.scalar_arguments)?.with_name(name),
            Returns::Always(_) | Returns::Computed(_) => Field::new(name, function.returns.data_type(&types, args.scalar_arguments)?, true),
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let num_rows = if constant { 1 } else { args.number_rows };
        let column = (self.function.kernel)(&Arguments::new(&self.function.interface, &args, num_rows))?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&column, 0)?));
        }
        Ok(ColumnarValue::Array(column))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// `jsonb` has parts of its type, any other text has `json`.
fn part_type(arguments: &[FieldRef]) -> TextType {
    match arguments.first().and_then(|field| TextType::of(field)) {
        Some(TextType::Jsonb) => TextType::Jsonb,
        _ => TextType::Json,
    }
}
