use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::error::{PgWireError, PgWireResult};
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::postgres::{Column, ValueType};

use super::{binary, decode, text};
use crate::server::binary::write;

fn field(data_type: DataType) -> Option<FieldRef> {
    Some(Arc::new(Field::new("", data_type, true)))
}

fn decode_one(bytes: &[u8], format: &Format, declared: Option<Type>, inferred: Option<FieldRef>) -> PgWireResult<ScalarValue> {
    decode(&[Some(Bytes::copy_from_slice(bytes))], format, &[declared], &[inferred]).map(|mut values| values.remove(0))
}

fn code(outcome: PgWireResult<ScalarValue>) -> String {
    match outcome {
        Err(PgWireError::UserError(info)) => info.code,
        other => format!("{other:?}"),
    }
}

#[test]
fn the_inferred_type_is_met_where_nothing_is_lost() {
    let text = Format::UnifiedText;
    let of = |value: &[u8], declared: Type, inferred| decode_one(value, &text, Some(declared), field(inferred)).expect("it reads");
    assert_eq!(of(b"7", Type::INT2, DataType::Int64), ScalarValue::Int64(Some(7)));
    assert_eq!(of(b"7", Type::TEXT, DataType::Int64), ScalarValue::Int64(Some(7)));
    assert_eq!(of(b"7", Type::TEXT, DataType::Utf8View), ScalarValue::Utf8View(Some("7".to_string())));
    assert_eq!(of(b"2.5", Type::FLOAT8, DataType::Int64), ScalarValue::Float64(Some(2.5)));
    assert_eq!(of(b"3000000000", Type::INT8, DataType::Int32), ScalarValue::Int64(Some(3_000_000_000)));
    assert_eq!(of(b"t", Type::BOOL, DataType::Int64), ScalarValue::Boolean(Some(true)));
}

#[test]
fn nulls_have_a_type_and_keep_their_place() {
    let values = [None, Some(Bytes::from_static(b"x")), None, None];
    let inferred = [field(DataType::Int64), None, None];
    let decoded = decode(&values, &Format::UnifiedText, &[None, None, None, Some(Type::DATE)], &inferred).expect("it reads");
    let expected = [ScalarValue::Int64(None), ScalarValue::Utf8(Some("x".to_string())), ScalarValue::Utf8(None), ScalarValue::Date32(None)];
    assert_eq!(decoded, expected);
}

#[test]
fn a_vector_has_its_width() {
    let vector = DataType::new_fixed_size_list(DataType::Float32, 3, true);
    let binary = [&[0, 3, 0, 0][..], &1_f32.to_be_bytes(), &2_f32.to_be_bytes(), &3_f32.to_be_bytes()].concat();
    for (bytes, format) in
        [(&b"[1,2,3]"[..], Format::UnifiedText), (b"[1,2,3]", Format::UnifiedBinary), (&binary[..], Format::UnifiedBinary)]
    {
        let value = decode_one(bytes, &format, None, field(vector.clone())).expect("it reads");
        assert_eq!(value.data_type(), vector);
    }
    assert_eq!(code(decode_one(b"[1,2]", &Format::UnifiedText, None, field(vector.clone()))), "22000");
    assert_eq!(code(decode_one(b"[1,NaN,2]", &Format::UnifiedText, None, field(vector.clone()))), "22000");
    assert_eq!(code(decode_one(b"[1,1e50,2]", &Format::UnifiedText, None, field(vector.clone()))), "22003");
    let infinite = [&[0, 3, 0, 0][..], &1_f32.to_be_bytes(), &f32::INFINITY.to_be_bytes(), &3_f32.to_be_bytes()].concat();
    assert_eq!(code(decode_one(&infinite, &Format::UnifiedBinary, None, field(vector.clone()))), "22000");
    let array = decode_one(b"{1,NaN,3}", &Format::UnifiedText, Some(Type::FLOAT8_ARRAY), field(vector.clone()));
    assert_eq!(code(array), "22000");
    assert_eq!(code(decode_one(&binary[..12], &Format::UnifiedBinary, None, field(vector.clone()))), "22P03");
    let array = decode_one(b"{1,2,3}", &Format::UnifiedText, Some(Type::FLOAT8_ARRAY), field(vector.clone()));
    assert_eq!(array.expect("it reads").data_type(), vector);
    let half = DataType::new_fixed_size_list(DataType::Float16, 1, true);
    assert_eq!(decode_one(b"[0.5]", &Format::UnifiedText, None, field(half.clone())).expect("it reads").data_type(), half);
    assert_eq!(code(decode_one(b"[70000]", &Format::UnifiedText, None, field(half))), "22003");
}

