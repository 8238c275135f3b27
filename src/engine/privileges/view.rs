//! `rollout.privileges`: a row for each privilege that somebody has on an object, the owner's among them.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use rolloutdb_sql::Privilege;

use super::acl::{Grant, role_name};
use super::{Object, Privileges, Rights};
use crate::error::Result;

pub fn schema() -> SchemaRef {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    Arc::new(Schema::new(vec![
        text("kind", false),
        text("schema_name", true),
        text("name", false),
        text("owner", false),
        text("grantee", false),
        text("grantor", false),
        text("privilege", false),
        Field::new("is_grantable", DataType::Boolean, false),
    ]))
}

/// Its owner, and what somebody may do with it.
type Found = (Object, String, Grant, Privilege);

/// `superuser`: whom belongs what has no owner.
///
/// # Errors
/// [`crate::Error::DataFusion`].
pub fn rows(privileges: &Privileges, superuser: &str) -> Result<RecordBatch> {
    let mut found: Vec<Found> = Vec::new();
    for (object, acl) in privileges.list() {
        let owner = acl.owner.clone().unwrap_or_else(|| superuser.to_owned());
        let own = Grant { grantee: owner.clone(), grantor: owner.clone(), rights: Rights::all(&object) };
        for grant in std::iter::once(own).chain(acl.grants(&object)) {
            for privilege in object.privileges().iter().filter(|privilege| grant.rights.has(**privilege)) {
                found.push((object.clone(), owner.clone(), grant.clone(), *privilege));
            }
        }
    }
    let texts = |read: &dyn Fn(&Found) -> String| -> ArrayRef { Arc::new(StringArray::from_iter_values(found.iter().map(read))) };
    let schemas = found.iter().map(|(object, ..)| match object {
        Object::Table { schema, .. } => Some(schema.clone()),
        _ => None,
    });
    // The owner may always grant.
    let is_grantable = |(_, owner, grant, privilege): &(Object, String, Grant, Privilege)| {
        Some(grant.grantee == *owner || grant.rights.may_grant(*privilege))
    };
    let grantor = |grant: &Grant| if grant.grantor.is_empty() { superuser.to_owned() } else { grant.grantor.clone() };
    let columns: Vec<ArrayRef> = vec![
        texts(&|row| row.0.kind().to_owned()),
        Arc::new(schemas.collect::<StringArray>()),
        texts(&|row| row.0.name().to_owned()),
        texts(&|row| row.1.clone()),
        texts(&|row| role_name(&row.2.grantee).to_owned()),
        texts(&|row| grantor(&row.2)),
        texts(&|row| row.3.to_string()),
        Arc::new(found.iter().map(is_grantable).collect::<BooleanArray>()),
    ];
    Ok(RecordBatch::try_new(schema(), columns).map_err(DataFusionError::from)?)
}
