//! PREPARE, EXECUTE, DEALLOCATE.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::DataType as SqlType;
use futures::TryStreamExt;
use rolloutdb_sql::{Deallocate, Execute, Explain, Prepare, Statement};

use super::change::assignment::constant_of;
use super::table::type_field;
use super::{done, not_supported, rows_description};
use crate::engine::named_statements::NamedStatement;
use crate::engine::parameter_types::is_text_or_list;
use crate::engine::planning::{Planned, plan_query};
use crate::engine::prepared::PreparedStatement;
use crate::engine::session::{Description, Response, Session};
use crate::engine::typing::{assign, is_text};
use crate::error::{Error, Result};

pub async fn prepare(session: &Session, prepare: &Prepare) -> Result<Response> {
    session.named_statements().check_free(&prepare.name)?;
    let mut declared: Vec<Option<FieldRef>> = Vec::with_capacity(prepare.types.len());
    for (position, sql_type) in prepare.types.iter().enumerate() {
        declared.push(match says_too_little(sql_type) {
            true => None,
            false => Some(Arc::new(type_field(session, sql_type, &format!("parameter ${}", position + 1)).await?.with_name(""))),
        });
    }
    let prepared = session.prepare_declared(prepare.statement.as_ref().clone(), &declared).await?;
    let text = prepare.to_string();
    let prepared = prepared.with_text(&text);
    session.named_statements().add(&prepare.name, NamedStatement::of_sql(prepared, text, declared))?;
    Ok(done("PREPARE"))
}

/// A vector has its width from where the parameter stands.
fn says_too_little(sql_type: &SqlType) -> bool {
    let SqlType::Custom(name, modifiers) = sql_type else { return false };
    modifiers.is_empty() && ["vector", "halfvec", "unknown"].iter().any(|known| name.to_string().eq_ignore_ascii_case(known))
}

pub fn deallocate(session: &Session, deallocate: &Deallocate) -> Result<Response> {
    match &deallocate.name {
        Some(name) => {
            session.named_statements().release(name)?;
            Ok(done("DEALLOCATE"))
        }
        None => {
            session.named_statements().release_all();
            Ok(done("DEALLOCATE ALL"))
        }
    }
}

/// The columns of the statement that is run. It takes no parameters of its own.
pub fn describe(session: &Session, execute: &Execute) -> Result<Description> {
    let (_, prepared) = found(session, execute)?;
    Ok(rows_description(Arc::clone(&prepared.description().columns)))
}

/// The EXECUTE in a statement: the statement itself, or the one that is explained.
pub fn execute_in(statement: &Statement) -> Option<&Execute> {
    match statement {
        Statement::Execute(execute) => Some(execute),
        Statement::Explain(explain) => match explain.statement.as_ref() {
            Statement::Execute(execute) => Some(execute),
            _ => None,
        },
        _ => None,
    }
}

/// EXPLAIN of the prepared statement in the place of EXPLAIN EXECUTE.
pub fn explained(explain: &Explain, prepared: &PreparedStatement) -> Statement {
    Statement::Explain(Explain { statement: Box::new(prepared.statement().clone()), ..explain.clone() })
}

/// The statement that EXECUTE runs.
///
/// # Errors
/// A name that was not prepared (26000), or a statement that EXECUTE cannot run (0A000).
pub fn found(session: &Session, execute: &Execute) -> Result<(NamedStatement, Arc<PreparedStatement>)> {
    let named = session.named_statements().get(&execute.name)?.clone();
    let prepared = named.prepared.clone().ok_or_else(|| Error::ColumnCount(format!("prepared statement \"{}\" is empty", execute.name)))?;
    // It could be one that runs itself.
    if execute_in(prepared.statement()).is_some() {
        return Err(not_supported("EXECUTE of an EXECUTE", "name the statement that is to run"));
    }
    Ok((named, prepared))
}

/// The values of `$1 ...`: the arguments, assigned to the types of the parameters.
///
/// # Errors
/// Another number of them (42601), or a value of another type (42804).
pub async fn arguments(session: &Session, named: &NamedStatement, execute: &Execute) -> Result<Vec<ScalarValue>> {
    let parameters = named.parameters();
    let (found, expected) = (execute.arguments.len(), parameters.len());
    if found != expected {
        let what = format!("wrong number of parameters for prepared statement \"{}\": expected {expected}, found {found}", execute.name);
        return Err(Error::ColumnCount(what));
    }
    if expected == 0 {
        return Ok(Vec::new());
    }
    let selected: Vec<String> =
        execute.arguments.iter().enumerate().map(|(position, argument)| format!("{argument} AS argument{position}")).collect();
    let sql = format!("SELECT {}", selected.join(", "));
    let Some(Statement::Query(query)) = rolloutdb_sql::parse(&sql)?.pop() else {
        return Err(Error::Internal(format!("not a query: {sql}")));
    };
    let planned = Box::pin(plan_query(session, &query, &[])).await?;
    let values = assigned(planned, &parameters)?;
    let batches: Vec<RecordBatch> = values.stream().await?.try_collect().await?;
    let Some(batch) = batches.iter().find(|batch| batch.num_rows() == 1) else {
        return Err(Error::ColumnCount("an argument of EXECUTE is one value".to_owned()));
    };
    batch.columns().iter().map(|column| Ok(ScalarValue::try_from_array(column, 0)?)).collect()
}

/// Each value as one of the declared type of its parameter, and of the type that the statement takes it for.
fn assigned(arguments: Planned, parameters: &[(Option<FieldRef>, Option<FieldRef>)]) -> Result<Planned> {
    let Planned { plan, state } = arguments;
    let schema = plan.schema().clone();
    let mut values = Vec::with_capacity(parameters.len());
    for (position, (declared, implied)) in parameters.iter().enumerate() {
        let argument = Expr::Column(Column::from(schema.qualified_field(position)));
        let mut value = constant_of(&plan, position).unwrap_or(argument);
        let is_list = matches!(value.get_type(&schema), Ok(DataType::List(_) | DataType::LargeList(_)));
        if is_list && declared.is_none() && implied.as_ref().is_some_and(|field| is_text_or_list(field)) {
            values.push(value.alias(format!("argument{position}")));
            continue;
        }
        for field in targets(declared.as_ref(), implied.as_ref()) {
            value = assign(&state, value, &schema, &field).map_err(|error| named_parameter(error, position))?;
        }
        values.push(value.alias(format!("argument{position}")));
    }
    Ok(Planned { plan: LogicalPlanBuilder::new(plan).project(values)?.build()?, state })
}

/// What a value is assigned to, one after the other. A text stands for a value of the type that the statement implies, as a client's does.
fn targets(declared: Option<&FieldRef>, implied: Option<&FieldRef>) -> Vec<FieldRef> {
    match (declared, implied) {
        (Some(declared), Some(implied)) if is_text(declared.data_type()) || declared.data_type() == implied.data_type() => {
            vec![Arc::clone(implied)]
        }
        (None, None) => vec![Arc::new(Field::new("text", DataType::Utf8, true))],
        (declared, implied) => declared.into_iter().chain(implied).map(Arc::clone).collect(),
    }
}

fn named_parameter(error: Error, position: usize) -> Error {
    match error {
        Error::WrongType { found, expected, .. } => Error::WrongType { what: format!("parameter ${}", position + 1), found, expected },
        other => other,
    }
}
