//! The list of schemas as a text: names, in quotes where they need them, with commas between them.

use crate::engine::statement::quoted;

/// The names in a list as the setting has it: `"$user", public`; `None` if it is none.
pub fn names(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = if let Some(quoted) = rest.strip_prefix('"') {
            quoted_name(quoted)?
        } else {
            let end = rest.find(|c: char| matches!(c, ',' | '"') || c.is_whitespace()).unwrap_or(rest.len());
            (rest[..end].to_ascii_lowercase(), &rest[end..])
        };
        if name.is_empty() && !rest.starts_with('"') {
            return None;
        }
        names.push(name);
        rest = after.trim_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(',')?.trim_start();
            if rest.is_empty() {
                return None;
            }
        }
    }
    Some(names)
}

/// The name up to its closing quote, and what comes after it; two quotes are one within it.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Some((name, rest)),
        }
    }
}

/// A name as an item of the list.
pub fn listed(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { name.to_owned() } else { quoted(name).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_in_postgres() {
        for (text, expected) in [
            ("\"$user\", public", Some(vec!["$user", "public"])),
            ("$user,Public", Some(vec!["$user", "public"])),
            ("\"A b\" , \"c\"\"d\"", Some(vec!["A b", "c\"d"])),
            ("\"\"", Some(vec![""])),
            ("", Some(vec![])),
            ("a b", None),
            ("a,", None),
            (",a", None),
            ("\"a", None),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(names(text), expected, "{text}");
        }
        for name in ["public", "$user", "A b", "c\"d", "1st"] {
            assert_eq!(names(&listed(name)), Some(vec![name.to_owned()]));
        }
    }
}
