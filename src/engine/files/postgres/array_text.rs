//! Arrays in text form: `{1,NULL,"a b"}`.

/// The items of an array of one dimension; an unquoted NULL is none.
///
/// # Errors
/// Why the text is not one.
pub fn items(text: &str) -> Result<Vec<Option<String>>, String> {
    let malformed = || format!("expected an array, as in {{1,2}}, found '{}'", super::super::json::shortened(text));
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut rest = inner;
    let mut items = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.starts_with('{') {
            return Err("expected an array of one dimension".to_owned());
        }
        let (item, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_item(quoted).map(|(item, after)| (Some(item), after)),
            None => bare_item(rest),
        }
        .ok_or_else(malformed)?;
        items.push(item);
        let after = after.trim_start();
        if after.is_empty() {
            return Ok(items);
        }
        rest = after.strip_prefix(',').ok_or_else(malformed)?;
    }
}

/// The item up to its closing quote, and what follows.
fn quoted_item(text: &str) -> Option<(String, &str)> {
    let mut item = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (end, '"') => return Some((item, &text[end + 1..])),
            (_, '\\') => item.push(characters.next()?.1),
            (_, character) => item.push(character),
        }
    }
}

fn bare_item(text: &str) -> Option<(Option<String>, &str)> {
    let mut item = String::new();
    let mut end = text.len();
    let mut is_escaped = false;
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            ',' => {
                end = place;
                break;
            }
            '\\' => {
                is_escaped = true;
                item.push(characters.next()?.1);
            }
            '"' | '{' | '}' => return None,
            character => item.push(character),
        }
    }
    let item = item.trim_end();
    match item {
        "" => None,
        _ if !is_escaped && item.eq_ignore_ascii_case("null") => Some((None, &text[end..])),
        _ => Some((Some(item.to_owned()), &text[end..])),
    }
}
