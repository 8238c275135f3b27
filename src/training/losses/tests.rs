//! Losses against PyTorch's autograd and TRL (`tests/fixtures/make_loss_goldens.py`), against central differences, and by their properties.

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::*;
use crate::error::Error;
use crate::models::random::CounterRng;

const STEP: f64 = 1e-5;
const CLIP: Clip = Clip { low: 0.2, high: 0.28 };

fn cases(name: &str) -> Vec<Json> {
    let text = std::fs::read_to_string(crate::fixtures::fixture("training/losses.json")).expect("the fixture is committed");
    let goldens: Json = serde_json::from_str(&text).expect("the fixture is JSON");
    let cases = goldens[name].as_array().expect("a list").clone();
    assert!(cases.len() >= 20, "{name}: {} cases", cases.len());
    cases
}

fn read<T: DeserializeOwned>(case: &Json, name: &str) -> T {
    serde_json::from_value(case[name].clone()).unwrap_or_else(|error| panic!("{name} of {case}: {error}"))
}

fn number(case: &Json, name: &str) -> f64 {
    read(case, name)
}

fn numbers(case: &Json, name: &str) -> Vec<f64> {
    read(case, name)
}

/// Relative to the largest of them: the small ones among centred numbers are what rounding leaves.
fn assert_all_close(found: &[f64], expected: &[f64], what: &Json) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0_f64, |scale, value| scale.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-12 * scale, "{found}, expected {expected}: {what}");
    }
}

fn assert_close(found: f64, expected: f64, what: &Json) {
    assert_all_close(&[found], &[expected], what);
}

/// `found` is the slope of `loss` at `x`.
fn assert_slope(found: f64, x: f64, loss: impl Fn(f64) -> f64, what: &Json) {
    let slope = (loss(x + STEP) - loss(x - STEP)) / (2.0 * STEP);
    assert!((found - slope).abs() <= 1e-7 * slope.abs().max(1.0), "{found}, by differences {slope}: {what}");
}

/// With `token` of `logps` moved to `logp`.
fn moved(logps: &[f64], token: usize, logp: f64) -> Vec<f64> {
    let mut logps = logps.to_vec();
    logps[token] = logp;
    logps
}

fn random(seed: u64, length: u64) -> Vec<f64> {
    (0..length).map(|index| CounterRng::new(seed).normal(index)).collect()
}

fn random_mask(seed: u64, length: u64) -> Vec<bool> {
    (0..length).map(|index| CounterRng::new(seed).stream(1).uniform(index) < 0.6).collect()
}

type ScoreLoss = fn(f64, f64) -> ScoreTerm;

#[test]
fn sigmoids_and_log1m_exp_equal_torch() {
    for case in cases("log_sigmoid") {
        let x = number(&case, "x");
        assert_close(log_sigmoid(x), number(&case, "value"), &case);
        assert_close(sigmoid(-x), number(&case, "d"), &case);
    }
    for case in cases("sigmoid") {
        assert_close(sigmoid(number(&case, "x")), number(&case, "value"), &case);
    }
    for case in cases("log1m_exp") {
        assert_close(log1m_exp(number(&case, "x")), number(&case, "value"), &case);
    }
}

#[test]
fn log1m_exp_keeps_its_digits_at_both_ends() {
    // log(1e-12 − 0.5e-24) and −exp(−700).
    assert!((log1m_exp(-1e-12) / -27.631_021_115_929_048 - 1.0).abs() < 1e-12);
    assert!((log1m_exp(-700.0) / -9.859_676_543_759_77e-305 - 1.0).abs() < 1e-12);
    assert_eq!(log1m_exp(0.0), f64::NEG_INFINITY);
    assert_eq!(log1m_exp(f64::NEG_INFINITY), 0.0);
}

