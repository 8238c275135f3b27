//! A filter that goes down to Lance keeps the rows that DataFusion alone would keep.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int64Array, Int64Builder, ListBuilder, RecordBatch, StringArray,
    StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::functions_nested::expr_fn::{array_has, array_has_all, array_has_any};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, col, in_subquery, lit};
use datafusion::prelude::random;

use super::fixture::{Fixture, Random, append, lines, texts_definition};
use super::index::index;
use crate::{Error, IndexDefinition, IndexKind, Table, TableDefinition};

const SEED: u64 = 20_260_101;
const NUM_FILTERS: usize = 120;

#[tokio::test]
async fn random_filters_keep_the_same_rows() {
    let (fixture, table, stored) = random_table(None).await;
    compare_random_filters(&fixture, &table, stored).await;
}

#[tokio::test]
async fn random_filters_keep_the_same_rows_with_indexes() {
    let (fixture, table, stored) = random_table(Some([IndexKind::BTree, IndexKind::Bitmap])).await;
    compare_random_filters(&fixture, &table, stored).await;
}

async fn compare_random_filters(fixture: &Fixture, table: &Table, stored: Vec<RecordBatch>) {
    let context = fixture.context();
    let memory = MemTable::try_new(stored[0].schema(), vec![stored]).unwrap();
    fixture.catalog.register_virtual("public", "memory", Arc::new(memory)).unwrap();
    let mut random = Random(SEED);
    let mut num_pushed = 0;
    for number in 0..NUM_FILTERS {
        let filter = random_filter(&mut random, 2);
        let support = table.supports_filters_pushdown(&[&filter]).unwrap();
        num_pushed += usize::from(support[0] == TableProviderFilterPushDown::Exact);
        let mut answers = Vec::new();
        for name in ["t", "memory"] {
            let frame = context.table(name).await.unwrap().filter(filter.clone()).unwrap();
            let frame = frame.select_columns(&["id"]).unwrap().sort(vec![col("id").sort(true, true)]).unwrap();
            answers.push(lines(&frame.collect().await.unwrap()));
        }
        assert_eq!(answers[0], answers[1], "filter {number} of seed {SEED}: {filter}");
    }
    assert!(num_pushed > NUM_FILTERS / 2, "{num_pushed} of {NUM_FILTERS} filters went down");
}

/// 300 rows in three commits, a fifth of the values NULL; the index is older than the last commit.
async fn random_table(indexes: Option<[IndexKind; 2]>) -> (Fixture, Table, Vec<RecordBatch>) {
    let fixture = Fixture::new().await;
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("word", DataType::Utf8, true),
        Field::new("score", DataType::Float64, true),
        Field::new("flag", DataType::Boolean, true),
    ]);
    let table = fixture.create("t", TableDefinition::new(&schema).unwrap()).await;
    let mut random = Random(SEED + 1);
    let mut batches = Vec::new();
    for part in 0..3 {
        if let (2, Some(kinds)) = (part, indexes) {
            for (kind, column) in kinds.into_iter().zip(["score", "word"]) {
                let name = format!("{column}_{}", kind.name());
                let (column, options) = (column.to_owned(), Default::default());
                let index = IndexDefinition { name, column, kind, metric: None, options, unbuilt: None };
                table.create_index(&index, false).await.unwrap();
            }
        }
        let batch = random_batch(&mut random, part * 100);
        append(&table, batch.clone()).await.unwrap();
        batches.push(batch.with_schema(Arc::new(schema.clone())).unwrap());
    }
    let table = table.latest().await.unwrap();
    (fixture, table, batches)
}

fn random_batch(random: &mut Random, first: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 100));
    let words: ArrayRef = Arc::new((0..100).map(|_| maybe(random, word)).collect::<StringArray>());
    let scores: ArrayRef = Arc::new((0..100).map(|_| maybe(random, score)).collect::<Float64Array>());
    let flags: ArrayRef = Arc::new((0..100).map(|_| maybe(random, |random| random.below(2) == 0)).collect::<BooleanArray>());
    let columns = [("id", ids, false), ("word", words, true), ("score", scores, true), ("flag", flags, true)];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn maybe<T>(random: &mut Random, value: impl FnOnce(&mut Random) -> T) -> Option<T> {
    if random.below(5) == 0 { None } else { Some(value(random)) }
}

