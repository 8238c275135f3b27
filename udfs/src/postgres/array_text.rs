//! Arrays in text form: `{1,NULL,"a b"}`, `{{1,2},{3,4}}`, `[0:1]={1,2}`.

/// Dimensions of an array, as in PostgreSQL.
const DIMENSIONS_MAX: usize = 6;

/// The items of an array in their order, and the length of each dimension from the outside to the inside; none for an empty array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayItems {
    pub texts: Vec<Option<String>>,
    pub lengths: Vec<usize>,
}

/// Reads an array. An unquoted NULL is none; lower bounds are read and mean nothing, for lists are counted from 1. `None` for another text, and for
/// arrays of different lengths beside each other.
#[must_use]
pub fn parse_array(text: &str) -> Option<ArrayItems> {
    let mut reader = Reader { rest: without_bounds(text.trim_matches(is_blank))?, texts: Vec::new(), lengths: Vec::new() };
    reader.array(0)?;
    if !reader.rest.is_empty() {
        return None;
    }
    let Reader { texts, lengths, .. } = reader;
    let lengths = lengths.into_iter().map(|length| length.unwrap_or(0)).collect::<Vec<_>>();
    Some(if texts.is_empty() { ArrayItems { texts, lengths: Vec::new() } } else { ArrayItems { texts, lengths } })
}

/// The array behind `[1:3][-2:-1]=`, if there are bounds.
fn without_bounds(text: &str) -> Option<&str> {
    if !text.starts_with('[') {
        return Some(text);
    }
    let (bounds, array) = text.split_once('=')?;
    let is_number = |text: &str| text.parse::<i32>().is_ok();
    let is_bound = |bound: &str| bound.split_once(':').map_or(is_number(bound), |(lower, upper)| is_number(lower) && is_number(upper));
    let inner = bounds.trim_end_matches(is_blank).strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))?;
    if inner.split("][").all(is_bound) { Some(array.trim_start_matches(is_blank)) } else { None }
}

/// Blanks are those of ASCII: others belong to items.
fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

struct Reader<'a> {
    rest: &'a str,
    texts: Vec<Option<String>>,
    /// Of the first array at each depth; the others must have the same. `None`: it is not read to its end.
    lengths: Vec<Option<usize>>,
}

impl Reader<'_> {
    /// An array and those in it, `depth` of them round it.
    fn array(&mut self, depth: usize) -> Option<()> {
        self.expect('{')?;
        let is_first = self.lengths.len() == depth;
        if is_first {
            // An item beside an array, or deeper than those before it.
            if depth == DIMENSIONS_MAX || !self.texts.is_empty() {
                return None;
            }
            self.lengths.push(None);
        }
        let mut length = 0;
        self.skip_blanks();
        if !self.take('}') {
            loop {
                self.skip_blanks();
                if self.rest.starts_with('{') {
                    self.array(depth + 1)?;
                } else if self.lengths.len() == depth + 1 {
                    let item = self.item()?;
                    self.texts.push(item);
                } else {
                    return None;
                }
                length += 1;
                self.skip_blanks();
                if self.take('}') {
                    break;
                }
                self.expect(',')?;
            }
        }
        match self.lengths[depth] {
            None => self.lengths[depth] = Some(length),
            Some(expected) if expected != length => return None,
            Some(_) => {}
        }
        Some(())
    }

    fn item(&mut self) -> Option<Option<String>> {
        if self.take('"') { self.quoted().map(Some) } else { self.bare() }
    }

    /// Up to the closing quote.
    fn quoted(&mut self) -> Option<String> {
        let mut item = String::new();
        loop {
            let end = self.rest.find(['"', '\\'])?;
            item.push_str(&self.rest[..end]);
            let is_end = self.rest[end..].starts_with('"');
            self.rest = &self.rest[end + 1..];
            if is_end {
                return Some(item);
            }
            item.push(self.character()?);
        }
    }

    fn bare(&mut self) -> Option<Option<String>> {
        let mut item = String::new();
        let mut has_escapes = false;
        loop {
            let end = self.rest.find([',', '}', '{', '"', '\\'])?;
            item.push_str(&self.rest[..end]);
            self.rest = &self.rest[end..];
            match self.rest.as_bytes()[0] {
                b',' | b'}' => break,
                b'\\' => {
                    self.rest = &self.rest[1..];
                    item.push(self.character()?);
                    has_escapes = true;
                }
                _ => return None,
            }
        }
        let trimmed = item.trim_end_matches(is_blank);
        if trimmed.is_empty() {
            return None;
        }
        Some((has_escapes || !trimmed.eq_ignore_ascii_case("null")).then(|| trimmed.to_owned()))
    }

    fn character(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    fn take(&mut self, character: char) -> bool {
        match self.rest.strip_prefix(character) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, character: char) -> Option<()> {
        if self.take(character) { Some(()) } else { None }
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(is_blank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(texts: &[Option<&str>], lengths: &[usize]) -> Option<ArrayItems> {
        Some(ArrayItems { texts: texts.iter().map(|text| text.map(str::to_owned)).collect(), lengths: lengths.to_vec() })
    }

    #[test]
    fn items_follow_postgres_quoting() {
        assert_eq!(parse_array("{}"), items(&[], &[]));
        assert_eq!(parse_array("{ }"), items(&[], &[]));
        assert_eq!(parse_array("{1, 2 ,NULL}"), items(&[Some("1"), Some("2"), None], &[3]));
        assert_eq!(parse_array(r#"{"a,b","c\"d","NULL",""}"#), items(&[Some("a,b"), Some("c\"d"), Some("NULL"), Some("")], &[4]));
        assert_eq!(parse_array(r"{a\,b,\NULL}"), items(&[Some("a,b"), Some("NULL")], &[2]));
        for damaged in ["", "{", "{1,}", "{,1}", "{\"a}", "{a\"b}", "{\"a\"b}", "{1}}", "{1}2", "{a\\", "{a\\}"] {
            assert_eq!(parse_array(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn arrays_of_arrays_have_equal_lengths() {
        assert_eq!(parse_array("{{1,2},{3,NULL}}"), items(&[Some("1"), Some("2"), Some("3"), None], &[2, 2]));
        assert_eq!(parse_array("{{{1}},{{2}}}"), items(&[Some("1"), Some("2")], &[2, 1, 1]));
        assert_eq!(parse_array("{{},{}}"), items(&[], &[]));
        for damaged in ["{{1},{2,3}}", "{1,{2}}", "{{1},2}", "{{1},{}}", "{{},{1}}", "{{1},{{2}}}", "{{{{{{{1}}}}}}}"] {
            assert_eq!(parse_array(damaged), None, "{damaged}");
        }
        let deep = "{".repeat(100_000);
        assert_eq!(parse_array(&deep), None);
    }

    #[test]
    fn bounds_are_read() {
        assert_eq!(parse_array("[0:1]={1,2}"), items(&[Some("1"), Some("2")], &[2]));
        assert_eq!(parse_array("[-1:0][5:5] = {{1},{2}}"), items(&[Some("1"), Some("2")], &[2, 1]));
        for damaged in ["[1:2]", "[x]={1}", "[]={1}", "[1:2={1}"] {
            assert_eq!(parse_array(damaged), None, "{damaged}");
        }
    }
}
