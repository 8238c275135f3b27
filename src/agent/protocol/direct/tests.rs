use expect_test::expect;

use crate::agent::testing::{MemoryCorpus, Script, agent_of, shown};

#[tokio::test]
async fn golden_trajectory() {
    let agent = agent_of("direct", Script::new(&[" In the U.S. of 1946.\nQuestion: And then?"]), MemoryCorpus::films());
    expect![[r#"
        --- answer_generation answer_generation
        Question: When was the director of Jaws born?
        Answer:« In the U.S. of 1946.»
        === answered Some("In the U.S. of 1946.")
    "#]]
    .assert_eq(&shown(&agent, "When was the director of Jaws born?").await);
}

#[tokio::test]
async fn a_blank_answer_is_malformed() {
    let agent = agent_of("direct", Script::new(&[" \n"]), MemoryCorpus::films());
    expect![[r#"
        --- answer_generation malformed
        Question: Why? Answer: x
        Answer:« 
        »
        === malformed None
    "#]]
    .assert_eq(&shown(&agent, "Why?\nAnswer: x").await);
}
