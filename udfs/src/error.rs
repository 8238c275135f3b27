//! The crate's error: variants by what a caller would do about them, fields for what was found and what was expected.
//!
//! It crosses DataFusion inside `DataFusionError::External`; look for it along the `source()` chain.

use datafusion::error::DataFusionError;

use crate::text_type::TextType;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// An argument out of its range or not one of the words allowed (22023).
    #[error("{function}: {argument} is {found}, expected {expected}")]
    Argument { function: &'static str, argument: &'static str, found: String, expected: String },

    /// A call with too few or too many arguments (42883).
    #[error("wrong number of arguments: {syntax} was given {found}")]
    ArgumentCount { found: usize, syntax: String },

    /// A named argument that the function does not have (22023).
    #[error("{function} has no argument \"{found}\"{}; it has: {}", did_you_mean(.nearest), .known.join(", "))]
    UnknownArgument { function: String, found: String, nearest: Option<String>, known: Vec<String> },

    /// An argument that has to be one constant for the whole statement, and is not (22023).
    #[error("{function}: {argument} must be a constant, {reason}")]
    NotConstant { function: &'static str, argument: &'static str, reason: &'static str },

    /// An argument of a type that the function does not take (42804).
    #[error("{function}: {argument} is of type {found}, expected {expected}")]
    ArgumentType { function: &'static str, argument: &'static str, found: String, expected: &'static str },

    /// Two vectors of different widths in one operation (22000).
    #[error("different vector dimensions {left} and {right}")]
    Dimensions { left: usize, right: usize },

    /// A vector of another width than declared (22000).
    #[error("expected {expected} dimensions, not {found}")]
    Width { found: usize, expected: usize },

    /// A vector without numbers (22000).
    #[error("{type_name} must have at least 1 dimension")]
    NoDimension { type_name: &'static str },

    /// A vector of more numbers than one may have (54000).
    #[error("{type_name} cannot have more than {max} dimensions")]
    TooManyDimensions { type_name: &'static str, max: usize },

    /// NaN or an infinity among the numbers of a vector (22000).
    #[error("{found} not allowed in {type_name}")]
    NotFinite { found: &'static str, type_name: &'static str },

    /// A result beyond single precision, or too near to zero for it (22003).
    #[error("value out of range: {fault}")]
    VectorRange { fault: &'static str },

    /// Two strings of bits of different lengths in one of pgvector's distances (22000).
    #[error("different bit lengths {left} and {right}")]
    BitLengths { left: usize, right: usize },

    /// The same in PostgreSQL's own operators (22026).
    #[error("cannot combine bit strings of different sizes")]
    BitSizes,

    /// Text that is no string of bits (22P02).
    #[error("\"{found}\" is not a valid {kind} digit")]
    BitDigit { found: char, kind: &'static str },

    /// A string of bits of another length than its type (22026).
    #[error("bit string length {found} does not match type bit({expected})")]
    BitLength { found: usize, expected: u32 },

    /// A string of bits that is longer than its type (22001).
    #[error("bit string too long for type bit varying({max}): it has {found} bits")]
    BitTooLong { found: usize, max: u32 },

    /// Text that is not a vector in pgvector's form (22P02).
    #[error("invalid input syntax for type {type_name}: \"{text}\": {reason}; expected numbers in brackets, for example [1,2,3]")]
    VectorText { type_name: &'static str, text: String, reason: String },

    /// A number beyond half precision (22003).
    #[error("\"{found}\" is out of range for type halfvec, whose elements reach from -65504 to 65504")]
    HalfRange { found: String },

    /// Text that is not JSON (22P02).
    #[error("invalid input syntax for type json: \"{text}\": {reason}")]
    JsonText { text: String, reason: String },

    /// JSON of another kind than is needed (22023).
    #[error("cannot take the parts of a JSON {found}; expected an {expected}")]
    JsonKind { expected: &'static str, found: &'static str },

    /// Text that is not a UUID (22P02).
    #[error("invalid input syntax for type uuid: \"{text}\": {reason}")]
    UuidText { text: String, reason: String },

    /// Text that is not bytes in PostgreSQL's forms (22P02).
    #[error("invalid input syntax for type bytea: \"{text}\"; expected \\x and an even number of hexadecimal digits")]
    ByteaText { text: String },

    /// Text that is not an array in PostgreSQL's form (22P02).
    #[error("malformed array literal: \"{text}\"; expected items between braces, as in {{1,NULL,\"a b\"}}")]
    ArrayText { text: String },

    /// An array in an array where one dimension is all that is read (0A000).
    #[error("an array of {found} dimensions is not read from a text yet: \"{text}\"; write ARRAY[ARRAY[..], ..]")]
    ArrayDimensions { found: usize, text: String },

    /// Text that is no value of a type (22P02).
    #[error("invalid input syntax for type {type_name}: \"{text}\"")]
    ValueText { type_name: &'static str, text: String },

    /// Text that is no date, time or interval (22007).
    #[error("invalid input syntax for type {type_name}: \"{text}\"")]
    TimeText { type_name: &'static str, text: String },

    /// A part of a template pattern that PostgreSQL has and this engine has not (0A000).
    #[error("{function} with {part:?} in its pattern is not supported yet; leave it out")]
    PatternPart { function: &'static str, part: String },

    /// A template pattern whose parts contradict each other (42601).
    #[error("{function} cannot use this pattern: {reason}")]
    Pattern { function: &'static str, reason: &'static str },

    /// A text that a template pattern does not read (22007).
    #[error("invalid value for {part:?} in {text:?}: {reason}")]
    TimeByPattern { part: String, text: String, reason: String },

    /// A date or time that there is not, or that its type does not reach (22008).
    #[error("date/time field value out of range: \"{text}\"")]
    TimeRange { text: String },

    /// An escape of LIKE or SIMILAR TO that is more than one character (22025), or stands for nothing.
    #[error("invalid escape: {reason}")]
    Escape { reason: &'static str },

    /// A regular expression that is none, or a pattern of SIMILAR TO (2201B).
    #[error("invalid regular expression: {reason}")]
    Regex { reason: String },

    /// A computed date, time or interval that its type does not reach (22008).
    #[error("{type_name} out of range")]
    TimeOverflow { type_name: &'static str },

    /// A date that timestamps do not reach (22008).
    #[error("date out of range for timestamp")]
    DateBeyondTimestamp,

    /// The time between two of which one is infinite (22008).
    #[error("cannot subtract infinite {what}")]
    InfiniteTimes { what: &'static str },

    /// A width or a beginning from which no bins come (22008).
    #[error("{reason}")]
    Stride { reason: &'static str },

    /// A width of bins in months, which differ in length (0A000).
    #[error("timestamps cannot be binned into intervals containing months or years; use date_trunc")]
    MonthStride,

    /// Infinity or NaN seconds from which no instant comes (22008).
    #[error("timestamp out of range: \"{text}\"")]
    Seconds { text: String },

    /// A part of a time that there is not (22023).
    #[error("unit \"{unit}\" not recognized for type {type_name}")]
    UnknownUnit { unit: String, type_name: &'static str },

    /// A part of a time that values of a type do not have (0A000).
    #[error("unit \"{unit}\" not supported for type {type_name}")]
    UnitNotSupported { unit: String, type_name: &'static str },

    /// A time zone that there is not (22023).
    #[error("time zone \"{zone}\" not recognized; write a name as Europe/Berlin, or hours as +02")]
    UnknownZone { zone: String },

    /// (22012)
    #[error("division by zero")]
    DivisionByZero,

    /// Bounds or a count from which no buckets come (2201G).
    #[error("{message}")]
    Buckets { message: &'static str },

    /// A step of a path that an array does not have (22P02).
    #[error("path element at position {position} is not an integer: \"{step}\"")]
    JsonPathStep { position: usize, step: String },

    /// A position or a count beyond what there is (2202E).
    #[error("{what} is {found}, expected from 0 to {last}")]
    Subscript { what: &'static str, found: i64, last: i64 },

    /// A number that its type does not reach (22003).
    #[error("value \"{text}\" is out of range for type {type_name}")]
    ValueRange { type_name: &'static str, text: String },

    /// A text with more characters than its type has room for (22001).
    #[error("value too long for type {}: it has {found} characters; value::{text_type} cuts it", .text_type.long_name())]
    TextTooLong { text_type: TextType, found: usize },

    /// A text of an array or a record that is longer than a value may be (54000).
    #[error(
        "the text of this value has {bytes} bytes, and none may have more than 1 GB: each level of an array or a record doubles its quotes; to_json() does not"
    )]
    TextBytes { bytes: u64 },

    /// A type of limited length with a length that it can not have (22023).
    #[error("length for type {name} must be from 1 to {max}, found {found}")]
    TextLength { name: &'static str, found: u64, max: u64 },

    /// A number with more digits behind its point than a numeric without declared digits keeps (22003).
    #[error(
        "numeric field overflow: {text} has {found} digits behind the point, and numeric keeps {kept}; \
        numeric(p, s) with p digits in all keeps s of them, rounded"
    )]
    NumericDigits { text: String, found: i64, kept: i8 },

    /// An array of more dimensions than one where a vector is meant (22000).
    #[error("array must be 1-D")]
    NestedVector,

    /// A vector with a NULL among its elements (22004).
    #[error("a vector must not contain NULL, found one at position {position} of {width}")]
    NullElement { position: usize, width: usize },

    /// NULL where a name is written (22004).
    #[error("null values cannot be formatted as an SQL identifier")]
    NullIdentifier,

    /// A vector operator between types that are not vectors (42883).
    #[error("operator does not exist: {left} {operator} {right}; {hint}")]
    NoOperator { operator: &'static str, left: String, right: String, hint: &'static str },

    /// The type `vector` or `halfvec` without a usable width (22023).
    #[error("{name} needs one width from 1 to {max}, for example {name}(384); found {found}")]
    VectorType { name: &'static str, found: String, max: usize },

    /// A model runtime that broke its own contract: our bug (XX000).
    #[error("{function}: the model returned {found}, expected {expected}; please report it")]
    ModelResult { function: &'static str, found: String, expected: String },
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default()
}