#[test]
fn nll_is_a_weighted_mean_with_matching_derivatives() {
    let (logps, weights) = ([-1.0, -2.0, -4.0], [1.0, 0.5, 0.25]);
    let total = 1.75;
    assert!((weighted_nll(&logps, &weights, total) - 3.0 / 1.75).abs() < 1e-15);
    for (index, derivative) in d_weighted_nll(&weights, total).into_iter().enumerate() {
        let loss = |logp| weighted_nll(&moved(&logps, index, logp), &weights, total);
        assert_slope(derivative, logps[index], loss, &Json::Null);
    }
}

fn preference(case: &Json) -> Preference {
    let label_smoothing = case["label_smoothing"].as_f64().unwrap_or(0.0);
    let loss = match case["loss"].as_str().expect("a name") {
        "sigmoid" => PreferenceLoss::Sigmoid { label_smoothing },
        "hinge" => PreferenceLoss::Hinge,
        "ipo" => PreferenceLoss::Ipo,
        "robust" => PreferenceLoss::Robust { label_smoothing },
        "orpo" => PreferenceLoss::Orpo,
        "simpo" => PreferenceLoss::SimPo { gamma: number(case, "gamma") },
        other => panic!("no loss {other}"),
    };
    assert_eq!(loss.name(), case["loss"]);
    let normalization = LengthNormalization::parse(case["normalization"].as_str().expect("a name")).expect("a known name");
    let preference = Preference { loss, beta: number(case, "beta"), normalization, sft_weight: case["sft_weight"].as_f64().unwrap_or(0.0) };
    preference.check().expect("the fixture's parameters are in range");
    preference
}

fn pair(logps: &[f64]) -> PairLogps {
    PairLogps { policy_chosen: logps[0], policy_rejected: logps[1], reference_chosen: logps[2], reference_rejected: logps[3] }
}

#[test]
fn preference_losses_and_derivatives_equal_torch_and_central_differences() {
    for case in cases("preference") {
        let (preference, logps, lengths) = (preference(&case), numbers(&case, "logps"), read::<Vec<usize>>(&case, "lengths"));
        let lengths = PairLengths { chosen: lengths[0], rejected: lengths[1] };
        let term = preference.term(&pair(&logps), lengths);
        assert_close(term.loss, number(&case, "value"), &case);
        assert_close(term.d_chosen, number(&case, "d_chosen"), &case);
        assert_close(term.d_rejected, number(&case, "d_rejected"), &case);
        assert_close(term.sft_loss, number(&case, "sft_loss"), &case);
        assert_all_close(&[term.chosen_reward, term.rejected_reward], &numbers(&case, "rewards"), &case);
        let loss = |index, logp| preference.term(&pair(&moved(&logps, index, logp)), lengths).loss;
        assert_slope(term.d_chosen, logps[0], |logp| loss(0, logp), &case);
        assert_slope(term.d_rejected, logps[1], |logp| loss(1, logp), &case);
    }
}

#[test]
fn dpo_starts_at_ln_2_with_half_the_slope() {
    let lengths = PairLengths { chosen: 7, rejected: 3 };
    for beta in [0.05, 0.3, 2.0] {
        let term = Preference::sigmoid(beta).term(&pair(&[-20.0, -30.0, -20.0, -30.0]), lengths);
        assert_eq!((term.loss, term.d_chosen, term.d_rejected), (LN_2, -beta / 2.0, beta / 2.0));
        assert_eq!(term.reward_margin(), 0.0);
    }
}

#[test]
fn each_loss_starts_at_its_known_number() {
    let (at_reference, lengths) = (pair(&[-20.0, -30.0, -20.0, -30.0]), PairLengths { chosen: 5, rejected: 10 });
    let start = |loss: PreferenceLoss, beta: f64| {
        let preference = Preference { loss, beta, normalization: loss.default_normalization(), sft_weight: 0.0 };
        preference.term(&at_reference, lengths).loss
    };
    assert!((start(PreferenceLoss::Sigmoid { label_smoothing: 0.1 }, 0.3) - LN_2).abs() < 1e-15);
    assert!((start(PreferenceLoss::Robust { label_smoothing: 0.1 }, 0.3) - LN_2).abs() < 1e-15);
    assert_eq!(start(PreferenceLoss::Hinge, 0.3), 1.0);
    assert!((start(PreferenceLoss::Ipo, 0.3) - 1.0 / (4.0 * 0.09)).abs() < 1e-12);
    // Without a reference the mean log-probabilities count: -4 against -3.
    assert!((start(PreferenceLoss::SimPo { gamma: 0.5 }, 2.0) + log_sigmoid(-2.5)).abs() < 1e-15);
}

