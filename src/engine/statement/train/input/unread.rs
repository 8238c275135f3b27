//! Columns that TRAIN does not read, beside others that it could.

use datafusion::logical_expr::LogicalPlan;

use super::{CHOSEN_LOGPS, PAIR_IDS, REFERENCE, REJECTED_LOGPS, TOKEN_MASK};
use crate::engine::session::Session;
use crate::engine::statement::train::task::Method;
use crate::error::nearest;

/// Columns that some method or form reads.
const READ: [&str; 19] = [
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "step",
    "label",
    "parts",
    "mask",
    TOKEN_MASK,
    "prompt_ids",
    "completion_ids",
    "weight",
    "reward",
    "score",
    CHOSEN_LOGPS,
    REJECTED_LOGPS,
    REFERENCE,
    PAIR_IDS[0],
    PAIR_IDS[1],
];
/// Shorter names are like many others.
const MISSPELT_MIN: usize = 5;

/// Columns that change what is learned by SFT and RFT, and that no other method reads.
const OF_EXAMPLES: [&str; 3] = ["weight", "mask", TOKEN_MASK];

/// Warns of a column that is not read where one that could be is missing: it may be that one, misspelt; and of one that other methods read. `of`: the query,
/// as messages name it.
pub fn warn(session: &Session, of: &str, method: &Method, plan: &LogicalPlan) {
    let optional: &[&str] = match method {
        Method::Dpo(_) => &[CHOSEN_LOGPS, REJECTED_LOGPS],
        Method::Sft(_) => &["weight", "mask"],
        Method::Rft(_) => &["weight", "mask", "score"],
        Method::Prm(_) => &[],
    };
    let columns = names(plan);
    if matches!(method, Method::Dpo(_) | Method::Prm(_)) {
        warn_of_examples(session, of, &columns);
    }
    let absent: Vec<String> = optional.iter().filter(|name| !columns.contains(*name)).map(|name| (*name).to_owned()).collect();
    for name in columns.into_iter().filter(|name| name.len() >= MISSPELT_MIN && !READ.contains(name)) {
        if let Some(meant) = nearest(name, &absent) {
            session.notices().warning(format!("column \"{name}\" is not read by {of}; did you mean \"{meant}\"?"));
        }
    }
}

/// As [`warn()`], of the questions of an online training. What trajectories earn is no column there, and questions are told apart by `id` alone.
pub fn warn_of_questions(session: &Session, of: &str, plan: &LogicalPlan) {
    let columns = names(plan);
    warn_of_examples(session, of, &columns);
    for name in ["reward", "score"].into_iter().filter(|name| columns.contains(name)) {
        session
            .notices()
            .warning(format!("column \"{name}\" is not read by {of}, whose trajectories earn what its options say; TRAIN RFT reads it"));
    }
    if columns.contains(&"question_id") && !columns.contains(&"id") {
        session.notices().warning(format!("column \"question_id\" is not read by {of}; did you mean \"id\"?"));
    }
}

fn warn_of_examples(session: &Session, of: &str, columns: &[&str]) {
    for name in OF_EXAMPLES.into_iter().filter(|name| columns.contains(name)) {
        session.notices().warning(format!("column \"{name}\" is not read by {of}; TRAIN SFT and TRAIN RFT read it"));
    }
}

fn names(plan: &LogicalPlan) -> Vec<&str> {
    plan.schema().fields().iter().map(|field| field.name().as_str()).collect()
}