fn word(random: &mut Random) -> String {
    ["", "ant", "Ant", "anteater", "bee", "100%", "b_e", "é"][random.below(8) as usize].to_owned()
}

fn score(random: &mut Random) -> f64 {
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 0.25, -1.5, 3.0][random.below(8) as usize]
}

fn random_filter(random: &mut Random, depth: u32) -> Expr {
    match random.below(if depth == 0 { 9 } else { 12 }) {
        0 => compare(random, col("id"), |random| lit(random.below(300) as i64)),
        1 => compare(random, col("word"), |random| lit(word(random))),
        2 => compare(random, col("score"), |random| lit(score(random))),
        3 => col("flag"),
        4 => col(["word", "score", "flag"][random.below(3) as usize]).is_null(),
        5 => col("word").in_list((0..3).map(|_| lit(word(random))).collect(), random.below(2) == 0),
        6 => col("score").between(lit(score(random)), lit(score(random))),
        7 => {
            let pattern = lit(["an%", "%e%", "_nt", "100\\%", "b\\_e", "%"][random.below(6) as usize]);
            if random.below(2) == 0 { col("word").like(pattern) } else { col("word").not_like(pattern) }
        }
        8 => col("id").in_list((0..4).map(|_| lit(random.below(300) as i64)).collect(), random.below(2) == 0),
        9 => random_filter(random, depth - 1).and(random_filter(random, depth - 1)),
        10 => random_filter(random, depth - 1).or(random_filter(random, depth - 1)),
        _ => Expr::Not(Box::new(random_filter(random, depth - 1))),
    }
}

fn compare(random: &mut Random, column: Expr, value: impl FnOnce(&mut Random) -> Expr) -> Expr {
    let operator = random.below(6);
    let value = value(random);
    match operator {
        0 => column.eq(value),
        1 => column.not_eq(value),
        2 => column.lt(value),
        3 => column.lt_eq(value),
        4 => value.lt(column),
        _ => column.gt_eq(value),
    }
}

#[tokio::test]
async fn what_lance_can_not_evaluate_stays_above() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", texts_definition()).await;
    let pushed = |filter: Expr| table.supports_filters_pushdown(&[&filter]).unwrap().remove(0);
    let exact =
        [col("id").eq(lit("a")), lit("a").eq(col("id")), col("id").in_list(vec![lit("a")], false).and(col("contents").is_not_null())];
    for filter in exact {
        assert_eq!(pushed(filter.clone()), TableProviderFilterPushDown::Exact, "{filter}");
    }
    let plan = fixture.context().table("t").await.unwrap().select_columns(&["id"]).unwrap().into_unoptimized_plan();
    let above = [
        col("id").eq(col("contents")),
        col("id").eq(lit(ScalarValue::Utf8(None))),
        col("id").eq(lit(1_i64)),
        random().lt(lit(0.5)),
        datafusion::functions::expr_fn::upper(col("id")).eq(lit("A")),
        in_subquery(col("id"), Arc::new(plan)),
        col("id").eq(lit("a")).or(random().lt(lit(0.5))),
    ];
    for filter in above {
        assert_eq!(pushed(filter.clone()), TableProviderFilterPushDown::Unsupported, "{filter}");
    }
    assert_eq!(fixture.query("SELECT id FROM t WHERE upper(id) = 'A' AND random() >= 0").await, Vec::<String>::new());
}

#[tokio::test]
async fn filters_on_arrays_keep_the_same_rows() {
    for indexed_after in [None, Some(0), Some(2)] {
        compare_label_filters(indexed_after).await;
    }
}

