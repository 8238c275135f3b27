//! Columns that TRAIN does not read, beside others that it could.

use datafusion::logical_expr::LogicalPlan;

use super::{CHOSEN_LOGPS, PAIR_IDS, REFERENCE, REJECTED_LOGPS};
use crate::engine::session::Session;
use crate::engine::statement::train::task::Method;
use crate::error::nearest;

/// Columns that some method or form reads.
const READ: [&str; 18] = [
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "step",
    "label",
    "parts",
    "mask",
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
const OF_EXAMPLES: [&str; 2] = ["weight", "mask"];

/// Warns of a column that is not read where one that could be is missing: it may be that one, misspelt; and of one that other methods read. `of`: the query,
/// as messages name it.
pub fn warn(session: &Session, of: &str, method: &Method, plan: &LogicalPlan) {
    let optional: &[&str] = match method {
        Method::Dpo(_) => &[CHOSEN_LOGPS, REJECTED_LOGPS],
        Method::Sft(_) => &["weight"],
        Method::Rft(_) => &["weight", "score"],
        Method::Prm(_) => &[],
    };
    let fields = plan.schema().fields();
    if matches!(method, Method::Dpo(_) | Method::Prm(_)) {
        for name in OF_EXAMPLES.into_iter().filter(|name| fields.iter().any(|field| field.name() == name)) {
            session.notices().warning(format!("column \"{name}\" is not read by {of}; TRAIN SFT and TRAIN RFT read it"));
        }
    }
    let absent: Vec<String> =
        optional.iter().filter(|name| fields.iter().all(|field| field.name() != *name)).map(|name| (*name).to_owned()).collect();
    for name in fields.iter().map(|field| field.name()).filter(|name| name.len() >= MISSPELT_MIN && !READ.contains(&name.as_str())) {
        if let Some(meant) = nearest(name, &absent) {
            session.notices().warning(format!("column \"{name}\" is not read by {of}; did you mean \"{meant}\"?"));
        }
    }
}
