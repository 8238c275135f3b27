//! Errors as SQLSTATEs.
//!
//! One `match` per enum of ours, without a catch-all arm, so a new variant asks for its code. Our errors cross DataFusion, Arrow
//! and Lance inside their external variants: the source chain is searched for ours first, then what DataFusion says is classified.

use std::error::Error as StdError;
use std::io::ErrorKind;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use rolloutdb_catalogs::is_disk_full;

use super::postgres_words::{in_postgres_words, is_whole_number, of_schema_error, without_places};
use super::type_words::in_sql_types;
use crate::engine::is_repeated;
use crate::error::{Error, Fault, Unresolved};

const DISK_FULL: &str = "53100";

/// Sorts and aggregations by groups spill to the disk, so that what is left is the inner side of a join, or one value that gathers many rows.
const OUT_OF_MEMORY_ADVICE: &str = "start with a larger --memory-limit or --statement-memory, let the statement gather less in one value or join fewer rows, or SET \
    datafusion.optimizer.prefer_hash_join = false, so that equality joins sort, which spills";

/// What DataFusion says of such a subquery is the text of its plan.
const SUBQUERY_ADVICE: &str = "this subquery is not supported here yet: it names columns of the query round it, but not as a column of its own that equals \
    them, in WHERE; write a join";

/// The SQLSTATE of an error (PostgreSQL's Appendix A).
pub fn sqlstate(error: &Error) -> &'static str {
    if is_disk_full(error) {
        return DISK_FULL;
    }
    match error {
        Error::UnknownObject { .. } | Error::RoleGone(_) => "42704",
        Error::DuplicateObject { .. } => "42710",
        Error::UnknownOption { .. } | Error::InvalidParameter { .. } | Error::ContextFull(_) => "22023",
        Error::MissingColumn { .. } | Error::UnknownColumn { .. } => "42703",
        Error::Unresolved { kind: Unresolved::Column, .. } => "42703",
        Error::Unresolved { kind: Unresolved::Function, .. } => "42883",
        Error::Unresolved { kind: Unresolved::Table, .. } => "42P01",
        Error::Unresolved { kind: Unresolved::Ambiguous, .. } => "42702",
        Error::BadText { .. } => "22P02",
        Error::GeneratedColumn(_) => "428C9",
        Error::ColumnCount(_) => "42601",
        Error::SeveralRows => "21000",
        Error::WrongType { .. } => "42804",
        Error::NotReady(_) => "55000",
        Error::InvalidDefinition(_) => "42P16",
        Error::InvalidWindow(_) => "42P20",
        Error::NotSupported(_) | Error::ResultTypeChanged => "0A000",
        Error::TransactionAborted => "25P02",
        Error::DuplicateCursor(_) => "42P03",
        Error::UnknownCursor(_) => "34000",
        Error::DuplicateStatement(_) => "42P05",
        Error::UnknownStatement(_) => "26000",
        Error::UnknownSavepoint(_) => "3B001",
        Error::ActiveTransaction(_) => "25001",
        Error::ReadOnlyTransaction(_) => "25006",
        Error::NoTransaction(_) => "25P01",
        Error::InUse(_) => "55006",
        Error::Cancelled(_) | Error::StatementTimeout => "57014",
        Error::Deadlock => "40P01",
        Error::InsufficientPrivilege(_) => "42501",
        Error::TooManyJobs(_) => "53400",
        Error::StillNeeded(_) => "2BP01",
        Error::InvalidGrant(_) => "0LP01",
        Error::ReservedName(_) => "42939",
        Error::Configuration { .. } => "F0000",
        Error::OutOfMemory(_) => "53200",
        Error::ValueTooLarge { .. } => "54000",
        Error::RemoteUnreachable(_) => "08006",
        Error::RemoteRefused(_) => "58000",
        Error::Io { source, .. } => io_state(source),
        Error::Damaged { .. } => "XX001",
        Error::BadInput { fault: Fault::Form, .. } => "22P04",
        Error::BadInput { fault: Fault::Syntax, .. } => "22P02",
        Error::BadInput { fault: Fault::Bytes, .. } => "22P03",
        Error::BadInput { fault: Fault::TooLong, .. } => "22001",
        Error::BadInput { fault: Fault::TooManyDigits, .. } => "22003",
        Error::BadInput { fault: Fault::Vector, .. } => "22000",
        Error::Diverged { .. } => "22003",
        Error::Tensor(_) | Error::BrokenWeights | Error::Internal(_) => "XX000",
        Error::Sql(error) => sql_state(error),
        Error::Udf(error) => udf_state(error),
        Error::Catalog(error) => catalog_state(error),
        Error::DataFusion(error) => ours_within(error).map_or_else(|| datafusion_state(error.find_root()), Ours::sqlstate),
        Error::Shared(error) => sqlstate(error),
    }
}

