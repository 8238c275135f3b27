//! `preference_pairs`: what training by preference reads, from trees.

use arrow::datatypes::DataType;

use super::Macro;
use super::call::{Call, Nodes};
use super::paths::{all_ends, paths};
use crate::engine::apply::arguments::Parameter;
use crate::error::Result;

pub const MACRO: Macro = Macro {
    name: "preference_pairs",
    parameters: &[
        Parameter::table("nodes"),
        Parameter::constant("min_gap", DataType::Float64),
        Parameter::constant("format", DataType::Utf8),
        Parameter::constant("level", DataType::Utf8),
        Parameter::constant("min_visits", DataType::Int64),
        Parameter::constant("per_node", DataType::Int64),
        Parameter::constant("dedupe", DataType::Boolean),
        Parameter::constant("protocol", DataType::Utf8),
        Parameter::constant("reference", DataType::Boolean),
    ],
    sql,
};

/// The least difference of rewards that makes a pair, as in the published set (arXiv:2505.14069).
const DEFAULT_MIN_GAP: f64 = 0.01;

/// What is compared.
#[derive(Clone, Copy)]
enum Level {
    /// Siblings under one parent, by process reward.
    Step,
    /// Whole paths from one question to an end, by the score of their answers.
    Trajectory,
}

const LEVELS: &[(&str, Level)] = &[("step", Level::Step), ("trajectory", Level::Trajectory)];

/// The layout of the pairs.
#[derive(Clone, Copy)]
enum Format {
    RolloutDb,
    /// The published RAG-ProGuide set's: `prompt` tells what a system and a user say, here a user alone; `layer` is 0 at the root's children.
    RagProGuide,
    /// LLaMA-Factory's alpaca rows with `ranking: true`.
    LlamaFactory,
    /// TRL's preference rows with an explicit prompt.
    Trl,
}

const FORMATS: &[(&str, Format)] = &[
    ("rolloutdb", Format::RolloutDb),
    ("rag_proguide", Format::RagProGuide),
    ("llama_factory", Format::LlamaFactory),
    ("trl", Format::Trl),
];

/// Conditions first, then each pair once, then the best of a node: so that a limit is not used up by copies.
fn sql(call: &Call) -> Result<String> {
    let nodes = call.nodes()?;
    let min_gap = call.positive_number("min_gap")?.unwrap_or(DEFAULT_MIN_GAP);
    let visited = call.integer("min_visits", 0)?.map(visited).unwrap_or_default();
    let protocol = call.protocol("protocol")?;
    let (level, format) = (call.word("level", LEVELS)?, call.word("format", FORMATS)?);
    let has_reference = call.boolean("reference")?.unwrap_or(false);
    if has_reference && !matches!((level, format), (Level::Step, Format::RolloutDb | Format::Trl)) {
        return Err(call.wrong(
            "reference",
            "true",
            "level => 'step' and format => 'rolloutdb' or 'trl' beside it: one response was sampled as a whole",
        ));
    }
    let mut pairs = match level {
        Level::Step => steps(&nodes, min_gap, &visited, protocol, has_reference),
        Level::Trajectory => trajectories(&nodes, min_gap, &visited, protocol),
    };
    if call.boolean("dedupe")?.unwrap_or(false) {
        pairs = first(&pairs, "copy_number", "prompt, chosen, rejected", 1);
    }
    if let Some(per_node) = call.integer("per_node", 1)? {
        pairs = first(&pairs, "place", "run, question_id, node_id", per_node);
    }
    let reference = if has_reference { format!(", {REFERENCE}") } else { String::new() };
    Ok(format!("SELECT {}{reference} FROM ({pairs}) pairs", columns(format)))
}

/// What TRAIN DPO takes for its reference, if the policy that made the rollouts is its base.
const REFERENCE: &str = "reference, reference_chosen_logps, reference_rejected_logps, chosen_ids, rejected_ids, prompt_ids";

fn columns(format: Format) -> &'static str {
    match format {
        Format::RolloutDb => {
            "question_id, depth, prompt, chosen, rejected, chosen_action, rejected_action, chosen_content, rejected_content, \
             chosen_reward, rejected_reward"
        }
        Format::RagProGuide => {
            "'' AS instruction, prompt AS input, 'System: ' || chr(10) || 'User: ' || prompt AS prompt, chosen, rejected, \
             initcap(replace(chosen_action, '_', ' ')) AS chosen_action_type, coalesce(chosen_content, '') AS chosen_content, \
             CASE rejected_action WHEN 'malformed' THEN 'Other' ELSE initcap(replace(rejected_action, '_', ' ')) END AS rejected_action_type, \
             CASE rejected_action WHEN 'malformed' THEN '' ELSE coalesce(rejected_content, '') END AS rejected_content, depth - 1 AS layer"
        }
        Format::LlamaFactory => "prompt AS instruction, '' AS input, chosen, rejected",
        Format::Trl => "prompt, chosen, rejected",
    }
}

