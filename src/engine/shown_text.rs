//! The text of a statement as others may see it, in activity, jobs and logs: without secrets, and not longer than is useful.

use std::fmt::{self, Write};

use rolloutdb_sql::Statement;

/// Bytes of a statement's text that are shown, as PostgreSQL's `track_activity_query_size`.
const TEXT_BYTES_MAX: usize = 1024;

/// What these begin with may hold a password or a key: only that much of them is shown, in activity, jobs and logs.
const SECRETIVE: &[&str] = &[
    "CREATE ROLE",
    "CREATE USER",
    "CREATE GROUP",
    "CREATE SECRET",
    "CREATE SERVER",
    "ALTER ROLE",
    "ALTER USER",
    "ALTER GROUP",
    "ALTER SECRET",
    "ALTER SERVER",
];

/// The text of a statement as others may see it: without secrets, and not longer than is useful.
pub fn shown_text(statement: &Statement, text: &str) -> String {
    shown_texts(std::slice::from_ref(statement), text)
}

/// The same for a text of several statements.
pub fn shown_texts(statements: &[Statement], text: &str) -> String {
    if statements.iter().all(|statement| secretive_head(statement).is_none()) {
        return shortened(text);
    }
    let shown = statements.iter().map(|statement| match secretive_head(statement) {
        Some(head) => format!("{head} ..."),
        None => shortened(&statement.to_string()),
    });
    shortened(&shown.collect::<Vec<_>>().join("; "))
}

/// The text of a statement without the one that it was made from: as it is printed, as far as it is shown.
pub fn printed(statement: &Statement) -> String {
    if let Some(head) = secretive_head(statement) {
        return format!("{head} ...");
    }
    let mut text = Beginning(String::new());
    // An error says that there is more.
    let _ = write!(text, "{statement}");
    text.0
}

/// Takes as much as is shown, and refuses the rest: what would be cut off is not printed.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_BYTES_MAX - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        Err(fmt::Error)
    }
}

fn secretive_head(statement: &Statement) -> Option<&'static str> {
    let known = |words: &str| SECRETIVE.iter().copied().find(|head| head.eq_ignore_ascii_case(words));
    match statement {
        Statement::Explain(explain) => secretive_head(&explain.statement),
        Statement::Async(statement) => secretive_head(statement),
        Statement::Other(statement) => {
            let text = statement.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            known(&words.join(" "))
        }
        other => known(other.tag()),
    }
}

/// As much of a text as is shown.
pub fn shortened(text: &str) -> String {
    match text.len() > TEXT_BYTES_MAX {
        true => text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        shown_text(&rolloutdb_sql::parse(text).expect("SQL")[0], text)
    }

    #[test]
    fn statements_that_may_hold_secrets_show_their_head() {
        assert_eq!(shown("CREATE ROLE r PASSWORD 'planted'"), "CREATE ROLE ...");
        assert_eq!(shown("alter  role r PASSWORD 'planted'"), "ALTER ROLE ...");
        assert_eq!(shown("SELECT 'planted'"), "SELECT 'planted'");
        let several = "SELECT 1; CREATE ROLE r PASSWORD 'planted'";
        assert_eq!(shown_texts(&rolloutdb_sql::parse(several).expect("SQL"), several), "SELECT 1; CREATE ROLE ...");
        let long = format!("SELECT '{}'", "é".repeat(2000));
        assert!(shown(&long).len() <= TEXT_BYTES_MAX);
        let printed = |text: &str| printed(&rolloutdb_sql::parse(text).expect("SQL")[0]);
        assert_eq!(printed("select  'planted'"), "SELECT 'planted'");
        assert_eq!(printed("EXPLAIN SELECT 1"), "EXPLAIN SELECT 1");
        assert_eq!(printed("alter  role r PASSWORD 'planted'"), "ALTER ROLE ...");
        let long = printed(&long);
        assert!(long.starts_with("SELECT 'éé") && (TEXT_BYTES_MAX - 1..=TEXT_BYTES_MAX).contains(&long.len()), "{}", long.len());
    }
}
