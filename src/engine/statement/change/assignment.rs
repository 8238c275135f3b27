//! `SET a = 1, b = DEFAULT`: what the assigned columns become, and the generated ones that depend on them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Column, DFSchema};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr as SqlExpr, Ident, Query, SelectItem, SetExpr, TimezoneInfo, UnaryOperator, Value, Visit, Visitor,
};
use rolloutdb_catalogs::{Identity, Table, TableDefinition};
use rolloutdb_sql::{Assignment, Statement, is_default};
use rolloutdb_udfs::TextType;

use super::super::insert::{cast_parameter, parameter_of};
use super::{column_of, row_query, selected};
use crate::engine::casts;
use crate::engine::planning::Planned;
use crate::engine::typing::{assign, checked_vector, constant_type_name, parameter_type_name};
use crate::error::{Error, Result};

/// The assigned columns, and the generated ones that depend on them.
#[derive(Default)]
pub struct NewValues {
    assigned: Vec<(String, SqlExpr)>,
    /// The columns that take their next number.
    numbered: Vec<String>,
    pub generated: Vec<String>,
    /// Numbers, from 1, of parameters that are a column's new value, and that column.
    parameters: Vec<(usize, FieldRef)>,
}

impl NewValues {
    /// # Errors
    /// [`Error::UnknownColumn`], [`Error::GeneratedColumn`], and a column that is assigned twice.
    pub fn of(table: &Table, assignments: &[Assignment]) -> Result<Self> {
        let mut new_values = Self::default();
        for Assignment { columns, value } in assignments {
            match (columns.as_slice(), value) {
                ([column], value) => new_values.assign(table, column, value)?,
                (columns, SqlExpr::Subquery(query)) => new_values.assign_row(table, columns, query)?,
                (_, other) => return Err(Error::Internal(format!("several columns are set to {other}"))),
            }
        }
        new_values.generated = generated_from(table.definition(), |column| new_values.is_assigned(column))?;
        Ok(new_values)
    }

    fn assign(&mut self, table: &Table, column: &Ident, value: &SqlExpr) -> Result<()> {
        let (definition, name) = (table.definition(), &column.value);
        let field = field_of(table, name)?;
        if is_default(value) && definition.generated.contains_key(name) {
            // It is computed in any case.
            return Ok(());
        }
        if is_default(value) && definition.identity.contains_key(name) {
            self.check_once(name)?;
            self.numbered.push(name.clone());
            return Ok(());
        }
        check_takes_values(definition, name)?;
        self.check_once(name)?;
        if let Some(number) = parameter_of(value, field).and_then(|name| name.strip_prefix('$')?.parse().ok()) {
            self.parameters.push((number, Arc::new(field.clone())));
        }
        self.assigned.push((name.clone(), new_value(definition, field, value)?));
        Ok(())
    }

    fn assign_row(&mut self, table: &Table, columns: &[Ident], query: &Query) -> Result<()> {
        let fields = columns.iter().map(|column| field_of(table, &column.value)).collect::<Result<Vec<_>>>()?;
        for (field, value) in fields.iter().zip(row_query::fields(table.definition(), &fields, query)?) {
            check_takes_values(table.definition(), field.name())?;
            self.check_once(field.name())?;
            self.assigned.push((field.name().clone(), value));
        }
        Ok(())
    }

    fn check_once(&self, column: &String) -> Result<()> {
        match self.is_assigned(column) {
            true => Err(Error::ColumnCount(format!("column {column} is assigned twice"))),
            false => Ok(()),
        }
    }

    fn is_assigned(&self, column: &String) -> bool {
        self.value(column).is_some() || self.numbered.contains(column)
    }

    /// The positions of the columns that take their next number.
    pub fn numbered(&self, table: &Table) -> Vec<usize> {
        let fields = table.definition().schema.fields().iter().enumerate();
        fields.filter(|(_, field)| self.numbered.contains(field.name())).map(|(position, _)| position).collect()
    }

    /// Gives parameters without a type that of the column whose new value they are.
    pub fn describe_parameters(&self, parameters: &mut [Option<FieldRef>]) {
        for (number, field) in &self.parameters {
            if let Some(unknown @ None) = number.checked_sub(1).and_then(|position| parameters.get_mut(position)) {
                *unknown = Some(Arc::clone(field));
            }
        }
    }

