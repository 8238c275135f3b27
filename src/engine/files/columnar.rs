//! Parquet and Arrow IPC files ("Feather"): DataFusion reads them. Columns that a query does not name are not read, and row groups of Parquet
//! whose statistics say that no row fits are passed over.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::ipc::reader::{FileReader, StreamReader};
use datafusion::catalog::TableProvider;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use url::Url;

use super::{bad_input, open};
use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnarFormat {
    Parquet,
    Arrow,
}

/// Files as one table, with the columns of the first; a file that lacks one of them has NULL there.
///
/// # Errors
/// [`Error::Io`]; [`Error::BadInput`] if the first is not of the format.
pub fn table(paths: &[PathBuf], format: ColumnarFormat) -> Result<Arc<dyn TableProvider>> {
    let first = paths.first().ok_or_else(|| Error::Internal("a table of no files".to_owned()))?;
    let (schema, format): (SchemaRef, Arc<dyn FileFormat>) = match format {
        ColumnarFormat::Parquet => (parquet_schema(first)?, Arc::new(ParquetFormat::default().with_force_view_types(false))),
        ColumnarFormat::Arrow => (arrow_schema(first)?, Arc::new(ArrowFormat)),
    };
    let schema = Arc::new(Schema::new(schema.fields().iter().map(plain_field).collect::<Vec<_>>()));
    let urls = paths.iter().map(|path| url(path)).collect::<Result<Vec<_>>>()?;
    // The names are given one by one, whatever they end in.
    let options = ListingOptions::new(format).with_file_extension("");
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options).with_schema(schema);
    Ok(Arc::new(ListingTable::try_new(config)?))
}

fn url(path: &Path) -> Result<ListingTableUrl> {
    let absolute = std::path::absolute(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    // Not parsed from the text, in which a bracket would begin a pattern.
    let url = Url::from_file_path(&absolute).map_err(|()| Error::Internal(format!("no URL for {}", absolute.display())))?;
    Ok(ListingTableUrl::try_new(url, None)?)
}

fn parquet_schema(path: &Path) -> Result<SchemaRef> {
    let metadata = ArrowReaderMetadata::load(&open(path)?, ArrowReaderOptions::default()).map_err(|error| bad_input(path, None, error))?;
    Ok(Arc::clone(metadata.schema()))
}

/// Of the file format; or of the stream format, in which datasets' caches are written.
fn arrow_schema(path: &Path) -> Result<SchemaRef> {
    if let Ok(reader) = FileReader::try_new(open(path)?, None) {
        return Ok(reader.schema());
    }
    let reader: StreamReader<std::io::BufReader<File>> =
        StreamReader::try_new_buffered(open(path)?, None).map_err(|error| bad_input(path, None, error))?;
    Ok(reader.schema())
}

/// As the engine computes: views, large offsets and dictionaries are how a file is laid out, not what a column is.
fn plain_field(field: &FieldRef) -> FieldRef {
    Arc::new(Field::new(field.name(), plain_type(field.data_type()), true))
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item) => {
            DataType::List(Arc::new(Field::new("item", plain_type(item.data_type()), true)))
        }
        other => other.clone(),
    }
}