/// What the client reads: our own message, or DataFusion's innermost one without its kind in front and a backtrace behind.
pub fn message(error: &Error) -> String {
    match error {
        Error::DataFusion(error) => datafusion_message(error),
        Error::Catalog(error) => catalog_message(error),
        Error::Shared(error) => message(error),
        Error::Io { path, source } if is_disk_full(source) => {
            format!(
                "no space left on the disk of {} ({source}); nothing is left of the file; free some and run the statement again",
                path.display()
            )
        }
        other => other.to_string(),
    }
}

fn catalog_message(error: &rolloutdb_catalogs::Error) -> String {
    match error {
        rolloutdb_catalogs::Error::Query(error) => datafusion_message(error),
        // Tables know the types of Arrow alone.
        rolloutdb_catalogs::Error::WrongType { .. } | rolloutdb_catalogs::Error::NotSupported(_) => {
            in_sql_types(&without_places(&error.to_string()))
        }
        other => without_places(&other.to_string()).into_owned(),
    }
}

fn datafusion_message(error: &DataFusionError) -> String {
    ours_within(error).map_or_else(|| innermost_message(error.find_root()), Ours::message)
}

fn innermost_message(root: &DataFusionError) -> String {
    let text = match root {
        DataFusionError::ArrowError(error, _) => match error.as_ref() {
            // In PostgreSQL's words, which name the type.
            ArrowError::ArithmeticOverflow(text) if text.ends_with("out of range") => text.clone(),
            other => other.to_string(),
        },
        DataFusionError::SQL(error, _) => error.to_string(),
        DataFusionError::SchemaError(error, _) => return of_schema_error(error),
        other => other.message().into_owned(),
    };
    let text = text.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or_default();
    if let DataFusionError::ResourcesExhausted(_) = root {
        // Before it stands a list of who holds what.
        let reason = text.lines().next_back().unwrap_or_default().trim_start_matches("Error: ");
        return format!("out of memory: {reason}; {OUT_OF_MEMORY_ADVICE}");
    }
    if is_unplanned_subquery(root) {
        return SUBQUERY_ADVICE.to_owned();
    }
    if is_disk_full(root) {
        return format!("no space left on the disk ({text}); free some and run the statement again");
    }
    in_postgres_words(text.trim_end()).into_owned()
}

/// A subquery that no rule has made a join of.
fn is_unplanned_subquery(root: &DataFusionError) -> bool {
    let DataFusionError::NotImplemented(text) = root else { return false };
    let expression = text.strip_prefix("Physical plan does not support logical expression ");
    expression.is_some_and(|expression| ["ScalarSubquery", "Exists", "InSubquery"].iter().any(|kind| expression.starts_with(kind)))
}

fn sql_state(error: &rolloutdb_sql::Error) -> &'static str {
    match error {
        rolloutdb_sql::Error::Syntax { .. } => "42601",
        rolloutdb_sql::Error::NotSupported { .. } => "0A000",
        rolloutdb_sql::Error::Option { .. } => "22023",
        rolloutdb_sql::Error::TooDeep { .. } => "54001",
    }
}

