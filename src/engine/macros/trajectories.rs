//! `trajectories`: what supervised and rejection-sampling fine-tuning read, from trees.

use arrow::datatypes::DataType;

use super::Macro;
use super::call::{Call, Nodes};
use super::paths::{all_ends, paths, steps_to};
use super::transcripts::transcripts;
use crate::engine::apply::arguments::Parameter;
use crate::engine::function::chat_content;
use crate::error::Result;

pub const MACRO: Macro = Macro {
    name: "trajectories",
    parameters: &[
        Parameter::table("nodes"),
        Parameter::constant("min_reward", DataType::Float64),
        Parameter::constant("per_question", DataType::Int64),
        Parameter::constant("format", DataType::Utf8),
        Parameter::constant("policy", DataType::Utf8),
        Parameter::constant("malformed", DataType::Boolean),
        Parameter::constant("protocol", DataType::Utf8),
    ],
    sql,
};

/// The layout of the trajectories.
#[derive(Clone, Copy)]
enum Format {
    /// One row for each path, with all that is known of it.
    RolloutDb,
    /// TRL's prompt-completion rows, one for each step.
    Trl,
    /// TRL's conversations, one for each transcript.
    Messages,
    /// LLaMA-Factory's alpaca rows, one for each step.
    LlamaFactory,
    /// LLaMA-Factory's conversations (`"formatting": "sharegpt"`), one for each transcript.
    ShareGpt,
}

const FORMATS: &[(&str, Format)] = &[
    ("rolloutdb", Format::RolloutDb),
    ("trl", Format::Trl),
    ("messages", Format::Messages),
    ("llama_factory", Format::LlamaFactory),
    ("sharegpt", Format::ShareGpt),
];

/// How a layout writes the turns of a conversation.
struct Turns {
    column: &'static str,
    /// The keys of a turn.
    role: &'static str,
    content: &'static str,
    /// Who asks, who tells what was found, and the policy.
    asks: &'static str,
    tells: &'static str,
    answers: &'static str,
}

/// Passages are told by the user: many chat templates know no other role, or want a tool call before.
const MESSAGES: Turns = Turns { column: "messages", role: "role", content: "content", asks: "user", tells: "user", answers: "assistant" };

const SHAREGPT: Turns =
    Turns { column: "conversations", role: "from", content: "value", asks: "human", tells: "observation", answers: "gpt" };

fn sql(call: &Call) -> Result<String> {
    let nodes = call.nodes()?;
    let ends = ends(call, &nodes)?;
    let (format, policy) = (call.word("format", FORMATS)?, call.text("policy")?);
    if let Some(policy) = policy.as_deref().filter(|_| !matches!(format, Format::Messages | Format::ShareGpt)) {
        return Err(call.wrong(
            "policy",
            &format!("'{policy}'"),
            "format => 'messages' or 'sharegpt' with it: other formats have the prompts as they are",
        ));
    }
    let form = call.well_formed()?;
    let form = form.as_deref();
    let wanted = form.map(|form| format!(" WHERE {form}")).unwrap_or_default();
    Ok(match format {
        Format::RolloutDb => whole_paths(&nodes, &ends, call)?,
        Format::Trl => format!("SELECT prompt, response AS completion FROM ({}) steps{wanted}", steps_to(&nodes, &ends)),
        Format::LlamaFactory => {
            format!("SELECT prompt AS instruction, '' AS input, response AS output FROM ({}) steps{wanted}", steps_to(&nodes, &ends))
        }
        Format::Messages => conversations(&nodes, &ends, policy.as_deref(), &MESSAGES, form),
        Format::ShareGpt => conversations(&nodes, &ends, policy.as_deref(), &SHAREGPT, form),
    })
}

/// The ends of the paths that are wanted.
fn ends(call: &Call, nodes: &Nodes) -> Result<String> {
    let min_reward = call.number("min_reward")?.map(|least| format!(" AND coalesce(outcome_reward, 0) >= {least}")).unwrap_or_default();
    let ends = all_ends(nodes) + &min_reward;
    let Some(per_question) = call.integer("per_question", 1)? else { return Ok(ends) };
    let order = "coalesce(outcome_reward, 0) DESC, depth, node_id";
    Ok(format!(
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY run, question_id ORDER BY {order}) AS place FROM ({ends}) e) f \
         WHERE place <= {per_question}"
    ))
}

