//! Columns of results as clients see them: their types, and their values in text or binary form.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Field;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::error::PgWireResult;
use rolloutdb_udfs::postgres::{Column, ValueType};

use super::binary;
use super::response::client_error;
use super::wire_type::{modifier, size, wire_type};
use crate::engine::Origin;

/// One column of a result.
pub(super) struct WireColumn {
    field: FieldInfo,
    value_type: ValueType,
}

impl WireColumn {
    pub(super) fn new(field: &Field, format: FieldFormat) -> Self {
        let value_type = ValueType::of(field);
        let origin = Origin::of(field);
        let table = origin.map(|origin| origin.table.cast_signed());
        let info = FieldInfo::new(field.name().clone(), table, origin.map(|origin| origin.column), wire_type(&value_type), format);
        Self { field: info.with_type_size(size(&value_type)).with_type_modifier(modifier(&value_type)), value_type }
    }

    pub(super) fn field(&self) -> &FieldInfo {
        &self.field
    }

    /// The column of one batch, ready to be written.
    ///
    /// # Errors
    /// A value that its PostgreSQL type cannot hold (22003).
    pub(super) fn prepare(&self, array: &ArrayRef) -> PgWireResult<PreparedColumn> {
        let column = Column::new(&self.value_type, array).map_err(|error| {
            client_error("22003", format!("column \"{}\" has a value that does not fit its type: {error}", self.field.name()))
        })?;
        Ok(PreparedColumn { column, format: self.field.format() })
    }
}

/// A column of one batch whose values can be written.
pub(super) struct PreparedColumn {
    column: Column,
    format: FieldFormat,
}

impl PreparedColumn {
    /// Whether it has arrays or records whose texts may be long.
    pub(super) fn may_be_long(&self) -> bool {
        self.format == FieldFormat::Text && self.column.may_be_long()
    }

    /// The bytes of the text of a row's array or record.
    pub(super) fn nested_text_bytes(&self, row: usize) -> usize {
        usize::try_from(self.column.nested_text_bytes(row)).unwrap_or(usize::MAX)
    }

    /// Writes the value of a row behind its length, as `DataRow` has it.
    ///
    /// # Errors
    /// As [`binary::write`].
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> PgWireResult<()> {
        match self.format {
            FieldFormat::Binary => binary::write_sized(&self.column, row, out),
            FieldFormat::Text => binary::sized(&self.column, row, out, |out| {
                self.column.write_text(row, out);
                Ok(())
            }),
        }
    }
}
