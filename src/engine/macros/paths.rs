//! Paths from a question to an end, in a table of rollouts.

use super::call::Nodes;

/// The nodes at which a path ends that has steps.
pub fn all_ends(nodes: &Nodes) -> String {
    format!("SELECT run, question_id, node_id, depth, outcome_reward FROM {nodes} WHERE is_terminal AND depth > 0")
}

/// The steps from a question to each of `ends`, in order, as arrays. No token of a malformed step counts, unless `malformed`.
pub fn paths(nodes: &Nodes, ends: &str, malformed: bool) -> String {
    let token_mask = match malformed {
        true => "n.token_mask",
        false => {
            "CASE WHEN n.action = 'malformed' THEN array_repeat(CAST(0 AS integer), CAST(cardinality(n.token_mask) AS bigint)) \
             ELSE n.token_mask END"
        }
    };
    format!(
        "{with} SELECT p.run, p.question_id, p.leaf, array_agg(n.node_id ORDER BY n.depth) AS node_ids, \
         array_agg(n.state ORDER BY n.depth) AS states, array_agg(n.action ORDER BY n.depth) AS actions, \
         array_agg(n.query ORDER BY n.depth) FILTER (WHERE n.query IS NOT NULL) AS queries, \
         count(*) FILTER (WHERE n.passage_ids IS NOT NULL AND coalesce(array_length(n.passage_ids), 0) = 0) AS empty_searches, \
         array_agg(n.prompt ORDER BY n.depth) AS prompts, array_agg(n.response ORDER BY n.depth) AS completions, \
         array_agg(n.prompt_ids ORDER BY n.depth) AS prompt_ids, array_agg(n.token_ids ORDER BY n.depth) AS token_ids, \
         array_agg({token_mask} ORDER BY n.depth) AS token_masks \
         FROM path_to_root p JOIN ({ends}) e ON e.run = p.run AND e.question_id = p.question_id AND e.node_id = p.leaf \
         JOIN {all_columns} n ON n.run = p.run AND n.question_id = p.question_id AND n.node_id = p.node_id AND n.parent_id = p.parent_id \
         GROUP BY p.run, p.question_id, p.leaf",
        all_columns = nodes.with_tokens(),
        with = with_path_to_root("path_to_root", nodes, &all_ends_and_parents(nodes)),
    )
}

/// The steps on the paths to `ends`, each once.
pub fn steps_to(nodes: &Nodes, ends: &str) -> String {
    format!(
        "SELECT n.run, n.question_id, n.node_id, n.parent_id, n.depth, n.state, n.action, n.prompt, n.response FROM {nodes} n \
         JOIN ({with} SELECT DISTINCT p.run, p.question_id, p.node_id, p.parent_id FROM path_to_root p \
         JOIN ({ends}) e ON e.run = p.run AND e.question_id = p.question_id AND e.node_id = p.leaf) k \
         ON k.run = n.run AND k.question_id = n.question_id AND k.node_id = n.node_id AND k.parent_id = n.parent_id",
        with = with_path_to_root("path_to_root", nodes, &all_ends_and_parents(nodes)),
    )
}

/// `WITH RECURSIVE name AS (..)`: from each of `leaves`, itself included, up to the first step; `leaf` says whose a node is.
///
/// It finds the node ids of all paths, and reads nothing else: tables have no alias in it, and all of its columns are to be read after it, since
/// DataFusion would else read every column of the table for each level of the trees. One that is inside of another has another name.
pub fn with_path_to_root(name: &str, nodes: &Nodes, leaves: &str) -> String {
    let table = &nodes.table;
    format!(
        "WITH RECURSIVE {name} AS (SELECT run, question_id, node_id AS leaf, node_id, parent_id FROM {leaves} \
         UNION ALL SELECT {table}.run, {table}.question_id, {name}.leaf, {table}.node_id, {table}.parent_id \
         FROM {name} JOIN {nodes} ON {table}.run = {name}.run AND {table}.question_id = {name}.question_id \
         AND {table}.node_id = {name}.parent_id WHERE {table}.depth > 0)"
    )
}

/// Those of [`all_ends`], as they stand in the table.
fn all_ends_and_parents(nodes: &Nodes) -> String {
    format!("{nodes} WHERE is_terminal AND depth > 0")
}
