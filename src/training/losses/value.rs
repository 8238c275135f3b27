//! The loss of a value estimate.

use super::reward::ScoreTerm;

/// PPO's value loss, `½ max((v − target)², (clip(v, old ± clip) − target)²)`: a value that has moved further than `clip` from where it was
/// when the trajectory was sampled, towards its target, is not pulled on (as in the PPO of OpenAI's baselines, TRL and verl).
///
/// `clip`: > 0. Where the two are equal the unclipped one counts.
pub fn clipped_value(value: f64, old_value: f64, target: f64, clip: f64) -> ScoreTerm {
    let error = value - target;
    // A value that is not a number stays one, unlike with `max` and `min`.
    let near = if (value - old_value).abs() > clip { old_value + clip.copysign(value - old_value) } else { value };
    let clipped_error = near - target;
    if clipped_error * clipped_error > error * error {
        ScoreTerm { loss: 0.5 * clipped_error * clipped_error, d_score: 0.0 }
    } else {
        ScoreTerm { loss: 0.5 * error * error, d_score: error }
    }
}