#[test]
fn dpo_rewards_are_scaled_log_ratios() {
    let term = Preference::sigmoid(0.5).term(&pair(&[-18.0, -35.0, -20.0, -30.0]), PairLengths { chosen: 4, rejected: 4 });
    assert_eq!((term.chosen_reward, term.rejected_reward, term.reward_margin(), term.sft_loss), (1.0, -2.5, 3.5, 4.5));
}

#[test]
fn dpo_neither_overflows_nor_loses_its_slope_far_away() {
    let lengths = PairLengths { chosen: 1, rejected: 1 };
    let lost = Preference::sigmoid(1.0).term(&pair(&[-5000.0, 0.0, -20.0, -30.0]), lengths);
    assert!((lost.loss - 5010.0).abs() < 1e-9 && (lost.d_chosen + 1.0).abs() < 1e-12);
    let won = Preference::sigmoid(1.0).term(&pair(&[0.0, -5000.0, -20.0, -30.0]), lengths);
    assert!(won.loss >= 0.0 && won.loss < 1e-300 && won.d_chosen.abs() < 1e-300);
}

#[test]
fn a_hinge_lets_go_where_the_margin_is_reached() {
    let hinge = Preference { loss: PreferenceLoss::Hinge, ..Preference::sigmoid(0.5) };
    let lengths = PairLengths { chosen: 1, rejected: 1 };
    let reached = hinge.term(&pair(&[-18.0, -30.0, -20.0, -30.0]), lengths);
    assert_eq!((reached.reward_margin(), reached.loss, reached.d_chosen, reached.d_rejected), (1.0, 0.0, 0.0, 0.0));
    let short = hinge.term(&pair(&[-19.0, -30.0, -20.0, -30.0]), lengths);
    assert_eq!((short.loss, short.d_chosen, short.d_rejected), (0.5, -0.5, 0.5));
}

#[test]
fn orpo_is_finite_where_a_completion_is_certain_or_impossible() {
    let orpo = Preference { loss: PreferenceLoss::Orpo, beta: 0.1, normalization: LengthNormalization::Mean, sft_weight: 0.0 };
    for (chosen, rejected) in [(0.0, 0.0), (0.0, -5000.0), (-5000.0, 0.0), (-5000.0, -5000.0)] {
        let term = orpo.term(&pair(&[chosen, rejected, 0.0, 0.0]), PairLengths { chosen: 1, rejected: 1 });
        let found = [term.loss, term.d_chosen, term.d_rejected];
        assert!(found.iter().all(|number| number.is_finite()) && term.d_chosen < 0.0 && term.d_rejected >= 0.0, "{found:?}");
    }
}