fn udf_state(error: &rolloutdb_udfs::Error) -> &'static str {
    use rolloutdb_udfs::Error;
    match error {
        Error::Argument { .. } | Error::UnknownArgument { .. } | Error::NotConstant { .. } => "22023",
        Error::VectorType { .. } | Error::JsonKind { .. } | Error::TextLength { .. } => "22023",
        Error::ArgumentType { .. } => "42804",
        Error::Dimensions { .. }
        | Error::Width { .. }
        | Error::NoDimension { .. }
        | Error::NestedVector
        | Error::NotFinite { .. }
        | Error::BitLengths { .. } => "22000",
        Error::TooManyDimensions { .. } => "54000",
        // Of bad digits PostgreSQL says that they are no value of a parameter.
        Error::ByteaText { text } if text.starts_with("\\x") => "22023",
        Error::VectorText { .. } | Error::JsonText { .. } | Error::UuidText { .. } | Error::ByteaText { .. } => "22P02",
        Error::ArrayText { .. } | Error::ValueText { .. } | Error::BitDigit { .. } => "22P02",
        Error::BitLength { .. } | Error::BitSizes => "22026",
        Error::ArrayDimensions { .. } | Error::PatternPart { .. } | Error::UnitNotSupported { .. } => "0A000",
        Error::MonthStride => "0A000",
        Error::TimeText { .. } | Error::TimeByPattern { .. } => "22007",
        Error::TimeRange { .. } | Error::TimeOverflow { .. } | Error::DateBeyondTimestamp => "22008",
        Error::InfiniteTimes { .. } | Error::Stride { .. } | Error::Seconds { .. } => "22008",
        Error::Pattern { .. } => "42601",
        Error::Escape { .. } => "22025",
        Error::UnknownUnit { .. } | Error::UnknownZone { .. } => "22023",
        Error::DivisionByZero => "22012",
        Error::Buckets { .. } => "2201G",
        Error::Regex { .. } => "2201B",
        Error::Subscript { .. } => "2202E",
        Error::JsonPathStep { .. } => "22P02",
        Error::HalfRange { .. } | Error::NumericDigits { .. } | Error::ValueRange { .. } | Error::VectorRange { .. } => "22003",
        Error::TextTooLong { .. } | Error::BitTooLong { .. } => "22001",
        Error::TextBytes { .. } => "54000",
        Error::NullElement { .. } | Error::NullIdentifier => "22004",
        Error::NoOperator { .. } | Error::ArgumentCount { .. } => "42883",
        Error::ModelResult { .. } => "XX000",
    }
}

fn catalog_state(error: &rolloutdb_catalogs::Error) -> &'static str {
    use rolloutdb_catalogs::Error;
    match error {
        Error::UnknownTable { .. } => "42P01",
        Error::NotATable { .. } | Error::NotAView { .. } => "42809",
        Error::NoConstraint { .. } => "42P10",
        Error::DuplicateColumn { .. } => "42701",
        Error::DuplicateTable { .. } => "42P07",
        Error::UnknownSchema { .. } => "3F000",
        Error::DuplicateSchema { .. } => "42P06",
        Error::UnknownColumn { .. } => "42703",
        Error::UnknownIndex { .. } | Error::UnknownTag { .. } | Error::UnknownConstraint { .. } => "42704",
        Error::DuplicateIndex { .. } | Error::DuplicateTag { .. } | Error::DuplicateConstraint { .. } => "42710",
        Error::SecondPrimaryKey { .. } => "42P16",
        Error::InvalidName { .. } => "42602",
        Error::NotNull { .. } => "23502",
        Error::NullElement { .. } => "22004",
        Error::NotFinite { .. } | Error::Width { .. } => "22000",
        Error::RowTwice { .. } => "21000",
        Error::UniqueViolation { .. } | Error::DuplicateKey { .. } => "23505",
        Error::WrongType { .. } => "42804",
        Error::InvalidOption { .. } | Error::UnknownVersion { .. } => "22023",
        Error::NotReady(_) => "55000",
        Error::NotSupported(_) => "0A000",
        Error::StillNeeded(_) => "2BP01",
        Error::Locked { .. } | Error::InUse(_) => "55006",
        Error::Conflict { .. } | Error::Altered { .. } | Error::Overtaken { .. } => "40001",
        Error::Damaged { .. } => "XX001",
        Error::Io { source, .. } => io_state(source),
        Error::DiskFull { .. } => DISK_FULL,
        Error::Storage { .. } => "58030",
        Error::Query(error) => ours_within(error).map_or_else(|| datafusion_state(error.find_root()), Ours::sqlstate),
    }
}

fn io_state(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "58P01",
        ErrorKind::PermissionDenied => "42501",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => DISK_FULL,
        _ => "58030",
    }
}

