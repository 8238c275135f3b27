//! Arrow's names of types within a text, and PostgreSQL's in their place: `List(Utf8)` is `text[]`, `FixedSizeList(3 x Float32)` is `vector(3)`.

use std::sync::LazyLock;

use regex::Regex;

/// A text in which each of Arrow's types is replaced by PostgreSQL's.
pub(super) fn in_sql_types(text: &str) -> String {
    static NAME: LazyLock<Regex> = LazyLock::new(|| {
        let with_parts = "FixedSizeList|LargeListView|LargeList|ListView|List|Struct|Map|Union|Dictionary|RunEndEncoded|FixedSizeBinary|Timestamp|Time32|Time64|\
            Interval|Duration|Decimal32|Decimal64|Decimal128|Decimal256";
        let alone = "Utf8View|LargeUtf8|Utf8|String|Boolean|Int8|Int16|Int32|Int64|UInt8|UInt16|UInt32|UInt64|Float16|Float32|Float64|Date32|Date64|\
            BinaryView|LargeBinary|Binary|Timestamp|Time64|Time32|Interval";
        Regex::new(&format!(r"\b(?:(?:{with_parts})\(|(?:{alone})\b)")).expect("a pattern of ours")
    });
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = NAME.find(rest) {
        out.push_str(&rest[..found.start()]);
        let name = found.as_str();
        let (shown, end) = match name.strip_suffix('(').map(|name| (name, closing(&rest[found.end()..]))) {
            Some((name, Some(length))) => {
                let end = found.end() + length;
                (with_parts(name, &rest[found.end()..end]), end + 1)
            }
            // No type, for its bracket has no end.
            Some((_, None)) => (name.to_owned(), found.end()),
            None => (alone(name).to_owned(), found.end()),
        };
        out.push_str(&shown);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Bytes up to the bracket that closes the one before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (place, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(place),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn with_parts(name: &str, parts: &str) -> String {
    match name {
        "FixedSizeList" => {
            let (width, item) = parts.split_once(" x ").unwrap_or(("", parts));
            match item_type(item).as_str() {
                "real" => format!("vector({width})"),
                "halfvec" => format!("halfvec({width})"),
                item => format!("{item}[]"),
            }
        }
        "List" | "LargeList" | "ListView" | "LargeListView" => format!("{}[]", item_type(parts).replace("halfvec", "real")),
        "Struct" => "record".to_owned(),
        "Dictionary" | "RunEndEncoded" => item_type(parts.split_once(", ").map_or(parts, |(_, values)| values)),
        "Timestamp" if parts.contains('"') || parts.contains("Some") => "timestamp with time zone".to_owned(),
        name if name.starts_with("Decimal") && parts != "38, 10" => format!("numeric({})", parts.replace(' ', "")),
        name => alone(name).to_owned(),
    }
}

/// Of a list, `Utf8`, `non-null Utf8, field: 'x'` or `Field { "item": nullable Utf8 }`.
fn item_type(parts: &str) -> String {
    let parts = parts.trim_start_matches("non-null ").trim_start_matches("nullable ");
    let parts = match parts.split_once("data_type: ") {
        Some((_, behind)) => behind,
        None => parts.strip_prefix("Field { ").and_then(|field| field.split_once(": ")).map_or(parts, |(_, behind)| behind),
    };
    let parts = parts.trim_start_matches("nullable ");
    let name = parts.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(parts.len());
    let end = match parts[name..].strip_prefix('(').and_then(closing) {
        Some(length) => name + length + 2,
        None => name,
    };
    match &parts[..end] {
        "Float16" => "halfvec".to_owned(),
        item => in_sql_types(item),
    }
}

/// The name that PostgreSQL has for a type without parts, as far as it is printed.
pub(super) fn alone(arrow_type: &str) -> &str {
    match arrow_type {
        "Utf8" | "Utf8View" | "LargeUtf8" | "String" => "text",
        "Boolean" => "boolean",
        "Int8" | "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" | "UInt8" | "UInt16" | "UInt32" | "UInt64" => "bigint",
        "Float16" | "Float32" => "real",
        "Float64" => "double precision",
        "Date32" | "Date64" => "date",
        "Time32" | "Time64" => "time",
        "Timestamp" => "timestamp",
        "Interval" | "Duration" => "interval",
        "Binary" | "BinaryView" | "LargeBinary" | "FixedSizeBinary" => "bytea",
        "Null" => "unknown",
        "Map" | "Union" => "json",
        "Struct" => "record",
        _ if arrow_type.starts_with("Decimal") => "numeric",
        _ => arrow_type,
    }
}

#[cfg(test)]
mod tests {
    use super::in_sql_types;

    #[test]
    fn types_are_those_of_sql() {
        for (text, expected) in [
            ("from List(Utf8) to Int64", "from text[] to bigint"),
            ("FixedSizeList(3 x Float32)", "vector(3)"),
            ("FixedSizeList(3 x non-null Float16, field: 'x')", "halfvec(3)"),
            ("(List(List(Int32)), Timestamp(µs, \"+00:00\"))", "(integer[][], timestamp with time zone)"),
            ("Struct(\"a\": Int64, \"b\": List(Utf8)) and Timestamp(µs)", "record and timestamp"),
            ("Dictionary(Int32, Utf8), Decimal128(10, 2), Decimal128(38, 10)", "text, numeric(10,2), numeric"),
            ("List(Field { name: \"item\", data_type: Utf8, nullable: true })", "text[]"),
            ("a List( of Strings", "a List( of Strings"),
        ] {
            assert_eq!(in_sql_types(text), expected, "{text}");
        }
    }
}
