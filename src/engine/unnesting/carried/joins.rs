//! Joins within a subquery: the sides that read the rows round it carry their values, and two such sides are joined by them too.

use std::sync::Arc;

use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};

use super::super::domain::hide;
use super::super::names::column;
use super::{Carried, Carrier};

/// Which side has the carried columns of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Carrier<'_> {
    pub(super) fn joined(&self, join: &Join) -> Result<Carried> {
        let (left_reads, right_reads) = (self.reads(&join.left)?, self.reads(&join.right)?);
        // Rows of this side may stay without a partner.
        let kept = match join.join_type {
            JoinType::Inner if right_reads && !left_reads => Side::Right,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => Side::Right,
            _ => Side::Left,
        };
        let is_full = join.join_type == JoinType::Full;
        let is_both = is_full || if kept == Side::Left { right_reads } else { left_reads };
        let is_carried = |side: Side| is_both || side == kept;
        let left = self.side(&join.left, is_carried(Side::Left))?;
        let right = self.side(&join.right, is_carried(Side::Right))?;
        let on = join.on.iter().map(|(left, right)| Ok((self.bind(left.clone())?, self.bind(right.clone())?)));
        let on = on.collect::<Result<Vec<_>>>()?;
        let filter = join.filter.clone().map(|filter| self.bind(filter)).transpose()?;
        if !is_both {
            let (left, right) = (Arc::new(left), Arc::new(right));
            let joined = Join::try_new(left, right, on, filter, join.join_type, join.join_constraint, join.null_equality, join.null_aware)?;
            return Ok(Carried { plan: LogicalPlan::Join(joined), order: Vec::new(), keys: Vec::new() });
        }
        let relation = self.names.relation();
        let others: Vec<Column> = (1..=self.domain.hidden.len()).map(|number| column(&relation, number)).collect();
        let (left, right) = match kept {
            Side::Left => (left, self.under_names(right, &others)?),
            Side::Right => (self.under_names(left, &others)?, right),
        };
        let plan = self.joined_by_values(join, (left, right), (on, filter), (kept, &others))?;
        if !is_full {
            return Ok(Carried { plan, order: Vec::new(), keys: Vec::new() });
        }
        let values = self
            .domain
            .hidden
            .iter()
            .zip(&others)
            .map(|(one, other)| hide(coalesce(vec![Expr::Column(one.clone()), Expr::Column(other.clone())]), one));
        let all: Vec<Expr> = values.chain(join.schema.columns().into_iter().map(Expr::Column)).collect();
        let plan = LogicalPlanBuilder::from(plan).project(all)?.build()?;
        Ok(Carried { plan, order: Vec::new(), keys: Vec::new() })
    }

    fn side(&self, plan: &LogicalPlan, is_carried: bool) -> Result<LogicalPlan> {
        if !is_carried {
            return Ok(plan.clone());
        }
        let columns = self.domain.columns().into_iter().chain(plan.schema().columns().into_iter().map(Expr::Column));
        LogicalPlanBuilder::from(self.carried(plan)?.plan).project(columns.collect::<Vec<_>>())?.build()
    }

    /// The carried columns under other names.
    fn under_names(&self, plan: LogicalPlan, others: &[Column]) -> Result<LogicalPlan> {
        let columns = plan.schema().columns().into_iter().enumerate().map(|(position, known)| match others.get(position) {
            Some(other) => hide(Expr::Column(known), other),
            None => Expr::Column(known),
        });
        LogicalPlanBuilder::from(plan.clone()).project(columns.collect::<Vec<_>>())?.build()
    }

    fn joined_by_values(
        &self,
        join: &Join,
        (left, right): (LogicalPlan, LogicalPlan),
        (on, filter): (Vec<(Expr, Expr)>, Option<Expr>),
        (kept, others): (Side, &[Column]),
    ) -> Result<LogicalPlan> {
        let others = others.iter().cloned().map(Expr::Column);
        let values = self.domain.columns().into_iter().zip(others);
        let mut pairs: Vec<(Expr, Expr)> = match kept {
            Side::Left => values.collect(),
            Side::Right => values.map(|(one, other)| (other, one)).collect(),
        };
        // A key for which NULL is no value is a condition beside those for which it is.
        let (mut conditions, mut keys) = (filter.into_iter().collect::<Vec<_>>(), Vec::new());
        match join.null_equality {
            NullEquality::NullEqualsNull => keys = on,
            NullEquality::NullEqualsNothing => conditions.extend(on.into_iter().map(|(left, right)| left.eq(right))),
        }
        pairs.extend(keys);
        super::super::domain::join_by_values(left, right, pairs, conjunction(conditions), join.join_type)
    }
}
