//! `encode` and `decode`: bytes as text, in `base64`, `hex` and `escape`.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, StringArray};
use arrow::datatypes::DataType;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datafusion::error::Result;

use super::{SECTION, TEXT};
use crate::Error;
use crate::bytea_in::{format_bytea, parse_bytea};
use crate::function::{Function, Interface, Kind, Parameter, Returns};

/// Characters of a line of base64, as in MIME.
const LINE: usize = 76;

const FORMAT: Parameter = Parameter { name: "format", kind: Kind::Text, description: "`base64`, `hex` or `escape`." };

pub(crate) static ENCODE: Function = Function {
    interface: Interface {
        name: "encode",
        section: SECTION,
        description: "Bytes as text; base64 has lines of 76 characters.",
        parameters: &[Parameter { name: "bytes", kind: Kind::Any, description: "Bytes, or a text that is read as such." }, FORMAT],
        required: 2,
        example: ("SELECT encode(bytea_in('\\x1234'), 'base64')", "EjQ="),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let (bytes, formats) = (arguments.bytes(0)?, arguments.text(1)?);
        let text = |row: usize| {
            bytes.get(row).zip(formats.get(row)).map(|(bytes, format)| Ok(encoded(bytes, Format::of(&ENCODE, format)?))).transpose()
        };
        Ok(Arc::new((0..arguments.num_rows()).map(text).collect::<Result<StringArray, Error>>()?) as ArrayRef)
    },
};

pub(crate) static DECODE: Function = Function {
    interface: Interface {
        name: "decode",
        section: SECTION,
        description: "The bytes that a text stands for.",
        parameters: &[TEXT, FORMAT],
        required: 2,
        example: ("SELECT decode('EjQ=', 'base64')", "1234"),
    },
    returns: Returns::Always(DataType::Binary),
    kernel: |arguments| {
        let (texts, formats) = (arguments.text(0)?, arguments.text(1)?);
        let mut bytes = BinaryBuilder::new();
        for row in 0..arguments.num_rows() {
            let decoded = texts.get(row).zip(formats.get(row)).map(|(text, format)| decoded(text, Format::of(&DECODE, format)?));
            bytes.append_option(decoded.transpose()?);
        }
        Ok(Arc::new(bytes.finish()) as ArrayRef)
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Base64,
    Hex,
    Escape,
}

impl Format {
    fn of(function: &'static Function, name: &str) -> Result<Self, Error> {
        match name.to_ascii_lowercase().as_str() {
            "base64" => Ok(Self::Base64),
            "hex" => Ok(Self::Hex),
            "escape" => Ok(Self::Escape),
            _ => Err(function.interface.argument_error(1, format!("\"{name}\""), "base64, hex or escape")),
        }
    }
}

fn encoded(bytes: &[u8], format: Format) -> String {
    match format {
        Format::Base64 => {
            let text = STANDARD.encode(bytes);
            let lines: Vec<&str> = text.as_bytes().chunks(LINE).map(|line| std::str::from_utf8(line).expect("base64 is ASCII")).collect();
            lines.join("\n")
        }
        Format::Hex => format_bytea(bytes).split_off(2),
        // As PostgreSQL: a byte that no text has alone, and a backslash.
        Format::Escape => bytes.iter().fold(String::new(), |text, byte| match byte {
            0 | 0x80.. => text + &format!("\\{byte:03o}"),
            b'\\' => text + "\\\\",
            byte => text + char::from(*byte).encode_utf8(&mut [0; 4]),
        }),
    }
}

fn decoded(text: &str, format: Format) -> Result<Vec<u8>, Error> {
    let refused = |expected: &str| {
        let found: String = text.chars().take(60).collect();
        DECODE.interface.argument_error(0, format!("\"{found}\""), expected)
    };
    match format {
        Format::Base64 => {
            let digits: String = text.chars().filter(|character| !matches!(character, ' ' | '\t' | '\n' | '\r')).collect();
            STANDARD.decode(digits).map_err(|_| refused("base64 with its padding, as in EjQ="))
        }
        Format::Hex => parse_bytea(&format!("\\x{text}")).map_err(|_| refused("an even number of hexadecimal digits")),
        Format::Escape if text.starts_with("\\x") => Err(refused("text with \\\\ and octal numbers")),
        Format::Escape => parse_bytea(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_as_in_postgres() {
        assert_eq!(encoded(&[0x12, 0x34], Format::Base64), "EjQ=");
        assert_eq!(encoded(&[0, b'A', b'\\', 0xff], Format::Escape), "\\000A\\\\\\377");
        let long = encoded(&[b'a'; 60], Format::Base64);
        assert_eq!(long.find('\n'), Some(LINE));
        assert_eq!(decoded(&long, Format::Base64), Ok(vec![b'a'; 60]));
    }

    #[test]
    fn what_is_not_encoded_is_refused() {
        for (text, format) in [("EjQ", Format::Base64), ("E?Q=", Format::Base64), ("zz", Format::Hex), ("123", Format::Hex)] {
            assert!(matches!(decoded(text, format), Err(Error::Argument { .. })), "{text}");
        }
    }
}
