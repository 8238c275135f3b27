use expect_test::expect;

use super::*;
use crate::agent::testing::{MemoryCorpus, Script, agent_of, answered, query, shown};
use State::{AnswerGeneration, Reasoning};

fn parsed(state: State, response: &str) -> (Action, &str) {
    let parsed = R3Rag.parse(state, response);
    (parsed.action, &response[..parsed.end])
}

#[test]
fn the_first_query_or_answer_counts() {
    let response = "Step 1:\nThe problem analysis: Hm.\nThe retrieval query: Who made Jaws? And when?\nThe retrieval documents: x\nThe final answer: y";
    let end = response.find("\nThe retrieval documents").unwrap();
    assert_eq!(parsed(Reasoning, response), (query("Who made Jaws? And when?"), &response[..end]));
    assert_eq!(parsed(Reasoning, "Step 2:\nThe final answer: U.S.\nStep 3:\nThe retrieval query: x").0, answered("U.S."));
    assert_eq!(parsed(Reasoning, "**The final answer:** 1946.").0, answered("1946"));
    assert_eq!(parsed(Reasoning, "The final answer:\n\n 12 May 1946\n").0, answered("12 May 1946"));
    assert_eq!(parsed(Reasoning, "Step 1: The problem analysis: Hm.\nthe Retrieval Query : x").0, query("x"));
}

#[test]
fn what_is_no_step_is_malformed() {
    for response in [
        "",
        "Step 1:\nThe problem analysis: Hm.",
        "The retrieval query:",
        "The retrieval query:\nThe final answer:\n",
        "So the final answer: x",
        "Step 1:\nThe problem analysis: Hm.\nStep 2:\nThe final answer: x",
        "The retrieval documents: x\nThe final answer: y",
    ] {
        assert_eq!(parsed(Reasoning, response).0, Action::Malformed, "{response}");
    }
    assert_eq!(parsed(AnswerGeneration, " 1946.\nStep 2").0, answered("1946"), "the prompt ends with the header");
    assert_eq!(parsed(AnswerGeneration, " 1946.\nStep 3:\nThe problem analysis: x\nThe retrieval query: y").0, answered("1946"));
    assert_eq!(parsed(AnswerGeneration, "Step 3:\nThe problem analysis: Hm.").0, Action::Malformed);
    assert_eq!(parsed(AnswerGeneration, "Step 4:\nThe problem analysis: Hm.\nThe final answer: x").0, answered("x"));
    assert_eq!(parsed(AnswerGeneration, "The retrieval query: x").0, query("x"));
}

#[test]
fn a_well_formed_response_is_one_whole_step() {
    let is_well_formed = |state, response| R3Rag.is_well_formed_response(state, response);
    assert!(is_well_formed(Reasoning, "Step 1:\nThe problem analysis: Hm.\nThe retrieval query: x"));
    assert!(is_well_formed(AnswerGeneration, " 1946"));
    assert!(!is_well_formed(Reasoning, "The problem analysis: Hm.\nThe retrieval query: x"), "no header");
    assert!(!is_well_formed(Reasoning, "Step 1:\nThe retrieval query: x"), "no analysis");
    assert!(!is_well_formed(Reasoning, "Step 1:\nThe problem analysis:\nThe retrieval query: x"), "a blank one");
    assert!(!is_well_formed(Reasoning, "Step 1:\nThe problem analysis: Hm.\nThe retrieval query: "), "a blank query");
}

#[tokio::test]
async fn golden_trajectory() {
    let policy = Script::new(&[
        "Step 1:\nThe problem analysis: Who made Jaws\nis not known.\nThe retrieval query: Jaws directed\nThe retrieval documents: none",
        "Step 2:\nThe problem analysis: His birth is missing.\nThe retrieval query: Steven Spielberg born? When?",
        "Step 3:\nThe problem analysis: All is there.\nThe final answer: 1946",
    ]);
    let agent = agent_of("r3rag", policy, MemoryCorpus::films());
    expect![[r#"
        --- reasoning query_generation
        The question: When was the director of Jaws born?
        «Step 1:
        The problem analysis: Who made Jaws
        is not known.
        The retrieval query: Jaws directed»
        --- reasoning query_generation
        The question: When was the director of Jaws born?
        Step 1:
        The problem analysis: Who made Jaws is not known.
        The retrieval query: Jaws directed
        The retrieval documents:
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Alien: Alien is a film. It was directed by Ridley Scott.
        «Step 2:
        The problem analysis: His birth is missing.
        The retrieval query: Steven Spielberg born? When?»
        --- reasoning answer_generation
        The question: When was the director of Jaws born?
        Step 1:
        The problem analysis: Who made Jaws is not known.
        The retrieval query: Jaws directed
        The retrieval documents:
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Alien: Alien is a film. It was directed by Ridley Scott.
        Step 2:
        The problem analysis: His birth is missing.
        The retrieval query: Steven Spielberg born? When?
        The retrieval documents:
        [1] Steven Spielberg: Steven Spielberg was born in 1946.
        «Step 3:
        The problem analysis: All is there.
        The final answer: 1946»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown(&agent, "When was the director of Jaws born?").await);
}

/// A step that cannot be read is left out of the next prompt, which asks for the answer.
#[tokio::test]
async fn a_malformed_step_leads_to_the_answer() {
    let policy = Script::new(&["Step 1:\nThe problem analysis: Jaws.\nThe retrieval query: Jaws", "Hm.", " fish\nStep 4:"]);
    let mut agent = agent_of("r3rag", policy, MemoryCorpus::films());
    agent.k = 1;
    expect![[r#"
        --- reasoning query_generation
        The question: Why?
        «Step 1:
        The problem analysis: Jaws.
        The retrieval query: Jaws»
        --- reasoning malformed
        The question: Why?
        Step 1:
        The problem analysis: Jaws.
        The retrieval query: Jaws
        The retrieval documents:
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        «Hm.»
        --- answer_generation answer_generation
        The question: Why?
        Step 1:
        The problem analysis: Jaws.
        The retrieval query: Jaws
        The retrieval documents:
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        The final answer:« fish»
        === answered Some("fish")
    "#]]
    .assert_eq(&shown(&agent, "Why?").await);
}
