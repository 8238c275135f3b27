//! How many bytes a function makes of its arguments, for one row of them: never fewer, and as few as can be said without making them.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::datatypes::{DataType, Date32Type, Field, Int32Type, Int64Type, IntervalMonthDayNanoType, TimestampNanosecondType, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;
use rolloutdb_udfs::postgres::{self, ValueType};

/// How a function grows its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    /// Of what it makes of a row, in bytes.
    pub size: fn(&Arguments<'_>, usize) -> u64,
    /// A result up to this is computed when the plan is made, which holds it.
    pub constant_max: u64,
}

/// What comes out is what goes in: a plan that holds the one may hold the other, as the vector of a search.
pub const JOINING: Growth = Growth { size: sum, constant_max: 1 << 18 };

/// From here on places to replace are counted instead of guessed from the length.
const GUESS_MAX: u64 = 1 << 20;
/// A number as text, and what stands for an item of a list besides its bytes.
const NUMBER_TEXT: u64 = 25;
const ITEM: u64 = 16;

/// `None`: the function makes at most a few times of what it reads, or is not known.
pub fn of(function: &str) -> Option<Growth> {
    let size: fn(&Arguments<'_>, usize) -> u64 = match function {
        "concat" => return Some(Growth { size: shown, ..JOINING }),
        "overlay" | "make_array" | "array_append" | "array_prepend" | "array_concat" | "array_union" => return Some(JOINING),
        "repeat" => |arguments, row| arguments.bytes(0, row).saturating_mul(arguments.count(1, row)),
        "lpad" | "rpad" => padded,
        "replace" => replaced,
        "regexp_replace" => replaced_by_pattern,
        "translate" => |arguments, row| arguments.bytes(0, row).saturating_mul(4),
        "concat_ws" => {
            |arguments, row| shown(arguments, row).saturating_add(arguments.bytes(0, row).saturating_mul(arguments.columns.len() as u64))
        }
        "encode" => |arguments, row| 2 * arguments.bytes(0, row) + ITEM,
        "quote_ident" | "quote_literal" | "quote_nullable" => |arguments, row| arguments.shown(0, row).saturating_mul(2) + ITEM,
        "format" => formatted,
        "text_out" => |arguments, row| arguments.text_form(0, row),
        "to_json" | "to_jsonb" | "array_to_json" | "json_row" | "json_build_object" | "jsonb_build_object" | "json_build_array"
        | "jsonb_build_array" => json,
        "array_repeat" => |arguments, row| (arguments.bytes(0, row) + ITEM).saturating_mul(arguments.count(1, row)),
        "array_resize" => |arguments, row| {
            arguments.bytes(0, row).saturating_add((arguments.bytes(2, row) + ITEM).saturating_mul(arguments.count(1, row)))
        },
        "array_replace" | "array_replace_n" | "array_replace_all" => {
            |arguments, row| arguments.bytes(0, row).saturating_add(arguments.items(0, row).saturating_mul(arguments.bytes(2, row)))
        }
        "array_to_string" => |arguments, row| {
            let between = arguments.bytes(1, row) + arguments.bytes(2, row) + NUMBER_TEXT;
            arguments.shown(0, row).saturating_add(arguments.items(0, row).saturating_mul(between))
        },
        "generate_series" | "range" => series,
        _ => return None,
    };
    Some(Growth { size, constant_max: 1 << 10 })
}

/// What all arguments hold.
fn sum(arguments: &Arguments<'_>, row: usize) -> u64 {
    (0..arguments.columns.len()).map(|index| arguments.bytes(index, row)).fold(0, u64::saturating_add)
}

/// The texts of all arguments.
fn shown(arguments: &Arguments<'_>, row: usize) -> u64 {
    (0..arguments.columns.len()).map(|index| arguments.shown(index, row)).fold(0, u64::saturating_add)
}

