//! Conditions on rows of a table that hang on a row before LATERAL: rows before that agree in the columns they name share one search.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use crate::error::Result;

/// A condition over the bare columns of a table, with references to columns of the relations before LATERAL.
#[derive(Debug, Clone)]
pub struct RowCondition {
    pub condition: Expr,
    /// The columns that it refers to, each once.
    columns: Vec<Column>,
}

impl RowCondition {
    /// `None` if a row of the table alone decides it.
    pub fn of(condition: &Expr) -> Result<Option<Self>> {
        let columns: Vec<Column> = outer_references(condition)?.into_iter().filter_map(referred).collect();
        Ok((!columns.is_empty()).then(|| Self { condition: condition.clone(), columns }))
    }

    /// The condition for rows before that have these values in the columns of [`outer_references`], over a table with this schema.
    pub fn with_values(&self, values: &[ScalarValue], schema: &Schema) -> Result<Expr> {
        let bound = self.condition.clone().transform_up(|inner| {
            let Expr::OuterReferenceColumn(_, column) = &inner else { return Ok(Transformed::no(inner)) };
            let value = self.columns.iter().position(|known| known == column).map(|position| values[position].clone());
            Ok(value.map_or_else(|| Transformed::no(inner.clone()), |value| Transformed::yes(Expr::Literal(value, None))))
        })?;
        typed(bound.data, schema)
    }
}

fn referred(expression: Expr) -> Option<Column> {
    match expression {
        Expr::OuterReferenceColumn(_, column) => Some(column),
        _ => None,
    }
}

/// The references of a condition to columns of the relations before LATERAL, each column once, in the order in which they stand.
pub fn outer_references(condition: &Expr) -> Result<Vec<Expr>> {
    let mut found: Vec<Expr> = Vec::new();
    condition.apply(|inner| {
        if let Expr::OuterReferenceColumn(_, column) = inner
            && !found.iter().any(|known| matches!(known, Expr::OuterReferenceColumn(_, known) if known == column))
        {
            found.push(inner.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// A condition over a table's bare columns in their types, as simple as its constants make it.
pub fn typed(condition: Expr, schema: &Schema) -> Result<Expr> {
    let schema = Arc::new(DFSchema::try_from(schema.clone())?);
    let simplifier = ExprSimplifier::new(SimplifyContext::builder().with_schema(Arc::clone(&schema)).build());
    Ok(simplifier.simplify(simplifier.coerce(condition, &schema)?)?)
}

/// Values, and the rows that have them.
pub type RowsOfValues = Vec<(Vec<ScalarValue>, Vec<usize>)>;

/// The rows by their values, in the order in which values first come.
pub fn rows_of_equal_values(columns: &[ArrayRef], num_rows: usize) -> Result<RowsOfValues> {
    let mut positions: HashMap<Vec<ScalarValue>, usize> = HashMap::new();
    let mut groups: RowsOfValues = Vec::new();
    for row in 0..num_rows {
        let values = columns.iter().map(|column| ScalarValue::try_from_array(column, row));
        let values = values.collect::<datafusion::error::Result<Vec<_>>>()?;
        let position = *positions.entry(values.clone()).or_insert(groups.len());
        if position == groups.len() {
            groups.push((values, Vec::new()));
        }
        groups[position].1.push(row);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field};
    use datafusion::logical_expr::{ident, lit};

    use super::*;

    #[test]
    fn rows_are_grouped_by_all_values_and_null_is_one() -> Result<()> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "c"]));
        let rows: Vec<Vec<usize>> = rows_of_equal_values(&[numbers, texts], 4)?.into_iter().map(|(_, rows)| rows).collect();
        assert_eq!(rows, [vec![0, 2], vec![1], vec![3]]);
        let without: Vec<Vec<usize>> = rows_of_equal_values(&[], 2)?.into_iter().map(|(_, rows)| rows).collect();
        assert_eq!(without, [vec![0, 1]]);
        Ok(())
    }

    #[test]
    fn a_condition_takes_the_values_of_a_row_before() -> Result<()> {
        let field = Arc::new(Field::new("year", DataType::Int32, true));
        let outer = Expr::OuterReferenceColumn(field, Column::new(Some("q"), "year"));
        let condition = ident("year").gt(outer.clone()).and(ident("year").lt(outer + lit(10)));
        let condition = RowCondition::of(&condition)?.expect("it hangs on q.year");
        assert_eq!(condition.columns, [Column::new(Some("q"), "year")]);
        let schema = Schema::new(vec![Field::new("year", DataType::Int32, true)]);
        let bound = condition.with_values(&[ScalarValue::Int32(Some(1990))], &schema)?;
        assert_eq!(bound.to_string(), "year > Int32(1990) AND year < Int32(2000)");
        assert!(RowCondition::of(&ident("year").gt(lit(1990)))?.is_none());
        Ok(())
    }
}
