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
];

/// What every optimiser step adds.
const OF_STEP: &[&str] = &["learning_rate", "grad_norm", "tokens", TOKENS_PER_S, MEMORY_MB];

/// Two metrics that another run of the same statement does not repeat.
pub(super) const TOKENS_PER_S: &str = "tokens_per_s";
pub(super) const MEMORY_MB: &str = "memory_mb";

/// The loss over the validation's rows, which decides about early stopping.
pub(super) const VALIDATION_LOSS: &str = "validation_loss";

/// The constant that is this text; `None` for a text that is no metric's name.
pub(super) fn known(name: &str) -> Option<&'static str> {
    let measured = MEASURED.iter().flat_map(|&(training, validation)| [training, validation]);
    measured.chain(OF_STEP.iter().copied()).find(|known| *known == name)
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
