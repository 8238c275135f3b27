//! CREATE INDEX, DROP INDEX and what the catalog says about them.

use std::collections::BTreeMap;

use lance::index::DatasetIndexExt;

use super::fixture::{Fixture, Random, append, by_words, passages, passages_definition, texts, texts_definition};
use crate::{Error, GraphPlace, IndexDefinition, IndexKind, Metric};

pub(super) fn index(name: &str, column: &str, kind: IndexKind) -> IndexDefinition {
    let options = Default::default();
    IndexDefinition { name: name.to_owned(), column: column.to_owned(), kind, metric: None, options, unbuilt: None }
}

fn with_option(mut index: IndexDefinition, name: &str, value: &str) -> IndexDefinition {
    index.options.insert(name.to_owned(), value.to_owned());
    index
}

#[tokio::test]
async fn indexes_are_listed_found_and_dropped_across_a_restart() {
    let fixture = Fixture::new().await;
    let table = fixture.create("wiki", passages_definition(4)).await;
    let mut random = Random(5);
    let vectors: Vec<Vec<f32>> = (0..400).map(|_| random.vector(4)).collect();
    append(&table, passages(&(0..400).collect::<Vec<i64>>(), &vectors)).await.unwrap();
    let hnsw = with_option(index("wiki_emb", "embedding", IndexKind::Hnsw), "m", "8");
    let hnsw = IndexDefinition { metric: Some(Metric::L2), ..hnsw };
    assert!(table.create_index(&hnsw, false).await.unwrap());
    assert!(table.create_index(&index("wiki_number", "number", IndexKind::BTree), false).await.unwrap());
    append(&table, passages(&[400], &[random.vector(4)])).await.unwrap();
    drop(table);

    let fixture = fixture.restart().await;
    let table = fixture.catalog.find_index("public", "wiki_emb").await.unwrap();
    let expected = [("wiki_emb", "embedding", IndexKind::Hnsw, Some(Metric::L2)), ("wiki_number", "number", IndexKind::BTree, None)];
    let found = table.indexes().await.unwrap();
    for (index, (name, column, kind, metric)) in found.iter().zip(expected) {
        assert_eq!((index.name.as_str(), index.column.as_str(), index.kind, index.metric), (name, column, kind, metric));
        assert_eq!((index.rows_indexed, index.rows_unindexed), (400, 1));
        assert!(index.bytes > 400 * 4, "{index:?}");
    }
    assert_eq!(found.iter().map(|index| index.graph).collect::<Vec<_>>(), [Some(GraphPlace::File), None]);
    assert_eq!(found[0].options, BTreeMap::from([("m".to_owned(), "8".to_owned())]));

    table.optimize_indexes().await.unwrap();
    let optimized = table.latest().await.unwrap().indexes().await.unwrap();
    assert!(optimized.iter().all(|index| index.rows_unindexed == 0), "{optimized:?}");
    table.drop_index("wiki_emb").await.unwrap();
    let unknown = fixture.catalog.find_index("public", "wiki_emb").await.unwrap_err();
    assert!(matches!(unknown, Error::UnknownIndex { .. }));
    let unknown = table.drop_index("wiki_nmber").await.unwrap_err();
    assert_eq!(unknown.to_string(), "unknown index \"wiki_nmber\"; did you mean \"wiki_number\"?");
}

/// Each statement of one row used to write all of an index.
#[tokio::test]
async fn one_row_is_no_reason_to_make_a_large_part_of_an_index_anew() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(2)).await;
    let rows = |numbers: std::ops::Range<i64>| {
        passages(&numbers.clone().collect::<Vec<_>>(), &numbers.map(|_| vec![1.0, 2.0]).collect::<Vec<_>>())
    };
    append(&table, rows(0..400)).await.unwrap();
    for (name, column, kind) in [("words", "id", IndexKind::Bm25), ("numbers", "number", IndexKind::BTree)] {
        table.create_index(&index(name, column, kind), false).await.unwrap();
    }
    let parts = async |name: &str| {
        let table = table.latest().await.unwrap();
        table.dataset.load_indices_by_name(name).await.unwrap().iter().map(|part| part.uuid).collect::<Vec<_>>()
    };
    let before = (parts("words").await, parts("numbers").await);
    for number in 400..403 {
        append(&table, rows(number..number + 1)).await.unwrap();
        let version = table.latest().await.unwrap().version();
        table.optimize_indexes().await.unwrap();
        let latest = table.latest().await.unwrap();
        assert_eq!(latest.version(), version + 1, "both indexes in one commit");
        assert!(latest.indexes().await.unwrap().iter().all(|index| index.rows_unindexed == 0));
        for (name, before) in [("words", &before.0), ("numbers", &before.1)] {
            let after = parts(name).await;
            assert_eq!((after.len(), after[0]), (2, before[0]), "{name}: the large part, and one of the rows since");
        }
    }
    assert_eq!(fixture.query("SELECT id FROM t WHERE number IN (7, 401) ORDER BY id").await, ["p401", "p7"]);
    assert_eq!(by_words(&table.latest().await.unwrap(), "id", "p402", 10, None).await.unwrap().num_rows(), 1);
    let version = table.latest().await.unwrap().version();
    table.optimize_indexes().await.unwrap();
    assert_eq!(table.latest().await.unwrap().version(), version, "there is nothing to do");
}

#[tokio::test]
async fn an_index_name_is_unique_in_its_schema() {
    let fixture = Fixture::new().await;
    let first = fixture.create("a", texts_definition()).await;
    let second = fixture.create("b", texts_definition()).await;
    let text_index = index("txt", "contents", IndexKind::Bm25);
    assert!(first.create_index(&text_index, false).await.unwrap());
    let duplicate = second.create_index(&text_index, false).await.unwrap_err();
    assert_eq!(duplicate.to_string(), "index \"txt\" already exists on table \"a\"");
    assert!(!second.create_index(&text_index, true).await.unwrap());
}

