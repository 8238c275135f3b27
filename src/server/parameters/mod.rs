//! Bound parameters: bytes of a PostgreSQL type, in text or binary form, as the values that a statement takes.
//!
//! The type is the one that the client declared in `Parse`; else the one that the statement implies; else text. No length that a client
//! sends is believed before as many bytes are there.

mod align;
mod binary;
mod list;
mod probe;
#[cfg(test)]
mod tests;
mod text;

pub use probe::reads_parameter;

use bytes::Bytes;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::FieldFormat;
use pgwire::error::{PgWireError, PgWireResult};
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::postgres::{CatalogType, ValueType};
use rolloutdb_udfs::vector::{any_halfvec_field, any_vector_field};

use super::response::client_error;
use super::wire_type::{declared_type, wire_type};

/// Why a parameter has no value.
#[derive(Debug, PartialEq)]
enum Unreadable {
    /// The text is not one of this type (22P02).
    Syntax,
    /// The bytes are not a value of this type (22P03).
    Bytes,
    /// The text is not UTF-8, or has a zero byte in it (22021).
    Encoding,
    /// A value that the type does not reach (22003).
    Range,
    /// A date or time that is not counted (22008).
    TimeRange,
    /// A type that is not supported (0A000).
    Unsupported,
    /// A number that no vector holds (22000).
    NotFinite { found: &'static str },
    /// A vector of another width (22000).
    Width { found: usize, expected: usize },
}

/// The values of a `Bind` message, one per parameter.
///
/// `declared`: types from `Parse`, may be shorter. `inferred`: what the statement implies, may be shorter.
///
/// # Errors
/// See [`Unreadable`] for values that cannot be read.
pub(super) fn decode(
    values: &[Option<Bytes>],
    format: &Format,
    declared: &[Option<Type>],
    inferred: &[Option<FieldRef>],
) -> PgWireResult<Vec<ScalarValue>> {
    let decode_one = |(index, bytes): (usize, &Option<Bytes>)| {
        let target = Target::of(declared.get(index).and_then(Option::as_ref), inferred.get(index).and_then(Option::as_ref));
        target.read(bytes.as_deref(), format.format_for(index)).map_err(|reason| refusal(index, reason, &target, bytes.as_deref()))
    };
    values.iter().enumerate().map(decode_one).collect()
}

/// The type of a parameter as `ParameterDescription` reports it.
pub(super) fn parameter_type(declared: Option<&Type>, inferred: Option<&FieldRef>) -> Type {
    let inferred = || inferred.map(|field| wire_type(&ValueType::of(field)));
    known_type(declared).cloned().or_else(inferred).unwrap_or(Type::TEXT)
}

/// The field in which a statement is planned with a parameter of a declared type. `None`: the type says nothing, or not enough.
pub(super) fn declared_field(declared: Option<&Type>) -> Option<FieldRef> {
    let value_type = declared_type(known_type(declared)?.oid())?;
    let field = match (&value_type, text_type(&value_type)) {
        // Its width it has from where it stands.
        (ValueType::Vector(_), _) => any_vector_field(""),
        (ValueType::Halfvec(_), _) => any_halfvec_field(""),
        (ValueType::Numeric(_), _) => rolloutdb_udfs::numeric_field(""),
        (ValueType::Array(item), _) if matches!(item.as_ref(), ValueType::Vector(_) | ValueType::Halfvec(_)) => return None,
        (ValueType::Array(item), _) if text_type(item).is_some() => text_type(item)?.array_field("", true),
        (_, Some(text_type)) => text_type.field("", true),
        (_, None) => Field::new("", value_type.data_type(), true),
    };
    Some(field.into())
}

fn text_type(value_type: &ValueType) -> Option<TextType> {
    match value_type {
        ValueType::Json => Some(TextType::Json),
        ValueType::Jsonb => Some(TextType::Jsonb),
        ValueType::Uuid => Some(TextType::Uuid),
        ValueType::Varbit(length) => Some(TextType::Varbit(*length)),
        ValueType::Bit(length) => Some(TextType::Bit(*length)),
        _ => None,
    }
}

/// `unknown` declares nothing.
fn known_type(declared: Option<&Type>) -> Option<&Type> {
    declared.filter(|pg_type| **pg_type != Type::UNKNOWN)
}

/// What a parameter is to become.
struct Target<'a> {
    declared: Option<&'a Type>,
    inferred: Option<&'a FieldRef>,
    /// What its bytes are. `None`: a declared type that is not supported.
    sent: Option<ValueType>,
}

