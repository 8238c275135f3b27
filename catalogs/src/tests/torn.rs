//! Manifests that outside damage left torn: the last whole version is the newest again, and says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::datatypes::Schema;

use super::fixture::{Fixture, append, texts, texts_definition};
use super::index::index;
use crate::{Catalog, Error, IndexKind, View, system};

/// Manifests of a table, newest first: Lance's names count down.
fn manifests(table: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(table.join("_versions")).unwrap().map(|entry| entry.unwrap().path());
    let mut manifests: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|extension| extension == "manifest")).collect();
    manifests.sort();
    manifests
}

type Damage = fn(&[u8]) -> Vec<u8>;

/// What can become of a file, by name.
const DAMAGES: [(&str, Damage); 6] = [
    ("empty", |_| Vec::new()),
    ("a quarter", |bytes| bytes[..bytes.len() / 4].to_vec()),
    ("half", |bytes| bytes[..bytes.len() / 2].to_vec()),
    ("zeros at the end", |bytes| [&bytes[..bytes.len() - 20], &[0; 20]].concat()),
    ("garbage", |bytes| (0..bytes.len()).map(|place| (place * 31 % 251) as u8).collect()),
    // As long as before and with its last bytes, so that only the parts tell.
    ("garbage before the footer", |bytes| {
        let (body, footer) = bytes.split_at(bytes.len() - 16);
        [(0..body.len()).map(|place| (place * 31 % 251) as u8).collect::<Vec<u8>>(), footer.to_vec()].concat()
    }),
];

fn damage(file: &Path, how: Damage) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, how(&bytes)).unwrap();
}

/// A table with the rows `a` (version 2) and `b` (version 3), closed.
async fn two_rows() -> Fixture {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("x"))])).await.unwrap();
    append(&table, texts(&[("b", Some("y"))])).await.unwrap();
    fixture
}

#[tokio::test]
async fn a_torn_newest_version_gives_way_to_the_one_before() {
    for (name, how) in DAMAGES {
        let fixture = two_rows().await;
        let newest = manifests(&fixture.path().join("public/t.lance"))[0].clone();
        damage(&newest, how);
        let torn_bytes = fs::read(&newest).unwrap();
        let fixture = fixture.restart().await;

        assert_eq!(fixture.query("SELECT id FROM t").await, ["a"], "{name}");
        let warnings = fixture.catalog.take_warnings();
        assert_eq!(warnings.len(), 1, "{name}: {warnings:?}");
        assert!(warnings[0].contains("version 3 is lost") && warnings[0].contains("version 2 is the newest again"), "{}", warnings[0]);

        let table = fixture.catalog.table("public", "t").await.unwrap();
        assert_eq!(table.version(), 4, "{name}: the number of the lost version stays its own");
        let torn = table.torn_versions().unwrap();
        assert_eq!(torn.iter().map(|torn| torn.version).collect::<Vec<_>>(), [3], "{name}");
        assert_eq!(fs::read(&torn[0].file).unwrap(), torn_bytes, "{name}: the torn file is kept as it was found");
        assert!(!newest.exists(), "{name}");

        // A key of the lost version is free again.
        append(&table, texts(&[("b", Some("again"))])).await.unwrap();
        append(&table, texts(&[("c", None)])).await.unwrap();
        assert!(matches!(append(&table, texts(&[("c", None)])).await, Err(Error::UniqueViolation { .. })), "{name}");
        drop(table);
        let fixture = fixture.restart().await;
        assert_eq!(fixture.query("SELECT id, contents FROM t ORDER BY id").await, ["a|x", "b|again", "c|"], "{name}");
        assert_eq!(fixture.catalog.take_warnings(), [""; 0], "{name}: what was told is not told again");
        let table = fixture.catalog.table("public", "t").await.unwrap();
        let versions: Vec<u64> = table.versions().await.unwrap().iter().map(|version| version.version).collect();
        assert_eq!(versions, [1, 2, 4, 5, 6], "{name}");
        assert!(matches!(table.at_version(3).await, Err(Error::UnknownVersion { .. })), "{name}");
        assert_eq!(table.at_version(4).await.unwrap().row_count().await.unwrap(), 1, "{name}");
        table.vacuum(Duration::ZERO, &std::collections::HashSet::new()).await.unwrap();
        assert_eq!(fixture.query("SELECT count(*) FROM t").await, ["3"], "{name}");
        assert!(torn[0].file.exists(), "{name}: VACUUM leaves it");
    }
}

#[tokio::test]
async fn several_torn_versions_fall_back_to_the_last_whole_one() {
    let fixture = two_rows().await;
    for manifest in &manifests(&fixture.path().join("public/t.lance"))[..2] {
        fs::write(manifest, "").unwrap();
    }
    let fixture = fixture.restart().await;
    assert_eq!(fixture.query("SELECT count(*) FROM t").await, ["0"]);
    assert_eq!(fixture.catalog.take_warnings().len(), 2);
    let table = fixture.catalog.table("public", "t").await.unwrap();
    assert_eq!(table.version(), 4);
    append(&table, texts(&[("z", None)])).await.unwrap();
    drop(table);
    assert_eq!(fixture.restart().await.query("SELECT id FROM t").await, ["z"]);
}