    pub fn value(&self, column: &str) -> Option<&SqlExpr> {
        self.assigned.iter().find(|(name, _)| name == column).map(|(_, value)| value)
    }

    /// Whether a row may have another value of the column afterwards.
    pub fn changes(&self, column: &String) -> bool {
        self.is_assigned(column) || self.generated.contains(column)
    }

    /// The column's new value, or its stored one; a generated one is computed later, from the others.
    pub fn expression(&self, alias: &Ident, field: &Field) -> SqlExpr {
        self.value(field.name()).cloned().unwrap_or_else(|| column_of(alias, field.name()))
    }

    pub fn select(&self, alias: &Ident, field: &Field) -> SelectItem {
        selected(self.expression(alias, field), field)
    }
}

fn field_of<'a>(table: &'a Table, column: &str) -> Result<&'a Field> {
    let schema = &table.definition().schema;
    schema.field_with_name(column).map_err(|_| Error::UnknownColumn {
        table: table.name().to_owned(),
        name: column.to_owned(),
        known: schema.fields().iter().map(|field| field.name().clone()).collect(),
    })
}

fn check_takes_values(definition: &TableDefinition, column: &str) -> Result<()> {
    match definition.generated.contains_key(column) || definition.identity.get(column) == Some(&Identity::Always) {
        true => Err(Error::GeneratedColumn(column.to_owned())),
        false => Ok(()),
    }
}

/// The value with DEFAULT filled in, and with a parameter given its column's type.
pub fn new_value(definition: &TableDefinition, field: &Field, value: &SqlExpr) -> Result<SqlExpr> {
    if is_default(value) {
        return default_value(definition, field);
    }
    if let Some(typed) = parameter_of(value, field).and_then(|name| cast_parameter(&name, field)) {
        return Ok(typed);
    }
    if let Some(text) = as_read(field, value) {
        return expression(&format!("CAST({text} AS {})", parameter_type_name(field)));
    }
    match scalar_type(field.data_type()).filter(|_| reads_constant(field.data_type(), value)) {
        Some(scalar_type) => Ok(cast_to(value.clone(), scalar_type)),
        None => Ok(value.clone()),
    }
}

/// A default has its column's type from the start: beside it in a VALUES stand constants that are read as that type.
fn default_value(definition: &TableDefinition, field: &Field) -> Result<SqlExpr> {
    let default = expression(definition.defaults.get(field.name()).map_or("NULL", String::as_str))?;
    match (as_read(field, &default), scalar_type(field.data_type())) {
        (Some(text), _) => expression(&format!("CAST({text} AS {})", parameter_type_name(field))),
        (None, Some(scalar_type)) => Ok(cast_to(default, scalar_type)),
        (None, None) => Ok(default),
    }
}

/// Whether a constant is of another type than its column until it is cast, so that DataFusion would not put it below a value that has the type, or
/// would take the other one for the type of both.
fn reads_constant(column: &DataType, value: &SqlExpr) -> bool {
    let constant = match value {
        SqlExpr::Value(constant) => &constant.value,
        SqlExpr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            SqlExpr::Value(constant) => &constant.value,
            _ => return false,
        },
        _ => return false,
    };
    match column {
        DataType::Utf8 => matches!(constant, Value::Number(..) | Value::Boolean(_)),
        _ => matches!(constant, Value::SingleQuotedString(_)),
    }
}

/// The types whose cast is what an assignment does.
fn scalar_type(data_type: &DataType) -> Option<SqlType> {
    Some(match data_type {
        DataType::Boolean => SqlType::Boolean,
        DataType::Int16 => SqlType::SmallInt(None),
        DataType::Int32 => SqlType::Integer(None),
        DataType::Int64 => SqlType::BigInt(None),
        DataType::Float32 => SqlType::Real,
        DataType::Float64 => SqlType::DoublePrecision,
        DataType::Date32 => SqlType::Date,
        DataType::Timestamp(_, None) => SqlType::Timestamp(None, TimezoneInfo::None),
        DataType::Timestamp(_, Some(_)) => SqlType::Timestamp(None, TimezoneInfo::Tz),
        DataType::Utf8 => SqlType::Text,
        _ => return None,
    })
}

