use expect_test::expect;

use crate::agent::answer::answer;
use crate::agent::testing::{MemoryCorpus, Script, agent_of, shown};

#[tokio::test]
async fn golden_trajectory() {
    let agent = agent_of("naive_rag", Script::new(&[" 1946"]), MemoryCorpus::films());
    expect![[r#"
        --- answer_generation answer_generation
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Alien: Alien is a film. It was directed by Ridley Scott.
        Question: Who directed Jaws?
        Answer:« 1946»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown(&agent, "Who directed Jaws?").await);
}

/// What was retrieved before the only step is listed with it.
#[tokio::test]
async fn the_step_names_its_retrieval() {
    let agent = agent_of("naive_rag", Script::new(&[" 1946"]), MemoryCorpus::films());
    let trajectory = answer(&agent, Some("Who directed Jaws?"), "1").await.unwrap();
    assert_eq!((trajectory.steps[0].query(), trajectory.retrieval_count), (Some("Who directed Jaws?"), 1));
    assert_eq!(trajectory.passage_ids(), ["f1", "f2"]);
    assert_eq!(trajectory.steps[0].passage_ids.as_deref().map(<[String]>::len), Some(2));
}

#[tokio::test]
async fn nothing_found() {
    let agent = agent_of("naive_rag", Script::new(&[" 1946"]), MemoryCorpus::new(&[]));
    expect![[r#"
        --- answer_generation answer_generation
        Question: Who?
        Answer:« 1946»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown(&agent, "Who?").await);
}
