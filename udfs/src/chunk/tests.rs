//! What the pieces of a text have in common, whatever the text.

use std::ops::Range;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check_sentences(text: &str, expected: Expect) {
    let found: Vec<&str> = sentences(text).into_iter().map(|sentence| &text[sentence]).collect();
    expected.assert_eq(&found.join("\n"));
}

#[test]
fn abbreviations_do_not_end_sentences() {
    check_sentences(
        "J. R. R. Tolkien (3 January 1892 – 2 Sept. 1973) was an English writer. He was born in Bloemfontein. \"Is it?\" asked Dr. Noe. No. Op. 5 is.",
        expect![[r#"
            J. R. R. Tolkien (3 January 1892 – 2 Sept. 1973) was an English writer.
            He was born in Bloemfontein.
            "Is it?" asked Dr. Noe.
            No.
            Op. 5 is."#]],
    );
    check_sentences(
        "The U.S. Army bought it from Smith & Co. in 1901. He lived in the U.S. The film cost $1.5 million, e.g. for sets by John Smith Jr. and others.",
        expect![[r#"
            The U.S. Army bought it from Smith & Co. in 1901.
            He lived in the U.S.
            The film cost $1.5 million, e.g. for sets by John Smith Jr. and others."#]],
    );
    check_sentences(
        "\"Jaws\"\nJaws is a film.It was made in 1975. 大白鲨是一部电影。它很有名。",
        expect![[r#"
            "Jaws"
            Jaws is a film.It was made in 1975.
            大白鲨是一部电影。
            它很有名。"#]],
    );
    check_sentences(" \n ", expect![""]);
}

#[test]
fn windows_share_their_overlap() {
    let text = "a b c d e f g";
    let cut = |size, overlap| -> Vec<&str> { windows(&words(text), size, overlap).into_iter().map(|chunk| &text[chunk]).collect() };
    assert_eq!(cut(3, 1), ["a b c", "c d e", "e f g"]);
    assert_eq!(cut(4, 0), ["a b c d", "e f g"]);
    assert_eq!(cut(7, 6), [text]);
    assert_eq!(cut(2, 1), ["a b", "b c", "c d", "d e", "e f", "f g"]);
    assert!(windows(&[], 3, 1).is_empty());
}

#[test]
fn sentences_are_packed() {
    let text = "One two three. Four five. Six. Seven eight nine ten eleven twelve. Thirteen.";
    let cut = |size, overlap| -> Vec<&str> { packed_sentences(text, size, overlap).into_iter().map(|chunk| &text[chunk]).collect() };
    assert_eq!(cut(5, 0), ["One two three. Four five.", "Six.", "Seven eight nine ten eleven twelve.", "Thirteen."]);
    assert_eq!(cut(7, 3), ["One two three. Four five. Six.", "Six. Seven eight nine ten eleven twelve.", "Thirteen."]);
    assert_eq!(cut(100, 3), [text]);
}

/// Texts with white space, periods and characters of several bytes.
fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof!["[a-zA-Zé語]{1,6}", Just(". ".to_owned()), Just(" ".to_owned()), Just("\n".to_owned()), Just("! ".to_owned())],
        0..60,
    )
    .prop_map(|parts| parts.concat())
}

/// What lies between the pieces, before and after them is white space; each begins and ends after the one before.
fn assert_cover(text: &str, chunks: &[Range<usize>]) {
    let mut end = 0;
    for chunk in chunks {
        assert!(chunk.start < chunk.end && chunk.end > end, "{chunks:?} of {text:?}");
        if chunk.start > end {
            assert!(text[end..chunk.start].trim().is_empty(), "{chunks:?} of {text:?}");
        }
        end = chunk.end;
    }
    assert!(text[end..].trim().is_empty(), "{chunks:?} of {text:?}");
    assert!(chunks.windows(2).all(|pair| pair[0].start < pair[1].start), "{chunks:?} of {text:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn windows_cover_the_text(text in texts(), size in 1usize..12, overlap in 0usize..12) {
        let overlap = overlap.min(size - 1);
        for units in [words(&text), characters(&text)] {
            let chunks = windows(&units, size, overlap);
            assert_cover(&text, &chunks);
            let count = |range: &Range<usize>| units.iter().filter(|unit| range.start <= unit.start && unit.end <= range.end).count();
            for (number, chunk) in chunks.iter().enumerate() {
                let is_last = number + 1 == chunks.len();
                prop_assert!(count(chunk) == size || (is_last && count(chunk) <= size));
            }
            for pair in chunks.windows(2) {
                prop_assert_eq!(count(&(pair[1].start..pair[0].end.max(pair[1].start))), overlap);
            }
        }
    }

    #[test]
    fn packed_sentences_cover_the_text(text in texts(), size in 1usize..12, overlap in 0usize..12) {
        let overlap = overlap.min(size - 1);
        let chunks = packed_sentences(&text, size, overlap);
        assert_cover(&text, &chunks);
        let sentences = sentences(&text);
        for chunk in &chunks {
            let num_words = words(&text[chunk.clone()]).len();
            prop_assert!(num_words <= size || sentences.contains(chunk), "{} words in {:?}", num_words, &text[chunk.clone()]);
            prop_assert!(sentences.iter().any(|sentence| sentence.start == chunk.start) && sentences.iter().any(|sentence| sentence.end == chunk.end));
        }
        for pair in chunks.windows(2) {
            let shared = text.get(pair[1].start..pair[0].end).unwrap_or_default();
            prop_assert!(words(shared).len() <= overlap);
        }
    }
}
