use expect_test::expect;

use super::*;
use crate::agent::answer::answer;
use crate::agent::testing::{MemoryCorpus, Parrot, Script, agent_of, shown};

const DRAFTS: &[&str] = &[" Steven Spielberg directed\nJaws.", " Steven Spielberg was born in 1946.\nQuestion: x", " 1946."];

#[tokio::test]
async fn golden_trajectory() {
    let agent = agent_of("iter_retgen", Script::new(DRAFTS), MemoryCorpus::films());
    expect![[r#"
        --- reasoning thought
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Steven Spielberg: Steven Spielberg was born in 1946.
        Question: When was the director of Jaws born?
        Thought:« Steven Spielberg directed
        Jaws.»
        --- reasoning thought
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Steven Spielberg: Steven Spielberg was born in 1946.
        Question: When was the director of Jaws born?
        Thought:« Steven Spielberg was born in 1946.»
        --- answer_generation answer_generation
        [1] Steven Spielberg: Steven Spielberg was born in 1946.
        [2] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        Question: When was the director of Jaws born?
        Answer:« 1946.»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown(&agent, "When was the director of Jaws born?").await);
}

#[tokio::test]
async fn drafts_go_into_queries() {
    let agent = agent_of("iter_retgen", Script::new(DRAFTS), MemoryCorpus::films());
    let trajectory = answer(&agent, Some(" Who? "), "1").await.unwrap();
    let queries: Vec<Option<&str>> = trajectory.steps.iter().map(|step| step.query()).collect();
    assert_eq!(queries, [Some("Steven Spielberg directed\nJaws. Who?"), Some("Steven Spielberg was born in 1946. Who?"), None]);
    assert_eq!(trajectory.retrieval_count, 3);
}

#[tokio::test]
async fn there_are_three_rounds_or_fewer() {
    let mut steps = Vec::new();
    for max_steps in [1, 2, 3, 8] {
        let mut agent = agent_of("iter_retgen", Parrot(" Jaws"), MemoryCorpus::films());
        agent.max_steps = max_steps;
        let trajectory = answer(&agent, Some("Why?"), "1").await.unwrap();
        assert_eq!(trajectory.answer.as_deref(), Some("Jaws"));
        steps.push((trajectory.steps.len(), trajectory.retrieval_count));
    }
    assert_eq!(steps, [(1, 1), (2, 2), (3, 3), (3, 3)]);
}

#[test]
fn a_blank_draft_leads_to_the_answer() {
    assert_eq!(IterRetGen.parse(State::Reasoning, " \n").action, Action::Malformed);
    let context = Context::new("Why?", State::Reasoning);
    assert_eq!(IterRetGen.transition(&context, &Action::Malformed, 2), Transition::To(State::AnswerGeneration));
}
