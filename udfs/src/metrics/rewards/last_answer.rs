use std::sync::Arc;

use arrow::array::StringArray;
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::metrics::SECTION;

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "last_answer",
        section: SECTION,
        description: "What stands in the last `<answer> .. </answer>` of what a policy wrote, without the white space round it; NULL if there is none. For \
            trajectories of other programs: give it the policy's own texts, without the prompt and without passages, else their answers count too.",
        parameters: &[Parameter {
            name: "responses",
            kind: Kind::Texts,
            description: "What the policy wrote: a text, or an array in order.",
        }],
        required: 1,
        example: ("SELECT last_answer('<answer>Oslo</answer> no: <answer> Paris </answer>')", "Paris"),
    },
    returns: Returns::Always(DataType::Utf8),
    kernel: |arguments| {
        let responses = arguments.texts(0)?;
        let answer = |row| responses.get(row)?.into_iter().rev().find_map(last_answer).map(ToOwned::to_owned);
        let rows = (0..arguments.num_rows()).map(answer);
        Ok(Arc::new(rows.collect::<StringArray>()))
    },
};

/// The last answer that is closed, and not blank.
fn last_answer(response: &str) -> Option<&str> {
    let mut pieces = response.rsplit("</answer>");
    // What comes after the last end.
    pieces.next();
    pieces.filter_map(|piece| piece.rsplit_once("<answer>")).map(|(_, answer)| answer.trim()).find(|answer| !answer.is_empty())
}

#[cfg(test)]
mod tests {
    use super::last_answer;

    #[test]
    fn takes_the_last_that_is_closed() {
        assert_eq!(last_answer("<answer>a</answer><answer>b</answer> c"), Some("b"));
        assert_eq!(last_answer("<answer>a</answer><answer>b"), Some("a"));
        assert_eq!(last_answer("<answer>x <answer>a</answer>"), Some("a"));
        assert_eq!(last_answer("a</answer>"), None);
        assert_eq!(last_answer("<answer> </answer>"), None);
        assert_eq!(last_answer(""), None);
    }
}
