use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "puct_score",
        section: super::SECTION,
        description: "Score by which PUCT selects a child: `q + exploration * prior * sqrt(parent_visits) / (1 + visits)` \
            (Silver et al. 2017, AlphaGo Zero). NULL if an argument is NULL.",
        parameters: &[
            Parameter { name: "q", kind: Kind::Number, description: "Mean value of the child." },
            Parameter { name: "prior", kind: Kind::Number, description: "Probability of the child under the policy, 0 to 1." },
            Parameter { name: "visits", kind: Kind::Number, description: "Visits of the child, 0 or more." },
            Parameter { name: "parent_visits", kind: Kind::Number, description: "Visits of its parent, 0 or more." },
            Parameter { name: "exploration", kind: Kind::Number, description: "Exploration constant, 0 or more." },
        ],
        required: 5,
        example: ("SELECT puct_score(0.5, 0.25, 1, 16, 2.0)", "1.5"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        arguments.map_numbers(|[q, prior, visits, parent_visits, exploration]| {
            if !(0.0..=1.0).contains(&prior) {
                return Err(arguments.interface.argument_error(1, prior, "0 to 1"));
            }
            for (index, value) in [(2, visits), (3, parent_visits), (4, exploration)] {
                if value.is_nan() || value < 0.0 {
                    return Err(arguments.interface.argument_error(index, value, "0 or more"));
                }
            }
            Ok(puct_score(q, prior, visits, parent_visits, exploration))
        })
    },
};

/// `q + exploration * prior * sqrt(parent_visits) / (1 + visits)` (Silver et al. 2017, doi:10.1038/nature24270, Methods).
///
/// `q`: mean value; `prior` in [0, 1]; the others >= 0. Finite for a child without visits, unlike UCT.
pub fn puct_score(q: f64, prior: f64, visits: f64, parent_visits: f64, exploration: f64) -> f64 {
    q + exploration * prior * parent_visits.sqrt() / (1.0 + visits)
}

#[cfg(test)]
mod tests {
    use super::puct_score;

    #[test]
    fn the_prior_orders_unvisited_children() {
        assert!(puct_score(0.0, 0.6, 0.0, 4.0, 1.0) > puct_score(0.0, 0.4, 0.0, 4.0, 1.0));
        assert_eq!(puct_score(0.5, 0.9, 3.0, 0.0, 1.0), 0.5, "a parent without visits gives no bonus");
    }
}
