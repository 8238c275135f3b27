//! `rollout_tree(table, question_id)`: the tree of a question, drawn as text, a row for each line.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::prelude::{SessionContext, col, lit};
use rolloutdb_catalogs::Table;

use super::rollout_summary::require_columns;
use crate::engine::apply::arguments::{Arguments, Parameter};
use crate::engine::apply::planner::{Bound, TableFunction};
use crate::engine::apply::{Applied, ApplyFunction};
use crate::error::Result;

const NAME: &str = "rollout_tree";

/// Characters of a query, an evidence, an answer or a response that are shown.
const CONTENT_CHARS: usize = 80;

const COLUMNS: [&str; 15] = [
    "run",
    "question_id",
    "node_id",
    "parent_id",
    "action",
    "prompt",
    "response",
    "query",
    "evidence",
    "answer",
    "visit_count",
    "q_value",
    "process_reward",
    "outcome_reward",
    "is_terminal",
];

pub fn function() -> Arc<dyn TableFunction> {
    Arc::new(RolloutTree)
}

#[derive(Debug)]
struct RolloutTree;

impl TableFunction for RolloutTree {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parameters(&self) -> &'static [Parameter] {
        const PARAMETERS: &[Parameter] = &[Parameter::table("nodes"), Parameter::value("question_id", DataType::Utf8)];
        PARAMETERS
    }

    fn bind(&self, arguments: &Arguments) -> Result<Bound> {
        let table = Arc::clone(arguments.table("nodes")?);
        require_columns(NAME, &table, &COLUMNS)?;
        Ok(Bound::Apply(Arc::new(TreeCall { table })))
    }
}

#[derive(Debug)]
struct TreeCall {
    table: Arc<Table>,
}

#[async_trait]
impl ApplyFunction for TreeCall {
    fn name(&self) -> &str {
        NAME
    }

    fn details(&self) -> String {
        self.table.name().to_owned()
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("line", DataType::Int32, false), Field::new("text", DataType::Utf8, false)]))
    }

    fn tables(&self) -> Option<Vec<Arc<Table>>> {
        Some(vec![Arc::clone(&self.table)])
    }

    /// A question that the table does not hold has no lines.
    async fn call(&self, arguments: Vec<ArrayRef>, _: usize) -> Result<Applied> {
        let asked = arguments[0].as_string::<i32>();
        let nodes = self.nodes(asked).await?;
        let (mut numbers, mut texts, mut input_rows) = (Vec::new(), Vec::new(), Vec::new());
        for row in (0..asked.len()).filter(|row| asked.is_valid(*row)) {
            let lines = nodes.get(asked.value(row)).map(draw).unwrap_or_default();
            numbers.extend(1..=lines.len() as i32);
            input_rows.extend(std::iter::repeat_n(row as u32, lines.len()));
            texts.extend(lines);
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(numbers)), Arc::new(StringArray::from(texts))];
        let batch = RecordBatch::try_new(self.schema(), columns).map_err(DataFusionError::from)?;
        Ok(Applied { batch, input_rows: UInt32Array::from(input_rows) })
    }
}

/// The nodes of one tree, by their numbers.
type Tree = BTreeMap<i64, Node>;

/// A node as it is drawn.
#[derive(Debug, Clone)]
struct Node {
    parent_id: Option<i64>,
    /// What it did, or the question at the root.
    label: String,
    visits: i64,
    q_value: Option<f64>,
    process_reward: Option<f64>,
    /// Of a node that ends its trajectory.
    end: Option<End>,
}

#[derive(Debug, Clone)]
struct End {
    has_answer: bool,
    outcome_reward: Option<f64>,
}

impl TreeCall {
    /// The trees of the questions, by question and run.
    async fn nodes(&self, questions: &StringArray) -> Result<BTreeMap<String, BTreeMap<String, Tree>>> {
        let mut ids: Vec<&str> = questions.iter().flatten().collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let wanted = col("question_id").in_list(ids.into_iter().map(lit).collect(), false);
        let frame = SessionContext::new().read_table(Arc::clone(&self.table) as _)?.filter(wanted)?.select_columns(&COLUMNS)?;
        let mut nodes: BTreeMap<String, BTreeMap<String, Tree>> = BTreeMap::new();
        for batch in frame.collect().await? {
            let columns = Columns(&batch);
            for row in 0..batch.num_rows() {
                let (question, run) = (columns.text("question_id", row), columns.text("run", row));
                let tree = nodes.entry(question.unwrap_or_default()).or_default().entry(run.unwrap_or_default()).or_default();
                tree.insert(columns.integer("node_id", row).unwrap_or_default(), columns.node(row));
            }
        }
        Ok(nodes)
    }
}

/// A batch whose columns were checked by [`require_columns`].
struct Columns<'a>(&'a RecordBatch);

