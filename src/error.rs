//! The one error type of the root crate: variants by what a caller would do about them, fields for what was found.
//!
//! `src/server/sqlstate.rs` maps every variant to its SQLSTATE without a catch-all arm, so a new variant asks for its code.
//! Our errors cross DataFusion inside `DataFusionError::External`; [`Error::from`] finds them again along the source chain.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::error::DataFusionError;

use crate::other_names::option_here;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A model, agent, index, job or prompt set that does not exist (42704).
    #[error("unknown {kind} \"{name}\"{}", known_list(.known))]
    UnknownObject { kind: &'static str, name: String, known: Vec<String> },

    /// A model, agent or index that exists already (42710).
    #[error("{kind} \"{name}\" already exists")]
    DuplicateObject { kind: &'static str, name: String },

    /// An option or argument that the statement does not have (22023).
    #[error("unknown {kind} \"{name}\" of {of}{}; it has: {}", option_meant(.name, .known), .known.join(", "))]
    UnknownOption { kind: &'static str, name: String, of: String, known: Vec<String> },

    /// An option, argument or setting out of its range or of the wrong form (22023).
    #[error("{name} = {found}: expected {expected}")]
    InvalidParameter { name: String, found: String, expected: String },

    /// A column that a statement needs and its query does not give (42703).
    #[error("{of} needs a column \"{name}\"; the query gives: {}", .known.join(", "))]
    MissingColumn { of: String, name: String, known: Vec<String> },

    /// A column that a table does not have (42703).
    #[error("table \"{table}\" has no column \"{name}\"{}; it has: {}", did_you_mean(.name, .known), .known.join(", "))]
    UnknownColumn { table: String, name: String, known: Vec<String> },

    /// A name in a query about the catalog that nothing has, or several things have (42703, 42883, 42P01, 42702).
    #[error("{message}")]
    Unresolved { kind: Unresolved, message: String },

    /// A text that is no value of the type that it is cast to (22P02).
    #[error("invalid input syntax for type {of}: \"{text}\"")]
    BadText { of: String, text: String },

    /// A generated column that is given a value (428C9).
    #[error("column \"{0}\" is generated and takes no value; leave it out, or write DEFAULT")]
    GeneratedColumn(String),

    /// As many values as columns are needed (42601).
    #[error("{0}")]
    ColumnCount(String),

    /// A subquery that stands for one value and has several rows (21000).
    #[error("more than one row returned by a subquery used as an expression; add LIMIT 1, or an aggregate such as max")]
    SeveralRows,

    /// A value of the wrong type or a vector of the wrong width (42804).
    #[error("{what} is {found}, expected {expected}")]
    WrongType { what: String, found: String, expected: String },

    /// The statement is right but the database is not ready for it: training without rows, search in an empty corpus (55000).
    #[error("{0}")]
    NotReady(String),

    /// Another statement is at work on it (55006).
    #[error("{0}")]
    InUse(String),

    /// The session's role may not do that (42501).
    #[error("{0}")]
    InsufficientPrivilege(String),

    /// The role of a session or a job was dropped; one of its name may be another (42704).
    #[error("role \"{0}\", whose session or job this is, was dropped; connect as another role, or RESET ROLE if SET ROLE named it")]
    RoleGone(String),

    /// As many jobs of a kind as may run are running (53400).
    #[error("{0}")]
    TooManyJobs(String),

    /// Something else is there because of it (2BP01).
    #[error("{0}")]
    StillNeeded(String),

    /// A membership that cannot be: of a role in itself (0LP01).
    #[error("{0}")]
    InvalidGrant(String),

    /// A name that no role can have (42939).
    #[error("{0}")]
    ReservedName(String),

    /// A file of the server's configuration that cannot be used (F0000).
    #[error("{}{}: {reason}", .path.display(), .line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Configuration { path: PathBuf, line: Option<usize>, reason: String },

    /// An object that cannot be as it is defined (42P16).
    #[error("{0}")]
    InvalidDefinition(String),

    /// A window or its frame that cannot be as it is written (42P20).
    #[error("{0}")]
    InvalidWindow(String),

    /// Valid, and not supported yet (0A000).
    #[error("{0}")]
    NotSupported(String),

    /// A statement after an error inside a transaction block (25P02).
    #[error("current transaction is aborted; statements are refused until ROLLBACK, COMMIT or ROLLBACK TO a savepoint")]
    TransactionAborted,

    /// A cursor that is declared already (42P03).
    #[error("cursor \"{0}\" already exists; CLOSE it first")]
    DuplicateCursor(String),

    /// A cursor that was not declared, or ended with its transaction (34000).
    #[error("cursor \"{0}\" does not exist")]
    UnknownCursor(String),

    /// A name that a prepared statement has already (42P05).
    #[error("prepared statement \"{0}\" already exists; DEALLOCATE it first")]
    DuplicateStatement(String),

    /// A statement that was not prepared in this session, or was released (26000).
    #[error("prepared statement \"{0}\" does not exist")]
    UnknownStatement(String),

    /// The rows of a prepared statement would have other columns than it was prepared with (0A000). Drivers know the text, and prepare anew.
    #[error("cached plan must not change result type")]
    ResultTypeChanged,

    /// A savepoint that was not defined in this transaction, or is gone (3B001).
    #[error("savepoint \"{0}\" does not exist")]
    UnknownSavepoint(String),

    /// What a transaction cannot change after it has begun to work (25001).
    #[error("{0}")]
    ActiveTransaction(String),

    /// A statement that writes, in a transaction that only reads (25006).
    #[error("cannot execute {0} in a read-only transaction; one that writes begins with BEGIN READ WRITE")]
    ReadOnlyTransaction(&'static str),

    /// A statement that belongs into a transaction block (25P01).
    #[error("{0}")]
    NoTransaction(String),

    /// Cancelled by the client, a timeout or a shutdown (57014).
    #[error("{0} was cancelled")]
    Cancelled(&'static str),

    /// `statement_timeout` is over (57014).
    #[error("canceling statement due to statement timeout")]
    StatementTimeout,

    /// Sessions that wait for each other (40P01).
    #[error("deadlock detected: who has the lock waits for this session; take locks in one order, or give some back first")]
    Deadlock,

    /// A budget of memory, tokens or rows was exceeded (53200).
    #[error("{0}")]
    OutOfMemory(String),

    /// A value that would be larger than any may be (54000).
    #[error("requested length too large: {what} would make a value of {bytes} bytes, and none has more than 1 GB; make it of several rows")]
    ValueTooLarge { what: String, bytes: u64 },

    /// The server of a remote model, or a hub, could not be reached, or did not finish (08006).
    #[error("{0}")]
    RemoteUnreachable(String),

    /// The server of a remote model, or a hub, answered with something else than was asked for (58000).
    #[error("{0}")]
    RemoteRefused(String),

    /// A prompt that a remote model cannot read, or only without room for an answer (22023).
    #[error("{0}")]
    ContextFull(String),

    /// Reading or writing a file failed (58030; 58P01 when it does not exist).
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },

    /// A file is not what it claims to be: truncated weights, a broken tokenizer (XX001).
    #[error("{} is damaged or not readable: {reason}", .path.display())]
    Damaged { path: PathBuf, reason: String },

    /// A value or line of an input file that does not fit (22P04; 22P02 and 22P03 for a value of PostgreSQL's own formats; 22001 and 22003 for one that is
    /// too long or has too many digits).
    #[error("{}{}: {reason}", .path.display(), .line.map(|line| format!(", line {line}")).unwrap_or_default())]
    BadInput { path: PathBuf, line: Option<usize>, reason: String, fault: Fault },

    /// Arithmetic failed: a loss that is not a number, shapes that do not fit (XX000).
    #[error("{0}")]
    Tensor(#[from] candle_core::Error),

    /// A policy that writes has weights that give no probabilities (XX000).
    #[error("the policy's logits are not finite numbers; its weights are broken")]
    BrokenWeights,

    /// Training met a loss or a gradient that is not a number (22003). `checkpoint`: the step of the run's last good one, if there is any.
    #[error("training stopped at step {step}: the {what} is {value}; {}", .checkpoint.map_or_else(without_checkpoint, with_checkpoint))]
    Diverged { step: usize, what: &'static str, value: f64, checkpoint: Option<usize> },

    /// Our bug (XX000).
    #[error("internal error: {0}; please report it")]
    Internal(String),

    #[error(transparent)]
    Sql(#[from] rolloutdb_sql::Error),
    #[error(transparent)]
    Udf(#[from] rolloutdb_udfs::Error),
    #[error(transparent)]
    Catalog(#[from] rolloutdb_catalogs::Error),
    #[error(transparent)]
    DataFusion(DataFusionError),

    /// Of work that several have waited for.
    #[error(transparent)]
    Shared(Arc<Error>),
}

/// What a name was to be the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unresolved {
    Column,
    Function,
    Table,
    /// A column of more than one table.
    Ambiguous,
}

/// What is wrong with a value or line of an input file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// It is not of the file's format or of the column's type.
    #[default]
    Form,
    /// A text in PostgreSQL's form is not one of the column's type.
    Syntax,
    /// Bytes in PostgreSQL's binary form are not a value of the column's type.
    Bytes,
    /// A text has more characters than its column has room for.
    TooLong,
    /// A number has more digits than its column keeps, or is beyond its range.
    TooManyDigits,
    /// A vector of another width than its column, or with a number that no vector holds.
    Vector,
}

impl Fault {
    /// Of a value that a function of ours refuses.
    #[must_use]
    pub fn of(error: &rolloutdb_udfs::Error) -> Self {
        match error {
            rolloutdb_udfs::Error::TextTooLong { .. } | rolloutdb_udfs::Error::BitTooLong { .. } => Self::TooLong,
            rolloutdb_udfs::Error::NumericDigits { .. }
            | rolloutdb_udfs::Error::ValueRange { .. }
            | rolloutdb_udfs::Error::HalfRange { .. } => Self::TooManyDigits,
            rolloutdb_udfs::Error::NotFinite { .. } | rolloutdb_udfs::Error::NoDimension { .. } | rolloutdb_udfs::Error::Width { .. } => {
                Self::Vector
            }
            _ => Self::Form,
        }
    }
}

/// What one can do about a training that diverged, and has a good checkpoint.
fn with_checkpoint(step: usize) -> String {
    format!(
        "its last good checkpoint, of step {step}, stays: the same statement with on_divergence = 'last_checkpoint' makes a model of it, from which another one may \
         go on with a lower learning_rate; look for extreme rows, too"
    )
}

fn without_checkpoint() -> String {
    "there is no good checkpoint before it; try a lower learning_rate, and look for extreme rows".to_owned()
}

impl Error {
    /// With `advice` behind what the system says of a file that could not be read or written; other errors say enough.
    #[must_use]
    pub fn advising(self, advice: &str) -> Self {
        match self {
            Self::Io { path, source } => Self::Io { path, source: std::io::Error::new(source.kind(), format!("{source}; {advice}")) },
            other => other,
        }
    }

    /// The code that clients and jobs get (PostgreSQL's Appendix A).
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        crate::server::sqlstate::sqlstate(self)
    }

    /// What clients and jobs read.
    #[must_use]
    pub fn client_message(&self) -> String {
        crate::server::sqlstate::message(self)
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::DataFusion(inner) => inner,
            other => Self::External(Box::new(other)),
        }
    }
}

impl From<DataFusionError> for Error {
    /// Unwraps an [`Error`] of ours that travelled through DataFusion; anything else stays a DataFusion error.
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(inner) => match inner.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(inner) => Self::DataFusion(DataFusionError::External(inner)),
            },
            DataFusionError::Context(_, inner) if ours(&inner) => Self::from(*inner),
            DataFusionError::Diagnostic(_, inner) if ours(&inner) => Self::from(*inner),
            other => Self::DataFusion(other),
        }
    }
}

fn ours(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::External(inner) => inner.is::<Error>(),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => ours(inner),
        _ => false,
    }
}

fn known_list(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; known: {}", known.join(", ")) }
}

fn did_you_mean(name: &str, known: &[String]) -> String {
    nearest(name, known).map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default()
}

/// The same of an option, which other systems may call otherwise.
fn option_meant(name: &str, known: &[String]) -> String {
    option_here(name, known).map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default()
}

/// The known name with the smallest edit distance to `name`, if that is at most a third of its length (at least 2).
pub fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(2);
    known
        .iter()
        .map(|candidate| (datafusion::common::utils::datafusion_strsim::levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.as_str())
}
