//! What DataFusion and Arrow say of a statement, in the words that users of PostgreSQL know.
//!
//! They name the types of Arrow, call columns fields, and end with a full stop. Only messages whose every word is known here are written anew; the others are
//! shown as they are.

use std::borrow::Cow;
use std::sync::LazyLock;

use datafusion::common::SchemaError;
use regex::{Captures, Regex};

use super::type_words::{alone, in_sql_types};
use crate::engine::{is_repeated, shown_column};
use crate::error::nearest;

/// Columns that a message about an unknown one lists.
const COLUMNS_SHOWN: usize = 12;

/// A message and how it is written anew.
struct Rule {
    found: Regex,
    write: fn(&Captures<'_>) -> String,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let rule = |found: &str, write: fn(&Captures<'_>) -> String| Rule {
        found: Regex::new(&format!("(?s)^{found}$")).expect("a pattern of ours"),
        write,
    };
    vec![
        rule("Divide by zero(?: error)?", |_| "division by zero".to_owned()),
        rule("Cast error: Cannot cast (?:string|value) '(.*)' to value of (.+) type", |found| unreadable(&found[1], &found[2])),
        rule("Parser error: Error parsing timestamp from '(.*)': .*", |found| unreadable(&found[1], "Timestamp")),
        rule("Cast error: Can't cast value (.+) to type (.+)", |found| out_of_range(&found[1], &found[2])),
        rule(r"Invalid function '(.+)'\.(?:\s*Did you mean '(.+)'\?)?", |found| {
            let suggestion = found.get(2).map(|near| format!("; did you mean {}()?", near.as_str())).unwrap_or_default();
            format!("function {}() does not exist{suggestion}", &found[1])
        }),
        rule(
            r".*No function matches the given name and argument types '(.+)'\. You might need to add explicit type casts\.\s*Candidate functions:\s*(.*)",
            |found| {
                let there = candidates(&found[2]);
                let there = if there.is_empty() { String::new() } else { format!("; there is {}", there.join(", ")) };
                format!("function {} does not exist{there}; casts may help", in_sql_types(&found[1]))
            },
        ),
        rule("(?:.*: )?Nth value indices are 1 based.*", |_| "argument of nth_value must be greater than zero".to_owned()),
        rule(r"Inconsistent (?:data type|metadata) across values list at row (\d+) column (\d+).*", |found| {
            let number = |place: &str| place.parse::<usize>().map_or_else(|_| place.to_owned(), |place| (place + 1).to_string());
            format!(
                "VALUES types in column {} cannot be matched, from row {} on; cast them to one type",
                number(&found[2]),
                number(&found[1])
            )
        }),
        rule("array_resize: failed to convert size to usize.*", |_| "the size of an array must not be negative".to_owned()),
        rule("(?:.*: )?regex parse error:.*error: ([^\n]+).*", |found| format!("invalid regular expression: {}", &found[1])),
        rule("could not cast array of type (.+) to arrow_array.*", |found| {
            format!("a value of type {} cannot stand here", in_sql_types(&found[1]))
        }),
        rule(r"(?:Cast error: )?Casting from (.+) to (.+) not supported.*", |found| {
            format!("cannot cast type {} to {}", in_sql_types(&found[1]), in_sql_types(&found[2]))
        }),
        rule(r"(?:Cast error: )?Cannot cast LIST to non-list data type (.+)", |found| {
            format!("cannot cast an array to {}", in_sql_types(&found[1]))
        }),
        rule(r"(?:Compute error: )?Int(8|16|32|64)Array overflow on abs.*", |found| {
            format!("{} out of range", alone(&format!("Int{}", &found[1])))
        }),
        rule("(?:Compute error: )?Signed integer overflow in .*", |_| "bigint out of range".to_owned()),
        rule(r"invalid Unicode scalar value: -\d+", |_| "character number must be positive".to_owned()),
        rule(r"negative substring length not allowed.*|negative count not allowed.*", |_| {
            "negative substring length not allowed".to_owned()
        }),
        rule("Cannot automatically convert (.+) to (.+)", |found| {
            format!("a value of type {} cannot stand where {} is expected", in_sql_types(&found[1]), in_sql_types(&found[2]))
        }),
        rule("Cannot coerce arithmetic expression (.+) to valid types", |found| no_operator(&found[1])),
        rule("Cannot infer common argument type for comparison operation (.+)", |found| no_operator(&found[1])),
        rule(r#".*column "(.+?)" must appear in the GROUP BY clause or must be part of an aggregate function.*"#, |found| {
            format!("column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function", &found[1])
        }),
        rule(".*Physical plan does not support logical expression OuterReferenceColumn.*", |_| {
            "columns of the table before it cannot be read here: write a join, or unnest() of them in the list of SELECT".to_owned()
        }),
        rule(r"Argument #\d must be an INTEGER or NULL, got Column.*", |_| {
            "generate_series() in FROM takes constants; of columns write unnest(generate_series(..)) in the list of SELECT".to_owned()
        }),
        rule("(LIMIT|OFFSET) must be ?>= ?0, '(.+)' was provided", |found| {
            format!("{} must not be negative; it is {}", &found[1], &found[2])
        }),
    ]
});