#[test]
fn numbers_that_are_none_stay_so() {
    let lengths = PairLengths { chosen: 2, rejected: 3 };
    let losses = [
        PreferenceLoss::Sigmoid { label_smoothing: 0.0 },
        PreferenceLoss::Hinge,
        PreferenceLoss::Ipo,
        PreferenceLoss::Robust { label_smoothing: 0.1 },
        PreferenceLoss::Orpo,
        PreferenceLoss::SimPo { gamma: 0.5 },
    ];
    for loss in losses {
        let preference = Preference { loss, beta: 0.3, normalization: loss.default_normalization(), sft_weight: 0.0 };
        assert!(preference.term(&pair(&[f64::NAN, -3.0, -2.0, -3.0]), lengths).loss.is_nan(), "{loss:?}");
    }
    assert!(clipped_surrogate(f64::NAN, -1.0, 1.0, CLIP).loss.is_nan());
    assert!(k3(f64::NAN, -1.0).loss.is_nan());
    assert!(clipped_value(f64::NAN, 0.0, 1.0, 0.2).loss.is_nan());
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    let with = |loss: PreferenceLoss| Preference { loss, normalization: loss.default_normalization(), ..Preference::sigmoid(0.3) };
    let sum = |loss: PreferenceLoss| Preference { normalization: LengthNormalization::Sum, ..with(loss) };
    let mut refused: Vec<(Preference, &str)> = vec![
        (with(PreferenceLoss::Robust { label_smoothing: 0.5 }), "label_smoothing"),
        (with(PreferenceLoss::Sigmoid { label_smoothing: -0.1 }), "label_smoothing"),
        (with(PreferenceLoss::Sigmoid { label_smoothing: f64::NAN }), "label_smoothing"),
        (with(PreferenceLoss::SimPo { gamma: -1.0 }), "gamma"),
        (with(PreferenceLoss::SimPo { gamma: f64::INFINITY }), "gamma"),
        (Preference { sft_weight: -0.5, ..Preference::sigmoid(0.3) }, "sft_weight"),
        (sum(PreferenceLoss::Orpo), "length_normalization"),
        (sum(PreferenceLoss::SimPo { gamma: 0.5 }), "length_normalization"),
    ];
    refused.extend([0.0, -0.1, f64::NAN, f64::INFINITY].map(|beta| (Preference::sigmoid(beta), "beta")));
    for (preference, option) in refused {
        match preference.check() {
            Err(Error::InvalidParameter { name, .. }) => assert_eq!(name, option),
            other => panic!("{preference:?}: {other:?}"),
        }
    }
    assert!(sum(PreferenceLoss::Ipo).check().is_ok());
    assert!(LengthNormalization::parse("median").is_err());
    assert_eq!(LengthNormalization::parse("mean").expect("a known name").name(), "mean");
}

#[test]
fn reward_losses_and_derivatives_equal_torch_and_central_differences() {
    for case in cases("bradley_terry") {
        let [chosen, rejected, margin] = ["chosen", "rejected", "margin"].map(|name| number(&case, name));
        let term = bradley_terry(chosen, rejected, margin);
        assert_close(term.loss, number(&case, "value"), &case);
        assert_close(term.d_chosen, number(&case, "d_chosen"), &case);
        assert_close(term.d_rejected, number(&case, "d_rejected"), &case);
        assert_slope(term.d_chosen, chosen, |chosen| bradley_terry(chosen, rejected, margin).loss, &case);
        assert_slope(term.d_rejected, rejected, |rejected| bradley_terry(chosen, rejected, margin).loss, &case);
    }
    let losses: [(&str, ScoreLoss); 2] = [("step_cross_entropy", step_cross_entropy), ("step_squared_error", step_squared_error)];
    for (name, loss) in losses {
        for case in cases(name) {
            let (score, label) = (number(&case, "score"), number(&case, "label"));
            let term = loss(score, label);
            assert_close(term.loss, number(&case, "value"), &case);
            assert_close(term.d_score, number(&case, "d"), &case);
            assert_slope(term.d_score, score, |score| loss(score, label).loss, &case);
        }
    }
}

