//! Schemas of sessions: nothing of them is synced, listed with the others, or left.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::CatalogProvider;

use super::fixture::Fixture;
use crate::{Error, ObjectKey, TableDefinition, is_temporary_schema, temporary_schema};

fn definition() -> TableDefinition {
    TableDefinition::new(&Schema::new(vec![Field::new("id", DataType::Int64, true)])).expect("a definition")
}

#[test]
fn names_of_such_schemas() {
    assert!(is_temporary_schema(&temporary_schema(7)));
    for name in ["pg_temp", "pg_temp_", "pg_temp_x", "pg_temp_1x", "public", "a.pg_temp_1"] {
        assert!(!is_temporary_schema(name), "{name}");
    }
}

#[tokio::test]
async fn it_goes_with_all_that_is_in_it() {
    let fixture = Fixture::new().await;
    let (catalog, name) = (&fixture.catalog, temporary_schema(3));
    catalog.create_temporary_schema(3).expect("it is made");
    catalog.create_temporary_schema(3).expect("it is there");
    let commits = catalog.storage().durability().num_commits();
    let table = catalog.create_table(&name, "t", definition(), false).await.expect("a table");
    assert_eq!(catalog.storage().durability().num_commits(), commits, "it is not synced");
    fixture.create("t", definition()).await;
    assert!(catalog.storage().durability().num_commits() > commits, "the other is");
    let all: Vec<String> = catalog.all_tables().await.expect("they open").iter().map(|table| table.schema_name().to_owned()).collect();
    assert_eq!(all, ["public"]);
    assert!(matches!(catalog.drop_schema(&name), Err(Error::NotSupported(_))));
    let folder = fixture.path().join(".temporary").join(&name);
    assert!(folder.join("t.lance").exists());

    let number = catalog.object_numbers(&[ObjectKey::relation(&name, "t")]).expect("a number");
    catalog.remove_temporary_schema(3);
    catalog.remove_temporary_schema(3);
    assert!(!folder.exists());
    assert!(!catalog.schema_names().contains(&name));
    assert!(matches!(catalog.table(&name, "t").await, Err(Error::UnknownSchema { .. })));
    assert!(!table.is_latest().await.unwrap_or(false), "a statement that has it open is told");
    assert_ne!(catalog.object_numbers(&[ObjectKey::relation(&name, "t")]).expect("a number"), number);
}

#[tokio::test]
async fn what_a_killed_process_leaves_goes_when_the_directory_is_opened() {
    let fixture = Fixture::new().await;
    let name = temporary_schema(1);
    fixture.catalog.create_temporary_schema(1).expect("it is made");
    fixture.catalog.create_table(&name, "t", definition(), false).await.expect("a table");
    let keys = [ObjectKey::relation(&name, "t"), ObjectKey::schema("public")];
    let numbers = fixture.catalog.object_numbers(&keys).expect("numbers");
    // Nobody has removed it.
    let fixture = fixture.restart().await;
    assert!(!fixture.path().join(".temporary").exists());
    assert!(!fixture.catalog.schema_names().contains(&name));
    let after = fixture.catalog.object_numbers(&keys).expect("numbers");
    assert!(after[0] != numbers[0] && after[1] == numbers[1], "{numbers:?} {after:?}");
    fixture.catalog.create_temporary_schema(1).expect("another session has the number");
    assert_eq!(fixture.catalog.tables(&name).expect("it is there"), Vec::<String>::new());
}