/// `indexed_after`: the commit before which label_list indexes are made; `None`: there are none.
async fn compare_label_filters(indexed_after: Option<usize>) {
    let fixture = Fixture::new().await;
    let mut random = Random(SEED + 2);
    let batches: Vec<RecordBatch> = (0..3).map(|part| random_labels(&mut random, part * 100)).collect();
    let table = fixture.create("t", TableDefinition::new(&batches[0].schema()).unwrap()).await;
    for (part, batch) in batches.iter().enumerate() {
        if indexed_after == Some(part) {
            for column in ["tags", "numbers"] {
                table.create_index(&index(&format!("{column}_labels"), column, IndexKind::LabelList), false).await.unwrap();
            }
        }
        append(&table, batch.clone()).await.unwrap();
    }
    if indexed_after.is_some() {
        // Rows removed after the index was made, and their places given to others.
        table.delete_where(col("id").lt(lit(10_i64))).await.unwrap();
        table.compact().await.unwrap();
    }
    let memory = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
    fixture.catalog.register_virtual("public", "memory", Arc::new(memory)).unwrap();
    let context = fixture.context();
    for number in 0..NUM_FILTERS {
        let filter = random_label_filter(&mut random, 2);
        assert_eq!(table.supports_filters_pushdown(&[&filter]).unwrap()[0], TableProviderFilterPushDown::Exact, "{filter}");
        let mut answers = Vec::new();
        for name in ["t", "memory"] {
            let rows = context.table(name).await.unwrap().filter(filter.clone().and(col("id").gt_eq(lit(10_i64)))).unwrap();
            let rows = rows.select_columns(&["id"]).unwrap().sort(vec![col("id").sort(true, true)]).unwrap();
            answers.push(lines(&rows.collect().await.unwrap()));
        }
        assert_eq!(answers[0], answers[1], "filter {number} of seed {SEED}, index {indexed_after:?}: {filter}");
    }
}

/// `id`, `tags text[]`, `numbers int8[]`: arrays that are NULL, empty, with NULLs, with one element twice.
fn random_labels(random: &mut Random, first: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 100));
    let mut tags = ListBuilder::new(StringBuilder::new());
    let mut numbers = ListBuilder::new(Int64Builder::new());
    for _ in 0..100 {
        for _ in 0..random.below(4) {
            tags.values().append_option(maybe(random, word));
            numbers.values().append_option(maybe(random, |random| random.below(4) as i64));
        }
        tags.append(random.below(5) > 0);
        numbers.append(random.below(5) > 0);
    }
    let (tags, numbers): (ArrayRef, ArrayRef) = (Arc::new(tags.finish()), Arc::new(numbers.finish()));
    RecordBatch::try_from_iter_with_nullable([("id", ids, false), ("tags", tags, true), ("numbers", numbers, true)]).unwrap()
}

fn random_label_filter(random: &mut Random, depth: u32) -> Expr {
    let texts = |random: &mut Random| (0..1 + random.below(3)).map(|_| ScalarValue::from(word(random).as_str())).collect::<Vec<_>>();
    let numbers = |random: &mut Random| (0..1 + random.below(3)).map(|_| ScalarValue::from(random.below(4) as i64)).collect::<Vec<_>>();
    let list = |values: &[ScalarValue]| lit(ScalarValue::List(ScalarValue::new_list_nullable(values, &values[0].data_type())));
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0 => array_has(col("tags"), lit(word(random))),
        1 => array_has(col("numbers"), lit(random.below(4) as i64)),
        2 => array_has_any(col("tags"), list(&texts(random))),
        3 => array_has_all(col("tags"), list(&texts(random))),
        4 => array_has_any(col("numbers"), list(&numbers(random))),
        5 => array_has_all(col("numbers"), list(&numbers(random))),
        6 => random_label_filter(random, depth - 1).and(random_label_filter(random, depth - 1)),
        7 => random_label_filter(random, depth - 1).or(random_label_filter(random, depth - 1)),
        _ => Expr::Not(Box::new(random_label_filter(random, depth - 1))),
    }
}

#[tokio::test]
async fn a_label_that_may_mean_something_else_to_an_index_stays_above() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", TableDefinition::new(&random_labels(&mut Random(SEED), 0).schema()).unwrap()).await;
    let empty = lit(ScalarValue::List(ScalarValue::new_list_nullable(&[], &DataType::Utf8)));
    let with_null = [ScalarValue::from("ant"), ScalarValue::Utf8(None)];
    let with_null = lit(ScalarValue::List(ScalarValue::new_list_nullable(&with_null, &DataType::Utf8)));
    let above = [
        array_has(col("tags"), lit(ScalarValue::Utf8(None))),
        array_has(col("tags"), col("id")),
        array_has(col("numbers"), lit(1_i32)),
        array_has_any(col("tags"), empty.clone()),
        array_has_all(col("tags"), empty),
        array_has_any(col("tags"), with_null.clone()),
        array_has_all(col("tags"), with_null),
    ];
    for filter in above {
        assert_eq!(table.supports_filters_pushdown(&[&filter]).unwrap()[0], TableProviderFilterPushDown::Unsupported, "{filter}");
    }
}