#[test]
fn token_losses_and_derivatives_equal_torch_and_central_differences() {
    let mut num_clipped = 0;
    for case in cases("clipped_surrogate") {
        let [logp, old_logp, advantage, low, high] = ["logp", "old_logp", "advantage", "low", "high"].map(|name| number(&case, name));
        let clip = Clip { low, high };
        let term = clipped_surrogate(logp, old_logp, advantage, clip);
        assert_close(term.loss, number(&case, "value"), &case);
        assert_close(term.d_logp, number(&case, "d"), &case);
        assert_eq!(term.is_clipped, read::<bool>(&case, "is_clipped"), "{case}");
        assert_slope(term.d_logp, logp, |logp| clipped_surrogate(logp, old_logp, advantage, clip).loss, &case);
        num_clipped += usize::from(term.is_clipped);
    }
    assert!((5..30).contains(&num_clipped), "{num_clipped} of the cases are clipped");
    for case in cases("k3") {
        let (logp, reference_logp) = (number(&case, "logp"), number(&case, "reference_logp"));
        let term = k3(logp, reference_logp);
        assert_close(term.loss, number(&case, "value"), &case);
        assert_close(term.d_logp, number(&case, "d"), &case);
        assert_slope(term.d_logp, logp, |logp| k3(logp, reference_logp).loss, &case);
    }
    for case in cases("reinforce") {
        let (logp, advantage) = (number(&case, "logp"), number(&case, "advantage"));
        let term = reinforce(logp, advantage);
        assert_close(term.loss, number(&case, "value"), &case);
        assert_close(term.d_logp, number(&case, "d"), &case);
        assert_slope(term.d_logp, logp, |logp| reinforce(logp, advantage).loss, &case);
    }
    for case in cases("sequence_ratio") {
        let ratio = sequence_ratio(&numbers(&case, "logps"), &numbers(&case, "old_logps"), &read::<Vec<bool>>(&case, "active"));
        assert_close(ratio, number(&case, "value"), &case);
    }
}

#[test]
fn ratios_do_not_overflow() {
    for log_ratio in [80.0, 800.0, 1e6] {
        let lost = clipped_surrogate(0.0, -log_ratio, -1.0, CLIP);
        assert!(lost.loss.is_finite() && lost.loss > 1e25 && lost.d_logp == 0.0, "{lost:?}");
        let far = k3(-log_ratio, 0.0);
        assert!(far.loss.is_finite() && far.loss > 1e25 && far.d_logp == 0.0, "{far:?}");
        assert!(sequence_ratio(&[0.0], &[-log_ratio], &[true]).is_finite());
    }
    assert_eq!(k3(-2.0, -2.0), TokenTerm { loss: 0.0, d_logp: 0.0, is_clipped: false });
}

fn normalizer(case: &Json) -> TokenNormalizer {
    match case["normalizer"].as_str().expect("a name") {
        "per_sequence" => TokenNormalizer::PerSequence,
        "active_tokens" => TokenNormalizer::ActiveTokens,
        "dr_grpo" => TokenNormalizer::DrGrpo { completion_tokens_max: read(case, "completion_tokens_max") },
        "dapo" => TokenNormalizer::Dapo,
        other => panic!("no normaliser {other}"),
    }
}

/// Each normaliser, by token and by sequence, with and without the KL penalty: the loss and the gradient of TRL's trainer.
#[test]
fn a_batch_of_grpo_equals_trl() {
    for case in cases("grpo_batch") {
        let [logps, old_logps, reference_logps] = ["logps", "old_logps", "reference_logps"].map(|name| read::<Vec<Vec<f64>>>(&case, name));
        let (active, advantages) = (read::<Vec<Vec<bool>>>(&case, "active"), numbers(&case, "advantages"));
        let clip = Clip { low: number(&case, "low"), high: number(&case, "high") };
        let (kl_weight, by_sequence) = (number(&case, "kl_weight"), case["level"] == "sequence");
        let counts: Vec<usize> = active.iter().map(|active| active.iter().filter(|active| **active).count()).collect();
        let (mut loss, mut d_logps) = (0.0, Vec::new());
        for sequence in 0..logps.len() {
            let weight = token_weights(normalizer(&case), sequence, &counts, read(&case, "total_active"));
            let (logps, old_logps, active) = (&logps[sequence], &old_logps[sequence], &active[sequence]);
            let log_ratio = sequence_ratio(logps, old_logps, active).ln();
            let whole = clipped_surrogate(log_ratio, 0.0, advantages[sequence], clip);
            for token in 0..logps.len() {
                if !active[token] {
                    d_logps.push(0.0);
                    continue;
                }
                let term = if by_sequence { whole } else { clipped_surrogate(logps[token], old_logps[token], advantages[sequence], clip) };
                let penalty = k3(logps[token], reference_logps[sequence][token]);
                loss += weight * (term.loss + kl_weight * penalty.loss);
                // By sequence, all its active tokens share one ratio, the derivative by whose mean each of them passes on.
                d_logps.push(weight * (term.d_logp + kl_weight * penalty.d_logp));
            }
        }
        assert_all_close(&[loss], &[number(&case, "value")], &case);
        assert_all_close(&d_logps, &read::<Vec<Vec<f64>>>(&case, "d_logps").concat(), &case);
    }
}

