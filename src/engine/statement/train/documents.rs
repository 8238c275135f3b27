//! Where the retrieved documents of a prompt are: of a prompt that is too long it is their beginning that goes.
//!
//! Rollouts write passages as lines `[1] ...`, `[2] ...` one after the other (`src/agent/protocol/quoting.rs`), Search-R1 and FlashRAG as `Doc 1(Title: ...) ...`;
//! each retrieval begins with 1. Such lines are documents in a chat template too. Nothing else of a prompt is: instructions, question, what was thought, and
//! its end stay.

use std::ops::Range;

use crate::error::Result;
use crate::models::Tokenizer;

/// Tags that may stand round documents in their first and last line.
const OPEN_TAGS: [&str; 2] = ["<information>", "<retrieval>"];
const CLOSE_TAGS: [&str; 2] = ["</information>", "</retrieval>"];

/// Takes the tokens of documents out of `prompt`, the ids of `text`, from the left, until it has at most `room` tokens; `None` if there are too few of them, or
/// none.
///
/// # Errors
/// As [`Tokenizer::token_ranges`].
pub fn without_beginning(prompt: &[u32], text: &str, room: usize, tokenizer: &Tokenizer) -> Result<Option<Vec<u32>>> {
    let Some(num_over) = prompt.len().checked_sub(room).filter(|num_over| *num_over > 0) else { return Ok(None) };
    let documents = documents(text);
    if documents.is_empty() {
        return Ok(None);
    }
    let tokens = tokenizer.token_ranges(text)?;
    // Those with which a prompt begins stand in no text.
    let num_before = prompt.len().saturating_sub(tokens.len());
    let is_document = |token: &Range<usize>| documents.iter().any(|document| document.start <= token.start && token.end <= document.end);
    let mut gone =
        tokens.iter().enumerate().filter(|(_, token)| is_document(token)).map(|(index, _)| num_before + index).take(num_over).peekable();
    let mut left = Vec::with_capacity(room);
    for (index, id) in prompt.iter().enumerate() {
        if gone.next_if_eq(&index).is_none() {
            left.push(*id);
        }
    }
    Ok((left.len() <= room).then_some(left))
}

/// Bytes of the lines of documents, in order.
fn documents(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut last, mut start) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        let opened = OPEN_TAGS.iter().find_map(|tag| content.strip_prefix(tag)).unwrap_or(content);
        let number = number_of(opened).filter(|number| *number == 1 || *number == last + 1);
        if number.is_some() {
            let closed = CLOSE_TAGS.iter().find_map(|tag| opened.strip_suffix(tag)).unwrap_or(opened);
            let begin = start + content.len() - opened.len();
            found.push(begin..begin + closed.len());
        }
        last = number.unwrap_or(0);
        start += line.len();
    }
    found
}

/// The number of a document that begins with its number.
fn number_of(line: &str) -> Option<usize> {
    let (number, rest) = match line.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => line.strip_prefix("Doc ")?.split_once('(').map(|(number, rest)| (number.trim_end(), rest))?,
    };
    let is_begun = if line.starts_with('[') { rest.starts_with(' ') } else { rest.starts_with("Title:") };
    number.parse().ok().filter(|number| is_begun && *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::fixture;

    fn found(text: &str) -> Vec<&str> {
        documents(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn documents_are_the_numbered_lines_of_a_retrieval() {
        let prompt = "Question: who [1]?\nIt is [2] he.\n[1] Film: one\n[2] Man: two\nEvidence:";
        assert_eq!(found(prompt), ["[1] Film: one", "[2] Man: two"]);
        let transcript =
            "<information>Doc 1(Title: A) a\nDoc 2(Title: B) b</information>\n<think>so</think>\n<information>\n[1] c\n</information>\n";
        assert_eq!(found(transcript), ["Doc 1(Title: A) a", "Doc 2(Title: B) b", "[1] c"]);
        let steps = "The retrieval documents:\n[1] a\n[2] b\nStep 2:\nThe retrieval documents:\r\n[1] c\r\n";
        assert_eq!(found(steps), ["[1] a", "[2] b", "[1] c"]);
        for none in ["", "[2] begins with no one", "[1]: a footnote", "[one] two", "Doc 1: (Title: A)", "Docs 1(Title: A)", "[0] a"] {
            assert_eq!(found(none), [""; 0], "{none}");
        }
        assert_eq!(found("[1] a\n[3] c\n[2] b"), ["[1] a"], "a number too far ends them");
    }

    #[test]
    fn the_beginning_of_the_documents_goes_and_nothing_else() {
        let tokenizer = Tokenizer::load(&fixture("../../src/models/builtin/tinyhop")).expect("the built-in model has one");
        let (head, first, second, end) =
            ("Question: Who directed it?\n", "[1] The film was made by one man", "[2] The man was born here", "\nEvidence:");
        let text = [head, first, "\n", second, end].concat();
        let prompt = tokenizer.encode_prompt(&text).expect("it is encoded");
        let cut = |room: usize| without_beginning(&prompt, &text, room, &tokenizer).expect("it is encoded");
        assert_eq!((cut(prompt.len()), cut(prompt.len() + 1)), (None, None), "it fits");
        let text_of = |ids: &[u32]| tokenizer.decode(ids).expect("it is decoded");
        for num_gone in [1, 4, 9] {
            let left = cut(prompt.len() - num_gone).expect("the documents have more tokens");
            assert_eq!(left.len(), prompt.len() - num_gone);
            let left = text_of(&left);
            assert!(left.trim_start().starts_with(head.trim_end()) && left.ends_with(end), "{left}");
            assert!(!left.contains(first), "{left}");
        }
        assert_eq!(cut(3), None, "the documents are not enough");
        let plain = "Question: who directed the film that was made by one man?";
        let prompt = tokenizer.encode_prompt(plain).expect("it is encoded");
        assert_eq!(without_beginning(&prompt, plain, 4, &tokenizer).expect("it is encoded"), None);
    }
}
