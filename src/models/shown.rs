//! Texts of servers, hubs and files as messages quote them.

/// Of what others wrote, as much as a message shows.
const CHARS_MAX: usize = 300;

/// On one line, and not too long.
pub(super) fn shown(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    // No further than it is shown: there are texts of many megabytes.
    let mut line = words.enumerate().flat_map(|(index, word)| (index > 0).then_some(' ').into_iter().chain(word.chars()));
    let mut shown: String = line.by_ref().take(CHARS_MAX).collect();
    if line.next().is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_short_and_on_one_line() {
        assert_eq!(shown(" \n"), "");
        assert_eq!(shown("\tyou have\r\n no\0 money\u{1b}[31m "), "you have no money [31m");
        for whole in ["é".repeat(CHARS_MAX), format!("{} {}", "é".repeat(CHARS_MAX / 2), "é".repeat(CHARS_MAX - CHARS_MAX / 2 - 1))] {
            assert_eq!(shown(&format!("{whole} \n")), whole);
            assert_eq!(shown(&format!("{whole}x")), format!("{whole}..."));
            assert_eq!(shown(&format!("{whole} x")), format!("{whole}..."));
        }
        assert_eq!(shown(&"a ".repeat(1 << 20)).len(), CHARS_MAX + "...".len());
    }
}