#[test]
fn weights_of_dapo_sum_to_1_and_dr_grpo_does_not_ask_how_long_a_sequence_is() {
    let active: [usize; 4] = [3, 0, 8, 5];
    let total: usize = active.iter().sum();
    let sum = |normalizer: TokenNormalizer| -> f64 {
        (0..4).map(|sequence| active[sequence] as f64 * token_weights(normalizer, sequence, &active, total)).sum()
    };
    assert!((sum(TokenNormalizer::Dapo) - 1.0).abs() < 1e-15);
    assert!((sum(TokenNormalizer::ActiveTokens) - 1.0).abs() < 1e-15);
    // The sequence without an active token counts as one of four.
    assert!((sum(TokenNormalizer::PerSequence) - 0.75).abs() < 1e-15);
    let dr_grpo = TokenNormalizer::DrGrpo { completion_tokens_max: 10 };
    for sequence in 0..4 {
        assert_eq!(token_weights(dr_grpo, sequence, &active, total), 1.0 / 40.0);
    }
}

#[test]
fn advantages_of_groups_equal_trl() {
    for case in cases("group") {
        let groups: Vec<Vec<f64>> = read(&case, "groups");
        for (scaling, name) in
            [(AdvantageScaling::GroupStd, "group_std"), (AdvantageScaling::None, "centred"), (AdvantageScaling::BatchStd, "batch_std")]
        {
            let (found, expected) = (batch_advantages(&groups, scaling), read::<Vec<Vec<f64>>>(&case, name));
            assert_all_close(&found.concat(), &expected.concat(), &case);
            for (group, advantages) in groups.iter().zip(found).filter(|_| scaling != AdvantageScaling::BatchStd) {
                assert_eq!(group_advantages(group, scaling), advantages, "{case}");
            }
        }
        let found: Vec<Vec<f64>> = groups.iter().map(|group| leave_one_out(group)).collect();
        assert_all_close(&found.concat(), &read::<Vec<Vec<f64>>>(&case, "leave_one_out").concat(), &case);
    }
}

#[test]
fn advantages_of_a_group_sum_to_0() {
    let scalings = [AdvantageScaling::GroupStd, AdvantageScaling::None, AdvantageScaling::BatchStd];
    for seed in 0..50 {
        let rewards = random(seed, 2 + seed % 9);
        for scaling in scalings {
            let advantages = group_advantages(&rewards, scaling);
            assert!(advantages.iter().sum::<f64>().abs() < 1e-10 && advantages.iter().any(|advantage| *advantage != 0.0), "seed {seed}");
        }
        assert!(leave_one_out(&rewards).iter().sum::<f64>().abs() < 1e-12, "seed {seed}");
    }
    for equal in [vec![], vec![3.0], vec![0.1; 3], vec![0.7; 7]] {
        for scaling in scalings {
            assert_eq!(group_advantages(&equal, scaling), vec![0.0; equal.len()]);
        }
        assert_eq!(leave_one_out(&equal), vec![0.0; equal.len()]);
    }
}

fn scored(steps: &[(f64, usize)]) -> Vec<ScoredStep> {
    steps.iter().map(|&(score, num_tokens)| ScoredStep { score, num_tokens }).collect()
}

