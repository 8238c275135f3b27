//! Names, restarts, the lock, what a crash leaves.

use std::fs;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{CatalogProvider, SchemaProvider};
use datafusion::datasource::empty::EmptyTable;
use std::sync::Arc;

use super::fixture::{Fixture, append, by_words, passages, passages_definition, texts, texts_definition};
use super::index::index;
use crate::{Catalog, Error, IndexKind, TableDefinition, names, system};

#[tokio::test]
async fn a_table_survives_a_restart_with_its_definition() {
    let fixture = Fixture::new().await;
    let definition = passages_definition(2)
        .with_generated("embedding", "embed('minilm', id)")
        .and_then(|table| table.with_default("number", "7"))
        .expect("columns exist");
    let table = fixture.create("wiki", definition.clone()).await;
    assert_eq!(table.row_count().await.unwrap(), 0);
    append(&table, passages(&[1, 2], &[vec![1.0, 0.0], vec![0.0, 1.0]])).await.unwrap();
    drop(table);

    let fixture = fixture.restart().await;
    let table = fixture.catalog.table("public", "wiki").await.unwrap();
    assert_eq!(table.definition(), &definition);
    assert_eq!(table.definition().primary_key, ["id"]);
    assert_eq!(table.row_count().await.unwrap(), 2);
    assert_eq!(fixture.query("SELECT id, number, embedding FROM wiki ORDER BY id").await, ["p1|1|[1.0, 0.0]", "p2|2|[0.0, 1.0]"]);
    assert_eq!(fixture.query("SELECT count(*) FROM wiki").await, ["2"]);
}

#[tokio::test]
async fn only_one_process_owns_a_directory() {
    let fixture = Fixture::new().await;
    let second = Catalog::open(fixture.path()).await;
    let Err(Error::Locked { directory, process }) = second else { panic!("expected the lock, got {second:?}") };
    assert_eq!(process, Some(std::process::id()));
    assert_eq!(directory, fixture.path().canonicalize().unwrap());
    fixture.restart().await;
}

#[tokio::test]
async fn dropping_removes_the_files_and_the_name_is_free_for_another_shape() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("x"))])).await.unwrap();
    fixture.catalog.drop_table("public", "t").await.unwrap();
    assert!(!fixture.path().join("public/t.lance").exists());
    assert_eq!(fs::read_dir(fixture.path().join("public")).unwrap().count(), 0);
    assert!(matches!(fixture.catalog.drop_table("public", "t").await, Err(Error::UnknownTable { .. })));
    // A write through a handle from before the drop finds no table.
    assert!(matches!(append(&table, texts(&[("b", None)])).await, Err(Error::UnknownTable { .. })));

    let table = fixture.create("t", passages_definition(2)).await;
    append(&table, passages(&[5], &[vec![0.5, 0.5]])).await.unwrap();
    assert_eq!(fixture.query("SELECT * FROM t").await, ["p5|5|[0.5, 0.5]"]);
}

#[tokio::test]
async fn unknown_and_duplicate_names() {
    let fixture = Fixture::new().await;
    fixture.create("passages", texts_definition()).await;
    let unknown = fixture.catalog.table("public", "pasages").await.unwrap_err();
    assert_eq!(unknown.to_string(), "unknown table \"pasages\"; did you mean \"passages\"?");
    let duplicate = fixture.catalog.create_table("public", "passages", texts_definition(), false).await;
    assert!(matches!(duplicate, Err(Error::DuplicateTable { .. })));
    let same = fixture.catalog.create_table("public", "passages", passages_definition(2), true).await.unwrap();
    assert_eq!(same.definition(), &texts_definition());
    assert!(matches!(fixture.catalog.table("pubic", "t").await, Err(Error::UnknownSchema { .. })));
}

#[tokio::test]
async fn any_name_is_a_table_inside_the_directory() {
    let fixture = Fixture::new().await;
    let odd = ["../up", "a/b", "Wiki", "wiki", ".hidden", "über \"x\"", "50%25", "=41", "CON.txt", "x.lance"];
    for name in odd {
        let table = fixture.create(name, texts_definition()).await;
        append(&table, texts(&[("id", Some(name))])).await.unwrap();
    }
    let fixture = fixture.restart().await;
    let mut expected: Vec<String> = odd.iter().map(|name| (*name).to_owned()).collect();
    expected.sort();
    assert_eq!(fixture.catalog.tables("public").unwrap(), expected);
    for name in odd {
        let quoted = name.replace('"', "\"\"");
        assert_eq!(fixture.query(&format!("SELECT contents FROM \"{quoted}\"")).await, [name]);
    }
    assert_eq!(fs::read_dir(fixture.path()).unwrap().count(), 3, "LOCK, public, rollout");
    for name in ["", &"x".repeat(81)] {
        let made = fixture.catalog.create_table("public", name, texts_definition(), false).await;
        assert!(matches!(made, Err(Error::InvalidName { .. })), "{name}");
    }
}