/// An error of ours that another crate carries.
enum Ours<'a> {
    Root(&'a Error),
    Sql(&'a rolloutdb_sql::Error),
    Udf(&'a rolloutdb_udfs::Error),
    Catalog(&'a rolloutdb_catalogs::Error),
}

impl Ours<'_> {
    fn sqlstate(self) -> &'static str {
        match self {
            Self::Root(error) => sqlstate(error),
            Self::Sql(error) => sql_state(error),
            Self::Udf(error) => udf_state(error),
            Self::Catalog(error) => catalog_state(error),
        }
    }

    fn message(self) -> String {
        match self {
            Self::Root(error) => message(error),
            Self::Sql(error) => error.to_string(),
            Self::Udf(error) => error.to_string(),
            Self::Catalog(error) => catalog_message(error),
        }
    }
}

/// The first error of ours along the source chain.
fn ours_within(error: &DataFusionError) -> Option<Ours<'_>> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(ours) = error.downcast_ref().map(Ours::Root) {
            return Some(ours);
        }
        if let Some(ours) = error.downcast_ref().map(Ours::Sql) {
            return Some(ours);
        }
        if let Some(ours) = error.downcast_ref().map(Ours::Udf) {
            return Some(ours);
        }
        if let Some(ours) = error.downcast_ref().map(Ours::Catalog) {
            return Some(ours);
        }
        next = error.source();
    }
    None
}

/// The code for the root of an error that is none of ours.
fn datafusion_state(root: &DataFusionError) -> &'static str {
    match root {
        DataFusionError::SQL(_, _) => "42601",
        DataFusionError::NotImplemented(_) | DataFusionError::Substrait(_) => "0A000",
        DataFusionError::ResourcesExhausted(_) => "53200",
        DataFusionError::Configuration(_) => "22023",
        DataFusionError::SchemaError(error, _) => schema_state(error),
        DataFusionError::ArrowError(error, _) => arrow_state(error),
        DataFusionError::IoError(error) => io_state(error),
        DataFusionError::ObjectStore(_) => "58030",
        DataFusionError::ParquetError(_) => "XX001",
        DataFusionError::External(error) if error.to_string().starts_with("regex parse error") => "2201B",
        DataFusionError::Plan(text) => plan_state(text),
        DataFusionError::Execution(text) => execution_state(text),
        DataFusionError::Internal(text) if text.contains("failed to convert size to usize") => "22023",
        DataFusionError::Internal(text) if text.contains("Nth value indices are 1 based") => "22016",
        DataFusionError::Internal(text)
            if text.contains("could not cast array of type") || text.starts_with("AvgAccumulator for (Null") =>
        {
            "42804"
        }
        _ => "XX000",
    }
}

fn schema_state(error: &SchemaError) -> &'static str {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } if is_repeated(field, valid_fields) => "42702",
        SchemaError::FieldNotFound { .. } => "42703",
        SchemaError::AmbiguousReference { .. } => "42702",
        SchemaError::DuplicateQualifiedField { .. } | SchemaError::DuplicateUnqualifiedField { .. } => "42701",
    }
}

fn arrow_state(error: &ArrowError) -> &'static str {
    match error {
        ArrowError::DivideByZero => "22012",
        ArrowError::CastError(text) => cast_state(text),
        ArrowError::ParseError(text) if text.contains("timestamp") => "22007",
        ArrowError::ParseError(_) | ArrowError::JsonError(_) | ArrowError::CsvError(_) => "22P02",
        ArrowError::ArithmeticOverflow(_) => "22003",
        ArrowError::MemoryError(_) => "53200",
        ArrowError::NotYetImplemented(_) => "0A000",
        ArrowError::InvalidArgumentError(text) if text.contains("to store in a Decimal") => "22003",
        ArrowError::InvalidArgumentError(_) => "42804",
        ArrowError::IoError(_, error) => io_state(error),
        ArrowError::ParquetError(_) => "XX001",
        ArrowError::ComputeError(text) => execution_state(text),
        _ => "XX000",
    }
}

/// Arrow has one variant for types that have no cast and for values that do not fit; only its words tell them apart.
fn cast_state(text: &str) -> &'static str {
    let text = text.to_ascii_lowercase();
    let is_number = |text: &str| text.split('\'').nth(1).is_some_and(is_whole_number);
    if text.contains("overflow") || text.contains("can't cast value") || (text.contains("to value of int") && is_number(&text)) {
        "22003"
    } else if text.contains("cannot cast string") && (text.contains("to value of date") || text.contains("to value of time")) {
        "22007"
    } else if text.contains("cannot cast string") || text.contains("to value of boolean") || text.contains("parse") {
        "22P02"
    } else {
        "42804"
    }
}