/// Siblings whose contents differ; the chosen one could be read, and is in the protocol's form if one is named. `node_id` is that of their parent.
///
/// The log-probabilities of sampled tokens are the policy's own, whatever the temperature: they are those of a reference that is this policy. Tokens that
/// were written after the action are left away with theirs.
fn steps(nodes: &Nodes, min_gap: f64, visited: &str, protocol: Option<&str>, has_reference: bool) -> String {
    let content = |side: &str| {
        format!(
            "CASE {side}.action WHEN 'query_generation' THEN {side}.query WHEN 'evidence_extraction' THEN coalesce({side}.evidence, 'None') \
             WHEN 'sub_answer' THEN {side}.evidence WHEN 'answer_generation' THEN {side}.answer ELSE {side}.response END"
        )
    };
    let (chosen_content, rejected_content) = (content("c"), content("r"));
    let in_form = protocol.map(|name| format!(" AND steps_well_formed('{name}', c.state, c.response)")).unwrap_or_default();
    let of_response = |side: &str, column: &str| {
        format!("{side}.{column}[1:CAST(coalesce(array_position({side}.token_mask, 0) - 1, array_length({side}.{column}), 0) AS bigint)]")
    };
    let reference = match has_reference {
        true => format!(
            ", CASE WHEN c.policy = r.policy AND c.policy_version = r.policy_version THEN c.policy || '@' || c.policy_version END AS reference, \
             sequence_logp({}) AS reference_chosen_logps, sequence_logp({}) AS reference_rejected_logps, \
             {} AS chosen_ids, {} AS rejected_ids, c.prompt_ids",
            of_response("c", "token_logprobs"),
            of_response("r", "token_logprobs"),
            of_response("c", "token_ids"),
            of_response("r", "token_ids"),
        ),
        false => String::new(),
    };
    let nodes = if has_reference { nodes.with_tokens() } else { nodes.to_string() };
    format!(
        "SELECT c.run, c.question_id, c.parent_id AS node_id, c.node_id AS chosen_id, r.node_id AS rejected_id, c.depth, c.prompt, \
         c.response AS chosen, r.response AS rejected, c.action AS chosen_action, r.action AS rejected_action, \
         {chosen_content} AS chosen_content, {rejected_content} AS rejected_content, \
         c.process_reward AS chosen_reward, r.process_reward AS rejected_reward{reference} \
         FROM {nodes} c JOIN {nodes} r ON c.run = r.run AND c.question_id = r.question_id AND c.parent_id = r.parent_id \
         WHERE c.process_reward - r.process_reward >= {min_gap} AND c.action <> 'malformed' \
         AND ({chosen_content}) IS DISTINCT FROM ({rejected_content}){visited}{in_form}"
    )
}

/// Paths that end differently, of which the chosen one answers, in the protocol's form if one is named; the texts are what the policy wrote, step
/// after step. `node_id` is the root's.
fn trajectories(nodes: &Nodes, min_gap: f64, visited: &str, protocol: Option<&str>) -> String {
    let ends = format!(
        "SELECT n.run, n.question_id, n.node_id, n.depth, n.action, n.answer, n.visit_count, coalesce(n.outcome_reward, 0) AS reward, \
         p.prompts[1] AS prompt, p.states, p.actions, p.completions, array_to_string(p.completions, chr(10)) AS text FROM {nodes} n JOIN ({}) p \
         ON n.run = p.run AND n.question_id = p.question_id AND n.node_id = p.leaf",
        paths(nodes, &all_ends(nodes), true)
    );
    let in_form = protocol.map(|name| format!(" AND well_formed('{name}', c.states, c.completions)")).unwrap_or_default();
    format!(
        "SELECT c.run, c.question_id, 0 AS node_id, c.node_id AS chosen_id, r.node_id AS rejected_id, c.depth, c.prompt, \
         c.text AS chosen, r.text AS rejected, c.action AS chosen_action, r.action AS rejected_action, \
         c.answer AS chosen_content, r.answer AS rejected_content, c.reward AS chosen_reward, r.reward AS rejected_reward \
         FROM ({ends}) c JOIN ({ends}) r ON c.run = r.run AND c.question_id = r.question_id \
         WHERE c.reward - r.reward >= {min_gap} AND c.action = 'answer_generation' AND NOT array_has(c.actions, 'malformed') \
         AND c.text <> r.text{visited}{in_form}"
    )
}

fn visited(min_visits: i64) -> String {
    format!(" AND c.visit_count >= {min_visits} AND r.visit_count >= {min_visits}")
}

/// The first `count` pairs of each group, those that differ most; `number` is the name of their number in it.
fn first(pairs: &str, number: &str, group: &str, count: i64) -> String {
    let order = "chosen_reward - rejected_reward DESC, run, question_id, chosen_id, rejected_id";
    format!(
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {group} ORDER BY {order}) AS {number} FROM ({pairs}) all_pairs) numbered \
         WHERE {number} <= {count}"
    )
}
