//! Columns as an argument names them: `columns => 'id text, year integer'`.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Expr as SqlExpr, SelectItem, SetExpr};
use rolloutdb_sql::Statement;

use crate::error::{Error, Result};

/// `id text, year integer` as a schema, all nullable.
///
/// # Errors
/// [`Error::InvalidParameter`] if it is no such list; the planner's for an unknown type.
pub fn column_list(text: &str, context: &mut dyn RelationPlannerContext) -> Result<SchemaRef> {
    let invalid = |expected: String| Error::InvalidParameter { name: "columns".to_owned(), found: format!("'{text}'"), expected };
    // A syntax error would tell of a place in a statement that nobody wrote.
    let parsed = rolloutdb_sql::parse(&format!("CREATE TABLE t ({text})")).unwrap_or_default();
    let [Statement::CreateTable(create)] = parsed.as_slice() else {
        return Err(invalid("names and types, as in 'id text, year integer'".to_owned()));
    };
    if !create.likes.is_empty() {
        return Err(invalid("names and types, not those of a table".to_owned()));
    }
    let mut fields: Vec<Field> = Vec::with_capacity(create.columns.len());
    for column in &create.columns {
        let null = context.sql_to_expr(null_of(&column.data_type)?, &DFSchema::empty())?;
        // A cast's own field says more than its result's: the length of a text, the type of the items of an array.
        let typed = match &null {
            Expr::Cast(cast) => Arc::clone(&cast.field),
            other => other.to_field(&DFSchema::empty())?.1,
        };
        if fields.iter().any(|field| *field.name() == column.name.value) {
            return Err(invalid(format!("each name once, not {} twice", column.name)));
        }
        fields.push(typed.as_ref().clone().with_name(&column.name.value).with_nullable(true));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// `CAST(NULL AS type)`, through which the planner says what Arrow type it takes for an SQL type.
fn null_of(sql_type: &SqlType) -> Result<SqlExpr> {
    if let Some(Statement::Query(query)) = rolloutdb_sql::parse(&format!("SELECT CAST(NULL AS {sql_type})"))?.pop()
        && let SetExpr::Select(mut select) = *query.body
        && let Some(SelectItem::UnnamedExpr(cast)) = select.projection.pop()
    {
        return Ok(cast);
    }
    Err(Error::Internal(format!("no type: {sql_type}")))
}
