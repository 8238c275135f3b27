//! Values in PostgreSQL's forms: goldens from PostgreSQL 15, and that what is written reads back.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, IntervalMonthDayNanoArray, ListBuilder, RecordBatch, StringBuilder, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, IntervalMonthDayNano, TimeUnit};
use proptest::prelude::*;
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::postgres::{numeric_binary, parse_array};

use super::{binary_in, binary_out, text_in, text_out};

fn texts(array: &ArrayRef, field: &Field) -> Vec<Option<String>> {
    let write = text_out::writer(array, field).expect("it has a text form");
    let text = |row: usize| {
        let mut out = Vec::new();
        write(row, &mut out);
        String::from_utf8(out).expect("text")
    };
    (0..array.len()).map(|row| array.is_valid(row).then(|| text(row))).collect()
}

fn bytes(array: &ArrayRef, field: &Field) -> Vec<Option<Vec<u8>>> {
    let write = binary_out::writer(array, field).expect("it has a binary form");
    let value = |row: usize| {
        let mut out = Vec::new();
        write(row, &mut out);
        out
    };
    (0..array.len()).map(|row| array.is_valid(row).then(|| value(row))).collect()
}

fn column(values: &[Option<&str>], field: &Field) -> ArrayRef {
    match text_in::read_field(values, field) {
        Ok(column) => column,
        Err(problem) => panic!("{field}: row {}: {}", problem.row, problem.reason),
    }
}

/// The texts read as a column; written again they are `expected`, and by way of the binary form too.
fn check(field: &Field, values: &[&str], expected: &[&str]) {
    let values: Vec<Option<&str>> = values.iter().copied().map(Some).chain([None]).collect();
    let expected: Vec<Option<String>> = expected.iter().map(|text| Some((*text).to_owned())).chain([None]).collect();
    let read = column(&values, field);
    assert_eq!(read.data_type(), field.data_type());
    assert_eq!(texts(&read, field), expected, "{field}");
    let binary = bytes(&read, field);
    let binary: Vec<Option<&[u8]>> = binary.iter().map(Option::as_deref).collect();
    match binary_in::read_field(&binary, field) {
        Ok(again) => assert_eq!(&again, &read, "{field}"),
        Err(problem) => panic!("{field}: row {}: {}", problem.row, problem.reason),
    }
}

fn plain(data_type: DataType) -> Field {
    Field::new("c", data_type, true)
}

fn vector(item: DataType, width: i32) -> Field {
    plain(DataType::new_fixed_size_list(item, width, true))
}

