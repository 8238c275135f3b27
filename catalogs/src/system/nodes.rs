//! The search tree: one row per node, so that SQL can walk it.

use arrow::datatypes::DataType::{Boolean, Float32, Float64, Int32, Int64, Utf8};

use super::{define, list, optional, required};
use crate::TableDefinition;

/// The table that GENERATE ROLLOUTS fills. Key: run, question_id, node_id.
#[must_use]
pub fn node_definition() -> TableDefinition {
    let columns = vec![
        required("run", Utf8, "Name of the run that made the node."),
        required("question_id", Utf8, "Id of the question whose tree this is."),
        required("node_id", Int64, "Number of the node in its tree; the root is 0."),
        optional("parent_id", Int64, "Node that this one was expanded from; NULL at the root."),
        required("depth", Int32, "Steps from the root; 0 at the root."),
        required("state", Utf8, "State of the protocol in which the policy acted: begin_reasoning, reasoning, ..."),
        optional("action", Utf8, "query_generation, evidence_extraction, sub_answer, thought, answer_generation or malformed."),
        optional("prompt", Utf8, "Text that the policy saw."),
        optional("response", Utf8, "Text that the policy wrote."),
        optional("query", Utf8, "What was retrieved with after the step, by the policy or by the protocol; NULL without a retrieval."),
        optional("evidence", Utf8, "Evidence that the step extracted, or the sub-answer that it gave; NULL without one."),
        optional("answer", Utf8, "Answer of a terminal node."),
        optional("passage_ids", list(Utf8), "Ids of the passages retrieved after the step, and before the first one, best first."),
        required("visit_count", Int64, "Times that the search passed through the node (N)."),
        required("value_sum", Float64, "Sum of the values backed up through the node (W)."),
        optional("q_value", Float64, "Mean value (Q): value_sum by the visits that gave a value; NULL where none did."),
        optional("prior", Float64, "Share of the samples at the parent that were this step (P)."),
        optional("process_reward", Float64, "Mean of the rewards of completions, or of a model's values, at and below the node."),
        optional("outcome_reward", Float64, "Score of the answer of a terminal node."),
        required("is_terminal", Boolean, "Whether the trajectory ends here."),
        optional("token_ids", list(Int32), "Sampled tokens of the response, as sampled."),
        optional("token_logprobs", list(Float32), "Natural log-probability of each sampled token under the policy."),
        required("policy", Utf8, "Name of the model that wrote the response."),
        required("policy_version", Int32, "Version of that model."),
        required("corpus_version", Int64, "Version of the corpus table that was searched."),
        optional("seed", Int64, "Seed of the sampling of this node; NULL at the root."),
        optional("prompt_tokens", Int32, "Prompt tokens read at the node, equal samples and simulated completions included."),
        optional("cached_tokens", Int32, "Those of them whose keys and values were cached; depends on what else ran."),
        optional("generated_tokens", Int32, "Tokens sampled at the node, equal samples and simulated completions included."),
        optional("latency_ms", Float64, "Time of all generations at the node in milliseconds."),
        optional(
            "cost",
            Float64,
            "Price of these generations, those of kept answers too; NULL where none has a price, or a server did not count.",
        ),
        optional("is_best", Boolean, "Whether the node is on the way to the best of n trajectories; NULL unless method = 'best_of_n'."),
        optional("prompt_ids", list(Int32), "Tokens of the prompt, as the policy read them; NULL if it does not tell."),
        optional("token_mask", list(Int32), "For each of token_ids 1 if the response is of it, 0 if it was written after the action."),
    ];
    define(columns, &["run", "question_id", "node_id"])
}
