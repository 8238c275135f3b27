//! Subqueries in VALUES: `INSERT INTO t VALUES ((SELECT max(id) + 1 FROM t), 'x'), (7, 'y')`.
//!
//! DataFusion computes the rows of a VALUES while it plans, before any subquery has run. [`ValuesOfQueries`] leaves only rows without subqueries there, with
//! their numbers, and puts a projection above them that says what the others are.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Values, lit};
use datafusion::optimizer::AnalyzerRule;

/// The column of the rows' numbers.
const ROW: &str = "__row";

#[derive(Debug)]
pub struct ValuesOfQueries;

impl AnalyzerRule for ValuesOfQueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Values(values) if values.values.iter().flatten().any(has_subquery) => projected(values).map(Transformed::yes),
            other => Ok(Transformed::no(other)),
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "values_of_queries"
    }
}

fn has_subquery(expression: &Expr) -> bool {
    let is_subquery =
        |inner: &Expr| matches!(inner, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_));
    expression.exists(|inner| Ok(is_subquery(inner))).unwrap_or(true)
}

/// `SELECT CASE __row WHEN 0 THEN (SELECT ...) ELSE column1 END AS column1, column2, ... FROM (VALUES (NULL, 'x', 0), ...)`
fn projected(values: Values) -> Result<LogicalPlan> {
    let Values { schema, values: mut rows } = values;
    let row_number = Expr::Column(Column::new_unqualified(ROW));
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (position, field) in schema.fields().iter().enumerate() {
        let column = Expr::Column(Column::new_unqualified(field.name()));
        let mut computed = Vec::new();
        for (number, row) in (0_i64..).zip(&mut rows) {
            if has_subquery(&row[position]) {
                let value = std::mem::replace(&mut row[position], lit(ScalarValue::try_from(field.data_type())?));
                computed.push((Box::new(lit(number)), Box::new(value)));
            }
        }
        columns.push(match computed.is_empty() {
            true => column,
            false => Expr::Case(Case::new(Some(Box::new(row_number.clone())), computed, Some(Box::new(column)))).alias(field.name()),
        });
    }
    for (number, row) in (0_i64..).zip(&mut rows) {
        row.push(lit(number));
    }
    let numbered = LogicalPlan::Values(Values { schema: Arc::new(with_row_numbers(&schema)?), values: rows });
    LogicalPlanBuilder::from(numbered).project(columns)?.build()
}

fn with_row_numbers(schema: &DFSchema) -> Result<DFSchema> {
    let nullable = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let fields: Fields = nullable.chain([Field::new(ROW, DataType::Int64, false)]).collect();
    DFSchema::from_unqualified_fields(fields, HashMap::new())
}