#[test]
fn every_type_reads_back_from_both_forms() {
    let micros = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    check(&plain(DataType::Boolean), &["t", "off", "YES"], &["t", "f", "t"]);
    check(&plain(DataType::Int16), &["-32768", "7"], &["-32768", "7"]);
    check(&plain(DataType::Int32), &["2147483647"], &["2147483647"]);
    check(&plain(DataType::Int64), &["-9223372036854775808", " 5 "], &["-9223372036854775808", "5"]);
    check(&plain(DataType::Float32), &["0.1", "1e20", "NaN", "-Infinity"], &["0.1", "1e+20", "NaN", "-Infinity"]);
    let doubles = ["1", "-0.5", "1e15", "123456789012345", "0.0001", "1.5e-7"];
    check(&plain(DataType::Float64), &doubles, &["1", "-0.5", "1e+15", "123456789012345", "0.0001", "1.5e-07"]);
    check(&plain(DataType::Utf8), &["", "grüß", "a\tb"], &["", "grüß", "a\tb"]);
    check(&plain(DataType::Binary), &["\\x00ff", "\\x"], &["\\x00ff", "\\x"]);
    check(&plain(DataType::Date32), &["2024-02-29", "1969-12-31", "0001-01-01"], &["2024-02-29", "1969-12-31", "0001-01-01"]);
    let times = ["2024-02-29 12:34:56.5", "1969-12-31 23:59:59.999999"];
    check(&plain(micros(None)), &times, &times);
    check(&plain(micros(Some("+00:00"))), &["2024-02-29 12:34:56+02"], &["2024-02-29 10:34:56+00"]);
    let decimals = ["-12345.6780", "0.0000", "99999999999999999999999999999999.9999", "0.0100"];
    check(&plain(DataType::Decimal128(36, 4)), &decimals, &decimals);
    check(&TextType::Uuid.field("c", true), &["F47AC10B-58CC-4372-A567-0E02B2C3D479"], &["f47ac10b-58cc-4372-a567-0e02b2c3d479"]);
    check(&TextType::Json.field("c", true), &["{\"a\":  1}"], &["{\"a\":  1}"]);
    check(&TextType::Jsonb.field("c", true), &["[1]", "\"x\""], &["[1]", "\"x\""]);
    check(&TextType::Varchar(3).field("c", true), &["abc"], &["abc"]);
    check(&plain(DataType::new_list(DataType::Int64, true)), &["{1,NULL,-3}", "{}"], &["{1,NULL,-3}", "{}"]);
    let words = [r#"{a,"b c","NULL",NULL,"",",\"\\"}"#];
    check(&plain(DataType::new_list(DataType::Utf8, true)), &words, &[r#"{a,"b c","NULL",NULL,"",",\"\\"}"#]);
    check(
        &TextType::Uuid.array_field("c", true),
        &["{f47ac10b-58cc-4372-a567-0e02b2c3d479,NULL}"],
        &["{f47ac10b-58cc-4372-a567-0e02b2c3d479,NULL}"],
    );
    check(&vector(DataType::Float32, 2), &["[1, -0.5]"], &["[1,-0.5]"]);
    check(&vector(DataType::Float16, 2), &["[1,2.5]"], &["[1,2.5]"]);
}

#[test]
fn the_binary_forms_are_those_of_postgresql() {
    // SELECT encode(numeric_send('-12345.678'), 'hex') and the like.
    let decimal = |value: i128, scale: i8| {
        let mut out = Vec::new();
        numeric_binary::write(value, scale, &mut out);
        out
    };
    assert_eq!(decimal(-12_345_678, 3), [0, 3, 0, 1, 0x40, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
    assert_eq!(decimal(0, 2), [0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(decimal(1, 5), [0, 1, 0xff, 0xfe, 0, 0, 0, 5, 0x03, 0xe8]);
    assert_eq!(decimal(100_000_000, 0), [0, 1, 0, 2, 0, 0, 0, 0, 0, 1]);
    let first = |field: &Field, text: &str| bytes(&column(&[Some(text)], field), field)[0].clone().unwrap_or_default();
    assert_eq!(first(&plain(DataType::Date32), "2000-01-02"), [0, 0, 0, 1]);
    let integers = first(&plain(DataType::new_list(DataType::Int32, true)), "{7,NULL}");
    let words: Vec<i32> = integers.as_chunks::<4>().0.iter().map(|word| i32::from_be_bytes(*word)).collect();
    assert_eq!(words, [1, 1, 23, 2, 1, 4, 7, -1]);
    assert_eq!(first(&vector(DataType::Float32, 1), "[1]"), [0, 1, 0, 0, 0x3f, 0x80, 0, 0]);
    assert_eq!(first(&vector(DataType::Float16, 1), "[1]"), [0, 1, 0, 0, 0x3c, 0]);
    assert_eq!(first(&TextType::Jsonb.field("c", true), "1"), [1, b'1']);
}

#[test]
fn what_has_no_type_in_postgresql_is_json_and_intervals_are_postgresqls() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let field = Field::new("a", DataType::Int32, true);
    let row: ArrayRef = Arc::new(StructArray::from(vec![(Arc::new(field), numbers)]));
    let field = plain(row.data_type().clone());
    assert_eq!(texts(&row, &field), [Some("{\"a\":1}".to_owned())]);
    let times = [IntervalMonthDayNano::new(14, -3, -3_600_500_000_000), IntervalMonthDayNano::new(0, 0, 0)];
    let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(times.to_vec()));
    let field = plain(intervals.data_type().clone());
    assert_eq!(texts(&intervals, &field), [Some("1 year 2 mons -3 days -01:00:00.5".to_owned()), Some("00:00:00".to_owned())]);
    let unsigned = cast(&Int32Array::from(vec![3]), &DataType::UInt32).expect("a cast of numbers");
    assert_eq!(texts(&unsigned, &plain(DataType::UInt32)), [Some("3".to_owned())]);
}

#[test]
fn values_that_do_not_fit_are_named() {
    let reason = |field: &Field, text: &str| text_in::read_field(&[Some("1"), Some(text)], field).err().map(|bad| (bad.row, bad.reason));
    let found = reason(&plain(DataType::Int64), "seven");
    assert_eq!(found, Some((1, "expected bigint, found 'seven'".to_owned())));
    let found = text_in::read_field(&[Some("{1}"), Some("{{1}}")], &plain(DataType::new_list(DataType::Int64, true)));
    assert_eq!(found.err().map(|bad| bad.row), Some(1));
    let found = text_in::read_field(&[Some("[1,2]"), Some("[1]")], &vector(DataType::Float32, 2));
    assert_eq!(found.err().map(|bad| (bad.row, bad.reason)), Some((1, "expected 2 dimensions, not 1".to_owned())));
    for damaged in [&[0, 0, 0][..], &[0, 0, 0, 0, 0], &[]] {
        assert!(binary_in::read_field(&[Some(damaged)], &plain(DataType::Int32)).is_err());
        assert!(binary_in::read_field(&[Some(damaged)], &vector(DataType::Float32, 2)).is_err());
        assert!(binary_in::read_field(&[Some(damaged)], &plain(DataType::new_list(DataType::Int32, true))).is_err());
    }
}

proptest! {
    #[test]
    fn items_of_arrays_read_back(items in prop::collection::vec(prop::option::of("[a-c{}\",\\\\ \tNUL]{0,5}"), 0..5)) {
        let mut arrays = ListBuilder::new(StringBuilder::new());
        items.iter().for_each(|item| arrays.values().append_option(item.as_deref()));
        arrays.append(true);
        let arrays: ArrayRef = Arc::new(arrays.finish());
        let text = texts(&arrays, &plain(DataType::new_list(DataType::Utf8, true))).remove(0).expect("no NULL");
        prop_assert_eq!(parse_array(&text).map(|array| array.texts), Some(items), "{}", text);
    }

    #[test]
    fn decimals_and_floats_read_back(value in any::<i128>().prop_map(|value| value % 10_i128.pow(38)), scale in 0_u8..38, float in any::<f32>()) {
        let field = plain(DataType::Decimal128(38, scale.cast_signed()));
        let decimals = arrow::array::Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale.cast_signed()).expect("38 digits");
        let decimals: ArrayRef = Arc::new(decimals);
        let binary = bytes(&decimals, &field);
        let again = binary_in::read_field(&[binary[0].as_deref()], &field).map_err(|bad| TestCaseError::fail(bad.reason))?;
        prop_assert_eq!(&again, &decimals);
        let field = plain(DataType::Float32);
        let floats: ArrayRef = Arc::new(arrow::array::Float32Array::from(vec![float]));
        let text = texts(&floats, &field);
        let again = column(&[text[0].as_deref()], &field);
        let again = again.as_primitive::<Float32Type>().value(0);
        prop_assert!(again == float || (again.is_nan() && float.is_nan()), "{float} {again}");
    }
}

/// A batch of these is what COPY sees of a table.
#[test]
fn a_slice_of_a_batch_is_written_from_its_first_row() {
    let field = plain(DataType::new_list(DataType::Int64, true));
    let lists = column(&[Some("{1}"), Some("{2,3}"), None], &field);
    let schema = Arc::new(arrow::datatypes::Schema::new(vec![field.clone()]));
    let batch = RecordBatch::try_new(schema, vec![lists]).expect("one column");
    let rest = batch.slice(1, 2);
    assert_eq!(texts(rest.column(0), &field), [Some("{2,3}".to_owned()), None]);
}
