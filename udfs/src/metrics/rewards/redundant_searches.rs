use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::metrics::{SECTION, normalize_answer};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "redundant_searches",
        section: SECTION,
        description: "How many queries of a trajectory were asked before in it, compared after `normalize_answer`: what a penalty for needless searches \
            counts. 0 for NULL, no searches.",
        parameters: &[Parameter {
            name: "queries",
            kind: Kind::TextList,
            description: "The queries of the trajectory; NULLs among them are no queries.",
        }],
        required: 1,
        example: ("SELECT redundant_searches(ARRAY['who made Jaws', 'Who made Jaws?', 'Jaws'])", "1"),
    },
    returns: Returns::Always(DataType::Int64),
    kernel: |arguments| {
        let queries = arguments.texts(0)?;
        let rows = (0..arguments.num_rows()).map(|row| redundant_searches(queries.get(row).unwrap_or_default()) as i64);
        Ok(Arc::new(Int64Array::from_iter_values(rows)))
    },
};

/// How many of these queries were asked before among them, compared after [`normalize_answer`].
pub fn redundant_searches<'a>(queries: impl IntoIterator<Item = &'a str>) -> usize {
    let mut asked = HashSet::new();
    queries.into_iter().filter(|query| !asked.insert(normalize_answer(query))).count()
}

#[cfg(test)]
mod tests {
    use super::redundant_searches;

    #[test]
    fn counts_all_but_the_first() {
        assert_eq!(redundant_searches(["a film", "The film!", "film", "book"]), 2);
        assert_eq!(redundant_searches([]), 0);
    }
}