/// The message, in PostgreSQL's words where it is one of those that are known; without what only the program's makers understand.
pub(super) fn in_postgres_words(text: &str) -> Cow<'_, str> {
    let text = without_kinds(text);
    let rewritten = RULES.iter().find_map(|rule| rule.found.captures(text).map(|found| (rule.write)(&found)));
    // Rules know some messages by these.
    const KINDS: [&str; 5] = ["Cast error: ", "Parser error: ", "Json error: ", "Csv error: ", "Io error: "];
    let text = KINDS.iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text);
    rewritten.map_or_else(|| Cow::Owned(in_sql_types(&without_places(text))), Cow::Owned)
}

/// The message without the kinds of errors before it.
fn without_kinds(text: &str) -> &str {
    const KINDS: [&str; 15] = [
        "Arrow error: ",
        "External error: ",
        "External: ",
        "Execution error: ",
        "DataFusion error: ",
        "Internal error: ",
        "Error during planning: ",
        "This feature is not implemented: ",
        "Invalid user input: ",
        "Invalid argument error: ",
        "Compute error: ",
        "Not yet implemented: ",
        "Schema error: ",
        "Encountered internal error. Please file a bug report at https://github.com/lance-format/lance/issues. ",
        "type_coercion\ncaused by\n",
    ];
    let mut rest = text;
    while let Some(behind) = KINDS.iter().find_map(|kind| rest.strip_prefix(kind)) {
        rest = behind;
    }
    rest
}

/// The message without the files of the program that it names, and what its libraries say of themselves.
pub(super) fn without_places(text: &str) -> Cow<'_, str> {
    static PLACES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?s),? ?(?:location: |at )?[\w.+/-]*/[\w.+/-]*\.rs(?::\d+)*|\bLanceError\([^)]*\): |\.?\s*This issue was likely caused by a bug in .*$|\bLance(?:DB)? error: |\n?Backtrace:.*$",
        )
        .expect("a pattern of ours")
    });
    PLACES.replace_all(text, "")
}

/// The forms in which a function may be called, those that SQL has words for.
fn candidates(text: &str) -> Vec<String> {
    const SHOWN: usize = 4;
    static UNNAMED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"UserDefined|Variadic|Comparable|NullAry|Signature|Coerc|Native|map_array|\bTime\(|\bDate\b")
            .expect("a pattern of ours")
    });
    static KINDS: LazyLock<[(Regex, &str); 7]> = LazyLock::new(|| {
        [
            (r"\bAny\b", "any"),
            (r"\bNumeric(?:\(\d\))?", "number"),
            (r"\bFloat\b", "double precision"),
            (r"\bInteger\b", "bigint"),
            (r"\bDecimal\b", "numeric"),
            (r"\bstring\b", "text"),
            (r"\bDuration\b", "interval"),
        ]
        .map(|(found, shown)| (Regex::new(found).expect("a pattern of ours"), shown))
    });
    let mut there: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !UNNAMED.is_match(line)) {
        let mut shown = in_sql_types(line);
        for (found, word) in KINDS.iter() {
            shown = found.replace_all(&shown, *word).into_owned();
        }
        // Of types that one place takes, the first.
        let (name, arguments) = shown.split_once('(').unwrap_or((&shown, ")"));
        let first = |argument: &str| argument.split('/').next().unwrap_or_default().to_owned();
        let arguments = arguments.trim_end_matches(')').split(", ").map(first).collect::<Vec<_>>().join(", ");
        let shown = format!("{name}({arguments})");
        if there.len() < SHOWN && !there.contains(&shown) {
            there.push(shown);
        }
    }
    there
}

/// What is wrong with the name of a column.
pub(super) fn of_schema_error(error: &SchemaError) -> String {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } if is_repeated(field, valid_fields) => {
            format!("column reference \"{}\" is ambiguous; give each of the columns a name of its own", field.name())
        }
        SchemaError::FieldNotFound { field, valid_fields } => {
            let known: Vec<String> = valid_fields.iter().map(|column| shown_column(column.name()).to_owned()).collect();
            let advice = match nearest(field.name(), &known) {
                Some(near) if near != field.name() => format!("; did you mean \"{near}\"?"),
                _ => columns_there(valid_fields.iter().map(|column| shown_column(&column.flat_name()).to_owned()).collect()),
            };
            format!("column {} does not exist{advice}", shown_name(&field.flat_name(), field.relation.is_some()))
        }
        SchemaError::AmbiguousReference { field } if field.relation.is_none() => {
            format!("column reference \"{}\" is ambiguous; write its table before it", field.name())
        }
        other => other.to_string(),
    }
}

