use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "uct_score",
        section: super::SECTION,
        description: "Score by which UCT selects a child: `q + exploration * sqrt(ln(parent_visits) / visits)` \
            (Kocsis & Szepesvári 2006). `Infinity` for a child that was never visited, so that each is tried once; NULL if \
            an argument is NULL.",
        parameters: &[
            Parameter { name: "q", kind: Kind::Number, description: "Mean value of the child." },
            Parameter { name: "visits", kind: Kind::Number, description: "Visits of the child, 0 or more." },
            Parameter {
                name: "parent_visits",
                kind: Kind::Number,
                description: "Visits of its parent, at least 1 once the child has one.",
            },
            Parameter {
                name: "exploration",
                kind: Kind::Number,
                description: "Exploration constant, 0 or more; 1.414 is usual for values in [0, 1].",
            },
        ],
        required: 4,
        example: ("SELECT round(uct_score(0.5, 4, 16, 1.0), 4)", "1.3326"),
    },
    returns: Returns::Always(DataType::Float64),
    kernel: |arguments| {
        arguments.map_numbers(|[q, visits, parent_visits, exploration]| {
            let interface = arguments.interface;
            if visits.is_nan() || visits < 0.0 {
                return Err(interface.argument_error(1, visits, "0 or more"));
            }
            if visits > 0.0 && (parent_visits.is_nan() || parent_visits < 1.0) {
                return Err(interface.argument_error(2, parent_visits, "at least 1 for a child that was visited"));
            }
            if exploration.is_nan() || exploration < 0.0 {
                return Err(interface.argument_error(3, exploration, "0 or more"));
            }
            Ok(uct_score(q, visits, parent_visits, exploration))
        })
    },
};

/// `q + exploration * sqrt(ln(parent_visits) / visits)`, `+inf` for 0 visits (Kocsis & Szepesvári 2006, UCB1 on trees).
///
/// `q`: mean value; `visits` >= 0; `parent_visits` >= 1 when `visits` > 0; `exploration` >= 0.
pub fn uct_score(q: f64, visits: f64, parent_visits: f64, exploration: f64) -> f64 {
    if visits == 0.0 {
        return f64::INFINITY;
    }
    q + exploration * (parent_visits.ln() / visits).sqrt()
}

#[cfg(test)]
mod tests {
    use super::uct_score;

    #[test]
    fn unvisited_children_come_first() {
        assert_eq!(uct_score(0.0, 0.0, 0.0, 1.0), f64::INFINITY);
        assert_eq!(uct_score(0.25, 1.0, 1.0, 1.4), 0.25, "ln 1 = 0: no bonus");
        assert!(uct_score(0.5, 1.0, 9.0, 1.0) > uct_score(0.5, 2.0, 9.0, 1.0), "fewer visits, larger bonus");
    }
}
