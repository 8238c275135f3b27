use super::*;

const STEP: f64 = 1e-5;

fn pair(policy_chosen: f64, policy_rejected: f64) -> PairLogps {
    PairLogps { policy_chosen, policy_rejected, reference_chosen: -20.0, reference_rejected: -30.0 }
}

#[test]
fn dpo_derivatives_equal_finite_differences() {
    for beta in [0.05, 0.3, 2.0] {
        for (chosen, rejected) in [(-20.0, -30.0), (-15.0, -40.0), (-33.5, -12.25), (-20.0, -29.0)] {
            let loss = |chosen, rejected| dpo_sigmoid(&pair(chosen, rejected), beta).expect("beta > 0").loss;
            let term = dpo_sigmoid(&pair(chosen, rejected), beta).expect("beta > 0");
            let d_chosen = (loss(chosen + STEP, rejected) - loss(chosen - STEP, rejected)) / (2.0 * STEP);
            let d_rejected = (loss(chosen, rejected + STEP) - loss(chosen, rejected - STEP)) / (2.0 * STEP);
            assert!((term.d_chosen - d_chosen).abs() < 1e-8, "beta {beta}: {} against {d_chosen}", term.d_chosen);
            assert!((-term.d_chosen - d_rejected).abs() < 1e-8, "beta {beta}: {} against {d_rejected}", -term.d_chosen);
        }
    }
}

#[test]
fn dpo_starts_at_ln_2_with_half_the_slope() {
    let term = dpo_sigmoid(&pair(-20.0, -30.0), 0.3).expect("beta > 0");
    assert_eq!(term.loss, std::f64::consts::LN_2);
    assert_eq!(term.d_chosen, -0.15);
    assert_eq!(term.reward_margin(), 0.0);
}

#[test]
fn dpo_rewards_are_scaled_log_ratios() {
    let term = dpo_sigmoid(&pair(-18.0, -35.0), 0.5).expect("beta > 0");
    assert_eq!((term.chosen_reward, term.rejected_reward, term.reward_margin()), (1.0, -2.5, 3.5));
}

#[test]
fn dpo_neither_overflows_nor_loses_its_slope_far_away() {
    let lost = dpo_sigmoid(&pair(-5000.0, 0.0), 1.0).expect("beta > 0");
    assert!((lost.loss - 5010.0).abs() < 1e-9 && (lost.d_chosen + 1.0).abs() < 1e-12);
    let won = dpo_sigmoid(&pair(0.0, -5000.0), 1.0).expect("beta > 0");
    assert!(won.loss >= 0.0 && won.loss < 1e-300 && won.d_chosen.abs() < 1e-300);
}

#[test]
fn dpo_refuses_a_beta_that_is_not_positive() {
    for beta in [0.0, -0.1, f64::NAN, f64::INFINITY] {
        assert!(matches!(dpo_sigmoid(&pair(-1.0, -2.0), beta), Err(Error::InvalidParameter { .. })), "beta {beta}");
    }
}

#[test]
fn log_sigmoid_equals_its_definition() {
    for x in [-30.0, -1.5, 0.0, 0.3, 20.0] {
        assert!((log_sigmoid(x) - (1.0 / (1.0 + f64::exp(-x))).ln()).abs() < 1e-9 * x.abs().max(1.0), "x {x}");
        assert!((sigmoid(x).ln() - log_sigmoid(x)).abs() < 1e-9 * x.abs().max(1.0), "x {x}");
    }
}

#[test]
fn nll_is_a_weighted_mean_with_matching_derivatives() {
    let (logps, weights) = ([-1.0, -2.0, -4.0], [1.0, 0.5, 0.25]);
    let total = 1.75;
    assert!((weighted_nll(&logps, &weights, total) - 3.0 / 1.75).abs() < 1e-15);
    for (index, derivative) in d_weighted_nll(&weights, total).into_iter().enumerate() {
        let shifted = |by: f64| {
            let mut logps = logps;
            logps[index] += by;
            weighted_nll(&logps, &weights, total)
        };
        assert!((derivative - (shifted(STEP) - shifted(-STEP)) / (2.0 * STEP)).abs() < 1e-9);
    }
}