#[tokio::test]
async fn an_index_on_labels_is_looked_up() {
    let fixture = Fixture::new().await;
    let batch = random_labels(&mut Random(SEED), 0);
    let table = fixture.create("t", TableDefinition::new(&batch.schema()).unwrap()).await;
    append(&table, batch).await.unwrap();
    for column in ["tags", "numbers"] {
        table.create_index(&index(&format!("{column}_labels"), column, IndexKind::LabelList), false).await.unwrap();
    }
    let context = fixture.context();
    for filter in [array_has(col("tags"), lit("ant")), array_has(col("numbers"), lit(2_i64))] {
        let plan = context.table("t").await.unwrap().filter(filter.clone()).unwrap().create_physical_plan().await.unwrap();
        let plan = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
        assert!(plan.contains("ScalarIndexQuery") && plan.contains("_labels(LabelList)"), "{filter}: {plan}");
    }
}

/// Columns whose constants have to be of the very type: unit and time zone, precision and scale.
const EXACT: [&str; 4] = ["at", "instant", "price", "bytes"];

#[tokio::test]
async fn filters_on_times_numerics_and_bytes_keep_the_same_rows() {
    for kind in [None, Some(IndexKind::BTree), Some(IndexKind::Bitmap)] {
        compare_exact_filters(kind).await;
    }
}

/// `kind`: of the indexes, which are older than the last commit; `None`: there are none.
async fn compare_exact_filters(kind: Option<IndexKind>) {
    let fixture = Fixture::new().await;
    let mut random = Random(SEED + 3);
    let batches: Vec<RecordBatch> = (0..3).map(|part| random_exact(&mut random, part * 100)).collect();
    let table = fixture.create("t", TableDefinition::new(&batches[0].schema()).unwrap()).await;
    for (part, batch) in batches.iter().enumerate() {
        if let (2, Some(kind)) = (part, kind) {
            for column in EXACT {
                table.create_index(&index(&format!("{column}_index"), column, kind), false).await.unwrap();
            }
        }
        append(&table, batch.clone()).await.unwrap();
    }
    let memory = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
    fixture.catalog.register_virtual("public", "memory", Arc::new(memory)).unwrap();
    let context = fixture.context();
    for number in 0..NUM_FILTERS {
        let filter = random_exact_filter(&mut random, 2);
        assert_eq!(table.supports_filters_pushdown(&[&filter]).unwrap()[0], TableProviderFilterPushDown::Exact, "{filter}");
        let mut answers = Vec::new();
        for name in ["t", "memory"] {
            let rows = context.table(name).await.unwrap().filter(filter.clone()).unwrap();
            let rows = rows.select_columns(&["id"]).unwrap().sort(vec![col("id").sort(true, true)]).unwrap();
            answers.push(lines(&rows.collect().await.unwrap()));
        }
        assert_eq!(answers[0], answers[1], "filter {number} of seed {SEED}, index {kind:?}: {filter}");
    }
    for column in EXACT {
        let value = || lit(exact_value(&mut Random(SEED), column));
        let filters = [
            col(column).eq(value()),
            col(column).lt(value()),
            col(column).between(value(), value()),
            col(column).in_list(vec![value()], false),
        ];
        for filter in filters {
            let plan = context.table("t").await.unwrap().filter(filter.clone()).unwrap().create_physical_plan().await.unwrap();
            let plan = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
            let is_looked_up = plan.contains("ScalarIndexQuery") && plan.contains(&format!("{column}_index"));
            assert_eq!(is_looked_up, kind.is_some(), "{filter}: {plan}");
        }
    }
}

