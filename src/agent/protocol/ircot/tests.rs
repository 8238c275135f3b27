use expect_test::expect;

use super::*;
use crate::agent::answer::answer;
use crate::agent::testing::{MemoryCorpus, Script, agent_of, shown};

const SENTENCES: &[&str] =
    &[" Jaws was directed by Steven Spielberg. He was born", " Steven Spielberg was born in 1946. And so on.", " So the answer is: 1946."];

#[test]
fn the_first_sentence_counts() {
    let parsed = |response: &'static str| {
        let parsed = IrCot.parse(State::Reasoning, response);
        (parsed.action, &response[..parsed.end])
    };
    let thought = |text: &str| Action::Thought(text.to_owned());
    assert_eq!(parsed(" It is by J. Hale. He was"), (thought("It is by J. Hale."), " It is by J. Hale."));
    assert_eq!(parsed("\n no end\nmore"), (thought("no end"), "\n no end"));
    assert_eq!(
        parsed(" So the answer is the U.S. Navy.\nmore"),
        (Action::Answer("the U.S. Navy.".to_owned()), " So the answer is the U.S. Navy.")
    );
    assert_eq!(parsed(" Then. So the answer is x").0, thought("Then."));
    assert_eq!(parsed(" So the answer is:").0, Action::Malformed);
    assert_eq!(parsed(" \n").0, Action::Malformed);
}

#[tokio::test]
async fn golden_trajectory() {
    let agent = agent_of("ircot", Script::new(SENTENCES), MemoryCorpus::films());
    expect![[r#"
        --- begin_reasoning thought
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Steven Spielberg: Steven Spielberg was born in 1946.
        Question: When was the director of Jaws born?
        Thought:« Jaws was directed by Steven Spielberg.»
        --- reasoning thought
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Steven Spielberg: Steven Spielberg was born in 1946.
        [3] Alien: Alien is a film. It was directed by Ridley Scott.
        Question: When was the director of Jaws born?
        Thought: Jaws was directed by Steven Spielberg.« Steven Spielberg was born in 1946.»
        --- reasoning answer_generation
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        [2] Steven Spielberg: Steven Spielberg was born in 1946.
        [3] Alien: Alien is a film. It was directed by Ridley Scott.
        Question: When was the director of Jaws born?
        Thought: Jaws was directed by Steven Spielberg. Steven Spielberg was born in 1946.« So the answer is: 1946.»
        === answered Some("1946")
    "#]]
    .assert_eq(&shown(&agent, "When was the director of Jaws born?").await);
}

#[tokio::test]
async fn sentences_are_queries() {
    let agent = agent_of("ircot", Script::new(SENTENCES), MemoryCorpus::films());
    let trajectory = answer(&agent, Some("Who directed Jaws?"), "1").await.unwrap();
    let queries: Vec<Option<&str>> = trajectory.steps.iter().map(|step| step.query()).collect();
    assert_eq!(queries, [Some("Jaws was directed by Steven Spielberg."), Some("Steven Spielberg was born in 1946."), None]);
    assert_eq!(trajectory.retrieval_count, 3, "and one with the question");
    assert_eq!(trajectory.steps[0].retrieval_count, 2);
}

#[tokio::test]
async fn the_last_step_answers() {
    let mut agent = agent_of("ircot", Script::new(&[" Jaws is a film.", " fish"]), MemoryCorpus::films());
    (agent.max_steps, agent.k) = (2, 1);
    expect![[r#"
        --- begin_reasoning thought
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        Question: Why? So the answer is x.
        Thought:« Jaws is a film.»
        --- answer_generation answer_generation
        [1] Jaws: Jaws is a film. It was directed by Steven Spielberg.
        Question: Why? So the answer is x.
        Thought: Jaws is a film.
        So the answer is:« fish»
        === answered Some("fish")
    "#]]
    .assert_eq(&shown(&agent, "Why? So the answer is x.").await);
}

/// Older retrievals are shown, each passage where it was found first, until there are enough passages.
#[test]
fn passages_accumulate() {
    let found = |ids: std::ops::Range<usize>| {
        let passage = |id: usize| Passage { id: id.to_string(), title: None, contents: String::new() };
        super::super::Retrieved { query: "q".into(), passages: ids.map(passage).collect() }
    };
    let step =
        |ids| super::super::EarlierStep { prompt: "".into(), response: "".into(), action: Action::Malformed, retrieved: Some(found(ids)) };
    let shown = |context: &Context| found_so_far(context).iter().map(|passage| passage.id.parse().unwrap()).collect::<Vec<usize>>();
    let context = Context::new("Why?", State::Reasoning).opened(found(0..4)).followed(step(2..6), State::Reasoning);
    assert_eq!(shown(&context), [0, 1, 2, 3, 4, 5]);
    let context = context.followed(step(1..3), State::Reasoning);
    assert_eq!(shown(&context), [0, 1, 2, 3, 4, 5], "what is found again stays where it was");
    let context = context.followed(step(10..30), State::Reasoning);
    assert_eq!(shown(&context), (10..30).collect::<Vec<_>>());
}

/// A policy that caches prefixes computes of a step what it found and what was thought, and nothing that the step before it had read.
#[test]
fn a_default_prompt_begins_as_the_one_before_it() {
    let templates = prompts::builtin().into_iter().filter(|row| row.prompt_set == "default");
    let heads: HashSet<String> = templates.map(|row| row.template.split("{passages}").next().unwrap().to_owned()).collect();
    assert_eq!(heads.len(), 1, "{heads:?}");
}
