//! Which rule of a table a statement broke, in the fields of an error that clients read: they tell a duplicate key from a missing value by them.

use std::error::Error as StdError;

use pgwire::error::ErrorInfo;
use rolloutdb_catalogs::Error as CatalogError;

use crate::error::Error;

/// Names the table, the column and the constraint, if the error is about one.
pub(super) fn name_rule(info: &mut ErrorInfo, error: &Error) {
    match broken(error) {
        Some(CatalogError::NotNull { table, column } | CatalogError::NullElement { table, column }) => {
            info.table = Some(table.clone());
            info.column = Some(column.clone());
        }
        Some(CatalogError::UniqueViolation { schema, table, key, constraint }) => {
            info.schema = Some(schema.clone());
            info.table = Some(table.clone());
            info.constraint = Some(constraint.clone());
            info.detail = Some(format!("Key {key} already exists."));
        }
        Some(CatalogError::DuplicateKey { schema, table, key, constraint }) => {
            info.schema = Some(schema.clone());
            info.table = Some(table.clone());
            info.constraint = Some(constraint.clone());
            info.detail = Some(format!("Key {key} is duplicated."));
        }
        _ => {}
    }
}

/// The catalog's error, which crosses DataFusion inside its external variants.
fn broken(error: &Error) -> Option<&CatalogError> {
    match error {
        Error::Catalog(error) => Some(error),
        Error::DataFusion(error) => {
            let mut next: Option<&(dyn StdError + 'static)> = Some(error);
            while let Some(error) = next {
                if let Some(found) = error.downcast_ref::<CatalogError>() {
                    return Some(found);
                }
                if let Some(ours) = error.downcast_ref::<Error>() {
                    return broken(ours);
                }
                next = error.source();
            }
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::error::DataFusionError;

    use super::*;

    #[test]
    fn a_duplicate_key_names_its_constraint_through_the_planner() {
        let duplicate = || CatalogError::UniqueViolation {
            schema: "s".to_owned(),
            table: "t".to_owned(),
            key: "(id)=(1)".to_owned(),
            constraint: "t_pkey".to_owned(),
        };
        let within = Error::from(DataFusionError::External(Box::new(Error::Catalog(duplicate()))).context("while writing"));
        for error in [Error::Catalog(duplicate()), within] {
            let mut info = ErrorInfo::default();
            name_rule(&mut info, &error);
            assert_eq!(info.schema.as_deref(), Some("s"));
            assert_eq!((info.table.as_deref(), info.constraint.as_deref(), info.column), (Some("t"), Some("t_pkey"), None));
            assert_eq!(info.detail.as_deref(), Some("Key (id)=(1) already exists."));
        }
    }
}
