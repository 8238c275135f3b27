//! Tables and views as the catalog lists them, on the way from what is stored to a relation with its numbers.

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::catalog::TableProvider;
use datafusion::logical_expr::TableType;
use rolloutdb_catalogs::{Commented, IndexDefinition, ObjectKey, Table, TableDefinition, View, system};

use super::snapshot::{Column, Constraint, Index, NOT_KNOWN, Relation, RelationKind, SchemaEntry, Sequence};
use super::types::column_type;
use super::view_columns;

/// A table or a view as it was read: numbers are given to all at once, since each time the register is written.
pub struct Draft<'s> {
    schema: &'s SchemaEntry,
    name: String,
    provider: Option<Arc<dyn TableProvider>>,
    /// With their bytes.
    indexes: Vec<(IndexDefinition, u64)>,
    num_rows: f64,
}

impl<'s> Draft<'s> {
    /// What cannot be read of a table is not known: its columns are there all the same, and those of all others.
    pub async fn read(schema: &'s SchemaEntry, name: String, provider: Option<Arc<dyn TableProvider>>) -> Self {
        let mut draft = Self { schema, name, provider, indexes: Vec::new(), num_rows: NOT_KNOWN };
        let Some(table) = draft.table() else { return draft };
        let indexes = table.described_indexes().await.ok();
        let count = table.row_count().await.ok();
        if let Some((indexes, count)) = indexes.zip(count) {
            (draft.indexes, draft.num_rows) = (indexes, count as f64);
        }
        draft
    }

    fn table(&self) -> Option<&Table> {
        let provider = self.provider.as_ref()?;
        (provider.as_ref() as &dyn Any).downcast_ref::<Table>()
    }

    /// In the order in which [`Self::relation`] takes their numbers.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let (schema, name) = (self.schema.name.as_str(), self.name.as_str());
        let mut keys = vec![ObjectKey::relation(schema, name)];
        let Some(table) = self.table() else { return keys };
        let definition = table.definition();
        keys.extend(self.indexes.iter().map(|(index, _)| ObjectKey::index(schema, name, &index.name)));
        for constraint in definition.constraint_names(name) {
            keys.push(ObjectKey::constraint(schema, name, &constraint));
            keys.push(ObjectKey::index(schema, name, &constraint));
        }
        let numbered = definition.schema.fields().iter().filter(|field| has_number(definition, field.name()));
        keys.extend(numbered.map(|field| ObjectKey::default(schema, name, field.name())));
        keys
    }

    pub fn relation(&self, numbers: &mut impl Iterator<Item = u32>) -> Relation {
        let empty = Relation {
            oid: number(numbers),
            schema: self.schema.name.clone(),
            schema_oid: self.schema.oid,
            name: self.name.clone(),
            kind: RelationKind::Table,
            columns: vec![],
            constraints: vec![],
            indexes: vec![],
            num_rows: NOT_KNOWN,
            bytes: 0,
            comment: None,
        };
        match (self.table(), &self.provider) {
            (Some(table), _) => self.stored_table(table, empty, numbers),
            (None, Some(provider)) => computed_table(provider, empty),
            (None, None) => empty,
        }
    }

    fn stored_table(&self, table: &Table, empty: Relation, numbers: &mut impl Iterator<Item = u32>) -> Relation {
        let definition = table.definition();
        let fields = definition.schema.fields();
        let number_of = |column: &String| fields.iter().position(|field| field.name() == column).map_or(0, |position| position as i64 + 1);
        let index = |(index, bytes): &(IndexDefinition, u64)| Index {
            oid: number(numbers),
            column: number_of(&index.column),
            comment: table.comment(Commented::Index(&index.name)).map(str::to_owned),
            definition: index.clone(),
            bytes: *bytes,
        };
        let indexes = self.indexes.iter().map(index).collect();
        let constraints = definition.unique_constraints().zip(definition.constraint_names(&self.name));
        let constraints = constraints.map(|((columns, is_primary), name)| Constraint {
            oid: number(numbers),
            index_oid: number(numbers),
            name,
            columns: columns.iter().map(number_of).collect(),
            is_primary,
        });
        let constraints = constraints.collect();
        let column = |field: &FieldRef| {
            let (pg_type, modifier) = column_type(field);
            let oid = if has_number(definition, field.name()) { number(numbers) } else { 0 };
            let generated = definition.generated.get(field.name());
            let expression = generated.or_else(|| definition.defaults.get(field.name()));
            let identity = definition.identity.get(field.name()).copied();
            Column {
                name: field.name().clone(),
                pg_type,
                modifier,
                not_null: !field.is_nullable(),
                expression: expression.map(|expression| (oid, expression.clone())),
                is_generated: generated.is_some(),
                identity,
                sequence: identity.map(|_| Sequence { oid, name: format!("{}_{}_seq", self.name, field.name()) }),
                // What somebody says of a column of the system's goes before what comes with it.
                comment: table.comment(Commented::Column(field.name())).or_else(|| system::description(field)).map(str::to_owned),
            }
        };
        let columns = fields.iter().map(column).collect();
        let comment = table.comment(Commented::Table).map(str::to_owned);
        Relation { columns, constraints, indexes, num_rows: self.num_rows, bytes: table.data_bytes(), comment, ..empty }
    }
}

/// Whether a column has a default, an expression or a sequence, which clients know by a number.
fn has_number(definition: &TableDefinition, column: &str) -> bool {
    definition.generated.contains_key(column) || definition.defaults.contains_key(column) || definition.identity.contains_key(column)
}

fn number(numbers: &mut impl Iterator<Item = u32>) -> u32 {
    numbers.next().expect("each object has a key")
}

/// A view, or a table that is computed when it is read.
fn computed_table(provider: &Arc<dyn TableProvider>, empty: Relation) -> Relation {
    let view = View::of(provider.as_ref());
    let column = |field: &FieldRef| {
        let (pg_type, modifier) = column_type(field);
        let comment = view.and_then(|view| view.comment(Some(field.name())));
        let comment = comment.or_else(|| view_columns::description(&empty.schema, &empty.name, field.name())).map(str::to_owned);
        Column {
            name: field.name().clone(),
            pg_type,
            modifier,
            not_null: false,
            expression: None,
            is_generated: false,
            identity: None,
            sequence: None,
            comment,
        }
    };
    let kind = match view {
        Some(view) => RelationKind::View(view.query().to_owned()),
        None if provider.table_type() == TableType::Base => RelationKind::Table,
        None => RelationKind::System,
    };
    let columns = provider.schema().fields().iter().map(column).collect();
    let comment = view.and_then(|view| view.comment(None).map(str::to_owned));
    Relation { kind, columns, comment, ..empty }
}