#[test]
fn what_cannot_be_read_has_its_code() {
    let (text, binary) = (Format::UnifiedText, Format::UnifiedBinary);
    assert_eq!(code(decode_one(b"seven", &text, None, field(DataType::Int64))), "22P02");
    assert_eq!(code(decode_one(b"\xff", &text, Some(Type::INT4), None)), "22021");
    assert_eq!(code(decode_one(b"a\0b", &text, Some(Type::TEXT), None)), "22021");
    assert_eq!(code(decode_one(b"99999999999", &text, Some(Type::INT4), None)), "22003");
    assert_eq!(code(decode_one(b"1e400", &text, Some(Type::FLOAT8), None)), "22003");
    assert_eq!(code(decode_one(b"abc", &binary, Some(Type::INT4), None)), "22P03");
    assert_eq!(code(decode_one(&i64::MAX.wrapping_sub(1).to_be_bytes(), &binary, Some(Type::TIMESTAMP), None)), "22008");
    assert_eq!(code(decode_one(b"{", &text, Some(Type::JSON), None)), "22P02");
    assert_eq!(code(decode_one(b"(1,2)", &text, Some(Type::POINT), None)), "0A000");
    let uuid = Some(Arc::new(TextType::Uuid.field("", true)));
    assert_eq!(code(decode_one(b"no uuid", &text, None, uuid)), "22P02");
}

#[test]
fn numeric_keeps_every_digit() {
    let decimal = |value, precision, scale| Ok(ScalarValue::Decimal128(Some(value), precision, scale));
    for (text, expected) in [
        ("-12.340", decimal(-12_340, 5, 3)),
        ("0", decimal(0, 1, 0)),
        (".5", decimal(5, 1, 1)),
        ("1e3", decimal(1_000, 4, 0)),
        ("1.25E-2", decimal(125, 4, 4)),
        ("+007", decimal(7, 1, 0)),
        ("0e999", decimal(0, 1, 0)),
        ("NaN", Ok(ScalarValue::Float64(Some(f64::NAN)))),
        ("-Infinity", Ok(ScalarValue::Float64(Some(f64::NEG_INFINITY)))),
    ] {
        assert_eq!(super::text::numeric(text), expected, "{text}");
    }
    for text in [&"9".repeat(39), "1e39", "1e-39", "1e2000000000", "1e-2000000000"] {
        assert_eq!(super::text::numeric(text), Err(super::Unreadable::Range), "{text}");
    }
    for damaged in ["", "-", ".", "1.2.3", "--1", "twelve", "1e", "e1", "1e1.5", "nane1"] {
        assert_eq!(super::text::numeric(damaged), Err(super::Unreadable::Syntax), "{damaged}");
    }
}

#[test]
fn arrays_have_one_type_and_any_dimensions() {
    let of = |text: &str, item: ValueType| super::text::read(text, &ValueType::Array(Box::new(item))).expect("it reads").data_type();
    assert_eq!(of("{1.5,NULL,0.25}", ValueType::Numeric(None)), DataType::new_list(DataType::Decimal128(3, 2), true));
    assert_eq!(of("{1.5,NaN}", ValueType::Numeric(None)), DataType::new_list(DataType::Float64, true));
    assert_eq!(of("{{1,2},{3,4}}", ValueType::Int4), DataType::new_list(DataType::new_list(DataType::Int32, true), true));
    assert_eq!(of("{}", ValueType::Int4), DataType::new_list(DataType::Int32, true));
}

/// Values as PostgreSQL 15 writes them (`tests/fixtures/make_wire_goldens.py`).
#[test]
fn both_forms_are_those_of_postgres() {
    let lines = include_str!("../../../tests/fixtures/wire/values.jsonl").lines();
    let mut count = 0;
    for line in lines {
        let golden: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        let oid = golden["oid"].as_u64().and_then(|oid| u32::try_from(oid).ok()).expect("a number");
        let (shown, hex) = (golden["text"].as_str().expect("a text"), golden["hex"].as_str().expect("a text"));
        let bytes = rolloutdb_udfs::parse_bytea(&format!("\\x{hex}")).expect("hexadecimal digits");
        let value_type = crate::server::wire_type::declared_type(oid).expect("a type of the engine");
        let from_binary = binary::read(&bytes, &value_type).unwrap_or_else(|reason| panic!("{line}: {reason:?}"));
        let from_text = text::read(shown, &value_type).unwrap_or_else(|reason| panic!("{line}: {reason:?}"));
        assert_eq!(from_binary, from_text, "{line}");
        // A decimal that is not finite is a double here.
        if !matches!((&value_type, &from_text), (ValueType::Numeric(_), ScalarValue::Float64(_))) {
            assert_eq!(written(&from_text, &value_type), (shown.to_owned(), bytes), "{line}");
        }
        count += 1;
    }
    assert!(count > 1000, "only {count} values");
}

