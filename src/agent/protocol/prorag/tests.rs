use expect_test::expect;

use super::*;
use crate::agent::protocol::StopReason;
use crate::agent::testing::{MemoryCorpus, Parrot, Script, agent_of, shown_transcript};
use State::{AnswerGeneration, BeginReasoning, EvidenceExtraction, Reasoning};

fn parsed(response: &str) -> (Action, &str) {
    let parsed = ProRag.parse(Reasoning, response);
    (parsed.action, &response[..parsed.end])
}

#[test]
fn the_first_block_counts() {
    let response = "Who?\n</step>\n<subquery> Jaws director </subquery>\n<retrieval>invented</retrieval><answer>x</answer>";
    assert_eq!(parsed(response), (Action::Query("Jaws director".to_owned()), "Who?\n</step>\n<subquery> Jaws director </subquery>"));
    assert_eq!(parsed("</step><subanswer>By him.</subanswer>").0, Action::SubAnswer("By him.".to_owned()));
    assert_eq!(parsed("no step <answer>U.S.</answer>").0, Action::Answer("U.S.".to_owned()));
    for response in ["", "Who?</step>", "</step><subquery> </subquery>", "</step><answer>open", "</step><retrieval>x</retrieval>"] {
        assert_eq!(parsed(response).0, Action::Malformed, "{response}");
    }
}

#[test]
fn a_well_formed_response_ends_the_step_and_writes_the_block_that_is_due() {
    let is_well_formed = |state, response| ProRag.is_well_formed_response(state, response);
    assert!(is_well_formed(BeginReasoning, "Who?\n</step>\n<subquery>Jaws</subquery>"));
    assert!(is_well_formed(Reasoning, "</step><answer>1946</answer>"));
    assert!(is_well_formed(EvidenceExtraction, "It says so.</step>\n<subanswer>By him.</subanswer>"));
    assert!(is_well_formed(Reasoning, "\n<step>Nothing is missing.</step>\n<answer>1946</answer>"), "it opens the step itself");
    for (state, response) in [
        (Reasoning, "Who?\n<subquery>Jaws</subquery>"),
        (Reasoning, "</step><subanswer>By him.</subanswer>"),
        (EvidenceExtraction, "</step><subquery>Jaws</subquery>"),
        (AnswerGeneration, "</step><subquery>Jaws</subquery>"),
        (Reasoning, "</step> so <subquery>Jaws</subquery>"),
        (Reasoning, "</step><subquery></subquery>"),
        (Reasoning, "</step><step>again</step><answer>1946</answer>"),
        (Reasoning, "<step>once<step>again</step><answer>1946</answer>"),
    ] {
        assert!(!is_well_formed(state, response), "{response}");
    }
}

#[test]
fn transitions() {
    let next = |state, action: &Action, steps_left| ProRag.transition(&Context::new("Why?", state), action, steps_left);
    let (query, sub_answer) = (Action::Query("q".to_owned()), Action::SubAnswer("a".to_owned()));
    let retrieve = |next| Transition::Retrieve { query: "q".to_owned(), next };
    assert_eq!(next(BeginReasoning, &query, 5), retrieve(EvidenceExtraction));
    assert_eq!(next(EvidenceExtraction, &sub_answer, 5), Transition::To(Reasoning));
    assert_eq!(next(Reasoning, &query, 1), retrieve(AnswerGeneration));
    assert_eq!(next(EvidenceExtraction, &Action::Malformed, 5), Transition::To(Reasoning));
    assert_eq!(next(AnswerGeneration, &sub_answer, 0), Transition::End(StopReason::MaxSteps));
    assert_eq!(next(AnswerGeneration, &Action::Malformed, 0), Transition::End(StopReason::Malformed));
}

/// A prompt set of somebody's own may open no step.
#[test]
fn the_policy_goes_on_in_a_step_that_is_open() {
    for (user, begun) in [
        ("<step>the thought</step>\nQuestion: Why?\n", "<step>\n"),
        ("Question: Why?\n", "<step>\nThis is the last step.\n"),
        ("Write <step>the thought</step>\nQuestion: Why?\n", ""),
    ] {
        assert_eq!(ProRag.turn_start(&[user, begun].concat()), user.len(), "{user}{begun}");
    }
}

#[tokio::test]
async fn golden_trajectory() {
    let policy = Script::new(&[
        "Who made Jaws has to be found out.\n</step>\n<subquery>Jaws directed</subquery> and so on",
        "The first passage says it.\n</step>\n<subanswer>Steven Spielberg directed Jaws.</subanswer>",
        "no block at all",
        "His birth is missing.\n</step>\n<subquery>Steven Spielberg born</subquery>",
        "The first passage says it.\n</step>\n<subanswer>Steven Spielberg was born in 1946.</subanswer>",
        "Nothing is missing.\n</step>\n<answer>1946</answer>",
    ]);
    let agent = agent_of("prorag", policy, MemoryCorpus::films());
    expect![[r#"
        Question: When was the director of Jaws born?
        <step>
        «Who made Jaws has to be found out.
        </step>
        <subquery>Jaws directed</subquery>»
        <retrieval>
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Alien: Alien is a film. It was directed by Ridley Scott.
        </retrieval>
        <step>
        «The first passage says it.
        </step>
        <subanswer>Steven Spielberg directed Jaws.</subanswer>»
        <step>
        «no block at all»
        <step>
        «His birth is missing.
        </step>
        <subquery>Steven Spielberg born</subquery>»
        <retrieval>
        [1] Steven Spielberg: Steven Spielberg was born in 1946.
        [2] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        </retrieval>
        <step>
        «The first passage says it.
        </step>
        <subanswer>Steven Spielberg was born in 1946.</subanswer>»
        <step>
        «Nothing is missing.
        </step>
        <answer>1946</answer>»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown_transcript(&agent, "When was the director of Jaws born?").await);
}

#[tokio::test]
async fn the_last_step_is_told_so() {
    let mut agent = agent_of("prorag", Parrot("Jaws.</step><subquery>Jaws</subquery>"), MemoryCorpus::films());
    agent.max_steps = 2;
    agent.k = 1;
    expect![[r#"
        Question: Why?
        <step>
        «Jaws.</step><subquery>Jaws</subquery>»
        <retrieval>
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        </retrieval>
        <step>
        This is the last step.
        «Jaws.</step><subquery>Jaws</subquery>»
        === max_steps None
    "#]]
    .assert_eq(&shown_transcript(&agent, "Why?").await);
    agent.max_steps = 1;
    expect![[r#"
        Question: Why?
        <step>
        This is the last step.
        «Jaws.</step><subquery>Jaws</subquery>»
        === max_steps None
    "#]]
    .assert_eq(&shown_transcript(&agent, "Why?").await);
}