#[test]
fn directories_and_names_are_one_to_one() {
    for name in ["a", "A_b-9", "é", "a b", "=", "%"] {
        let directory = names::to_directory("table", name).unwrap();
        assert_eq!(names::from_directory(&directory).as_deref(), Some(name));
    }
    for directory in ["=4", "=61", "a b", "=ZZ", "=FF", ""] {
        assert_eq!(names::from_directory(directory), None, "{directory}");
    }
}

#[tokio::test]
async fn a_root_with_odd_signs_works() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("my data %41 #1 ü?");
    let catalog = Catalog::open(&root).await.unwrap();
    let table = catalog.create_table("public", "t", texts_definition(), false).await.unwrap();
    append(&table, texts(&[("a", None)])).await.unwrap();
    assert!(root.join("public/t.lance").is_dir());
    drop((catalog, table));
    let catalog = Catalog::open(&root).await.unwrap();
    assert_eq!(catalog.table("public", "t").await.unwrap().row_count().await.unwrap(), 1);
}

#[tokio::test]
async fn what_a_crash_left_is_invisible_and_goes_away() {
    let fixture = Fixture::new().await;
    fixture.create("kept", texts_definition()).await;
    let public = fixture.path().join("public");
    fs::create_dir_all(public.join(".tmp-1-0.lance/_versions")).unwrap();
    fs::create_dir_all(public.join("notes")).unwrap();
    let fixture = fixture.restart().await;
    assert_eq!(fixture.catalog.tables("public").unwrap(), ["kept"]);
    assert_eq!(folders(&public), ["kept.lance", "notes"], "only what is known to be ours is removed");
}

#[tokio::test]
async fn a_table_without_its_versions_keeps_its_data_files() {
    let fixture = Fixture::new().await;
    let public = fixture.path().join("public");
    fs::create_dir_all(public.join("lost.lance/data")).unwrap();
    fs::write(public.join("lost.lance/data/x.lance"), "no manifest names this").unwrap();
    let fixture = fixture.restart().await;
    assert!(public.join("lost.lance/data/x.lance").exists(), "opening a database removes no data");
    let lost = fixture.catalog.table("public", "lost").await;
    assert!(matches!(lost, Err(Error::Damaged { .. })), "{lost:?}");
    fixture.catalog.drop_table("public", "lost").await.unwrap();
    assert_eq!(folders(&public), [""; 0]);
}

fn folders(directory: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_table_that_lost_its_files_is_damaged_and_the_others_live() {
    let fixture = Fixture::new().await;
    let table = fixture.create("broken", texts_definition()).await;
    append(&table, texts(&[("a", Some("x"))])).await.unwrap();
    fixture.create("fine", texts_definition()).await;
    drop(table);
    let versions = fixture.path().join("public/broken.lance/_versions");
    let fixture = {
        for manifest in fs::read_dir(versions).unwrap() {
            fs::write(manifest.unwrap().path(), "").unwrap();
        }
        fixture.restart().await
    };
    let broken = fixture.catalog.table("public", "broken").await;
    assert!(matches!(broken, Err(Error::Damaged { .. })), "{broken:?}");
    assert_eq!(fixture.query("SELECT count(*) FROM fine").await, ["0"]);
    fixture.catalog.drop_table("public", "broken").await.unwrap();
}

#[tokio::test]
async fn virtual_tables_are_listed_and_stay() {
    let fixture = Fixture::new().await;
    let schema = Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, false)]));
    let models = Arc::new(EmptyTable::new(schema));
    fixture.catalog.register_virtual("rollout", "models", models).unwrap();
    assert_eq!(fixture.catalog.tables("rollout").unwrap(), ["models"]);
    assert_eq!(fixture.query("SELECT count(*) FROM rollout.models").await, ["0"]);
    let dropped = fixture.catalog.drop_table("rollout", "models").await;
    assert!(matches!(dropped, Err(Error::NotSupported(_))));
    let made = fixture.catalog.create_table("rollout", "models", texts_definition(), false).await;
    assert!(matches!(made, Err(Error::DuplicateTable { .. })));
}