#[test]
fn advantages_of_steps_equal_those_of_their_tokens() {
    for case in cases("step_advantages") {
        let group: Vec<Vec<(f64, usize)>> = read(&case, "group");
        let group: Vec<Vec<ScoredStep>> = group.iter().map(|steps| scored(steps)).collect();
        let (found, expected) = (step_advantages(&group), read::<Vec<Vec<f64>>>(&case, "value"));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), expected.iter().map(Vec::len).collect::<Vec<_>>(), "{case}");
        assert_all_close(&found.concat(), &expected.concat(), &case);
        let weighted = group.iter().flatten().zip(found.concat()).map(|(step, advantage)| step.num_tokens as f64 * advantage);
        assert!(weighted.sum::<f64>().abs() < 1e-9, "{case}");
    }
    assert_eq!(step_advantages(&[scored(&[(0.5, 0), (0.7, 0)]), vec![]]), vec![vec![0.0, 0.0], vec![]]);
    assert_eq!(step_advantages(&[scored(&[(0.1, 3)]), scored(&[(0.1, 9), (0.1, 1)])]), vec![vec![0.0], vec![0.0, 0.0]]);
    assert_eq!(dual_advantage(1.5, -2.0, 0.25), 1.0);
}

#[test]
fn gae_and_whitening_equal_the_usual_code_on_the_trainable_tokens() {
    for case in cases("gae") {
        let [rewards, values] = ["rewards", "values"].map(|name| numbers(&case, name));
        let trainable: Vec<bool> = read(&case, "trainable");
        let (advantages, returns) = gae(&rewards, &values, &trainable, number(&case, "gamma"), number(&case, "lam"));
        assert_all_close(&advantages, &numbers(&case, "advantages"), &case);
        assert_all_close(&returns, &numbers(&case, "returns"), &case);
    }
    for case in cases("whiten") {
        let mut advantages = numbers(&case, "advantages");
        whiten(&mut advantages, &read::<Vec<bool>>(&case, "trainable"), read(&case, "shift_mean"));
        assert_all_close(&advantages, &numbers(&case, "value"), &case);
    }
}

#[test]
fn gae_without_discount_is_the_reward_to_go_less_the_value() {
    for seed in 0..30 {
        let length = 1 + seed % 12;
        let (rewards, values, trainable) = (random(seed, length), random(seed + 1000, length), random_mask(seed, length));
        let (advantages, returns) = gae(&rewards, &values, &trainable, 1.0, 1.0);
        for token in 0..rewards.len() {
            let to_go: f64 = (token..rewards.len()).filter(|&later| trainable[later]).map(|later| rewards[later]).sum();
            let expected = if trainable[token] { (to_go - values[token], to_go) } else { (0.0, 0.0) };
            assert!((advantages[token] - expected.0).abs() < 1e-12 && (returns[token] - expected.1).abs() < 1e-12, "seed {seed}");
        }
    }
}

#[test]
fn gae_does_not_read_tokens_that_are_not_trainable() {
    for seed in 0..30 {
        let length = 1 + seed % 12;
        let (rewards, values, trainable) = (random(seed, length), random(seed + 1000, length), random_mask(seed, length));
        let other = |numbers: &[f64]| -> Vec<f64> {
            numbers.iter().zip(&trainable).map(|(number, trainable)| if *trainable { *number } else { number + 100.0 }).collect()
        };
        let found = gae(&other(&rewards), &other(&values), &trainable, 0.95, 0.9);
        assert_eq!(found, gae(&rewards, &values, &trainable, 0.95, 0.9), "seed {seed}");
        // And they are no gap either: without them the rest is the same.
        let kept = |numbers: &[f64]| -> Vec<f64> {
            numbers.iter().zip(&trainable).filter(|(_, trainable)| **trainable).map(|(number, _)| *number).collect()
        };
        let all = vec![true; kept(&rewards).len()];
        assert_eq!(kept(&found.0), gae(&kept(&rewards), &kept(&values), &all, 0.95, 0.9).0, "seed {seed}");
    }
}

