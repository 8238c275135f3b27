//! Texts with placeholders in braces: `{question}`. Braces round anything but a word in lower case are text.

use crate::agent::options::out_of_range;
use crate::agent::prompts::{placeholders_of, split_at_placeholder};
use crate::error::{Error, Result};

/// Checks that a template has all the placeholders of `known` and no other. `of`: what it belongs to, for the error.
///
/// # Errors
/// [`Error::UnknownOption`] for one that is not known, [`Error::InvalidParameter`] for one that is missing.
pub fn check(template: &str, known: &[&str], of: &str) -> Result<()> {
    if let Some(name) = placeholders_of(template).into_iter().find(|found| !known.contains(&found.as_str())) {
        let known = known.iter().map(|&known| known.to_owned()).collect();
        return Err(Error::UnknownOption { kind: "placeholder", name, of: of.to_owned(), known });
    }
    let braced: Vec<String> = known.iter().map(|known| format!("{{{known}}}")).collect();
    match (braced.iter().find(|braced| !template.contains(*braced)), braced.split_last()) {
        (Some(missing), Some((last, first))) => {
            let expected = format!("a text with {} and {last}", first.join(", "));
            Err(out_of_range(of, format!("a text without {missing}"), &expected))
        }
        _ => Ok(()),
    }
}

/// The text with the values, by name, in the places of the placeholders. One pass, so that nothing in a value is taken for a placeholder.
pub fn render(template: &str, values: &[(&str, &str)]) -> String {
    let value = |name| values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| *value);
    let texts = pieces(template).into_iter().map(|piece| match piece {
        Piece::Text(text) => text,
        Piece::Placeholder(name) => value(name),
    });
    texts.collect()
}

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

fn pieces(mut template: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    while let Some((before, name, after)) = split_at_placeholder(template) {
        pieces.extend([Piece::Text(before), Piece::Placeholder(name)]);
        template = after;
    }
    pieces.push(Piece::Text(template));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_rendered_in_one_pass() {
        let values = [("question", "{steps}"), ("golden_answers", "b"), ("steps", "c")];
        assert_eq!(render("{question}|{steps}|{golden_answers}|{}|{other}", &values), "{steps}|c|b|{}|");
        assert_eq!(placeholders_of("{a b} {Upper} {stepps}"), ["stepps"]);
    }

    #[test]
    fn a_template_has_its_placeholders_and_no_other() {
        let error = |template| check(template, &["question", "answer"], "prompt mine.answer").unwrap_err().to_string();
        check("{answer} to {question}, {answer}", &["question", "answer"], "").unwrap();
        let unknown = r#"unknown placeholder "answr" of prompt mine.answer; did you mean "answer"?; it has: question, answer"#;
        assert_eq!(error("{question} {answr}"), unknown);
        assert_eq!(error("{question}"), "prompt mine.answer = a text without {answer}: expected a text with {question} and {answer}");
    }
}
