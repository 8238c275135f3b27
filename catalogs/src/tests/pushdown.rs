//! A filter that goes down to Lance keeps the rows that DataFusion alone would keep.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, col, in_subquery, lit};
use datafusion::prelude::random;

use super::fixture::{Fixture, Random, append, lines, texts_definition};
use crate::{IndexDefinition, IndexKind, Table, TableDefinition};

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
                let index = IndexDefinition { name, column, kind, metric: None, options };
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