#[tokio::test]
async fn system_tables_are_made_once_and_stay() {
    let fixture = Fixture::new().await;
    fixture.catalog.create_system_tables().await.unwrap();
    let fixture = fixture.restart().await;
    fixture.catalog.create_system_tables().await.unwrap();
    let names: Vec<String> = system::tables().iter().map(|table| table.name.to_owned()).collect();
    assert_eq!(fixture.catalog.tables("rollout").unwrap(), names);
    for table in system::tables() {
        let stored = fixture.catalog.table("rollout", table.name).await.unwrap();
        assert_eq!(stored.definition(), &(table.definition)());
        for field in stored.definition().schema.fields() {
            assert!(system::description(field).is_some_and(|sentence| sentence.ends_with('.')), "{field}");
        }
        assert!(fixture.catalog.drop_table("rollout", table.name).await.is_err());
    }
    let nodes = fixture.create("run1", system::node_definition()).await;
    assert_eq!(nodes.definition().schema.fields().len(), 34);
}

/// The table that versions of this program without `run` have made, with these rows of model and version.
async fn older_metrics(fixture: &Fixture, rows: &[(&str, i32)]) {
    let column = |name: &str, data_type: DataType| Field::new(name, data_type, false);
    let columns = [
        column("model", DataType::Utf8),
        column("version", DataType::Int32),
        column("method", DataType::Utf8),
        column("step", DataType::Int32),
        column("metric", DataType::Utf8),
        column("value", DataType::Float64),
        column("at_ms", DataType::Int64),
    ];
    let definition = TableDefinition::new(&Schema::new(columns.to_vec())).unwrap();
    let definition = definition.with_primary_key(&["model", "version", "step", "metric"]).unwrap();
    let table = fixture.catalog.create_table(system::SYSTEM_SCHEMA, "training_metrics", definition.clone(), false).await.unwrap();
    if rows.is_empty() {
        return;
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|(model, _)| model))),
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|(_, version)| *version))),
        Arc::new(StringArray::from(vec!["sft"; rows.len()])),
        Arc::new(Int32Array::from(vec![1; rows.len()])),
        Arc::new(StringArray::from(vec!["loss"; rows.len()])),
        Arc::new(Float64Array::from(vec![0.5; rows.len()])),
        Arc::new(Int64Array::from(vec![7; rows.len()])),
    ];
    append(&table, RecordBatch::try_new(definition.schema, columns).unwrap()).await.unwrap();
}

#[tokio::test]
async fn metrics_of_an_older_version_get_runs() {
    for rows in [vec![("a", 1), ("a", 2), ("b", 1)], vec![]] {
        let fixture = Fixture::new().await;
        older_metrics(&fixture, &rows).await;
        let fixture = fixture.restart().await;
        fixture.catalog.create_system_tables().await.unwrap();
        assert_eq!(fixture.catalog.take_warnings(), Vec::<String>::new());
        let wanted = system::tables().into_iter().find(|table| table.name == "training_metrics").unwrap();
        let table = fixture.catalog.table(system::SYSTEM_SCHEMA, "training_metrics").await.unwrap();
        assert_eq!(table.definition(), &(wanted.definition)());
        let found = fixture.query("SELECT model, version, value, run FROM rollout.training_metrics ORDER BY run").await;
        let expected: Vec<String> = rows.iter().map(|(model, version)| format!("{model}|{version}|0.5|{model}@{version}")).collect();
        assert_eq!(found, expected);
        let version = table.version();
        drop(table);
        let fixture = fixture.restart().await;
        fixture.catalog.create_system_tables().await.unwrap();
        let table = fixture.catalog.table(system::SYSTEM_SCHEMA, "training_metrics").await.unwrap();
        assert_eq!(table.version(), version, "once is enough");
    }
}

/// As a crash between the two commits of the change leaves it.
#[tokio::test]
async fn metrics_that_have_runs_and_are_otherwise_of_an_older_version_are_changed() {
    let fixture = Fixture::new().await;
    older_metrics(&fixture, &[]).await;
    let table = fixture.catalog.table(system::SYSTEM_SCHEMA, "training_metrics").await.unwrap();
    let mut definition = table.definition().clone();
    let run = Arc::new(Field::new("run", DataType::Utf8, false));
    definition.schema = Arc::new(Schema::new(definition.schema.fields().iter().cloned().chain([run]).collect::<Vec<_>>()));
    table.begin_alter().await.unwrap().add_column(&definition, None).await.unwrap();
    fixture.catalog.create_system_tables().await.unwrap();
    let table = table.latest().await.unwrap();
    assert!(table.definition().primary_key.is_empty() && table.definition().schema.field(1).is_nullable());
    assert_eq!(fixture.catalog.take_warnings(), Vec::<String>::new());
}

