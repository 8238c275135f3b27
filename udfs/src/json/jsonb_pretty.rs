use super::document::{Document, Kind};
use super::normal_form::{normalize, quoted};
use crate::function::{Function, Interface, Returns};

pub(crate) static FUNCTION: Function = Function {
    interface: Interface {
        name: "jsonb_pretty",
        section: super::SECTION,
        description: "The value over several lines, each level four blanks further in.",
        parameters: &[super::JSON],
        required: 1,
        example: ("SELECT replace(jsonb_pretty('{\"a\":[1]}'), chr(10), '|')", r#"{|    "a": [|        1|    ]|}"#),
    },
    returns: Returns::Always(arrow::datatypes::DataType::Utf8),
    kernel: |arguments| {
        super::map_documents(arguments, |document, _, texts| {
            let normal = normalize(document.as_str()).expect("a document is JSON");
            let mut out = String::new();
            write(Document::parse(&normal).expect("so is its normal form"), 0, &mut out);
            texts.append_value(out);
        })
    },
};

fn write(value: Document<'_>, depth: usize, out: &mut String) {
    match value.kind() {
        Kind::Object => {
            enclosed('{', '}', depth, value.entries(), out, |(key, value), out| {
                out.push_str(&quoted(&key));
                out.push_str(": ");
                write(value, depth + 1, out);
            });
        }
        Kind::Array => enclosed('[', ']', depth, value.items(), out, |item, out| write(item, depth + 1, out)),
        _ => out.push_str(value.as_str()),
    }
}

fn enclosed<T>(open: char, close: char, depth: usize, items: impl Iterator<Item = T>, out: &mut String, each: impl Fn(T, &mut String)) {
    let line = |depth: usize, out: &mut String| {
        out.push('\n');
        out.push_str(&" ".repeat(4 * depth));
    };
    out.push(open);
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(',');
        }
        line(depth + 1, out);
        each(item, out);
    }
    line(depth, out);
    out.push(close);
}
