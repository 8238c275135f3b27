//! What can be wrong with a text: one enum for the crate, variants by what the user would do about them.

/// The result of reading a statement.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a text is not a statement of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not SQL (SQLSTATE 42601).
    #[error("syntax error at {}: {message}", place(.near, *.line, *.column))]
    Syntax {
        /// What was expected, or what is wrong.
        message: String,
        /// Line in the text, from 1.
        line: u64,
        /// Column in that line, in characters, from 1.
        column: u64,
        /// The word or sign at that place; empty at the end of the text.
        near: String,
    },

    /// Valid SQL that this database does not do yet (SQLSTATE 0A000).
    #[error("{feature} is not supported yet{}", .hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    NotSupported {
        /// The clause or statement, in capitals as in a manual.
        feature: String,
        /// What to write instead.
        hint: Option<String>,
    },

    /// An option given twice, or with a value that cannot be read (SQLSTATE 22023).
    #[error("option \"{name}\" {problem}")]
    Option {
        /// The option, in lower case.
        name: String,
        /// A predicate: `is given twice`.
        problem: String,
    },

    /// Nested deeper than the stack allows (SQLSTATE 54001).
    #[error("the statement is too complex: at most {limit} {what}")]
    TooDeep {
        /// How many are allowed.
        limit: usize,
        /// Of what: `levels of nesting`.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn not_supported(feature: impl Into<String>) -> Self {
        Self::NotSupported { feature: feature.into(), hint: None }
    }

    pub(crate) fn not_supported_but(feature: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::NotSupported { feature: feature.into(), hint: Some(hint.into()) }
    }

    /// Where in `text` the error is, in characters from 1: the `P` field of a Postgres error message.
    ///
    /// `text` must be what was given to [`parse`](crate::parse). `None` for errors that have no place.
    pub fn position(&self, text: &str) -> Option<usize> {
        match self {
            Self::Syntax { line, column, .. } => Some(char_offset(text, *line, *column) + 1),
            Self::NotSupported { .. } | Self::Option { .. } | Self::TooDeep { .. } => None,
        }
    }
}

/// Characters before the given place, both from 1; a place past the end is the end.
pub(crate) fn char_offset(text: &str, line: u64, column: u64) -> usize {
    let line = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let column = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    let before: usize = text.split_inclusive('\n').take(line).map(|line| line.chars().count()).sum();
    before.saturating_add(column).min(text.chars().count())
}

fn place(near: &str, line: u64, column: u64) -> String {
    if near.is_empty() { "end of input".to_string() } else { format!("or near \"{near}\" (line {line}, column {column})") }
}