fn random_exact(random: &mut Random, first: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 100));
    let times = (0..100).map(|_| maybe(random, micros)).collect::<TimestampMicrosecondArray>();
    let instants = (0..100).map(|_| maybe(random, micros)).collect::<TimestampMicrosecondArray>().with_timezone("+00:00");
    let prices = (0..100).map(|_| maybe(random, cents)).collect::<Decimal128Array>().with_precision_and_scale(10, 2).unwrap();
    let bytes = (0..100).map(|_| maybe(random, bytes)).collect::<BinaryArray>();
    let columns: [ArrayRef; 4] = [Arc::new(times), Arc::new(instants), Arc::new(prices), Arc::new(bytes)];
    let exact = EXACT.into_iter().zip(columns).map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(std::iter::once(("id", ids, false)).chain(exact)).unwrap()
}

fn micros(random: &mut Random) -> i64 {
    [-1, 0, 1, 1_000_000, 86_400_000_000, 32_535_215_999_000_000][random.below(6) as usize]
}

fn cents(random: &mut Random) -> i128 {
    [-9_999_999_999, -100, -1, 0, 1, 9_999_999_999][random.below(6) as usize]
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let values: [&[u8]; 6] = [&[], &[0], &[0, 0], &[97], &[97, 98], &[255]];
    values[random.below(6) as usize].to_vec()
}

/// A constant of the column's type.
fn exact_value(random: &mut Random, column: &str) -> ScalarValue {
    match column {
        "at" => ScalarValue::TimestampMicrosecond(Some(micros(random)), None),
        "instant" => ScalarValue::TimestampMicrosecond(Some(micros(random)), Some("+00:00".into())),
        "price" => ScalarValue::Decimal128(Some(cents(random)), 10, 2),
        _ => ScalarValue::Binary(Some(bytes(random))),
    }
}

fn random_exact_filter(random: &mut Random, depth: u32) -> Expr {
    let column = EXACT[random.below(4) as usize];
    let value = |random: &mut Random| lit(exact_value(random, column));
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0..=2 => compare(random, col(column), value),
        3 => col(column).is_null(),
        4 => col(column).between(value(random), value(random)),
        5 => col(column).in_list((0..3).map(|_| value(random)).collect(), random.below(2) == 0),
        6 => random_exact_filter(random, depth - 1).and(random_exact_filter(random, depth - 1)),
        7 => random_exact_filter(random, depth - 1).or(random_exact_filter(random, depth - 1)),
        _ => Expr::Not(Box::new(random_exact_filter(random, depth - 1))),
    }
}

#[tokio::test]
async fn a_constant_of_another_unit_or_scale_stays_above() {
    let fixture = Fixture::new().await;
    let table = fixture.create("t", TableDefinition::new(&random_exact(&mut Random(SEED), 0).schema()).unwrap()).await;
    let above = [
        col("at").lt(lit(ScalarValue::TimestampNanosecond(Some(0), None))),
        col("at").lt(lit(ScalarValue::TimestampMicrosecond(Some(0), Some("+00:00".into())))),
        col("at").eq(lit(ScalarValue::TimestampMicrosecond(None, None))),
        col("price").eq(lit(ScalarValue::Decimal128(Some(100), 10, 3))),
        col("price").eq(lit(1.0)),
        col("bytes").eq(lit(ScalarValue::LargeBinary(Some(vec![0])))),
        col("bytes").like(lit(ScalarValue::Binary(Some(vec![0])))),
    ];
    for filter in above {
        assert_eq!(table.supports_filters_pushdown(&[&filter]).unwrap()[0], TableProviderFilterPushDown::Unsupported, "{filter}");
    }
}

#[tokio::test]
async fn an_index_that_no_filter_would_read_is_refused() {
    let fixture = Fixture::new().await;
    let schema = Schema::new(vec![Field::new("at", DataType::Time64(TimeUnit::Microsecond), true)]);
    let table = fixture.create("t", TableDefinition::new(&schema).unwrap()).await;
    for kind in [IndexKind::BTree, IndexKind::Bitmap] {
        let refused = table.create_index(&index("t_at", "at", kind), false).await.unwrap_err();
        assert!(matches!(refused, Error::NotSupported(_)), "{refused}");
    }
}
