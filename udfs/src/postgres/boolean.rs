//! Words for true and false.

/// What PostgreSQL takes for a boolean: `true`, `yes`, `on`, `1` and their opposites in any case, and their beginnings as far as these are clear.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on" | "1" => Some(true),
        "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::parse_bool;

    #[test]
    fn clear_beginnings_are_enough() {
        for (text, expected) in [(" T ", Some(true)), ("ye", Some(true)), ("1", Some(true)), ("of", Some(false)), ("N", Some(false))] {
            assert_eq!(parse_bool(text), expected, "{text}");
        }
        for text in ["", "o", "2", "truth", "null"] {
            assert_eq!(parse_bool(text), None, "{text}");
        }
    }
}