/// DataFusion's planner has one variant for all that is wrong with a statement; only its words tell them apart.
fn plan_state(text: &str) -> &'static str {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["table '", "table function '"]) && says(&["not found"]) {
        if text.contains("table function") { "42883" } else { "42P01" }
    } else if says(&["limit must be", "offset must be"]) {
        if text.starts_with("limit") { "2201W" } else { "2201X" }
    } else if says(&["cannot coerce arithmetic expression", "for comparison operation"]) {
        // There is no such operator.
        "42883"
    } else if says(&["no table named", "failed to resolve schema", "failed to resolve catalog"]) {
        "42P01"
    } else if says(&["invalid function", "no function matches", "does not support zero arguments", "failed to coerce arguments"]) {
        "42883"
    } else if says(&["no field named", "column names are case sensitive"]) {
        "42703"
    } else if says(&["ambiguous"]) {
        "42702"
    } else if says(&["already exists"]) {
        "42P07"
    } else if says(&["across values list"]) {
        "42804"
    } else if says(&["must appear in the group by", "must be in group by", "non-aggregate values"]) {
        "42803"
    } else if says(&["cannot coerce", "can't coerce", "cannot cast", "type mismatch", "incompatible types", "cannot infer common"]) {
        "42804"
    } else if says(&["not supported", "unsupported", "not implemented"]) {
        "0A000"
    } else {
        "42601"
    }
}

fn execution_state(text: &str) -> &'static str {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if text.contains("subquery returned more than one row") {
        "21000"
    } else if text.contains("divide by zero") || text.contains("division by zero") {
        "22012"
    } else if text.contains("already exists") {
        "42P07"
    } else if text.contains("cast") || text.contains("parse") {
        "22P02"
    } else if text.contains("negative substring length") || text.contains("negative count not allowed") {
        "22011"
    } else if says(&["character too large", "null character"]) {
        "54000"
    } else if says(&["expects at least", "requires at least", "it requires", "an even number of arguments"]) {
        "42883"
    } else if says(&["does not support type", "expects list", "expects array", "is not struct", "could not cast array of type"]) {
        "42804"
    } else if text.contains("zero raised to a negative power") {
        "2201F"
    } else if says(&["factorial of a negative number", "overflow", "out of range"]) {
        "22003"
    } else if text.contains("regular expression") || text.contains("regex") {
        "2201B"
    } else {
        // What a kernel refuses are the values that it is given.
        "22023"
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn state_of(sql: &str) -> &'static str {
        let context = SessionContext::new();
        let setup = "CREATE TABLE t AS SELECT 1 AS a, 'x' AS b";
        context.sql(setup).await.expect("plans").collect().await.expect("runs");
        let outcome = match context.sql(sql).await {
            Ok(frame) => frame.collect().await.map(|_| ()),
            Err(error) => Err(error),
        };
        sqlstate(&Error::from(outcome.expect_err(sql)))
    }

    #[tokio::test]
    async fn what_datafusion_reports_has_the_code_postgres_users_know() {
        for (sql, code) in [
            ("SELECT * FROM missing", "42P01"),
            ("SELECT missing FROM t", "42703"),
            ("SELECT missing.a FROM t", "42703"),
            ("SELECT a FROM t x CROSS JOIN t y", "42702"),
            ("SELECT missing(1)", "42883"),
            ("SELECT * FROM missing(1)", "42883"),
            ("SELECT sin('a', 'b', 'c')", "42883"),
            ("SELEC 1", "42601"),
            ("SELECT a / 0 FROM t", "22012"),
            ("SELECT b::int FROM t", "22P02"),
            ("SELECT b FROM t GROUP BY a", "42803"),
            ("SELECT arrow_cast(3000000000, 'Int64')::int FROM t", "22003"),
        ] {
            assert_eq!(state_of(sql).await, code, "{sql}");
        }
    }

    #[test]
    fn our_errors_keep_their_code_inside_datafusion() {
        let ours = Error::UnknownObject { kind: "model", name: "m".to_string(), known: Vec::new() };
        let wrapped = DataFusionError::ArrowError(Box::new(ArrowError::ExternalError(Box::new(ours))), None).context("while planning");
        let error = Error::from(wrapped);
        assert_eq!((sqlstate(&error), message(&error).as_str()), ("42704", "unknown model \"m\""));
    }
}