/// The text, and as much of the other as it lacks.
fn padded(arguments: &Arguments<'_>, row: usize) -> u64 {
    let wanted = arguments.count(1, row);
    let length = arguments.text(0, row).map_or(0, |text| text.chars().count() as u64);
    let of_character = match arguments.columns.get(2) {
        Some(_) => arguments.text(2, row).map_or(0, |fill| (fill.len() as u64).div_ceil((fill.chars().count() as u64).max(1))),
        None => 1,
    };
    arguments.bytes(0, row).saturating_add(wanted.saturating_sub(length).saturating_mul(of_character))
}

fn replaced(arguments: &Arguments<'_>, row: usize) -> u64 {
    let [text, from, to] = [0, 1, 2].map(|index| arguments.bytes(index, row));
    let guess = text.saturating_add((text / from.max(1) + 1).saturating_mul(to.saturating_sub(from)));
    match (arguments.text(0, row), arguments.text(1, row)) {
        (Some(text), Some(from)) if guess > GUESS_MAX && to > from.len() as u64 => {
            let places = text.matches(from).count() as u64;
            (text.len() as u64).saturating_add(places.saturating_mul(to - from.len() as u64))
        }
        _ => guess,
    }
}

/// Once, or at each place if the flags say so; what a place holds may be repeated in its replacement.
fn replaced_by_pattern(arguments: &Arguments<'_>, row: usize) -> u64 {
    let (text, to) = (arguments.bytes(0, row), arguments.bytes(2, row));
    let references = arguments.text(2, row).map_or(0, |to| to.matches(['\\', '$']).count() as u64);
    let is_global = arguments.text(3, row).is_some_and(|flags| flags.contains('g'));
    let places = if is_global { text + 1 } else { 1 };
    text.saturating_mul(1 + references).saturating_add(places.saturating_mul(to))
}

/// Each place may take the longest value, quoted, or be as wide as it says.
fn formatted(arguments: &Arguments<'_>, row: usize) -> u64 {
    let Some(format) = arguments.text(0, row) else { return 0 };
    let longest = (1..arguments.columns.len()).map(|index| arguments.shown(index, row).max(NUMBER_TEXT)).max().unwrap_or(0);
    let widths = format.split(|character: char| !character.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok());
    let widths = widths.fold(0, u64::saturating_add);
    let places = format.matches('%').count() as u64;
    (format.len() as u64).saturating_add(widths).saturating_add(places.saturating_mul(longest.saturating_mul(2).saturating_add(2)))
}

/// A byte may be an escape of six, and each item has the names of its columns.
fn json(arguments: &Arguments<'_>, row: usize) -> u64 {
    let names = |index: usize| names_within(&arguments.columns[index].value.data_type()).saturating_mul(arguments.items(index, row).max(1));
    let of_names = (0..arguments.columns.len()).map(names).fold(0, u64::saturating_add);
    sum(arguments, row).saturating_mul(6).saturating_add(of_names)
}

/// What the names of columns take that values of a type have.
fn names_within(data_type: &DataType) -> u64 {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => names_within(item.data_type()),
        DataType::Struct(fields) => {
            fields.iter().map(|field| field.name().len() as u64 + NUMBER_TEXT + names_within(field.data_type())).sum()
        }
        _ => 0,
    }
}

/// Numbers or times from the first argument to the second, by steps.
fn series(arguments: &Arguments<'_>, row: usize) -> u64 {
    let integer = |index| arguments.integer(index, row);
    let is_one = arguments.columns.len() < 2;
    let (first, last) = if is_one { (Some(0), integer(0)) } else { (integer(0), integer(1)) };
    let step = arguments.step(2, row);
    let (Some(first), Some(last), Some(step)) = (first, last, step) else { return 0 };
    let items = match (i128::from(last) - i128::from(first)).checked_div(step) {
        // Against the direction of the step there is nothing between them; a step of nothing is refused.
        None | Some(i128::MIN..0) => 0,
        Some(items) => u64::try_from(items).unwrap_or(u64::MAX).saturating_add(1),
    };
    items.saturating_mul(8)
}

/// The arguments of a call.
pub struct Arguments<'a> {
    columns: Vec<Column<'a>>,
}

