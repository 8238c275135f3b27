//! Columns that are added to rows that are there.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use super::fixture::{Fixture, append, texts, texts_definition};
use crate::{Error, TableDefinition};

/// The definition with one more column of numbers, which is UNIQUE.
fn with_unique_column(definition: &TableDefinition, column: &str) -> TableDefinition {
    let mut wider = definition.clone();
    let mut fields: Vec<Field> = definition.schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    fields.push(Field::new(column, DataType::Int64, true));
    wider.schema = Arc::new(Schema::new(fields));
    wider.with_constraint("t", None, false, &[column]).expect("no other constraint has its name")
}

fn row(id: &str, numbers: &[i64]) -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> =
        vec![("id".to_owned(), Arc::new(StringArray::from(vec![id]))), ("contents".to_owned(), Arc::new(StringArray::from(vec!["new"])))];
    let number = |number: &i64| -> ArrayRef { Arc::new(Int64Array::from(vec![*number])) };
    columns.extend(numbers.iter().enumerate().map(|(position, value)| (format!("n{position}"), number(value))));
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

/// A kill between two commits would leave the column without its constraint.
#[tokio::test]
async fn a_unique_column_and_its_constraint_are_one_commit() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("1")), ("b", None)])).await.unwrap();
    let wider = with_unique_column(table.definition(), "c");
    let commits = fixture.catalog.storage().durability().num_commits();
    table.begin_alter().await.unwrap().add_column(&wider, None).await.unwrap();
    assert_eq!(fixture.catalog.storage().durability().num_commits(), commits + 1);
    assert_eq!(table.latest().await.unwrap().definition(), &wider);
    drop(table);

    let fixture = fixture.restart().await;
    let table = fixture.catalog.table("public", "t").await.unwrap();
    assert_eq!(table.definition(), &wider);
    append(&table, row("c", &[7])).await.unwrap();
    let taken = append(&table, row("d", &[7])).await.unwrap_err();
    assert!(matches!(&taken, Error::UniqueViolation { constraint, .. } if constraint == "t_c_key"), "{taken}");

    // A second one, and a change that writes the constraints as a whole.
    let widest = with_unique_column(table.definition(), "d");
    table.begin_alter().await.unwrap().add_column(&widest, None).await.unwrap();
    let renamed = widest.renaming("c", "first", None).unwrap();
    let order: Vec<String> = ["id", "contents", "c", "d"].map(str::to_owned).to_vec();
    table.begin_alter().await.unwrap().redefine(&renamed, &order).await.unwrap();
    let table = table.latest().await.unwrap();
    assert_eq!(table.definition(), &renamed);
    assert_eq!(table.definition().constraint_names("t"), ["t_pkey", "t_c_key", "t_d_key"]);
    assert!(matches!(append(&table, row("d", &[7, 1])).await, Err(Error::UniqueViolation { .. })));
    append(&table, row("d", &[8, 1])).await.unwrap();
}
