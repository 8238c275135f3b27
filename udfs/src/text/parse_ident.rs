use std::sync::Arc;

use arrow::array::{ArrayRef, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field};

use super::{SECTION, TEXT};
use crate::function::{Function, Interface, Kind, Parameter, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "parse_ident",
        section: SECTION,
        description: "The parts of a name with points, as SQL reads it: in small letters where they are not quoted.",
        parameters: &[
            TEXT,
            Parameter { name: "strict", kind: Kind::Boolean, description: "Whether what follows the name is an error; true by default." },
        ],
        required: 1,
        example: ("SELECT parse_ident('SomeSchema.\"someTable\"')", "[someschema, someTable]"),
    },
    returns: Returns::Computed(|_, _| Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))),
    kernel: |arguments| {
        let texts = arguments.text(0)?;
        let stricts = if arguments.has(1) { Some(arguments.boolean(1)?) } else { None };
        let mut names = ListBuilder::new(StringBuilder::new());
        for row in 0..arguments.num_rows() {
            let strict = stricts.as_ref().map_or(Some(true), |stricts| stricts.get(row));
            let Some((text, strict)) = texts.get(row).zip(strict) else {
                names.append(false);
                continue;
            };
            let parts = parts(text, strict).ok_or_else(|| {
                let found: String = text.chars().take(60).collect();
                FUNCTION.interface.argument_error(0, format!("\"{found}\""), "names with points between them")
            })?;
            parts.into_iter().for_each(|part| names.values().append_value(part));
            names.append(true);
        }
        Ok(Arc::new(names.finish()) as ArrayRef)
    },
};

fn parts(text: &str, strict: bool) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let (part, behind) = name(rest)?;
        parts.push(part);
        rest = behind.trim_start();
        match rest.strip_prefix('.') {
            Some(behind) => rest = behind.trim_start(),
            None if strict && !rest.is_empty() => return None,
            None => return Some(parts),
        }
    }
}

/// One name, and what follows it.
fn name(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let mut name = String::new();
        let mut rest = quoted;
        loop {
            let (before, behind) = rest.split_once('"')?;
            name.push_str(before);
            match behind.strip_prefix('"') {
                Some(behind) => {
                    name.push('"');
                    rest = behind;
                }
                None => return (!name.is_empty()).then_some((name, behind)),
            }
        }
    }
    let is_part = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '$') || !character.is_ascii();
    let end = text.find(|character: char| !is_part(character)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let is_name = !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit() || first == '$');
    is_name.then(|| (name.to_ascii_lowercase(), rest))
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn names_are_read_as_sql_reads_them() {
        let read = |text: &str, strict| parts(text, strict).map(|parts| parts.join("|"));
        assert_eq!(read("SomeSchema . \"a\"\"B\"", true).as_deref(), Some("someschema|a\"B"));
        assert_eq!(read("a(int)", false).as_deref(), Some("a"));
        for text in ["a(int)", "", ".a", "a.", "1a", "\"a", "\"\""] {
            assert_eq!(read(text, true), None, "{text}");
        }
    }
}
