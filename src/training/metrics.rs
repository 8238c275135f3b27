//! Names of metrics: each is a constant, so that one is spelled in one place and a row costs no text.
//!
//! A checkpoint gives its metrics back as texts; [`known`] turns them into the constants again. A method with a metric of its own adds
//! the name here.

/// What an objective measures, over the rows that it learns from and over those that it is validated with.
const MEASURED: &[(&str, &str)] = &[
    (LOSS, VALIDATION_LOSS),
    ("reward_margin", "validation_reward_margin"),
    ("reward_accuracy", "validation_reward_accuracy"),
    ("chosen_reward", "validation_chosen_reward"),
    ("rejected_reward", "validation_rejected_reward"),
    ("chosen_logps", "validation_chosen_logps"),
    ("rejected_logps", "validation_rejected_logps"),
    ("sft_loss", "validation_sft_loss"),
    (ENTROPY, "validation_entropy"),
    ("accuracy", "validation_accuracy"),
    (TOKEN_ACCURACY, "validation_token_accuracy"),
    ("mean_score", "validation_mean_score"),
];

/// What online training tells of the trajectories that it samples, and of what it learns from them.
const ONLINE: &[&str] = &[
    "reward",
    "reward_std",
    "exact_match",
    "f1",
    "answered",
    "well_formed",
    "groups_without_signal",
    "policy_calls",
    "completion_length",
    "completion_tokens",
    "correct_logps",
    "step_score",
    "advantage_mean",
    "advantage_std",
    "kl",
    "clip_fraction",
    "guard_loss",
    "value_loss",
    "value_clip_fraction",
    "explained_variance",
    "critic_grad_norm",
    ROLLOUT_S,
    "validation_reward",
    "validation_exact_match",
    "validation_f1",
    "validation_answered",
    "validation_well_formed",
];

/// What every optimiser step adds.
const OF_STEP: &[&str] = &["learning_rate", "grad_norm", "tokens", "distinct_tokens", TOKENS_PER_S, MEMORY_MB];

/// What became of prompts that are too long, in all rows that are learned from; the first step tells it.
const OF_PROMPTS: &[&str] = &[TRUNCATED_PROMPTS, TRUNCATED_DOCUMENTS, DROPPED_EXAMPLES];
/// Prompts that lost their beginning.
pub const TRUNCATED_PROMPTS: &str = "truncated_prompts";
/// Prompts that lost the beginning of the documents in them.
pub const TRUNCATED_DOCUMENTS: &str = "truncated_documents";
pub const DROPPED_EXAMPLES: &str = "dropped_examples";

/// What stands before the name of a metric of the validation.
const VALIDATION: &str = "validation_";

/// Metrics that another run of the same statement does not repeat.
pub(super) const TOKENS_PER_S: &str = "tokens_per_s";
pub(super) const MEMORY_MB: &str = "memory_mb";
pub(super) const ROLLOUT_S: &str = "rollout_s";

const LOSS: &str = "loss";
pub(super) const VALIDATION_LOSS: &str = "validation_loss";
/// Mean entropy of what the tokens that are learned are, or would be, sampled from, in nats.
pub(super) const ENTROPY: &str = "entropy";
/// Share of the tokens that are learned, of the validation's rows, that the policy finds more probable than any other, weighted as in the loss.
pub(super) const TOKEN_ACCURACY: &str = "token_accuracy";

/// Metrics that can decide about early stopping, without the `validation_` before them, and whether more of them is better. Of the others, such as
/// `rejected_logps`, nobody knows.
const DECIDING: &[(&str, bool)] = &[
    (LOSS, false),
    (TOKEN_ACCURACY, true),
    ("reward_accuracy", true),
    ("reward_margin", true),
    ("chosen_reward", true),
    ("chosen_logps", true),
    ("sft_loss", false),
    ("accuracy", true),
    ("reward", true),
    ("exact_match", true),
    ("f1", true),
    ("answered", true),
    ("well_formed", true),
];

/// A metric of the validation that decides about early stopping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoppingMetric {
    name: &'static str,
    is_higher_better: bool,
}

impl StoppingMetric {
    /// The one of this name, with `validation_` before it or without; `None` for a name that cannot decide.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix(VALIDATION).unwrap_or(name);
        DECIDING.iter().find(|(known, _)| *known == name).map(|&(name, is_higher_better)| Self { name, is_higher_better })
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Its value among the metrics of a validation, turned round where more is better: the smaller the better. `None` where they do not have it.
    pub(super) fn of(self, validated: &[(&'static str, f64)]) -> Option<f64> {
        let is_it = |name: &str| name.strip_prefix(VALIDATION) == Some(self.name);
        let value = validated.iter().find(|(name, _)| is_it(name)).map(|(_, value)| *value)?;
        Some(if self.is_higher_better { -value } else { value })
    }
}

/// The constant that is this text; `None` for a text that is no metric's name.
pub(super) fn known(name: &str) -> Option<&'static str> {
    let measured = MEASURED.iter().flat_map(|&(training, validation)| [training, validation]);
    measured.chain(ONLINE.iter().chain(OF_STEP).chain(OF_PROMPTS).copied()).find(|known| *known == name)
}

/// What a metric of an objective is called when it is one of the validation.
pub(super) fn of_validation(name: &str) -> Option<&'static str> {
    MEASURED.iter().find(|(training, _)| *training == name).map(|(_, validation)| *validation)
}

/// Resident memory of this process in MiB; `None` where the system does not say.
pub(super) fn memory_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    // The unit is fixed: 1024 bytes, called kB.
    let kib: f64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_decide_are_those_of_a_validation_and_know_what_is_better() {
        for (name, is_higher_better) in DECIDING {
            let validation = format!("{VALIDATION}{name}");
            let metric = StoppingMetric::of_name(&validation).expect("with the prefix or without");
            assert_eq!(Some(metric), StoppingMetric::of_name(name));
            let known = known(&validation).expect("a checkpoint gives it back");
            assert_eq!(metric.of(&[("validation_other", 1.0), (known, 0.25)]), Some(if *is_higher_better { -0.25 } else { 0.25 }));
            assert_eq!(metric.of(&[("loss", 1.0)]), None, "of a step, and of no validation");
        }
        for name in ["rejected_logps", "mean_score", "grad_norm", "validation_", ""] {
            assert_eq!(StoppingMetric::of_name(name), None, "{name}");
        }
    }
}
