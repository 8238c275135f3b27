//! The values for which a subquery is computed.

use std::sync::Arc;

use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, JoinConstraint, LogicalPlan, LogicalPlanBuilder};

use super::names::{Names, column};
use super::shared_rows::shared;
use crate::engine::three_valued_in::varies;

/// The different values that rows have in the columns that a subquery names.
pub struct Domain {
    pub plan: LogicalPlan,
    /// The columns, as the rows have them.
    outer: Vec<Column>,
    /// As the subquery carries them, in the same order.
    pub hidden: Vec<Column>,
}

impl Domain {
    /// `rows` is what the values are of; it is changed to be read twice where two readings could differ.
    pub fn of(rows: &mut LogicalPlan, outer: Vec<Column>, names: &Names) -> Result<Self> {
        if !outer.is_empty() && varies(rows)? {
            *rows = shared(rows.clone());
        }
        let (values, hidden) = renamed(rows, &outer, names)?;
        Ok(Self { plan: LogicalPlanBuilder::from(values).distinct()?.build()?, outer, hidden })
    }

    /// All columns of all rows, which then are not joined again.
    pub fn of_all_rows(rows: &LogicalPlan, names: &Names) -> Result<Self> {
        let outer = rows.schema().columns();
        let (plan, hidden) = renamed(rows, &outer, names)?;
        Ok(Self { plan, outer, hidden })
    }

    /// Whether the subquery reads nothing of the rows.
    pub fn is_empty(&self) -> bool {
        self.outer.is_empty()
    }

    /// The carried column of one of the rows.
    pub fn carried(&self, outer: &Column) -> Option<&Column> {
        self.outer.iter().position(|known| known == outer).map(|position| &self.hidden[position])
    }

    pub fn columns(&self) -> Vec<Expr> {
        self.hidden.iter().cloned().map(Expr::Column).collect()
    }

    /// The carried columns under the names that the rows have for them.
    pub fn restored(&self) -> impl Iterator<Item = Expr> {
        let pairs = self.hidden.iter().zip(&self.outer);
        pairs.map(|(hidden, outer)| Expr::Column(hidden.clone()).alias_qualified(outer.relation.clone(), &outer.name))
    }

    /// The rows joined with what a subquery gave for their values.
    pub fn join(&self, rows: LogicalPlan, given: LogicalPlan, join_type: JoinType, condition: Option<Expr>) -> Result<LogicalPlan> {
        let on = self.outer.iter().cloned().zip(self.hidden.iter().cloned());
        let on = on.map(|(outer, hidden)| (Expr::Column(outer), Expr::Column(hidden))).collect();
        join_by_values(rows, given, on, condition, join_type)
    }
}

/// The columns alone, under new names.
fn renamed(rows: &LogicalPlan, columns: &[Column], names: &Names) -> Result<(LogicalPlan, Vec<Column>)> {
    let relation = names.relation();
    let hidden: Vec<Column> = (1..=columns.len()).map(|number| column(&relation, number)).collect();
    let values = columns.iter().zip(&hidden).map(|(outer, hidden)| hide(Expr::Column(outer.clone()), hidden));
    let values = values.collect::<Vec<_>>();
    Ok((LogicalPlanBuilder::from(rows.clone()).project(values)?.build()?, hidden))
}

/// A carried column with that value.
pub fn hide(expression: Expr, column: &Column) -> Expr {
    expression.alias_qualified(column.relation.clone(), column.name.clone())
}

/// A join for which NULL is a value as any other.
pub fn join_by_values(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    condition: Option<Expr>,
    join_type: JoinType,
) -> Result<LogicalPlan> {
    let (left, right) = (Arc::new(left), Arc::new(right));
    let join = Join::try_new(left, right, on, condition, join_type, JoinConstraint::On, NullEquality::NullEqualsNull, false)?;
    Ok(LogicalPlan::Join(join))
}
