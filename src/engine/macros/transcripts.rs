//! Steps whose prompts go on from one another, as one text in turns: what trainers of conversations and of process reward models read.
//!
//! A protocol that only appends to what the policy has seen gives one transcript for each path to an end. Where a step asks anew, a transcript
//! begins.

use super::call::Nodes;
use super::paths::with_path_to_root;

/// An aggregate for [`transcripts`]: the prompt of the first step.
pub const PROMPT: &str = "max(CASE WHEN put_in IS NULL THEN prompt END) AS prompt";

/// One row for each transcript of `steps`, with `columns`: aggregates over its steps.
///
/// `steps` has `run`, `question_id`, `node_id`, `parent_id`, `depth`, `state`, `action`, `prompt`, `response`, and what `columns` read beside these; `before` has the
/// steps that one may go on from. A step that no other of `steps` goes on from is the last of a transcript, so that each step is in one, and in
/// several only if they part after it. `columns` may read `put_in` too: what came between the step before and this one, such as passages; NULL in
/// the first.
///
/// `form`: a condition on each step; a transcript is given if all of its steps meet it, since who learns a later one learns it after those before.
pub fn transcripts(nodes: &Nodes, steps: &str, before: &str, columns: &str, form: Option<&str>) -> String {
    let having = form.map(|form| format!(" HAVING bool_and({form})")).unwrap_or_default();
    let linked = format!(
        "SELECT s.*, CASE WHEN b.node_id IS NOT NULL THEN CAST(substr(s.prompt, length(b.prompt || b.response) + 1) AS text) END AS put_in \
         FROM ({steps}) s LEFT JOIN ({before}) b ON b.run = s.run AND b.question_id = s.question_id AND b.node_id = s.parent_id \
         AND starts_with(s.prompt, b.prompt || b.response)"
    );
    let ends = format!(
        "(SELECT s.run, s.question_id, s.node_id, s.parent_id FROM ({steps}) s \
         LEFT JOIN (SELECT DISTINCT run, question_id, parent_id FROM ({linked}) l WHERE put_in IS NOT NULL) g \
         ON g.run = s.run AND g.question_id = s.question_id AND g.parent_id = s.node_id WHERE g.parent_id IS NULL) ends"
    );
    format!(
        "{with} SELECT {columns} FROM (SELECT s.*, p.leaf, max(CASE WHEN s.put_in IS NULL THEN s.depth END) \
         OVER (PARTITION BY p.run, p.question_id, p.leaf) AS first_depth FROM path_in_transcript p \
         JOIN ({linked}) s ON s.run = p.run AND s.question_id = p.question_id AND s.node_id = p.node_id AND s.parent_id = p.parent_id) t \
         WHERE depth >= first_depth GROUP BY run, question_id, leaf{having}",
        with = with_path_to_root("path_in_transcript", nodes, &ends),
    )
}
