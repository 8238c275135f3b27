use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "spre",
        section: super::SECTION,
        description: "Shortest path reward estimate of a rollout: `score * alpha ^ steps`, so that of two right answers the \
            one in fewer steps earns more (ReasonRAG, arXiv:2505.14069). NULL if an argument is NULL.",
        parameters: &[
            Parameter { name: "score", kind: Kind::Number, description: "Score of the final answer, for example its F1." },
            Parameter { name: "steps", kind: Kind::Number, description: "Steps that the rollout took, 0 or more." },
            Parameter { name: "alpha", kind: Kind::Number, description: "Decay per step, above 0 and at most 1." },
        ],
        required: 3,
        example: ("SELECT round(spre(1.0, 3, 0.9), 3)", "0.729"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        arguments.map_numbers(|[score, steps, alpha]| {
            if steps.is_nan() || steps < 0.0 {
                return Err(arguments.interface.argument_error(1, steps, "0 or more"));
            }
            if alpha.is_nan() || alpha <= 0.0 || alpha > 1.0 {
                return Err(arguments.interface.argument_error(2, alpha, "above 0 and at most 1"));
            }
            Ok(spre(score, steps, alpha))
        })
    },
};

/// `score * alpha ^ steps`: one rollout's term of the shortest path reward estimate (ReasonRAG, arXiv:2505.14069).
///
/// `steps` >= 0; `alpha` in (0, 1]. The process reward of a node is the mean of this over its rollouts.
pub fn spre(score: f64, steps: f64, alpha: f64) -> f64 {
    score * alpha.powf(steps)
}

#[cfg(test)]
mod tests {
    use super::spre;

    #[test]
    fn shorter_is_better_and_wrong_stays_zero() {
        assert!(spre(1.0, 2.0, 0.9) > spre(1.0, 3.0, 0.9));
        assert_eq!(spre(1.0, 5.0, 1.0), 1.0, "alpha 1 ignores length");
        assert_eq!(spre(0.0, 1.0, 0.9), 0.0);
    }
}