struct Column<'a> {
    value: &'a ColumnarValue,
    /// Of each row, or of all of them.
    bytes: OnceCell<Vec<u64>>,
    /// The same of the texts of arrays and records.
    texts: OnceCell<Vec<u64>>,
}

impl<'a> Arguments<'a> {
    pub fn new(values: &'a [ColumnarValue]) -> Self {
        Self { columns: values.iter().map(|value| Column { value, bytes: OnceCell::new(), texts: OnceCell::new() }).collect() }
    }

    /// What a value holds: of a list all its items. None of an argument that is not there.
    fn bytes(&self, index: usize, row: usize) -> u64 {
        let Some(column) = self.columns.get(index) else { return 0 };
        let bytes = column.bytes.get_or_init(|| match column.value {
            ColumnarValue::Scalar(value) => vec![bytes_of_value(value)],
            ColumnarValue::Array(values) => bytes_of_rows(values),
        });
        bytes.get(row).or(bytes.last()).copied().unwrap_or(0)
    }

    /// What the text of an array or a record takes; of what there is none, 0.
    fn text_form(&self, index: usize, row: usize) -> u64 {
        let Some(column) = self.columns.get(index) else { return 0 };
        let texts = column.texts.get_or_init(|| {
            let values = match column.value {
                ColumnarValue::Scalar(value) => value.to_array().ok(),
                ColumnarValue::Array(values) => Some(Arc::clone(values)),
            };
            let of_values = |values: ArrayRef| {
                let value_type = ValueType::of(&Field::new("", values.data_type().clone(), true));
                let column = postgres::Column::new(&value_type, &values).ok().filter(postgres::Column::may_be_long)?;
                Some((0..values.len()).map(|row| column.nested_text_bytes(row)).collect())
            };
            values.and_then(of_values).unwrap_or_default()
        });
        texts.get(row).or(texts.last()).copied().unwrap_or(0)
    }

    /// What the text of any value takes.
    fn shown(&self, index: usize, row: usize) -> u64 {
        let is_text = self
            .columns
            .get(index)
            .is_none_or(|column| matches!(column.value.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View));
        match is_text {
            true => self.bytes(index, row),
            // A smallint of two bytes has six digits, an item of two letters quotes round it.
            false => self.bytes(index, row).saturating_mul(4).saturating_add(NUMBER_TEXT).max(self.text_form(index, row)),
        }
    }

    /// A number of times; NULL and less than 0 are none.
    fn count(&self, index: usize, row: usize) -> u64 {
        self.integer(index, row).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    }

    /// A number, or a time as one: days of a date, nanoseconds of a timestamp.
    fn integer(&self, index: usize, row: usize) -> Option<i64> {
        match self.columns.get(index)?.value {
            ColumnarValue::Scalar(value) => match value {
                ScalarValue::Int64(number) | ScalarValue::TimestampNanosecond(number, _) => *number,
                ScalarValue::Int32(number) | ScalarValue::Date32(number) => number.map(i64::from),
                ScalarValue::UInt64(number) => number.and_then(|number| i64::try_from(number).ok()),
                ScalarValue::TimestampMicrosecond(number, _) => number.map(|number| number.saturating_mul(1000)),
                _ => None,
            },
            ColumnarValue::Array(values) if values.is_null(row) => None,
            ColumnarValue::Array(values) => match values.data_type() {
                DataType::Int64 => Some(values.as_primitive::<Int64Type>().value(row)),
                DataType::Int32 => Some(values.as_primitive::<Int32Type>().value(row).into()),
                DataType::UInt64 => i64::try_from(values.as_primitive::<UInt64Type>().value(row)).ok(),
                DataType::Date32 => Some(values.as_primitive::<Date32Type>().value(row).into()),
                DataType::Timestamp(unit, _) => {
                    use arrow::datatypes::TimeUnit::{Microsecond, Nanosecond};
                    match unit {
                        Nanosecond => Some(values.as_primitive::<TimestampNanosecondType>().value(row)),
                        Microsecond => {
                            let time = values.as_primitive::<arrow::datatypes::TimestampMicrosecondType>().value(row);
                            Some(time.saturating_mul(1000))
                        }
                        _ => None,
                    }
                }
                _ => None,
            },
        }
    }