fn cast_to(value: SqlExpr, data_type: SqlType) -> SqlExpr {
    SqlExpr::Cast { kind: CastKind::Cast, expr: Box::new(value), data_type, array: false, format: None }
}

/// The text of a value that its column's type reads, so that all rows of a VALUES have that type: whatever goes into json or a uuid, quoted
/// constants for arrays, vectors and bytes, and the digits of a number, of which a double would keep sixteen.
fn as_read(field: &Field, value: &SqlExpr) -> Option<String> {
    let (is_quoted, is_number) = match value {
        SqlExpr::Value(constant) => (matches!(constant.value, Value::SingleQuotedString(_)), matches!(constant.value, Value::Number(..))),
        SqlExpr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            (false, matches!(expr.as_ref(), SqlExpr::Value(constant) if matches!(constant.value, Value::Number(..))))
        }
        _ => (false, false),
    };
    match field.data_type() {
        _ if TextType::of(field).is_some_and(|text_type| text_type.is_kept()) => Some(value.to_string()),
        DataType::List(_) | DataType::FixedSizeList(..) | DataType::Binary => is_quoted.then(|| value.to_string()),
        DataType::Decimal128(..) if is_number => Some(format!("'{}'", value.to_string().replace(' ', ""))),
        DataType::Decimal128(..) => is_quoted.then(|| value.to_string()),
        _ => None,
    }
}

/// The generated columns that are computed from a column for which `is_new` is true.
pub fn generated_from(definition: &TableDefinition, is_new: impl Fn(&String) -> bool) -> Result<Vec<String>> {
    let mut generated = Vec::new();
    for (column, text) in &definition.generated {
        if columns_of(&expression(text)?).iter().any(&is_new) {
            generated.push(column.clone());
        }
    }
    Ok(generated)
}

/// The expression in a text of SQL.
pub fn expression(text: &str) -> Result<SqlExpr> {
    let parsed = rolloutdb_sql::parse(&format!("SELECT {text}"))?.pop();
    if let Some(Statement::Query(query)) = parsed
        && let SetExpr::Select(mut select) = *query.body
        && let Some(SelectItem::UnnamedExpr(expression)) = select.projection.pop()
    {
        return Ok(expression);
    }
    Err(Error::Internal(format!("not an expression: {text}")))
}