/// One row for each path from a question to an end.
///
/// Where the protocol only appends to what the policy has seen, the whole path is one completion of its first prompt too.
/// A malformed step is marked: it is counted, and what was written in it is read and not learned, unless every step is wanted.
fn whole_paths(nodes: &Nodes, ends: &str, call: &Call) -> Result<String> {
    let malformed = call.boolean("malformed")?.unwrap_or(false);
    let actions = if malformed { "" } else { ", p.actions" };
    let wanted = call.protocol("protocol")?.map(|name| format!(" WHERE well_formed('{name}', states, completions)")).unwrap_or_default();
    Ok(format!(
        "SELECT question_id, node_id, node_ids, answer, reward, steps, states, actions, queries, empty_searches, prompts, completions, \
         CASE WHEN parts IS NOT NULL THEN prompts[1] END AS prompt, array_to_string(parts, '') AS completion, parts, mask, \
         CASE WHEN parts IS NOT NULL THEN sequence_prompt_ids(prompt_ids, token_ids, token_masks) END AS prompt_ids, \
         CASE WHEN parts IS NOT NULL THEN sequence_token_ids(prompt_ids, token_ids, token_masks) END AS token_ids, \
         CASE WHEN parts IS NOT NULL THEN sequence_token_mask(prompt_ids, token_ids, token_masks) END AS token_mask, \
         CAST(cardinality(array_positions(actions, 'malformed')) AS bigint) AS malformed \
         FROM (SELECT n.question_id, n.node_id, p.node_ids, n.answer, coalesce(n.outcome_reward, 0) AS reward, n.depth AS steps, \
         p.states, p.actions, p.queries, p.empty_searches, p.prompts, p.completions, p.prompt_ids, p.token_ids, p.token_masks, completion_parts(p.prompts, p.completions) AS parts, \
         completion_mask(p.prompts, p.completions{actions}) AS mask FROM {nodes} n \
         JOIN ({paths}) p ON p.run = n.run AND p.question_id = n.question_id AND p.leaf = n.node_id) t{wanted}",
        paths = paths(nodes, ends, malformed)
    ))
}

/// One row for each transcript on the paths: in turn what the policy was told and what it wrote. `policy`: whose chat template is taken off.
fn conversations(nodes: &Nodes, ends: &str, policy: Option<&str>, turns: &Turns, form: Option<&str>) -> String {
    let Turns { column, role, content, asks, tells, answers } = turns;
    let (steps, written) = match policy {
        Some(policy) => (with_template(&steps_to(nodes, ends), policy), ", written"),
        None => (steps_to(nodes, ends), ""),
    };
    // Only a first prompt is written by the template; later ones go on from it.
    let first = format!("{}(CASE WHEN put_in IS NULL THEN prompt END{written})", chat_content::NAME);
    let told = format!(
        "named_struct('{role}', CASE WHEN put_in IS NULL THEN '{asks}' ELSE '{tells}' END, '{content}', coalesce(put_in, {first}))"
    );
    let wrote = format!("named_struct('{role}', '{answers}', '{content}', response)");
    let columns = format!("flatten(array_agg(make_array({told}, {wrote}) ORDER BY depth)) AS {column}");
    // What a step of a path goes on from is on the path.
    let before = format!("SELECT run, question_id, node_id, prompt, response FROM {nodes} WHERE depth > 0");
    transcripts(nodes, &steps, &before, &columns, form)
}

/// `steps` with a column `written`: what the policy's chat template makes of [`chat_content::MARK`], asked for once.
fn with_template(steps: &str, policy: &str) -> String {
    let (policy, mark) = (policy.replace('\'', "''"), chat_content::MARK);
    format!(
        "SELECT s.*, w.written FROM ({steps}) s CROSS JOIN \
         (SELECT apply_chat_template('{policy}', '[{{\"role\": \"user\", \"content\": \"{mark}\"}}]', true) AS written) w"
    )
}
