//! Scores of answers against gold answers, and of retrieved passages against gold passages.
//!
//! One normaliser and one definition of each score serve rewards, filters and evaluation alike. The definitions are
//! FlashRAG's (arXiv:2405.13576), which are SQuAD's; where a corner case is not FlashRAG's, the function says so.

mod accuracy;
mod answer;
pub(crate) mod ci95;
mod exact_match;
mod f1_score;
mod mrr;
mod normalize_answer;
mod overlap;
mod precision_score;
mod recall_at_k;
mod recall_score;

pub use accuracy::accuracy;
pub use exact_match::exact_match;
pub use f1_score::f1_score;
pub use mrr::mrr;
pub use normalize_answer::normalize_answer;
pub use precision_score::precision_score;
pub use recall_at_k::recall_at_k;
pub use recall_score::recall_score;

pub(crate) const FUNCTIONS: &[&crate::function::Function] = &[
    &normalize_answer::FUNCTION,
    &exact_match::FUNCTION,
    &f1_score::FUNCTION,
    &precision_score::FUNCTION,
    &recall_score::FUNCTION,
    &accuracy::FUNCTION,
    &recall_at_k::FUNCTION,
    &mrr::FUNCTION,
];

const SECTION: &str = "Metrics";