impl<'a> Target<'a> {
    fn of(declared: Option<&'a Type>, inferred: Option<&'a FieldRef>) -> Self {
        let declared = known_type(declared);
        let sent = match (declared, inferred) {
            (Some(declared), _) => declared_type(declared.oid()),
            (None, Some(inferred)) => Some(ValueType::of(inferred)),
            (None, None) => Some(ValueType::Text),
        };
        Self { declared, inferred, sent }
    }

    fn read(&self, bytes: Option<&[u8]>, format: FieldFormat) -> Result<ScalarValue, Unreadable> {
        let Some(bytes) = bytes else { return self.null() };
        let sent = self.sent.as_ref().ok_or(Unreadable::Unsupported)?;
        let value = if is_text(sent) {
            // Text types look the same in both forms. A text stands for a value of the inferred type, like a literal in quotes.
            text::read(checked_text(bytes)?, &self.inferred.map_or_else(|| sent.clone(), |field| ValueType::of(field)))?
        } else {
            match format {
                FieldFormat::Binary => binary::read(bytes, sent)?,
                FieldFormat::Text => text::read(checked_text(bytes)?, sent)?,
            }
        };
        match self.inferred {
            // jsonb that came as json has its one form only after it was read.
            Some(inferred) if TextType::of(inferred) == Some(TextType::Jsonb) && *sent == ValueType::Json => match value {
                ScalarValue::Utf8(Some(json)) => text::read(&json, &ValueType::Jsonb),
                other => Ok(other),
            },
            Some(inferred) => align::to(value, inferred.data_type()),
            None => Ok(value),
        }
    }

    fn null(&self) -> Result<ScalarValue, Unreadable> {
        let declared = || self.sent.as_ref().filter(|_| self.declared.is_some()).map(ValueType::data_type);
        let data_type = self.inferred.map(|field| field.data_type().clone()).or_else(declared).unwrap_or(DataType::Utf8);
        ScalarValue::try_from(&data_type).map_err(|_| Unreadable::Unsupported)
    }
}

/// What comes as characters, and is read as a literal in quotes would be.
fn is_text(value_type: &ValueType) -> bool {
    matches!(
        value_type,
        ValueType::Text | ValueType::Varchar(_) | ValueType::Char(_) | ValueType::Catalog(CatalogType::Name | CatalogType::Char)
    )
}

/// PostgreSQL's texts have no zero byte.
fn checked_text(bytes: &[u8]) -> Result<&str, Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::Encoding)?;
    if text.contains('\0') { Err(Unreadable::Encoding) } else { Ok(text) }
}

fn refusal(index: usize, reason: Unreadable, target: &Target, bytes: Option<&[u8]>) -> PgWireError {
    let number = index + 1;
    let shown = || shortened(&String::from_utf8_lossy(bytes.unwrap_or_default()));
    let name = name_of(target);
    match reason {
        Unreadable::Syntax => client_error("22P02", format!("parameter ${number}: invalid input syntax for type {name}: \"{}\"", shown())),
        Unreadable::Bytes => client_error("22P03", format!("parameter ${number}: incorrect binary data format for type {name}")),
        Unreadable::Encoding => client_error(
            "22021",
            format!("parameter ${number}: invalid byte sequence for encoding \"UTF8\"; send text as UTF-8, without zero bytes"),
        ),
        Unreadable::Range => client_error("22003", format!("parameter ${number}: value is out of range for type {name}")),
        Unreadable::TimeRange => client_error("22008", format!("parameter ${number}: {name} out of range")),
        Unreadable::Unsupported => client_error("0A000", format!("parameter ${number} of type {name} is not supported; send it as text")),
        Unreadable::NotFinite { found } => {
            let type_name = name.split('(').next().unwrap_or_default();
            client_error("22000", format!("parameter ${number}: {found} not allowed in {type_name}"))
        }
        Unreadable::Width { found, expected } => {
            client_error("22000", format!("parameter ${number}: expected {expected} dimensions, not {found}"))
        }
    }
}

/// The name of the type that was to be read: the declared one, but for a text that stands for another type.
fn name_of(target: &Target) -> String {
    let of_inferred = || target.inferred.map(|field| ValueType::of(field));
    let read = match &target.sent {
        Some(sent) if is_text(sent) => of_inferred().or_else(|| Some(sent.clone())),
        sent => sent.clone(),
    };
    match read {
        Some(ValueType::Vector(width)) if width > 0 => format!("vector({width})"),
        Some(ValueType::Halfvec(width)) if width > 0 => format!("halfvec({width})"),
        Some(value_type) => wire_type(&value_type).name().to_owned(),
        None => target.declared.map_or("unknown", Type::name).to_owned(),
    }
}

/// The beginning of a long text: an error message is not the place for a whole document.
fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}