#[tokio::test]
async fn a_wrong_column_or_option_is_named() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", passages_definition(2)).await;
    let check = async |definition: IndexDefinition| table.create_index(&definition, false).await.unwrap_err();
    assert!(matches!(check(index("i", "embeding", IndexKind::Hnsw)).await, Error::UnknownColumn { .. }));
    assert!(matches!(check(index("i", "number", IndexKind::Hnsw)).await, Error::WrongType { .. }));
    assert!(matches!(check(index("i", "embedding", IndexKind::Bm25)).await, Error::WrongType { .. }));
    assert!(matches!(check(index("i", "embedding", IndexKind::BTree)).await, Error::WrongType { .. }));
    let misspelt = check(with_option(index("i", "embedding", IndexKind::IvfFlat), "list", "3")).await;
    assert_eq!(misspelt.to_string(), "list = 3 is not valid: expected an option of ivfflat; did you mean lists?");
    for value in ["0", "many", "-1"] {
        let range = check(with_option(index("i", "embedding", IndexKind::IvfFlat), "lists", value)).await;
        assert!(matches!(range, Error::InvalidOption { .. }), "{range}");
    }
    let quantized = |name: &str, value: &str| with_option(index("i", "embedding", IndexKind::IvfPq), name, value);
    let odd = check(quantized("num_sub_vectors", "3")).await;
    assert_eq!(odd.to_string(), "num_sub_vectors = 3 is not valid: expected a number from 1 to 2");
    let bits = check(quantized("num_bits", "5")).await;
    assert_eq!(bits.to_string(), "num_bits = 5 is not valid: expected 4 or 8");
    let uneven = check(with_option(quantized("num_sub_vectors", "1"), "num_bits", "4")).await;
    assert_eq!(uneven.to_string(), "num_sub_vectors = 1 is not valid: expected an even divisor of the vectors' width, 2");
    let bits = check(with_option(index("i", "embedding", IndexKind::IvfSq), "num_bits", "8")).await;
    assert_eq!(bits.to_string(), "num_bits = 8 is not valid: expected an option of ivf_sq: lists");
    let narrow = check(index("i", "embedding", IndexKind::IvfRq)).await;
    assert!(narrow.to_string().ends_with("expected a vector whose width is a multiple of 8"), "{narrow}");
    assert!(matches!(check(index("i", "id", IndexKind::LabelList)).await, Error::WrongType { .. }));
    let flag = check(with_option(index("i", "id", IndexKind::Bm25), "stem", "maybe")).await;
    assert!(matches!(flag, Error::InvalidOption { .. }));
    let language = check(with_option(index("i", "id", IndexKind::Bm25), "language", "Klingon")).await;
    assert!(matches!(language, Error::InvalidOption { .. }));
    assert!(table.latest().await.unwrap().indexes().await.unwrap().is_empty());
}

#[tokio::test]
async fn every_kind_can_be_made_on_an_empty_and_on_a_tiny_table() {
    for rows in [0, 1, 3] {
        let fixture = Fixture::new().await;
        let table = fixture.create("t", passages_definition(8)).await;
        let mut random = Random(9);
        let vectors: Vec<Vec<f32>> = (0..rows).map(|_| random.vector(8)).collect();
        if rows > 0 {
            append(&table, passages(&(0..rows).collect::<Vec<i64>>(), &vectors)).await.unwrap();
        }
        for (kind, column) in [
            (IndexKind::Hnsw, "embedding"),
            (IndexKind::IvfFlat, "embedding"),
            (IndexKind::IvfPq, "embedding"),
            (IndexKind::IvfSq, "embedding"),
            (IndexKind::IvfRq, "embedding"),
            (IndexKind::Bm25, "id"),
            (IndexKind::BTree, "number"),
            (IndexKind::Bitmap, "number"),
        ] {
            let made = table.create_index(&index(kind.name(), column, kind), false).await;
            assert!(made.is_ok(), "{} on {rows} rows: {made:?}", kind.name());
        }
        append(&table, passages(&[100, 101], &[random.vector(8), random.vector(8)])).await.unwrap();
        let table = table.latest().await.unwrap();
        assert_eq!(table.indexes().await.unwrap().len(), 8);
        let found = table.vector_search("embedding", &[random.vector(8)], 10, Metric::Cosine, false, None).await;
        assert_eq!(found.unwrap().num_rows() as i64, rows + 2);
        let found = by_words(&table, "id", "p101", 10, None).await.unwrap();
        assert_eq!(found.num_rows(), 1);
        assert_eq!(fixture.query("SELECT id FROM t WHERE number = 101").await, ["p101"]);
    }
}

#[tokio::test]
async fn a_text_with_every_option() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    append(&table, texts(&[("a", Some("Running runs")), ("b", Some("the run"))])).await.unwrap();
    let mut definition = index("txt", "contents", IndexKind::Bm25);
    for (name, value) in [
        ("stem", "off"),
        ("remove_stop_words", "false"),
        ("lower_case", "true"),
        ("ascii_folding", "no"),
        ("with_position", "on"),
        ("language", "English"),
        ("max_token_length", "20"),
    ] {
        definition = with_option(definition, name, value);
    }
    table.create_index(&definition, false).await.unwrap();
    let table = table.latest().await.unwrap();
    assert_eq!(by_words(&table, "contents", "running", 10, None).await.unwrap().num_rows(), 1);
    assert_eq!(by_words(&table, "contents", "the", 10, None).await.unwrap().num_rows(), 1);
}
