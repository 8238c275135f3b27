//! `read_jsonl`, `read_csv`, `read_parquet`, `read_arrow`: files as tables. Their columns are found out while the query is planned, which is why the
//! arguments are constants; the rows are read while it runs.

use std::sync::Arc;

use arrow::datatypes::DataType;

use crate::engine::apply::arguments::{Arguments, Names, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction};
use crate::engine::files::{self, ColumnSource, ColumnarFormat, CsvOptions, FilesTable, OnError, ReadFiles, SAMPLE_ROWS, TextFormat};
use crate::error::Result;

pub fn functions() -> Vec<Arc<dyn TableFunction>> {
    vec![
        Arc::new(ReadJsonl),
        Arc::new(ReadCsv),
        Arc::new(ReadColumnar { name: "read_parquet", format: ColumnarFormat::Parquet }),
        Arc::new(ReadColumnar { name: "read_arrow", format: ColumnarFormat::Arrow }),
    ]
}

#[derive(Debug)]
struct ReadJsonl;

impl TableFunction for ReadJsonl {
    fn name(&self) -> &'static str {
        "read_jsonl"
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[
            Parameter::required_naming("path", Names::File),
            Parameter::columns("columns"),
            Parameter::constant("sample_size", DataType::Int64),
            Parameter::constant("on_error", DataType::Utf8),
        ];
        PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        text_table(arguments, TextFormat::Jsonl)
    }
}

#[derive(Debug)]
struct ReadCsv;

impl TableFunction for ReadCsv {
    fn name(&self) -> &'static str {
        "read_csv"
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[
            Parameter::required_naming("path", Names::File),
            Parameter::constant("header", DataType::Boolean),
            Parameter::constant("delimiter", DataType::Utf8),
            Parameter::columns("columns"),
            Parameter::constant("sample_size", DataType::Int64),
            Parameter::constant("on_error", DataType::Utf8),
        ];
        PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let mut csv = CsvOptions::default();
        if let Some(has_header) = arguments.boolean("header") {
            csv.has_header = has_header;
        }
        if let Some(delimiter) = arguments.text("delimiter") {
            csv.delimiter = files::delimiter(delimiter)?;
        }
        text_table(arguments, TextFormat::Csv(csv))
    }
}

fn text_table(arguments: &Arguments, format: TextFormat) -> Result<Bound> {
    let columns = match arguments.columns("columns") {
        Some(schema) => ColumnSource::Given(Arc::clone(schema)),
        None => ColumnSource::Sample(files::sample_rows(arguments.integer("sample_size", SAMPLE_ROWS as i64, -1)?)?),
    };
    let on_error = OnError::from_option(arguments.text("on_error"))?;
    let given = arguments.text("path").unwrap_or_default();
    let paths = arguments.gate()?.read(given)?;
    let rows = files::text_table(paths.clone(), format, columns, on_error, arguments.notices())?;
    Ok(Bound::Table(FilesTable::provider(rows, ReadFiles::new(given, paths))))
}

#[derive(Debug)]
struct ReadColumnar {
    name: &'static str,
    format: ColumnarFormat,
}

impl TableFunction for ReadColumnar {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[Parameter::required_naming("path", Names::File)];
        PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let given = arguments.text("path").unwrap_or_default();
        let paths = arguments.gate()?.read(given)?;
        let rows = files::columnar_table(&paths, self.format)?;
        Ok(Bound::Table(FilesTable::provider(rows, ReadFiles::new(given, paths))))
    }
}
