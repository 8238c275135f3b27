use expect_test::expect;

use super::*;
use crate::agent::protocol::StopReason;
use crate::agent::testing::{MemoryCorpus, Parrot, Script, agent_of, shown_transcript};

fn parsed(response: &str) -> (Action, &str) {
    let parsed = SearchR1.parse(State::Reasoning, response);
    (parsed.action, &response[..parsed.end])
}

#[test]
fn the_first_search_or_answer_counts() {
    let response = "<think>Who?</think> <search> Jaws director </search>\n<information>invented</information><answer>x</answer>";
    assert_eq!(parsed(response), (Action::Query("Jaws director".to_owned()), "<think>Who?</think> <search> Jaws director </search>"));
    assert_eq!(parsed("<think>I know. <answer>U.S.</answer>").0, Action::Answer("U.S.".to_owned()));
    for response in ["", "<think>Hm.</think>", "<search> </search>", "<answer>open", "<information>x</information>", "The answer is 1946."]
    {
        assert_eq!(parsed(response).0, Action::Malformed, "{response}");
    }
}

#[test]
fn the_stop_string_is_put_back() {
    let cut = |text| SearchR1.cut_by_stop(State::Reasoning, text);
    assert_eq!(cut("<think>Who?</think><search>Jaws"), Some("</search>"));
    assert_eq!(cut("<think>Who? <answer>"), Some("</answer>"));
    assert_eq!(cut("<think>Who?"), None);
}

#[test]
fn a_well_formed_response_is_a_thought_and_one_action() {
    let is_well_formed = |response| SearchR1.is_well_formed_response(State::Reasoning, response);
    assert!(is_well_formed("<think>Who?</think>\n<search>Jaws</search>"));
    assert!(is_well_formed("<think></think><answer>1946</answer>\n"));
    for response in [
        "<search>Jaws</search>",
        "Well. <think>Who?</think><search>Jaws</search>",
        "<think>Who?</think><search></search>",
        "<think>Who?</think><information>x</information><search>Jaws</search>",
        "<think>Who?</think><search>Jaws</search><answer>x</answer>",
        "<think>Who? <search>Jaws</search>",
        "<think>Who?</think>",
    ] {
        assert!(!is_well_formed(response), "{response}");
    }
}

#[test]
fn transitions() {
    use State::{AnswerGeneration, BeginReasoning, Correction, Reasoning};
    let next = |state, action: &Action, steps_left| SearchR1.transition(&Context::new("Why?", state), action, steps_left);
    let query = Action::Query("q".to_owned());
    let retrieve = |next| Transition::Retrieve { query: "q".to_owned(), next };
    assert_eq!(next(BeginReasoning, &query, 5), retrieve(Reasoning));
    assert_eq!(next(Correction, &query, 1), retrieve(AnswerGeneration), "the last step reads what was found");
    assert_eq!(next(AnswerGeneration, &query, 0), Transition::End(StopReason::MaxSteps));
    assert_eq!(next(Reasoning, &Action::Malformed, 2), Transition::To(Correction));
    assert_eq!(next(Reasoning, &Action::Malformed, 1), Transition::To(AnswerGeneration));
    assert_eq!(next(AnswerGeneration, &Action::Malformed, 0), Transition::End(StopReason::Malformed));
    assert_eq!(SearchR1.initial_state(1), AnswerGeneration);
}

#[tokio::test]
async fn golden_trajectory() {
    let policy = Script::new(&[
        "<think>Who made Jaws?</think>\n<search>Jaws directed</search> and so on",
        "Steven Spielberg, I see.",
        "<think>His birth.</think>\n<search>Steven Spielberg born</search>",
        "<think>It says so.</think>\n<answer>1946</answer>",
    ]);
    let agent = agent_of("search_r1", policy, MemoryCorpus::films());
    expect![[r#"
        Question: When was the director of Jaws born?
        «<think>Who made Jaws?</think>
        <search>Jaws directed</search>»

        <information>
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Alien: Alien is a film. It was directed by Ridley Scott.
        </information>

        «Steven Spielberg, I see.»
        Search or answer.
        «<think>His birth.</think>
        <search>Steven Spielberg born</search>»

        <information>
        [1] Steven Spielberg: Steven Spielberg was born in 1946.
        [2] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        </information>

        «<think>It says so.</think>
        <answer>1946</answer>»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown_transcript(&agent, "When was the director of Jaws born?").await);
}

#[tokio::test]
async fn the_last_step_is_told_so() {
    let mut agent = agent_of("search_r1", Parrot("<search>Jaws</search>"), MemoryCorpus::films());
    agent.max_steps = 2;
    agent.k = 1;
    expect![[r#"
        Question: Why?
        «<search>Jaws</search>»

        <information>
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        </information>


        Answer now.
        «<search>Jaws</search>»
        === max_steps None
    "#]]
    .assert_eq(&shown_transcript(&agent, "Why?").await);
    agent.max_steps = 1;
    expect![[r#"
        Question: Why?

        Answer now.
        «<search>Jaws</search>»
        === max_steps None
    "#]]
    .assert_eq(&shown_transcript(&agent, "Why?").await);
}

/// A search without results is shown as such.
#[tokio::test]
async fn nothing_found() {
    let mut agent = agent_of("search_r1", Parrot("<search>zebra</search>"), MemoryCorpus::films());
    agent.max_steps = 2;
    expect![[r#"
        Question: Why?
        «<search>zebra</search>»

        <information>
        </information>


        Answer now.
        «<search>zebra</search>»
        === max_steps None
    "#]]
    .assert_eq(&shown_transcript(&agent, "Why?").await);
}
