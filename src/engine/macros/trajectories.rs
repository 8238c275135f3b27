//! `trajectories`: what supervised and rejection-sampling fine-tuning read, from trees.

use arrow::datatypes::DataType;

use super::Macro;
use super::call::{Call, Nodes};
use crate::engine::apply::arguments::Parameter;
use crate::error::Result;

pub const MACRO: Macro = Macro {
    name: "trajectories",
    parameters: &[
        Parameter::table("nodes"),
        Parameter::constant("min_reward", DataType::Float64),
        Parameter::constant("per_question", DataType::Int64),
    ],
    sql,
};

/// One row for each path from a question to an end.
///
/// Where the protocol only appends to what the policy has seen, the whole path is one completion of its first prompt too.
fn sql(call: &Call) -> Result<String> {
    let nodes = call.nodes()?;
    let min_reward = call.number("min_reward")?.map(|least| format!(" AND coalesce(outcome_reward, 0) >= {least}")).unwrap_or_default();
    let mut ends = all_ends(&nodes) + &min_reward;
    if let Some(per_question) = call.integer("per_question", 1)? {
        let order = "coalesce(outcome_reward, 0) DESC, depth, node_id";
        ends = format!(
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY run, question_id ORDER BY {order}) AS place FROM ({ends}) e) f \
             WHERE place <= {per_question}"
        );
    }
    Ok(format!(
        "SELECT question_id, node_id, node_ids, answer, reward, steps, actions, queries, empty_searches, prompts, completions, \
         CASE WHEN parts IS NOT NULL THEN prompts[1] END AS prompt, array_to_string(parts, '') AS completion, parts, mask \
         FROM (SELECT n.question_id, n.node_id, p.node_ids, n.answer, coalesce(n.outcome_reward, 0) AS reward, n.depth AS steps, \
         p.actions, p.queries, p.empty_searches, p.prompts, p.completions, completion_parts(p.prompts, p.completions) AS parts, \
         completion_mask(p.prompts, p.completions) AS mask FROM {nodes} n \
         JOIN ({paths}) p ON p.run = n.run AND p.question_id = n.question_id AND p.leaf = n.node_id) t",
        paths = paths(&nodes, &ends)
    ))
}

/// The nodes at which a path ends that has steps.
pub fn all_ends(nodes: &Nodes) -> String {
    format!("SELECT run, question_id, node_id, depth, outcome_reward FROM {nodes} WHERE is_terminal AND depth > 0")
}

/// The steps from a question to each of `ends`, in order, as arrays.
///
/// The recursion finds the node ids of all paths, and reads nothing else: tables have no alias in it, and all of its columns are read after it, since
/// DataFusion would else read every column of the table for each level of the trees.
pub fn paths(nodes: &Nodes, ends: &str) -> String {
    let table = &nodes.table;
    format!(
        "WITH RECURSIVE path_to_root AS (\
         SELECT run, question_id, node_id AS leaf, node_id, parent_id FROM {nodes} WHERE is_terminal AND depth > 0 \
         UNION ALL SELECT {table}.run, {table}.question_id, path_to_root.leaf, {table}.node_id, {table}.parent_id \
         FROM path_to_root JOIN {nodes} ON {table}.run = path_to_root.run AND {table}.question_id = path_to_root.question_id \
         AND {table}.node_id = path_to_root.parent_id WHERE {table}.depth > 0) \
         SELECT p.run, p.question_id, p.leaf, array_agg(n.node_id ORDER BY n.depth) AS node_ids, array_agg(n.action ORDER BY n.depth) AS actions, \
         array_agg(n.query ORDER BY n.depth) FILTER (WHERE n.query IS NOT NULL) AS queries, \
         count(*) FILTER (WHERE n.passage_ids IS NOT NULL AND coalesce(array_length(n.passage_ids), 0) = 0) AS empty_searches, \
         array_agg(n.prompt ORDER BY n.depth) AS prompts, array_agg(n.response ORDER BY n.depth) AS completions \
         FROM path_to_root p JOIN ({ends}) e ON e.run = p.run AND e.question_id = p.question_id AND e.node_id = p.leaf \
         JOIN {nodes} n ON n.run = p.run AND n.question_id = p.question_id AND n.node_id = p.node_id AND n.parent_id = p.parent_id \
         GROUP BY p.run, p.question_id, p.leaf"
    )
}
