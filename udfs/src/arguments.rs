//! The arguments of one call as typed columns.
//!
//! A constant stays one row long whatever the batch: [`Column::get`] answers for every row, and a kernel that can prepare
//! a constant once (parse, normalise, take a norm) asks [`Column::is_constant`].

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray,
    new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNano};
use datafusion::common::cast::{as_boolean_array, as_float64_array, as_int64_array, as_list_array, as_string_array};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use crate::Error;
use crate::bytea_in::parse_bytea;
use crate::function::{Interface, is_text, type_name};
use crate::postgres::{Column as PostgresColumn, ValueType, Values, parse_array};

pub(crate) struct Arguments<'a> {
    pub interface: &'static Interface,
    values: &'a [ColumnarValue],
    fields: &'a [FieldRef],
    return_type: &'a DataType,
    num_rows: usize,
}

/// One argument: an array, or one value for all rows.
#[derive(Debug)]
pub(crate) struct Column<A> {
    array: A,
    constant: bool,
}

/// An argument of kind `Texts`.
#[derive(Debug)]
pub(crate) enum TextsColumn {
    One(Column<StringArray>),
    Many(Column<ListArray>),
}

impl<'a> Arguments<'a> {
    pub fn new(interface: &'static Interface, args: &'a ScalarFunctionArgs, num_rows: usize) -> Self {
        Self { interface, values: &args.args, fields: &args.arg_fields, return_type: args.return_type(), num_rows }
    }

    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// The type that was promised when the statement was planned.
    pub fn return_type(&self) -> &DataType {
        self.return_type
    }

    /// How many arguments the call gives.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// What is known of argument `index` beside its values.
    pub fn field(&self, index: usize) -> FieldRef {
        Arc::clone(&self.fields[index])
    }

    /// Whether the call gives the optional argument `index`.
    pub fn has(&self, index: usize) -> bool {
        index < self.values.len()
    }

    pub fn text(&self, index: usize) -> Result<Column<StringArray>> {
        self.column(index)?.map(&DataType::Utf8, |array| Ok(as_string_array(array)?.clone()))
    }

    pub fn integer(&self, index: usize) -> Result<Column<Int64Array>> {
        self.column(index)?.map(&DataType::Int64, |array| Ok(as_int64_array(array)?.clone()))
    }

    pub fn boolean(&self, index: usize) -> Result<Column<BooleanArray>> {
        self.column(index)?.map(&DataType::Boolean, |array| Ok(as_boolean_array(array)?.clone()))
    }

    pub fn number(&self, index: usize) -> Result<Column<Float64Array>> {
        self.column(index)?.map(&DataType::Float64, |array| Ok(as_float64_array(array)?.clone()))
    }

    pub fn texts(&self, index: usize) -> Result<TextsColumn> {
        let column = self.column(index)?;
        if is_text(column.array.data_type()) || column.array.data_type().is_null() {
            return Ok(TextsColumn::One(self.text(index)?));
        }
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        Ok(TextsColumn::Many(column.map(&list, |array| Ok(as_list_array(array)?.clone()))?))
    }

    /// Intervals, and the time between two instants as one.
    pub fn interval(&self, index: usize) -> Result<Column<IntervalMonthDayNanoArray>> {
        self.column(index)?.map_array(|array| match PostgresColumn::new(&ValueType::Interval, array)?.values {
            Values::Interval(intervals) => Ok(IntervalMonthDayNanoArray::new(intervals.values().clone(), array.logical_nulls())),
            _ => unreachable!("intervals have intervals for values"),
        })
    }

    /// Bytes, and texts as they are read for such.
    pub fn bytes(&self, index: usize) -> Result<Column<BinaryArray>> {
        self.column(index)?.map_array(|array| {
            if !is_text(array.data_type()) {
                return Ok(cast(array, &DataType::Binary)?.as_binary::<i32>().clone());
            }
            let texts = cast(array, &DataType::Utf8)?;
            let bytes = as_string_array(&texts)?.iter().map(|text| text.map(parse_bytea).transpose());
            Ok(bytes.collect::<Result<Vec<_>, Error>>()?.iter().map(Option::as_deref).collect())
        })
    }

