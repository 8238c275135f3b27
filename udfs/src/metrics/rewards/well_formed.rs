use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::DataType;

use crate::function::{Function, Interface, Kind, Parameter, Returns};
use crate::metrics::SECTION;
use crate::metrics::word::word;

pub(super) const ACTIONS: Parameter = Parameter {
    name: "actions",
    kind: Kind::Texts,
    description: "`action` of every step, first to last, as in the tables of rollouts and in `trajectories`; NULL gives NULL.",
};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "well_formed",
        section: SECTION,
        description: "Whether a trajectory follows its protocol to the end: no step is malformed, one answer is its last step, and before it come, in \
            'reasonrag', queries, each followed by evidence, in 'prorag' and 'self_ask' queries, each followed by a sub-answer, in 'search_r1' and \
            'r3rag' queries alone, in 'ircot' and 'iter_retgen' thoughts alone, in 'direct', 'cot' and 'naive_rag' nothing. In 'reasonrag' and \
            'self_ask' the last query may have nothing after it, if the steps were used up.",
        parameters: &[Parameter { name: "protocol", kind: Kind::Text, description: "Name of the protocol." }, ACTIONS],
        required: 2,
        example: ("SELECT well_formed('search_r1', ARRAY['query_generation', 'answer_generation'])", "true"),
    },
    returns: Returns::Always(DataType::Boolean),
    kernel: |arguments| {
        let Some(grammar) = word(arguments, 0, GRAMMARS)? else {
            return Ok(Arc::new(BooleanArray::new_null(arguments.num_rows())));
        };
        let actions = arguments.texts(1)?;
        let rows = (0..arguments.num_rows()).map(|row| actions.get(row).map(|actions| is_well_formed(grammar, &actions)));
        Ok(Arc::new(rows.collect::<BooleanArray>()))
    },
};

/// What may come before the answer: whole turns, any number of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grammar {
    /// Actions of a turn, in order.
    turn: &'static [&'static str],
    /// Whether the last turn may end after its first action: the step limit made the next step the answer.
    may_be_cut: bool,
}

const QUERY: &str = "query_generation";
const EVIDENCE: &str = "evidence_extraction";
const SUB_ANSWER: &str = "sub_answer";
const THOUGHT: &str = "thought";
const ANSWER: &str = "answer_generation";

const NOTHING: Grammar = Grammar { turn: &[], may_be_cut: false };
const THOUGHTS: Grammar = Grammar { turn: &[THOUGHT], may_be_cut: false };
pub(super) const QUERIES: Grammar = Grammar { turn: &[QUERY], may_be_cut: false };
/// With retrieval and thoughts, ProRAG's `(S Q R S A)* S F`.
pub(super) const QUERIES_WITH_SUB_ANSWERS: Grammar = Grammar { turn: &[QUERY, SUB_ANSWER], may_be_cut: false };

const GRAMMARS: &[(&str, Grammar)] = &[
    ("reasonrag", Grammar { turn: &[QUERY, EVIDENCE], may_be_cut: true }),
    ("search_r1", QUERIES),
    ("prorag", QUERIES_WITH_SUB_ANSWERS),
    ("r3rag", QUERIES),
    ("direct", NOTHING),
    ("cot", NOTHING),
    ("naive_rag", NOTHING),
    ("ircot", THOUGHTS),
    ("self_ask", Grammar { turn: &[QUERY, SUB_ANSWER], may_be_cut: true }),
    ("iter_retgen", THOUGHTS),
];

/// Whether the actions are a whole trajectory of the grammar.
pub(super) fn is_well_formed(grammar: Grammar, actions: &[&str]) -> bool {
    let Some((last, before)) = actions.split_last() else { return false };
    let is_turn = |turn: &[&str]| turn == grammar.turn || grammar.may_be_cut && turn == &grammar.turn[..1];
    *last == ANSWER && before.chunks(grammar.turn.len().max(1)).all(is_turn)
}

#[cfg(test)]
mod tests {
    use super::{GRAMMARS, is_well_formed};

    /// By letters: q, e, s, t, a, and x for malformed.
    fn check(protocol: &str, letters: &str) -> bool {
        let (_, grammar) = GRAMMARS.iter().find(|(name, _)| *name == protocol).expect("a protocol");
        let actions = letters.chars().map(|letter| match letter {
            'q' => "query_generation",
            'e' => "evidence_extraction",
            's' => "sub_answer",
            't' => "thought",
            'a' => "answer_generation",
            _ => "malformed",
        });
        is_well_formed(*grammar, &actions.collect::<Vec<_>>())
    }

    #[test]
    fn each_protocol_has_its_order() {
        let cases =
            ["a", "qa", "qqa", "qea", "qeqa", "qeqea", "qsa", "qsqsa", "qsqa", "sqa", "ta", "tta", "xa", "qxa", "aa", "qe", "qx", "q", ""];
        let holds = |protocol| cases.into_iter().filter(|letters| check(protocol, letters)).collect::<Vec<_>>().join(" ");
        assert_eq!(holds("reasonrag"), "a qa qea qeqa qeqea");
        assert_eq!(holds("search_r1"), "a qa qqa");
        assert_eq!(holds("prorag"), "a qsa qsqsa");
        assert_eq!(holds("self_ask"), "a qa qsa qsqsa qsqa");
        assert_eq!(holds("ircot"), "a ta tta");
        assert_eq!(holds("direct"), "a");
    }
}