#[test]
fn whitened_advantages_have_mean_0_and_variance_1() {
    let (mut advantages, trainable) = (random(5, 40), random_mask(5, 40));
    whiten(&mut advantages, &trainable, true);
    assert!(advantages.iter().zip(&trainable).all(|(advantage, trainable)| *trainable || *advantage == 0.0));
    let num_trainable = trainable.iter().filter(|trainable| **trainable).count() as f64;
    let square_sum: f64 = advantages.iter().map(|advantage| advantage * advantage).sum();
    assert!(advantages.iter().sum::<f64>().abs() < 1e-12);
    assert!((square_sum / (num_trainable - 1.0) - 1.0).abs() < 1e-6);
    let mut lone = vec![2.0, 7.0];
    whiten(&mut lone, &[false, true], false);
    assert_eq!(lone, [0.0, 7.0]);
    whiten(&mut lone, &[false, true], true);
    assert_eq!(lone, [0.0, 0.0]);
}

#[test]
fn value_loss_and_derivative_equal_torch_and_central_differences() {
    let mut num_clipped = 0;
    for case in cases("clipped_value") {
        let [value, old_value, target, clip] = ["value", "old_value", "target", "clip"].map(|name| number(&case, name));
        let term = clipped_value(value, old_value, target, clip);
        assert_close(term.loss, number(&case, "loss"), &case);
        assert_close(term.d_score, number(&case, "d"), &case);
        assert_slope(term.d_score, value, |value| clipped_value(value, old_value, target, clip).loss, &case);
        num_clipped += usize::from(term.d_score == 0.0 && term.loss > 0.0);
    }
    assert!(num_clipped >= 5, "{num_clipped} of the cases are clipped");
}

#[test]
fn guard_and_its_derivatives_equal_torch_and_central_differences() {
    let mut num_guarded = 0;
    for case in cases("likelihood_guard") {
        let [logps, old_logps] = ["logps", "old_logps"].map(|name| numbers(&case, name));
        let active: Vec<bool> = read(&case, "active");
        let (advantage, weight) = (number(&case, "advantage"), number(&case, "weight"));
        let (loss, d_logps) = likelihood_guard(&logps, &old_logps, &active, advantage, weight);
        assert_close(loss, number(&case, "value"), &case);
        assert_all_close(&d_logps, &numbers(&case, "d_logps"), &case);
        for token in 0..logps.len() {
            let moved = |logp| likelihood_guard(&moved(&logps, token, logp), &old_logps, &active, advantage, weight).0;
            assert_slope(d_logps[token], logps[token], moved, &case);
        }
        num_guarded += usize::from(loss > 0.0);
    }
    assert!(num_guarded >= 3, "{num_guarded} of the cases are guarded");
}

#[test]
fn the_guard_leaves_bad_trajectories_and_those_that_did_not_fall_alone() {
    let (fallen, old) = ([-3.0, -1.0, -2.0], [-1.0, -2.0, -2.0]);
    let unguarded = (0.0, vec![0.0; 3]);
    assert_eq!(likelihood_guard(&fallen, &old, &[true; 3], 1.0, 1.5), (1.0, vec![-0.5, 0.0, 0.0]));
    assert_eq!(likelihood_guard(&fallen, &old, &[true; 3], -0.5, 1.5), unguarded);
    assert_eq!(likelihood_guard(&old, &old, &[true; 3], 1.0, 1.5), unguarded);
    // As a whole it became more likely: the one token that fell is left to the policy's own loss.
    assert_eq!(likelihood_guard(&[-1.1, -0.1, -2.0], &old, &[true; 3], 1.0, 1.5), unguarded);
    // The token that fell was not the policy's.
    assert_eq!(likelihood_guard(&fallen, &old, &[false, true, true], 1.0, 1.5), unguarded);
    assert_eq!(likelihood_guard(&fallen, &old, &[false; 3], 1.0, 1.5), unguarded);
}