impl Columns<'_> {
    fn column(&self, name: &str) -> &ArrayRef {
        self.0.column_by_name(name).expect("the columns were selected by their names")
    }

    fn text(&self, name: &str, row: usize) -> Option<String> {
        let texts: &StringArray = self.column(name).as_string();
        texts.is_valid(row).then(|| texts.value(row).to_owned())
    }

    fn integer(&self, name: &str, row: usize) -> Option<i64> {
        let integers: &Int64Array = self.column(name).as_primitive::<Int64Type>();
        integers.is_valid(row).then(|| integers.value(row))
    }

    fn number(&self, name: &str, row: usize) -> Option<f64> {
        let numbers: &Float64Array = self.column(name).as_primitive::<Float64Type>();
        numbers.is_valid(row).then(|| numbers.value(row))
    }

    fn node(&self, row: usize) -> Node {
        let parent_id = self.integer("parent_id", row);
        // A protocol may have retrieved with the question: a query is what the step wrote only if that was its action.
        let names: &[&str] = match self.text("action", row).as_deref() {
            Some("query_generation") => &["query", "response"],
            Some("evidence_extraction" | "sub_answer") => &["evidence", "response"],
            Some("answer_generation") => &["answer", "response"],
            _ => &["response"],
        };
        let content = names.iter().find_map(|name| self.text(name, row));
        let content = content.or_else(|| self.text("prompt", row).filter(|_| parent_id.is_none()));
        let content = shortened(&content.unwrap_or_default());
        let terminal: &BooleanArray = self.column("is_terminal").as_boolean();
        let is_terminal = terminal.is_valid(row) && terminal.value(row);
        Node {
            label: self.text("action", row).map_or_else(|| content.clone(), |action| format!("{action}: {content}")),
            visits: self.integer("visit_count", row).unwrap_or_default(),
            q_value: self.number("q_value", row),
            process_reward: self.number("process_reward", row),
            end: is_terminal
                .then(|| End { has_answer: self.text("answer", row).is_some(), outcome_reward: self.number("outcome_reward", row) }),
            parent_id,
        }
    }
}

/// On one line, and not too long for it.
fn shortened(content: &str) -> String {
    let line = content.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CONTENT_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// One tree after the other, with a heading each if the table holds the question in several runs.
fn draw(runs: &BTreeMap<String, Tree>) -> Vec<String> {
    let mut lines = Vec::new();
    for (run, tree) in runs {
        if runs.len() > 1 {
            lines.push(format!("run {run}"));
        }
        draw_tree(tree, &mut lines);
    }
    lines
}

fn draw_tree(tree: &Tree, lines: &mut Vec<String>) {
    let mut children: BTreeMap<Option<i64>, Vec<i64>> = BTreeMap::new();
    for (node_id, node) in tree {
        // A node whose parent was deleted stands at the left.
        let parent = node.parent_id.filter(|parent| tree.contains_key(parent));
        children.entry(parent).or_default().push(*node_id);
    }
    // Nodes to draw, the next one last: with what stands before them, and before what is below them.
    let roots = children.get(&None).into_iter().flatten().rev();
    let mut waiting: Vec<(i64, String, String)> = roots.map(|node_id| (*node_id, String::new(), String::new())).collect();
    while let Some((node_id, before, below)) = waiting.pop() {
        lines.push(format!("{before}{}", line(&tree[&node_id])));
        let mut is_last = true;
        for child in children.get(&Some(node_id)).into_iter().flatten().rev() {
            let (branch, stem) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            waiting.push((*child, format!("{below}{branch}"), format!("{below}{stem}")));
            is_last = false;
        }
    }
}

fn line(node: &Node) -> String {
    let number = |name: &str, value: Option<f64>| value.map(|value| format!(", {name} {value:.3}")).unwrap_or_default();
    let end = node.end.as_ref().map(|end| match (end.has_answer, end.outcome_reward) {
        (true, Some(reward)) if reward >= 1.0 => ", right".to_owned(),
        (true, Some(reward)) if reward > 0.0 => format!(", outcome {reward:.3}"),
        (true, _) => ", wrong".to_owned(),
        (false, _) => ", no answer".to_owned(),
    });
    let (q_value, reward) = (number("q", node.q_value), number("reward", node.process_reward));
    format!("{} (visits {}{q_value}{reward}{})", node.label, node.visits, end.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn node(parent_id: Option<i64>, label: &str, visits: i64, value: Option<f64>, end: Option<End>) -> Node {
        Node { parent_id, label: label.to_owned(), visits, q_value: value, process_reward: value, end }
    }

    #[test]
    fn branches() {
        let answer = |outcome_reward| Some(End { has_answer: true, outcome_reward: Some(outcome_reward) });
        let tree = Tree::from([
            (0, node(None, "Who?", 5, Some(0.5), None)),
            (1, node(Some(0), "query_generation: Jaws", 3, Some(0.6), None)),
            (2, node(Some(0), "malformed: hm", 1, Some(0.0), None)),
            (3, node(Some(1), "answer_generation: Spielberg", 2, Some(0.81), answer(1.0))),
            (4, node(Some(1), "answer_generation: Lucas", 0, None, answer(0.0))),
            (5, node(Some(2), "malformed: hm", 1, Some(0.0), Some(End { has_answer: false, outcome_reward: Some(0.0) }))),
            (9, node(Some(8), "lost", 0, None, None)),
        ]);
        let lines = |tree: &Tree| draw(&BTreeMap::from([("run".to_owned(), tree.clone())])).join("\n");
        expect![[r#"
            Who? (visits 5, q 0.500, reward 0.500)
            ├─ query_generation: Jaws (visits 3, q 0.600, reward 0.600)
            │  ├─ answer_generation: Spielberg (visits 2, q 0.810, reward 0.810, right)
            │  └─ answer_generation: Lucas (visits 0, wrong)
            └─ malformed: hm (visits 1, q 0.000, reward 0.000)
               └─ malformed: hm (visits 1, q 0.000, reward 0.000, no answer)
            lost (visits 0)"#]]
        .assert_eq(&lines(&tree));
        let circle = Tree::from([(1, node(Some(2), "a", 0, None, None)), (2, node(Some(1), "b", 0, None, None))]);
        assert_eq!(lines(&circle), "", "rows that no tree has are not drawn for ever");
    }

    #[test]
    fn content_is_one_short_line() {
        assert_eq!(shortened(" a\n  b "), "a b");
        assert_eq!(shortened(&"é".repeat(90)), format!("{}…", "é".repeat(80)));
    }
}
