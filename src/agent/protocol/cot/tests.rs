use expect_test::expect;

use super::*;
use crate::agent::testing::{MemoryCorpus, Script, agent_of, shown};

#[test]
fn an_answer_is_announced() {
    let parsed = |state, response| Cot.parse(state, response).action;
    let answered = |text: &str| Action::Answer(text.to_owned());
    assert_eq!(parsed(State::BeginReasoning, " Hm. So the answer is: the U.S."), answered("the U.S."));
    assert_eq!(parsed(State::BeginReasoning, " It was 1946."), Action::Malformed);
    assert_eq!(parsed(State::AnswerGeneration, " 1946."), answered("1946"));
    assert_eq!(parsed(State::AnswerGeneration, " The answer is 1946."), answered("1946"));
}

#[tokio::test]
async fn golden_trajectory() {
    let policy = Script::new(&[" Jaws is by Steven Spielberg.\nHe was born in 1946. So the answer is: 1946.\nQuestion: And then?"]);
    let agent = agent_of("cot", policy, MemoryCorpus::films());
    expect![[r#"
        --- begin_reasoning answer_generation
        Question: When was the director of Jaws born?
        Thought:« Jaws is by Steven Spielberg.
        He was born in 1946. So the answer is: 1946.»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown(&agent, "When was the director of Jaws born?").await);
}

#[tokio::test]
async fn thoughts_without_an_answer_are_asked_for_one() {
    let agent = agent_of("cot", Script::new(&[" It was Steven Spielberg.", " 1946"]), MemoryCorpus::films());
    expect![[r#"
        --- begin_reasoning malformed
        Question: Why? So the answer is: x
        Thought:« It was Steven Spielberg.»
        --- answer_generation answer_generation
        Question: Why? So the answer is: x
        Thought: It was Steven Spielberg.
        So the answer is:« 1946»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown(&agent, "Why? So the answer is: x").await);
}
