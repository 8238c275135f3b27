//! Model calls in the condition of a join: `a JOIN b ON embed('m', a.text) <=> b.v < 0.2`.
//!
//! A call over the columns of one side runs below the join, once per row of that side. A call over both sides, such as `rerank('m', q.question,
//! p.contents) > 0.5`, needs the pairs: the rest of the condition joins them, and the call filters what is left.

use std::sync::Arc;

use datafusion::common::{Column, JoinType, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder};

use super::extract::{Calls, apply_call, async_function, extract, innermost_in, replace_calls};

/// The join without model calls in its condition, and the same columns as before.
///
/// # Errors
/// For a call over both sides of an outer join: its rows without a partner depend on it.
pub(super) fn hoist_from_join(join: &Join, known: &mut Calls) -> Result<LogicalPlan> {
    let mut condition = Condition { on: join.on.clone(), filter: join.filter.clone() };
    let mut sides = [join.left.as_ref().clone(), join.right.as_ref().clone()];
    while let Some((side, call)) = condition.one_sided_call(&sides)? {
        // Both sides may hoist a call, and the names must differ.
        let name = format!("__{}_{}", call_name(&call), sides.iter().map(|side| side.schema().fields().len()).sum::<usize>());
        let (applied, column) = apply_call(sides[side].clone(), &call, known, name)?;
        sides[side] = applied;
        condition = condition.with(&[(&call, column)])?;
    }
    let (filter, over_both) = condition.split();
    if let (Some(call), false) = (over_both.first(), join.join_type == JoinType::Inner) {
        let name = innermost_in([call])?.first().map(call_name).unwrap_or_default();
        return plan_err!("{name}() over both sides of an outer join is not supported; compute it in a subquery over an inner join");
    }
    let [left, right] = sides.map(Arc::new);
    let Join { join_type, join_constraint, null_equality, null_aware, .. } = *join;
    let joined = Join::try_new(left, right, condition.on, filter, join_type, join_constraint, null_equality, null_aware)?;
    let mut plan = LogicalPlan::Join(joined);
    if let Some(condition) = conjunction(over_both) {
        plan = extract(LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?), known)?.data;
    }
    LogicalPlanBuilder::new(plan).project(join.schema.columns().into_iter().map(Expr::Column))?.build()
}

fn call_name(call: &Expr) -> String {
    async_function(call).map(|function| function.name().to_owned()).unwrap_or_default()
}

struct Condition {
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
}

impl Condition {
    /// A call whose columns are all of one side, and that side.
    fn one_sided_call(&self, sides: &[LogicalPlan; 2]) -> Result<Option<(usize, Expr)>> {
        let all = self.on.iter().flat_map(|(left, right)| [left, right]).chain(&self.filter);
        let is_of = |side: &LogicalPlan, call: &Expr| call.column_refs().into_iter().all(|column| side.schema().has_column(column));
        for call in innermost_in(all)? {
            if let Some(side) = sides.iter().position(|side| is_of(side, &call)) {
                return Ok(Some((side, call)));
            }
        }
        Ok(None)
    }

    fn with(self, columns: &[(&Expr, Column)]) -> Result<Self> {
        let pair = |(left, right)| Ok((replace_calls(left, columns)?, replace_calls(right, columns)?));
        let filter = self.filter.map(|filter| replace_calls(filter, columns)).transpose()?;
        Ok(Self { on: self.on.into_iter().map(pair).collect::<Result<_>>()?, filter })
    }

    /// The filter, and those of its conjuncts that have model calls.
    fn split(&self) -> (Option<Expr>, Vec<Expr>) {
        let conjuncts = self.filter.clone().map(split_conjunction_owned).unwrap_or_default();
        let has_call = |conjunct: &Expr| innermost_in([conjunct]).is_ok_and(|calls| !calls.is_empty());
        let (with, without): (Vec<Expr>, Vec<Expr>) = conjuncts.into_iter().partition(has_call);
        (conjunction(without), with)
    }
}