fn shown_name(name: &str, is_qualified: bool) -> String {
    if is_qualified { name.to_owned() } else { format!("\"{name}\"") }
}

fn columns_there(mut names: Vec<String>) -> String {
    names.dedup();
    let num_more = names.len().saturating_sub(COLUMNS_SHOWN);
    names.truncate(COLUMNS_SHOWN);
    match (names.is_empty(), num_more) {
        (true, _) => String::new(),
        (false, 0) => format!("; there are: {}", names.join(", ")),
        (false, _) => format!("; there are: {} and {num_more} more", names.join(", ")),
    }
}

/// A text that is no value of the type, or one beyond its range.
fn unreadable(text: &str, arrow_type: &str) -> String {
    let sql_type = in_sql_types(arrow_type);
    if ["smallint", "integer", "bigint"].contains(&sql_type.as_str()) && is_whole_number(text) {
        return format!("value \"{text}\" is out of range for type {sql_type}");
    }
    format!("invalid input syntax for type {sql_type}: \"{text}\"")
}

/// Whether a text that could not be cast is a whole number, so that it is too large and not misspelt.
pub(super) fn is_whole_number(text: &str) -> bool {
    let digits = text.trim().trim_start_matches(['+', '-']);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn out_of_range(value: &str, arrow_type: &str) -> String {
    format!("value \"{value}\" is out of range for type {}", in_sql_types(arrow_type))
}

/// `Utf8 + Int64`, of which no operator is known.
fn no_operator(operands: &str) -> String {
    format!("operator does not exist: {}; casts may help", in_sql_types(operands))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::error::Error;
    use crate::server::sqlstate::message;

    async fn message_of(sql: &str) -> String {
        let context = SessionContext::new();
        let setup = "CREATE TABLE t AS SELECT 1 AS a, 'x' AS body";
        context.sql(setup).await.expect("plans").collect().await.expect("runs");
        let outcome = match context.sql(sql).await {
            Ok(frame) => frame.collect().await.map(|_| ()),
            Err(error) => Err(error),
        };
        message(&Error::from(outcome.expect_err(sql)))
    }

    #[tokio::test]
    async fn what_is_wrong_is_said_as_postgres_says_it() {
        for (sql, expected) in [
            ("SELECT a / 0 FROM t", "division by zero"),
            ("SELECT 'abc'::int", "invalid input syntax for type integer: \"abc\""),
            ("SELECT '99999999999'::int", "value \"99999999999\" is out of range for type integer"),
            ("SELECT arrow_cast(3000000000, 'Int64')::int FROM t", "value \"3000000000\" is out of range for type integer"),
            ("SELECT '2020-13-01'::date", "invalid input syntax for type date: \"2020-13-01\""),
            ("SELECT 'then'::timestamp", "invalid input syntax for type timestamp: \"then\""),
            ("SELECT bodi FROM t", "column \"bodi\" does not exist; did you mean \"body\"?"),
            ("SELECT quantity FROM t", "column \"quantity\" does not exist; there are: t.a, t.body"),
            ("SELECT a FROM t x CROSS JOIN t y", "column reference \"a\" is ambiguous; write its table before it"),
            ("SELECT lowerr('a')", "function lowerr() does not exist; did you mean lower()?"),
            ("SELECT body - true FROM t", "operator does not exist: text - boolean; casts may help"),
            (
                "SELECT body, count(*) FROM t GROUP BY a",
                "column \"t.body\" must appear in the GROUP BY clause or be used in an aggregate function",
            ),
            ("SELECT a FROM t LIMIT -1", "LIMIT must not be negative; it is -1"),
            (
                "SELECT x FROM (SELECT make_array(a) AS l FROM t) u, unnest(u.l) AS x (x)",
                "columns of the table before it cannot be read here: write a join, or unnest() of them in the list of SELECT",
            ),
            (
                "SELECT value FROM t, generate_series(1, t.a)",
                "generate_series() in FROM takes constants; of columns write unnest(generate_series(..)) in the list of SELECT",
            ),
        ] {
            assert_eq!(message_of(sql).await, expected, "{sql}");
        }
        let wrong_arguments = message_of("SELECT lower(a, a) FROM t").await;
        assert!(wrong_arguments.starts_with("function lower(bigint, bigint) does not exist; there is lower("), "{wrong_arguments}");
    }
}
