//! Names of metrics: each is a constant, so that one is spelled in one place and a row costs no text.
//!
//! A checkpoint gives its metrics back as texts; [`known`] turns them into the constants again. A method with a metric of its own adds
//! the name here.

/// What an objective measures, over the rows that it learns from and over those that it is validated with.
const MEASURED: &[(&str, &str)] = &[
    ("loss", "validation_loss"),
    ("reward_margin", "validation_reward_margin"),
    ("reward_accuracy", "validation_reward_accuracy"),
    ("chosen_reward", "validation_chosen_reward"),
    ("rejected_reward", "validation_rejected_reward"),
    ("chosen_logps", "validation_chosen_logps"),
    ("rejected_logps", "validation_rejected_logps"),
    ("sft_loss", "validation_sft_loss"),
    ("accuracy", "validation_accuracy"),
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
    "entropy",
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

/// Metrics that another run of the same statement does not repeat.
pub(super) const TOKENS_PER_S: &str = "tokens_per_s";
pub(super) const MEMORY_MB: &str = "memory_mb";
pub(super) const ROLLOUT_S: &str = "rollout_s";

/// The loss over the validation's rows, which decides about early stopping.
pub(super) const VALIDATION_LOSS: &str = "validation_loss";

/// The constant that is this text; `None` for a text that is no metric's name.
pub(super) fn known(name: &str) -> Option<&'static str> {
    let measured = MEASURED.iter().flat_map(|&(training, validation)| [training, validation]);
    measured.chain(ONLINE.iter().chain(OF_STEP).copied()).find(|known| *known == name)
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
