//! A guard of likelihood: keeps good trajectories as likely as they were.

/// A penalty on the tokens of a good trajectory that have become less likely, and its derivatives by `logps`; in the manner of LLDS (Deng
/// et al. 2025, arXiv:2512.04220), which found that under GRPO trajectories with search lose likelihood, the right ones too, until
/// training collapses.
///
/// It is `weight · mean over active tokens of max(0, old_logp − logp)` if the trajectory is good (`advantage >= 0`) and less likely than
/// before (`Σ (logp − old_logp) < 0` over active tokens), and 0 otherwise. The trajectory may be a whole one or one action of it: what is
/// given here is judged as one. The formula is ours; the paper has variants of its own.
///
/// `logps`, `old_logps`, `active`: `[T]`, natural log, now and when sampled. `weight`: >= 0.
pub fn likelihood_guard(logps: &[f64], old_logps: &[f64], active: &[bool], advantage: f64, weight: f64) -> (f64, Vec<f64>) {
    debug_assert!(logps.len() == old_logps.len() && logps.len() == active.len());
    let mut d_logps = vec![0.0; logps.len()];
    let tokens: Vec<usize> = (0..logps.len()).filter(|&token| active[token]).collect();
    let change: f64 = tokens.iter().map(|&token| logps[token] - old_logps[token]).sum();
    if advantage < 0.0 || change >= 0.0 {
        return (0.0, d_logps);
    }
    let share = weight / tokens.len() as f64;
    let mut loss = 0.0;
    for token in tokens.into_iter().filter(|&token| logps[token] < old_logps[token]) {
        loss += share * (old_logps[token] - logps[token]);
        d_logps[token] = -share;
    }
    (loss, d_logps)
}