/// Somebody may have altered it: it stays, and the database opens.
#[tokio::test]
async fn metrics_with_other_columns_stay_as_they_are() {
    let fixture = Fixture::new().await;
    fixture.catalog.create_table(system::SYSTEM_SCHEMA, "training_metrics", texts_definition(), false).await.unwrap();
    fixture.catalog.create_system_tables().await.unwrap();
    let warnings = fixture.catalog.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("could not be changed"), "{warnings:?}");
    let table = fixture.catalog.table(system::SYSTEM_SCHEMA, "training_metrics").await.unwrap();
    assert_eq!(table.definition(), &texts_definition());
}

#[tokio::test]
async fn schemas_are_made_and_dropped() {
    let fixture = Fixture::new().await;
    fixture.catalog.create_schema("lab", false).unwrap();
    assert!(matches!(fixture.catalog.create_schema("lab", false), Err(Error::DuplicateSchema { .. })));
    fixture.catalog.create_schema("lab", true).unwrap();
    fixture.catalog.create_table("lab", "t", texts_definition(), false).await.unwrap();
    assert!(matches!(fixture.catalog.drop_schema("lab"), Err(Error::StillNeeded(_))));
    let fixture = fixture.restart().await;
    assert_eq!(fixture.catalog.schema_names(), ["lab", "public", "rollout"]);
    assert!(fixture.catalog.rollout_schema("lab").unwrap().table_exist("t"));
    fixture.catalog.drop_table("lab", "t").await.unwrap();
    fixture.catalog.drop_schema("lab").unwrap();
    assert_eq!(fixture.catalog.schema_names(), ["public", "rollout"]);
    assert!(matches!(fixture.catalog.drop_schema("public"), Err(Error::NotSupported(_))));
}

#[test]
fn columns_that_can_not_be_stored_are_refused() {
    let define = |fields: Vec<Field>| TableDefinition::new(&Schema::new(fields));
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    assert!(matches!(define(Vec::new()), Err(Error::NotSupported(_))));
    for name in ["", "a.b", "a`b", "_rowid"] {
        assert!(matches!(define(vec![text(name)]), Err(Error::InvalidName { .. })), "{name}");
    }
    assert!(matches!(define(vec![text("id"), text("ID")]), Err(Error::InvalidName { .. })));
    let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    assert!(matches!(define(vec![Field::new("i", interval, true)]), Err(Error::NotSupported(_))));
    let vector = Field::new("v", DataType::new_fixed_size_list(DataType::Float32, 2, true), true);
    let keyed = define(vec![vector]).unwrap().with_primary_key(&["v"]);
    assert!(matches!(keyed, Err(Error::WrongType { .. })));
    assert!(matches!(define(vec![text("id")]).unwrap().with_primary_key(&["it"]), Err(Error::UnknownColumn { .. })));
}

#[tokio::test]
async fn any_column_name_can_be_stored_filtered_and_searched() {
    let fixture = Fixture::new().await;
    let odd = ["Contents", "my text", "select", "ü", "it's", "quo\"te", "a-b", "[x]"];
    let fields: Vec<Field> = odd.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    let table = fixture.create("t", TableDefinition::new(&Schema::new(fields)).unwrap()).await;
    let columns = odd.map(|name| (name, Arc::new(StringArray::from(vec![format!("moon {name}")])) as ArrayRef));
    append(&table, RecordBatch::try_from_iter(columns).unwrap()).await.unwrap();
    for (number, name) in odd.into_iter().enumerate() {
        let quoted = name.replace('"', "\"\"");
        let query = format!("SELECT \"{quoted}\" FROM t WHERE \"{quoted}\" LIKE 'moon %'");
        assert_eq!(fixture.query(&query).await, [format!("moon {name}")]);
        table.create_index(&index(&format!("i{number}"), name, IndexKind::Bm25), false).await.unwrap();
        let table = table.latest().await.unwrap();
        assert_eq!(by_words(&table, name, "moon", 3, None).await.unwrap().num_rows(), 1, "{name}");
    }
}