/// The columns that an expression of one table names.
pub fn columns_of(expression: &SqlExpr) -> Vec<String> {
    struct Columns(Vec<String>);
    impl Visitor for Columns {
        type Break = ();
        fn pre_visit_expr(&mut self, expression: &SqlExpr) -> std::ops::ControlFlow<()> {
            if let SqlExpr::Identifier(name) = expression {
                self.0.push(if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() });
            }
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut columns = Columns(vec![]);
    let _ = expression.visit(&mut columns);
    columns.0
}

/// Gives each column its type, and computes the columns `generated` anew. The first `num_leading` columns of `source` stay as they are; those of the
/// table follow.
pub fn complete(source: Planned, table: &Table, num_leading: usize, generated: &[String]) -> Result<Planned> {
    let Planned { plan, state } = source;
    let definition = table.definition();
    let schema = plan.schema().clone();
    let leading: Vec<String> = schema.fields().iter().take(num_leading).map(|field| field.name().clone()).collect();
    let mut stored: Vec<Expr> = Vec::new();
    for (position, name) in leading.iter().enumerate() {
        stored.push(Expr::Column(Column::from(schema.qualified_field(position))).alias(name));
    }
    for (position, field) in definition.schema.fields().iter().enumerate() {
        let value = Expr::Column(Column::from(schema.qualified_field(position + num_leading)));
        let value = constant_of(&plan, position + num_leading).unwrap_or(value);
        let assigned = assign(&state, value, &schema, field)?;
        let assigned = if is_kept(&plan, position + num_leading, field) { assigned } else { checked_vector(&state, assigned, field)? };
        stored.push(assigned.alias(field.name()));
    }
    let mut builder = LogicalPlanBuilder::new(plan).project(stored)?;
    if !generated.is_empty() {
        let schema = builder.schema().as_ref().clone();
        let mut columns: Vec<Expr> = leading.iter().map(|name| Expr::Column(Column::from_name(name))).collect();
        for field in definition.schema.fields() {
            let value = match definition.generated.get(field.name()).filter(|_| generated.contains(field.name())) {
                Some(expression) => {
                    let value = casts::typed_expression(state.create_logical_expr(expression, &schema)?, &schema, &state)?;
                    assign(&state, value, &schema, field)?
                }
                None => Expr::Column(Column::from_name(field.name())),
            };
            columns.push(value.alias(field.name()));
        }
        builder = builder.project(columns)?;
    }
    Ok(Planned { plan: builder.build()?, state })
}

/// Whether a column of the rows is that of the changed table, as it is stored; the first column is the address of its rows.
fn is_kept(plan: &LogicalPlan, position: usize, field: &Field) -> bool {
    let LogicalPlan::Projection(projection) = plan else { return false };
    let column = |position: usize| match projection.expr.get(position).cloned().map(Expr::unalias) {
        Some(Expr::Column(column)) => Some(column),
        _ => None,
    };
    match (column(0), column(position)) {
        (Some(address), Some(kept)) => address.relation == kept.relation && kept.name == *field.name(),
        _ => false,
    }
}

/// Gives each arm of a CASE the type of its column; the first `num_leading` columns stay as they are. Left to themselves the arms of several clauses
/// agree on one type, such as double precision, which does not keep every value of the column.
pub fn assigned_arms(source: Planned, table: &Table, num_leading: usize) -> Result<Planned> {
    let Planned { plan, state } = source;
    let LogicalPlan::Projection(projection) = plan else { return Ok(Planned { plan, state }) };
    let (schema, fields) = (Arc::clone(projection.input.schema()), table.definition().schema.fields());
    let columns = projection.expr.into_iter().enumerate().map(|(position, expression)| {
        let Some(field) = position.checked_sub(num_leading).and_then(|index| fields.get(index)) else { return Ok(expression) };
        match expression.clone().unalias() {
            Expr::Case(case) => Ok(arms(&state, case, &schema, field)?.alias(field.name())),
            _ => Ok(expression),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(projection.input)).project(columns)?.build()?;
    Ok(Planned { plan, state })
}

fn arms(state: &SessionState, case: Case, schema: &DFSchema, column: &Field) -> Result<Expr> {
    let arm = |value: Expr| match value {
        Expr::Case(inner) => arms(state, inner, schema, column),
        value => assign(state, value, schema, column),
    };
    let when_then = case.when_then_expr.into_iter().map(|(when, then)| Ok((when, Box::new(arm(*then)?))));
    let when_then = when_then.collect::<Result<Vec<_>>>()?;
    let otherwise = case.else_expr.map(|value| arm(*value).map(Box::new)).transpose()?;
    Ok(Expr::Case(Case::new(case.expr, when_then, otherwise)))
}

/// The literal that the query selects as this column: a quoted constant takes the column's type, as in PostgreSQL, and a text column does not.
pub fn constant_of(plan: &LogicalPlan, position: usize) -> Option<Expr> {
    let LogicalPlan::Projection(projection) = plan else { return None };
    match projection.expr.get(position)?.clone().unalias() {
        literal @ Expr::Literal(..) => Some(literal),
        _ => None,
    }
}

/// `CAST(value AS type)` where the arms of a CASE must agree: a vector is written as its text.
pub fn typed(value: SqlExpr, column: &Field) -> Result<SqlExpr> {
    let is_constant = matches!(&value, SqlExpr::Value(_));
    if !is_constant {
        return Ok(value);
    }
    let type_name = constant_type_name(column);
    match expression(&format!("CAST(NULL AS {type_name})"))? {
        SqlExpr::Cast { kind, data_type, array, format, .. } => {
            let cast = SqlExpr::Cast { kind, expr: Box::new(value), data_type, array, format };
            // Through the reader, which knows how a text becomes a vector.
            expression(&cast.to_string())
        }
        other => Err(Error::Internal(format!("not a cast: {other}"))),
    }
}