    pub fn lists(&self, index: usize) -> Result<Column<ListArray>> {
        self.column(index)?.map_array(|array| match array.data_type() {
            DataType::List(_) => Ok(as_list_array(array)?.clone()),
            DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                Ok(as_list_array(&cast(array, &DataType::List(Arc::clone(item)))?)?.clone())
            }
            DataType::Null => {
                let lists = new_null_array(&DataType::new_list(DataType::Null, true), array.len());
                Ok(as_list_array(&lists)?.clone())
            }
            found => {
                let argument =
                    self.interface.parameters.get(index).or(self.interface.parameters.last()).map_or("argument", |known| known.name);
                let found = type_name(found);
                Err(Error::ArgumentType { function: self.interface.name, argument, found, expected: "an array" }.into())
            }
        })
    }

    /// Lists of texts, also in PostgreSQL's text form, `{a,b}`; one text alone is a list of it.
    pub fn text_lists(&self, index: usize) -> Result<Vec<Option<Vec<Option<String>>>>> {
        let texts = self.texts(index)?;
        let list = |row: usize| {
            let found = texts.elements(row)?;
            let read = match (&texts, found.as_slice()) {
                (TextsColumn::One(_), [Some(text)]) => parse_array(text).map(|array| array.texts),
                _ => None,
            };
            Some(read.unwrap_or_else(|| found.into_iter().map(|text| text.map(str::to_owned)).collect()))
        };
        Ok((0..self.num_rows).map(list).collect())
    }

    /// The argument as it came, one row long if it is a constant.
    pub fn column(&self, index: usize) -> Result<Column<ArrayRef>> {
        Ok(match &self.values[index] {
            ColumnarValue::Array(array) => Column { array: Arc::clone(array), constant: false },
            ColumnarValue::Scalar(value) => Column { array: value.to_array()?, constant: true },
        })
    }

    /// The text that argument `index` has in every row; `None` if it is NULL, or if there are no rows.
    ///
    /// # Errors
    /// [`Error::NotConstant`] if two rows differ.
    pub fn constant_text(&self, index: usize) -> Result<Option<String>> {
        let column = self.text(index)?;
        let constant = self.constant(index, column.is_constant(), |row| column.get(row))?;
        Ok(constant.map(str::to_owned))
    }

    /// The integer that argument `index` has in every row, as [`Self::constant_text`].
    pub fn constant_integer(&self, index: usize) -> Result<Option<i64>> {
        let column = self.integer(index)?;
        self.constant(index, column.is_constant(), |row| column.get(row))
    }

    fn constant<T: PartialEq>(&self, index: usize, is_constant: bool, get: impl Fn(usize) -> Option<T>) -> Result<Option<T>> {
        let first = (0..self.num_rows).next().and_then(&get);
        if !is_constant && (1..self.num_rows).any(|row| get(row) != first) {
            let (function, argument) = (self.interface.name, self.interface.parameters[index].name);
            return Err(Error::NotConstant { function, argument, reason: "but its rows differ" }.into());
        }
        Ok(first)
    }

    /// One number per row from the numbers of `N` arguments; NULL if one of them is NULL.
    pub fn map_numbers<const N: usize>(&self, kernel: impl Fn([f64; N]) -> Result<f64, Error>) -> Result<ArrayRef> {
        let columns = (0..N).map(|index| self.number(index)).collect::<Result<Vec<_>>>()?;
        let mut values = Float64Array::builder(self.num_rows);
        for row in 0..self.num_rows {
            let mut numbers = [0.0; N];
            let mut valid = true;
            for (number, column) in numbers.iter_mut().zip(&columns) {
                match column.get(row) {
                    Some(value) => *number = value,
                    None => valid = false,
                }
            }
            values.append_option(valid.then(|| kernel(numbers)).transpose()?);
        }
        Ok(Arc::new(values.finish()))
    }
}

impl<A: Array> Column<A> {
    pub fn is_constant(&self) -> bool {
        self.constant
    }

    pub fn array(&self) -> &A {
        &self.array
    }

    fn index(&self, row: usize) -> Option<usize> {
        let index = if self.constant { 0 } else { row };
        self.array.is_valid(index).then_some(index)
    }
}

impl Column<ArrayRef> {
    fn map<B>(self, to: &DataType, downcast: impl Fn(&ArrayRef) -> Result<B>) -> Result<Column<B>> {
        self.map_array(|array| downcast(&cast(array, to)?))
    }

    /// The same rows in another array.
    pub fn map_array<B>(self, with: impl Fn(&ArrayRef) -> Result<B>) -> Result<Column<B>> {
        Ok(Column { array: with(&self.array)?, constant: self.constant })
    }
}

impl Column<IntervalMonthDayNanoArray> {
    pub fn get(&self, row: usize) -> Option<IntervalMonthDayNano> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl Column<BinaryArray> {
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl Column<ListArray> {
    pub fn get(&self, row: usize) -> Option<ArrayRef> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl Column<StringArray> {
    pub fn get(&self, row: usize) -> Option<&str> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl Column<Int64Array> {
    pub fn get(&self, row: usize) -> Option<i64> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl Column<BooleanArray> {
    pub fn get(&self, row: usize) -> Option<bool> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl Column<Float64Array> {
    pub fn get(&self, row: usize) -> Option<f64> {
        self.index(row).map(|index| self.array.value(index))
    }
}

impl TextsColumn {
    pub fn is_constant(&self) -> bool {
        match self {
            Self::One(column) => column.is_constant(),
            Self::Many(column) => column.is_constant(),
        }
    }

    /// The texts of a row without those that are NULL; `None` if the row itself is NULL.
    pub fn get(&self, row: usize) -> Option<Vec<&str>> {
        self.elements(row).map(|texts| texts.into_iter().flatten().collect())
    }

    /// The texts of a row, each at its position; `None` if the row itself is NULL.
    pub fn elements(&self, row: usize) -> Option<Vec<Option<&str>>> {
        match self {
            Self::One(column) => column.get(row).map(|text| vec![Some(text)]),
            Self::Many(column) => column.index(row).map(|index| {
                let offsets = column.array.value_offsets();
                let texts = column.array.values().as_string::<i32>();
                let range = offsets[index] as usize..offsets[index + 1] as usize;
                range.map(|at| texts.is_valid(at).then(|| texts.value(at))).collect()
            }),
        }
    }
}