#[tokio::test]
async fn a_crash_between_the_rename_and_the_new_version_does_not_give_the_number_away() {
    let fixture = two_rows().await;
    let newest = manifests(&fixture.path().join("public/t.lance"))[0].clone();
    fs::rename(&newest, newest.with_extension("manifest.torn")).unwrap();
    let fixture = fixture.restart().await;
    assert_eq!(fixture.catalog.table("public", "t").await.unwrap().version(), 4);
    assert_eq!(fixture.query("SELECT id FROM t").await, ["a"]);
}

#[tokio::test]
async fn a_torn_older_version_costs_nothing_but_itself() {
    let fixture = two_rows().await;
    damage(&manifests(&fixture.path().join("public/t.lance"))[1], |_| Vec::new());
    let fixture = fixture.restart().await;
    assert_eq!(fixture.query("SELECT id FROM t ORDER BY id").await, ["a", "b"]);
    let table = fixture.catalog.table("public", "t").await.unwrap();
    assert_eq!(table.version(), 3);
    let versions: Vec<u64> = table.versions().await.unwrap().iter().map(|version| version.version).collect();
    assert_eq!(versions, [1, 3]);
    let warnings = fixture.catalog.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("version 2 can not be read again"), "{warnings:?}");
    table.vacuum(Duration::ZERO, &std::collections::HashSet::new()).await.unwrap();
    assert_eq!(fixture.query("SELECT count(*) FROM t").await, ["2"]);
}

#[tokio::test]
async fn the_index_of_a_lost_version_is_no_longer_asked() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("red fox")), ("b", Some("red hen"))])).await.unwrap();
    table.create_index(&index("t_id", "id", IndexKind::BTree), false).await.unwrap();
    append(&table, texts(&[("c", Some("red cat"))])).await.unwrap();
    table.optimize_indexes().await.unwrap();
    drop(table);
    let files = manifests(&fixture.path().join("public/t.lance"));
    // The version of the append and that of its index.
    files[..2].iter().for_each(|file| damage(file, |bytes| bytes[..bytes.len() / 2].to_vec()));
    let fixture = fixture.restart().await;
    assert_eq!(fixture.query("SELECT id FROM t WHERE id = 'c'").await, [""; 0]);
    assert_eq!(fixture.query("SELECT id FROM t WHERE id = 'b'").await, ["b"]);
    let table = fixture.catalog.table("public", "t").await.unwrap();
    append(&table, texts(&[("c", Some("other"))])).await.unwrap();
    table.optimize_indexes().await.unwrap();
    assert_eq!(fixture.query("SELECT id, contents FROM t WHERE id = 'c'").await, ["c|other"]);
}

#[tokio::test]
async fn a_system_table_falls_back_or_is_made_anew() {
    let fixture = Fixture::new().await;
    fixture.catalog.create_system_tables().await.unwrap();
    let table = fixture.catalog.table(system::SYSTEM_SCHEMA, "training_metrics").await.unwrap();
    let names: Vec<String> = table.definition().schema.fields().iter().map(|field| field.name().clone()).collect();
    table.begin_rewrite().await.unwrap().redefine(table.definition(), &names).await.unwrap();
    drop(table);
    let folder = fixture.path().join("rollout/training_metrics.lance");
    fs::write(&manifests(&folder)[0], "").unwrap();
    let fixture = fixture.restart().await;
    fixture.catalog.create_system_tables().await.unwrap();
    assert!(fixture.catalog.take_warnings()[0].contains("version 2 is lost"));

    for manifest in manifests(&folder) {
        fs::write(manifest, "").unwrap();
    }
    let fixture = fixture.restart().await;
    fixture.catalog.create_system_tables().await.unwrap();
    let warnings = fixture.catalog.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("is made anew"), "{warnings:?}");
    assert_eq!(fixture.query("SELECT count(*) FROM rollout.training_metrics").await, ["0"]);
    assert!(folder.with_extension("lance.torn0").join("_versions").is_dir(), "what it was is kept");
}

#[tokio::test]
async fn a_torn_view_is_set_aside_and_the_tables_live() {
    let fixture = two_rows().await;
    fixture.catalog.create_view("public", "v", View::new("SELECT 1", &Schema::empty()), false).unwrap();
    fs::write(fixture.path().join("public/v.view"), "").unwrap();
    let fixture = fixture.restart().await;
    assert_eq!(fixture.query("SELECT count(*) FROM t").await, ["2"]);
    let warnings = fixture.catalog.take_warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("view \"public.v\" is lost"), "{warnings:?}");
    fixture.catalog.create_view("public", "v", View::new("SELECT 2", &Schema::empty()), false).unwrap();
    assert!(fixture.path().join("public/v.view.torn").exists());
    let Fixture { directory, catalog } = fixture;
    drop(catalog);
    assert_eq!(Catalog::open(directory.path()).await.unwrap().view_query("public", "v").as_deref(), Some("SELECT 2"));
}