/// One value of each type, as PostgreSQL writes it.
const VALUES: &[(u32, &str)] = &[
    (16, "t"),
    (17, "\\x00ff"),
    (20, "-9223372036854775808"),
    (21, "-32768"),
    (23, "2147483647"),
    (25, "grüß \"dich\""),
    (26, "4294967295"),
    (114, "{\"a\" : 1}"),
    (700, "1e-05"),
    (701, "1.7976931348623157e+308"),
    (1043, "x"),
    (1082, "0044-03-15 BC"),
    (1083, "23:59:59.999999"),
    (1114, "2024-02-29 12:34:56.789"),
    (1114, "-infinity"),
    (1184, "12024-02-29 12:34:56+00"),
    (1186, "-1 years -2 mons +3 days -04:05:06.789"),
    (1700, "-0.0001"),
    (2950, "f47ac10b-58cc-4372-a567-0e02b2c3d479"),
    (3802, "{\"a\": [1, null]}"),
    (16_380, "[1,-2.5,1e-07]"),
    (16_382, "[1,-0.5]"),
    (1007, "{1,NULL,3}"),
    (1007, "{{1,2},{3,4}}"),
    (1007, "{}"),
    (1009, "{a,\"b c\",NULL,\"NULL\",\"\",\"\\\"\",\"\\\\\"}"),
    (1001, "{\"\\\\x01\",\"\\\\x\"}"),
    (1115, "{\"2024-02-29 12:34:56\"}"),
    (1187, "{\"1 day\",00:00:00}"),
    (1231, "{1.50,-2.25}"),
    (2951, "{f47ac10b-58cc-4372-a567-0e02b2c3d479}"),
    (3807, "{\"{\\\"a\\\": 1}\"}"),
    (16_381, "{\"[1,2]\",\"[3,4]\"}"),
];

/// What is written of a value that was read.
fn written(value: &ScalarValue, value_type: &ValueType) -> (String, Vec<u8>) {
    let array: ArrayRef = value.to_array().expect("one row");
    let found = ValueType::of(&Field::new("", value.data_type(), true));
    // A text with a rule keeps its type; of everything else the value says more, such as its digits.
    let value_type = match value_type.innermost().0 {
        ValueType::Json | ValueType::Jsonb | ValueType::Uuid | ValueType::Catalog(_) => value_type.clone(),
        _ => found,
    };
    let column = Column::new(&value_type, &array).expect("it is of this type");
    let (mut text, mut bytes) = (Vec::new(), Vec::new());
    column.write_text(0, &mut text);
    write(&column, 0, &mut bytes).expect("it has a binary form");
    (String::from_utf8(text).expect("text"), bytes)
}

#[test]
fn what_is_written_reads_back_in_both_forms() {
    for (oid, shown) in VALUES {
        let value_type = crate::server::wire_type::declared_type(*oid).expect("a type of the engine");
        let from_text = text::read(shown, &value_type).unwrap_or_else(|reason| panic!("{shown}: {reason:?}"));
        let (text, bytes) = written(&from_text, &value_type);
        assert_eq!(text, *shown, "{oid}");
        let from_binary = binary::read(&bytes, &value_type).unwrap_or_else(|reason| panic!("{shown}: {reason:?}"));
        assert_eq!(from_binary, from_text, "{oid} {shown}");
    }
}

#[test]
fn damage_is_refused_and_never_panics() {
    for (oid, shown) in VALUES {
        let value_type = crate::server::wire_type::declared_type(*oid).expect("a type of the engine");
        let (_, bytes) = written(&text::read(shown, &value_type).expect("it reads"), &value_type);
        for length in 0..bytes.len() {
            // What is left may be a value, of a text for instance.
            let _ = binary::read(&bytes[..length], &value_type);
        }
        for place in 0..bytes.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] = byte;
                let _ = binary::read(&damaged, &value_type);
            }
        }
        for place in (0..shown.len()).filter(|place| shown.is_char_boundary(*place)) {
            let _ = text::read(&shown[..place], &value_type);
            let _ = text::read(&shown[place..], &value_type);
        }
    }
    // Lengths that no message has.
    let huge = [1_i32, 0, 23, i32::MAX, 1].iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    assert!(binary::read(&huge, &ValueType::Array(Box::new(ValueType::Int4))).is_err());
    let many = [6_i32, 0, 23].into_iter().chain([i32::MAX, 1].repeat(6)).flat_map(i32::to_be_bytes).collect::<Vec<_>>();
    assert!(binary::read(&many, &ValueType::Array(Box::new(ValueType::Int4))).is_err());
}
