//! Catalog tables whose rows are corrected as they are read.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Int32Array, RecordBatch, StringArray, UInt32Array};
use datafusion::arrow::compute::{cast, concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int32Type, SchemaRef};
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use pgwire::api::Type;
use rolloutdb_udfs::TextType;

use super::super::columns::column_wire_type;
use super::tables::{Reader, read_all};
use super::{VECTOR_OID, internal};

/// Postgres' "no modifier" in `atttypmod`.
const NO_MODIFIER: i32 = -1;

/// A table of the library and what is wrong with it.
#[derive(Debug)]
pub(super) struct Amended {
    pub(super) inner: Arc<dyn TableProvider>,
    pub(super) amendment: Amendment,
    pub(super) reader: Reader,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Amendment {
    /// `pg_attribute`: columns of arrays and vectors have no type there but text.
    Attributes,
    /// `pg_class`: right, but reading it is when visibility is noted.
    Classes,
    /// `pg_type`: lacks `vector`.
    Types,
}

#[async_trait]
impl TableProvider for Amended {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        self.inner.table_type()
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = read_all(&self.inner, session, session.task_ctx()).await?;
        let batch = match self.amendment {
            Amendment::Attributes => with_column_types(batch, &self.reader).await?,
            Amendment::Types => with_vector_type(&batch)?,
            Amendment::Classes => {
                self.reader.note_visibility(&batch).await?;
                batch
            }
        };
        MemTable::try_new(self.schema(), vec![vec![batch]])?.scan(session, projection, filters, limit).await
    }
}

pub(super) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| internal(format!("a catalog table has no column {name}")))
}

async fn with_column_types(batch: RecordBatch, reader: &Reader) -> Result<RecordBatch> {
    let fields = reader.fields().await?;
    let tables = column(&batch, "attrelid")?.as_primitive::<Int32Type>();
    let names = column(&batch, "attname")?.as_string::<i32>();
    let types = column(&batch, "atttypid")?.as_primitive::<Int32Type>();
    let modifiers = column(&batch, "atttypmod")?.as_primitive::<Int32Type>();
    let dimensions = column(&batch, "attndims")?.as_primitive::<Int32Type>();
    let described = (0..batch.num_rows()).map(|row| {
        let field = fields.get(&tables.value(row)).and_then(|fields| fields.get(names.value(row)));
        field.map_or((types.value(row), modifiers.value(row), dimensions.value(row)), column_type)
    });
    let described = described.collect::<Vec<_>>();
    let new_types = Int32Array::from_iter_values(described.iter().map(|row| row.0));
    let new_modifiers = Int32Array::from_iter_values(described.iter().map(|row| row.1));
    let new_dimensions = Int32Array::from_iter_values(described.iter().map(|row| row.2));
    let batch = replace(batch, "atttypid", Arc::new(new_types))?;
    let batch = replace(batch, "atttypmod", Arc::new(new_modifiers))?;
    replace(batch, "attndims", Arc::new(new_dimensions))
}

/// `atttypid`, `atttypmod` and `attndims` of a column.
fn column_type(field: &FieldRef) -> (i32, i32, i32) {
    match field.data_type() {
        DataType::FixedSizeList(element, width) if element.data_type().is_floating() => (VECTOR_OID, *width, 0),
        DataType::Decimal128(precision, scale) => (oid(&Type::NUMERIC), numeric_modifier(*precision, *scale), 0),
        _ => {
            let pg_type = column_wire_type(field);
            let length = TextType::of(field).and_then(TextType::length);
            (oid(&pg_type), length.map_or(NO_MODIFIER, length_modifier), i32::from(pg_type.name().starts_with('_')))
        }
    }
}

/// The n of `varchar(n)`, after the four bytes of a header that Postgres counts in.
fn length_modifier(length: u32) -> i32 {
    i32::try_from(length).map_or(NO_MODIFIER, |length| length + 4)
}

/// Precision and scale packed as `numeric(p, s)` has them, after the four bytes of a header that Postgres counts in.
fn numeric_modifier(precision: u8, scale: i8) -> i32 {
    const HEADER: i32 = 4;
    ((i32::from(precision) << 16) | i32::from(scale)) + HEADER
}

fn oid(pg_type: &Type) -> i32 {
    // Object ids of built-in types are small; the cast is exact.
    pg_type.oid() as i32
}

/// `pg_type` with a row for `vector`: that of `text` with another name and no array type.
fn with_vector_type(batch: &RecordBatch) -> Result<RecordBatch> {
    let names = column(batch, "typname")?.as_string::<i32>();
    let text = (0..batch.num_rows()).find(|row| names.value(*row) == "text").ok_or_else(|| internal("pg_type has no text"))?;
    let mut row = take_record_batch(batch, &UInt32Array::from(vec![text as u32]))?;
    let values: [(&str, ArrayRef); 5] = [
        ("oid", Arc::new(Int32Array::from(vec![VECTOR_OID]))),
        ("typname", Arc::new(StringArray::from(vec!["vector"]))),
        ("typcategory", Arc::new(StringArray::from(vec!["U"]))),
        ("typispreferred", Arc::new(BooleanArray::from(vec![false]))),
        ("typarray", Arc::new(Int32Array::from(vec![0]))),
    ];
    for (name, value) in values {
        row = replace(row, name, value)?;
    }
    Ok(concat_batches(&batch.schema(), [batch, &row])?)
}

/// The batch with other values in one column, of that column's type.
fn replace(batch: RecordBatch, name: &str, values: ArrayRef) -> Result<RecordBatch> {
    let schema = batch.schema();
    let index = schema.index_of(name)?;
    let mut columns = batch.columns().to_vec();
    columns[index] = cast(&values, schema.field(index).data_type())?;
    Ok(RecordBatch::try_new(schema, columns)?)
}