    /// Of a series: 1 if it is not there. Between dates it counts days, between timestamps nanoseconds, and months are as short as February.
    fn step(&self, index: usize, row: usize) -> Option<i128> {
        const DAY: i128 = 86_400_000_000_000;
        let Some(column) = self.columns.get(index) else { return Some(1) };
        let interval = match column.value {
            ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(interval)) => *interval,
            ColumnarValue::Array(values) => {
                values.as_primitive_opt::<IntervalMonthDayNanoType>().filter(|_| values.is_valid(row)).map(|values| values.value(row))
            }
            ColumnarValue::Scalar(_) => None,
        };
        let Some(interval) = interval else { return self.integer(index, row).map(i128::from) };
        let nanoseconds = (i128::from(interval.months) * 28 + i128::from(interval.days)) * DAY + i128::from(interval.nanoseconds);
        let is_of_dates = matches!(self.columns[0].value.data_type(), DataType::Date32);
        // A series of dates goes on by a day at least.
        Some(if is_of_dates { (nanoseconds / DAY).abs().max(1) * nanoseconds.signum() } else { nanoseconds })
    }

    fn text(&self, index: usize, row: usize) -> Option<&'a str> {
        match self.columns.get(index)?.value {
            ColumnarValue::Scalar(ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text)) => text.as_deref(),
            ColumnarValue::Scalar(_) => None,
            ColumnarValue::Array(values) if values.is_null(row) => None,
            ColumnarValue::Array(values) => match values.data_type() {
                DataType::Utf8 => Some(values.as_string::<i32>().value(row)),
                DataType::LargeUtf8 => Some(values.as_string::<i64>().value(row)),
                DataType::Utf8View => Some(values.as_string_view().value(row)),
                _ => None,
            },
        }
    }

    /// Of a list.
    fn items(&self, index: usize, row: usize) -> u64 {
        let Some(column) = self.columns.get(index) else { return 0 };
        let (values, row): (&dyn Array, usize) = match column.value {
            ColumnarValue::Scalar(ScalarValue::List(values)) => (values.as_ref(), 0),
            ColumnarValue::Scalar(ScalarValue::LargeList(values)) => (values.as_ref(), 0),
            ColumnarValue::Scalar(_) => return 0,
            ColumnarValue::Array(values) => (values.as_ref(), row),
        };
        match values.data_type() {
            DataType::List(_) => u64::from(values.as_list::<i32>().value_length(row).unsigned_abs()),
            DataType::LargeList(_) => values.as_list::<i64>().value_length(row).unsigned_abs(),
            DataType::FixedSizeList(_, items) => u64::from(items.unsigned_abs()),
            _ => 0,
        }
    }
}

fn bytes_of_value(value: &ScalarValue) -> u64 {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_ref().map_or(0, |text| text.len() as u64)
        }
        ScalarValue::Binary(bytes) | ScalarValue::LargeBinary(bytes) | ScalarValue::BinaryView(bytes) => {
            bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
        }
        other => other.size() as u64,
    }
}

