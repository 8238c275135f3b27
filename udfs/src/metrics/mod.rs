//! Scores of answers against gold answers, and of retrieved passages against gold passages.
//!
//! One normaliser and one definition of each score serve rewards, filters and evaluation alike. The definitions are
//! FlashRAG's (arXiv:2405.13576), which are SQuAD's; where a corner case is not FlashRAG's, the function says so. Those of other
//! published systems stand beside them by name ([`Variant`]), and rewards are made of them.

mod accuracy;
mod answer;
pub(crate) mod ci95;
mod exact_match;
mod f1_score;
mod hit_at_k;
mod mrr;
mod ndcg_at_k;
mod normalize_answer;
mod overlap;
pub(crate) mod paired_test;
mod precision_at_k;
mod precision_score;
mod ranking;
mod recall_at_k;
mod recall_score;
pub(crate) mod rewards;
mod variant;
mod word;

pub use accuracy::accuracy;
pub use exact_match::{exact_match, exact_match_of};
pub use f1_score::{f1_score, f1_score_of};
pub use hit_at_k::hit_at_k;
pub use mrr::mrr;
pub use ndcg_at_k::ndcg_at_k;
pub use normalize_answer::normalize_answer;
pub use precision_at_k::precision_at_k;
pub use precision_score::precision_score;
pub use recall_at_k::recall_at_k;
pub use recall_score::recall_score;
pub use rewards::{Formats, KeptFormat, Outcome, OutcomeReward, WrittenStep, prorag_step_reward, redundant_searches, relevance_factor};
pub use variant::Variant;

pub(crate) const FUNCTIONS: &[&crate::function::Function] = &[
    &normalize_answer::FUNCTION,
    &exact_match::FUNCTION,
    &f1_score::FUNCTION,
    &precision_score::FUNCTION,
    &recall_score::FUNCTION,
    &accuracy::FUNCTION,
    &recall_at_k::FUNCTION,
    &precision_at_k::FUNCTION,
    &hit_at_k::FUNCTION,
    &ndcg_at_k::FUNCTION,
    &mrr::FUNCTION,
];

const SECTION: &str = "Metrics";
