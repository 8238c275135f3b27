//! What a reward model reads of a prompt and the step that followed it.

use crate::models::Device;
use crate::models::reranker::LoadedReranker;

/// Tokens that the fixture reads, three of them special.
const LIMIT: usize = 80;

/// A prompt that begins with a `d` and ends with a `c`, and a step that ends with an `e`, one token per letter.
fn texts(prompt: usize, step: usize) -> (String, String) {
    (["d ", &"a ".repeat(prompt - 2), "c"].concat(), ["b ".repeat(step - 1).as_str(), "e"].concat())
}

#[test]
fn a_prompt_gives_way_at_its_beginning_and_a_step_never() {
    let directory = super::goldens::fixture("bert_reranker");
    let model = LoadedReranker::load(&directory, Device::Cpu).unwrap();
    let token = |letter: &str| model.encode(letter, "").unwrap().0[1];
    let [begin, filler, end, of_step, last] = ["d", "a", "c", "b", "e"].map(token);
    let count = |tokens: &[u32], wanted: u32| tokens.iter().filter(|token| **token == wanted).count();

    let (prompt, step) = texts(20, 10);
    assert_eq!(model.encode_step(&prompt, &step).unwrap(), Some(model.encode(&prompt, &step).unwrap()), "what fits is not cut");

    for (prompt_tokens, step_tokens) in [(200, 30), (200, 60), (60, 60), (2, 76)] {
        let (prompt, step) = texts(prompt_tokens, step_tokens);
        let (tokens, segments) = model.encode_step(&prompt, &step).unwrap().unwrap();
        let left = LIMIT - 3 - step_tokens;
        assert_eq!((tokens.len(), segments.iter().sum::<u32>() as usize), (LIMIT, step_tokens + 1), "{prompt_tokens} and {step_tokens}");
        assert_eq!((count(&tokens, of_step), count(&tokens, last)), (step_tokens - 1, 1));
        assert_eq!((count(&tokens, begin), count(&tokens, end), count(&tokens, filler)), (0, 1, left - 1));
    }
    // A cross-encoder of queries and passages keeps the beginnings of both.
    let (prompt, step) = texts(200, 60);
    let (tokens, _) = model.encode(&prompt, &step).unwrap();
    assert_eq!((tokens.len(), count(&tokens, begin), count(&tokens, end), count(&tokens, last)), (LIMIT, 1, 0, 0));

    let of_step_alone = |step_tokens| model.encode_step("a c", &texts(2, step_tokens).1).unwrap();
    assert_eq!(of_step_alone(LIMIT - 3).map(|(tokens, _)| tokens.len()), Some(LIMIT), "nothing is left of the prompt");
    assert_eq!(of_step_alone(LIMIT - 2), None, "and then it is too long");
}