/// What each value of a column holds: of a list all its items.
pub fn bytes_of_rows(values: &ArrayRef) -> Vec<u64> {
    let each = |length: &dyn Fn(usize) -> u64| (0..values.len()).map(length).collect();
    match values.data_type() {
        DataType::Utf8 => lengths(values.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => lengths(values.as_string::<i64>().value_offsets()),
        DataType::Binary => lengths(values.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => lengths(values.as_binary::<i64>().value_offsets()),
        // The length stands in the first bytes of a view.
        DataType::Utf8View => values.as_string_view().views().iter().map(|view| u64::from(*view as u32)).collect(),
        DataType::BinaryView => values.as_binary_view().views().iter().map(|view| u64::from(*view as u32)).collect(),
        DataType::List(_) => of_items(values.as_list::<i32>().value_offsets(), values.as_list::<i32>().values()),
        DataType::LargeList(_) => of_items(values.as_list::<i64>().value_offsets(), values.as_list::<i64>().values()),
        DataType::FixedSizeList(_, length) => {
            let (items, length) = (bytes_of_rows(values.as_fixed_size_list().values()), length.unsigned_abs() as usize);
            each(&|row| items.get(row * length..(row + 1) * length).map_or(0, |items| items.iter().sum()))
        }
        DataType::Struct(_) => {
            let fields: Vec<Vec<u64>> = values.as_struct().columns().iter().map(bytes_of_rows).collect();
            each(&|row| fields.iter().map(|field| field[row]).sum())
        }
        other => vec![other.primitive_width().unwrap_or(ITEM as usize) as u64; values.len()],
    }
}

fn lengths<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<u64> {
    offsets.windows(2).map(|ends| (ends[1] - ends[0]).as_usize() as u64).collect()
}

/// Of lists.
fn of_items<O: OffsetSizeTrait>(offsets: &[O], items: &ArrayRef) -> Vec<u64> {
    let mut before = Vec::with_capacity(items.len() + 1);
    before.push(0_u64);
    for bytes in bytes_of_rows(items) {
        before.push(before[before.len() - 1] + bytes);
    }
    offsets.windows(2).map(|ends| before[ends[1].as_usize()] - before[ends[0].as_usize()]).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray, StringArray};

    use super::*;

    fn text(text: &str) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(text))
    }

    fn number(number: i64) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(number))
    }

    fn size(function: &str, arguments: &[ColumnarValue]) -> u64 {
        (of(function).expect("it can grow").size)(&Arguments::new(arguments), 0)
    }

    #[test]
    fn what_comes_out_is_known_before() {
        assert_eq!(size("repeat", &[text("ab"), number(3)]), 6);
        assert_eq!(size("repeat", &[text("ab"), number(-3)]), 0);
        assert_eq!(size("repeat", &[text("ab"), number(i64::MAX)]), u64::MAX - 1);
        assert_eq!(size("repeat", &[text("abc"), number(i64::MAX)]), u64::MAX);
        assert_eq!(size("lpad", &[text("ab"), number(5)]), 5);
        assert_eq!(size("rpad", &[text("ab"), number(5), text("é")]), 8);
        assert_eq!(size("rpad", &[text("abc"), number(1)]), 3, "what is cut is not more");
        assert_eq!(size("replace", &[text("a b"), text(" "), text("--")]), 7, "at most");
        let long = "a".repeat(100_000) + &"b".repeat(100_000);
        assert_eq!(size("replace", &[text(&long), text("a"), text(&"x".repeat(101))]), 200_000 + 100_000 * 100, "counted");
        assert_eq!(size("concat", &[text("ab"), text("c")]), 3);
        assert_eq!(size("array_repeat", &[text("ab"), number(10)]), 180);
        assert_eq!(size("generate_series", &[number(1), number(10)]), 80);
        assert_eq!(size("generate_series", &[number(10), number(1), number(-3)]), 32);
        assert_eq!(size("generate_series", &[number(10), number(1)]), 0);
        assert_eq!(size("generate_series", &[number(i64::MIN), number(i64::MAX)]), u64::MAX);
        assert!(size("format", &[text("%1000000s%s"), text("x")]) >= 1_000_001);
        assert!(of("upper").is_none());
    }

    #[test]
    fn each_row_has_its_own() {
        let texts = StringArray::from(vec![Some("a"), None, Some("abc")]).slice(1, 2);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1); 3]), Some(vec![])]);
        let counts = Int64Array::from(vec![Some(7), Some(2)]);
        let arguments: Vec<ColumnarValue> =
            [Arc::new(texts) as ArrayRef, Arc::new(counts), Arc::new(lists)].map(ColumnarValue::Array).into();
        let known = Arguments::new(&arguments);
        let repeat = of("repeat").expect("it can grow").size;
        assert_eq!([0, 1].map(|row| repeat(&known, row)), [0, 6]);
        assert_eq!([0, 1].map(|row| (known.bytes(2, row), known.items(2, row))), [(24, 3), (0, 0)]);
    }
}
