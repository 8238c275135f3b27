//! `FROM q CROSS JOIN LATERAL (SELECT .. FROM text_search(corpus, q.question) s JOIN meta m ON .. WHERE .. ORDER BY .. LIMIT 3) h`.
//!
//! DataFusion has no execution for it. The rows before LATERAL move down to the function, which gets them in batches as it does directly after LATERAL, and
//! what stands above the function in the subquery carries them along ([`Carried`]). LIMIT becomes a condition on `row_number()` of each row before. For
//! LEFT JOIN LATERAL conditions leave no row out: they mark it, and of a row before without any other one marked row stays, all NULL.
//!
//! What has another meaning for all rows together than for each row before (GROUP BY, DISTINCT, UNION, window functions) is left to
//! [`crate::engine::unnesting`], which calls the function once for equal values of the rows before.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, not_impl_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{
    EmptyRelation, Expr, FetchType, Filter, Join, Limit, LogicalPlan, LogicalPlanBuilder, Projection, SkipType, Sort, SortExpr, Subquery,
    SubqueryAlias, lit, when,
};

use super::super::Apply;
use super::super::row_numbers::{Numbered, RowNumbers};
use super::carried::{Carried, Hidden, hide, named};
use super::is_outer;

/// The join as a plan without LATERAL; `None` if no function of ours on its right reads columns of its left, and for what the module leaves alone.
pub fn resolved(join: &Join) -> Result<Option<LogicalPlan>> {
    if !has_call_over(&join.right, join.left.schema())? {
        return Ok(None);
    }
    let is_outer = is_outer(join, "(SELECT ...)")?;
    let is_numbered = is_outer || holds_limit(&join.right)?;
    let names = Hidden::not_in(&join.right)?;
    let rows = rows_before(&join.left, names.clone(), is_outer, is_numbered)?;
    let before = Before { schema: join.left.schema(), names, rows, is_outer };
    match before.carried(&join.right) {
        Ok(carried) => before.joined_rows(carried, join).map(Some),
        Err(DataFusionError::NotImplemented(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The rows before LATERAL.
struct Before<'a> {
    /// As they are outside of the subquery.
    schema: &'a DFSchema,
    names: Hidden,
    /// As they are within.
    rows: Carried,
    /// Whether those stay for which the subquery gives nothing.
    is_outer: bool,
}

/// The rows under hidden names.
fn rows_before(left: &LogicalPlan, names: Hidden, is_outer: bool, is_numbered: bool) -> Result<Carried> {
    let columns = left.schema().columns();
    let before: Vec<Column> = (0..columns.len()).map(|position| names.column(position)).collect();
    let mut selected: Vec<Expr> = columns.into_iter().zip(&before).map(|(column, name)| hide(Expr::Column(column), name)).collect();
    let (mut hidden, mut plan) = (before.clone(), left.clone());
    if is_numbered {
        let Column { relation, name, .. } = names.row();
        plan = Apply::try_new(plan, Arc::new(RowNumbers::default()), Vec::new(), relation, vec![name], false)?.into_plan();
        selected.push(Expr::Column(names.row()));
        hidden.push(names.row());
    }
    if is_outer {
        selected.push(hide(lit(true), &names.found()));
        hidden.push(names.found());
    }
    let plan = LogicalPlanBuilder::from(plan).project(selected)?.build()?;
    Ok(Carried { plan, names, before, hidden, order: Vec::new(), places: Vec::new() })
}

impl Before<'_> {
    /// The plan with the rows before beside its columns.
    fn carried(&self, plan: &LogicalPlan) -> Result<Carried> {
        if !reads(plan, self.schema)? {
            return self.beside(plan);
        }
        match plan {
            LogicalPlan::Subquery(subquery) => self.carried(&subquery.subquery),
            LogicalPlan::SubqueryAlias(alias) => self.renamed(alias),
            LogicalPlan::Projection(projection) => self.projected(projection),
            LogicalPlan::Filter(filter) => self.filtered(filter),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.sorted(sort),
            LogicalPlan::Limit(limit) => self.limited(limit),
            LogicalPlan::Join(join) => self.joined(join),
            LogicalPlan::Extension(extension) => match extension.node.as_any().downcast_ref::<Apply>() {
                Some(apply) => self.applied(apply),
                None => self.refused(extension.node.name()),
            },
            LogicalPlan::Aggregate(_) => self.refused("GROUP BY or an aggregate"),
            LogicalPlan::Distinct(_) => self.refused("DISTINCT"),
            LogicalPlan::Union(_) => self.refused("UNION"),
            LogicalPlan::Window(_) => self.refused("a window function"),
            LogicalPlan::Unnest(_) => self.refused("unnest"),
            other => self.refused(&format!("{} over it", other.display())),
        }
    }

    fn refused<T>(&self, what: &str) -> Result<T> {
        not_impl_err!("{what} over a function after LATERAL")
    }

    /// A part of the subquery that reads nothing of the rows before.
    fn beside(&self, plan: &LogicalPlan) -> Result<Carried> {
        if matches!(plan, LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, schema }) if schema.fields().is_empty()) {
            return Ok(self.rows.clone());
        }
        let rows = self.rows.clone();
        if !self.is_outer {
            let plan = LogicalPlanBuilder::from(rows.plan).cross_join(plan.clone())?.build()?;
            return Ok(Carried { plan, ..rows });
        }
        let (other, mark) = self.marked(plan, &rows)?;
        let plan = LogicalPlanBuilder::from(rows.plan).join_on(other, JoinType::Left, [lit(true)])?.build()?;
        Carried { plan, ..rows }.found_if(Expr::Column(mark).is_not_null())
    }

    fn renamed(&self, alias: &SubqueryAlias) -> Result<Carried> {
        let columns = alias.input.schema().columns().into_iter().map(Expr::Column);
        self.carried(&alias.input)?.select(columns.zip(alias.schema.iter()))
    }

    fn projected(&self, projection: &Projection) -> Result<Carried> {
        let expressions = projection.expr.iter().map(|expression| self.value(expression.clone().unalias()));
        let expressions = expressions.collect::<Result<Vec<_>>>()?;
        self.carried(&projection.input)?.select(expressions.into_iter().zip(projection.schema.iter()))
    }

    fn filtered(&self, filter: &Filter) -> Result<Carried> {
        let condition = self.bind(filter.predicate.clone())?;
        let carried = self.carried(&filter.input)?;
        if self.is_outer { carried.found_if(condition) } else { carried.filter(condition) }
    }

    fn sorted(&self, sort: &Sort) -> Result<Carried> {
        let key = |key: &SortExpr| Ok(SortExpr { expr: self.value(key.expr.clone())?, asc: key.asc, nulls_first: key.nulls_first });
        let keys = sort.expr.iter().map(key).collect::<Result<Vec<_>>>()?;
        self.carried(&sort.input)?.sort(keys)
    }

    fn limited(&self, limit: &Limit) -> Result<Carried> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (limit.get_skip_type()?, limit.get_fetch_type()?) else {
            return self.refused("LIMIT or OFFSET of something else than a number");
        };
        let carried = self.carried(&limit.input)?;
        let last = fetch.map(|fetch| skip.saturating_add(fetch));
        let first = self.is_outer.then(|| Expr::Column(self.names.found()));
        carried.rank(first, |carried, rank| {
            let from_first = rank.clone().gt(lit(skip as u64));
            let condition = match last {
                Some(last) => from_first.and(rank.lt_eq(lit(last as u64))),
                None => from_first,
            };
            if self.is_outer { carried.found_if(condition) } else { carried.filter(condition) }
        })
    }

    fn joined(&self, join: &Join) -> Result<Carried> {
        let is_left = !reads(&join.right, self.schema)?;
        if !is_left && reads(&join.left, self.schema)? {
            return self.refused("a join of two relations that both read columns of the relations before LATERAL");
        }
        if !is_left && reads(&join.right, join.left.schema())? {
            return self.refused("another LATERAL that reads columns of both");
        }
        let (side, other) = if is_left { (&join.left, &join.right) } else { (&join.right, &join.left) };
        let keeps_side = if is_left { JoinType::Left } else { JoinType::Right };
        if join.join_type != JoinType::Inner && join.join_type != keeps_side {
            return self.refused(&format!("a {} join", join.join_type));
        }
        let carried = self.carried(side)?;
        let is_marked = self.is_outer && join.join_type == JoinType::Inner;
        let (other, mark) = match is_marked {
            true => self.marked(other, &carried).map(|(other, mark)| (other, Some(mark)))?,
            false => (other.as_ref().clone(), None),
        };
        let join_type = if is_marked { keeps_side } else { join.join_type };
        let side = carried.plan.clone();
        let (left, right) = if is_left { (side, other) } else { (other, side) };
        let on = join.on.iter().map(|(left, right)| Ok((self.bind(left.clone())?, self.bind(right.clone())?)));
        let on = on.collect::<Result<Vec<_>>>()?;
        let filter = join.filter.clone().map(|filter| self.bind(filter)).transpose()?;
        let (left, right) = (Arc::new(left), Arc::new(right));
        let joined = Join::try_new(left, right, on, filter, join_type, join.join_constraint, join.null_equality, join.null_aware)?;
        let carried = Carried { plan: LogicalPlan::Join(joined), ..carried };
        match mark {
            Some(mark) => carried.found_if(Expr::Column(mark).is_not_null()),
            None => Ok(carried),
        }
    }

    fn applied(&self, apply: &Apply) -> Result<Carried> {
        let arguments = apply.arguments.iter().cloned().map(|argument| self.bind(argument)).collect::<Result<Vec<_>>>()?;
        let mut carried = self.carried(&apply.input)?;
        let name = self.names.column(format!("place_{}", carried.hidden.len())).name;
        let place = Column::new(apply.qualifier().cloned(), name);
        let names = apply.column_names().iter().chain([&place.name]).cloned().collect();
        let function = Arc::new(Numbered { function: Arc::clone(&apply.function) });
        let is_outer = apply.is_outer || self.is_outer;
        carried.plan = Apply::try_new(carried.plan, function, arguments, apply.qualifier().cloned(), names, is_outer)?.into_plan();
        carried.hidden.push(place.clone());
        carried.places.push(place.clone());
        if self.is_outer && !apply.is_outer { carried.found_if(Expr::Column(place).is_not_null()) } else { Ok(carried) }
    }

    /// The rows before, as they are outside, with the subquery's columns.
    fn joined_rows(&self, carried: Carried, join: &Join) -> Result<LogicalPlan> {
        let before = self
            .schema
            .iter()
            .enumerate()
            .map(|(position, (relation, field))| named(Expr::Column(self.names.column(position)), relation, field.name()));
        let mut all: Vec<Expr> = before.collect();
        for (relation, field) in join.right.schema().iter() {
            let value = Expr::Column(Column::new(relation.cloned(), field.name()));
            all.push(match self.is_outer {
                true => named(when(Expr::Column(self.names.found()), value).end()?, relation, field.name()),
                false => value,
            });
        }
        let carried = match self.is_outer {
            true => carried.rank(Some(Expr::Column(self.names.found())), |carried, rank| {
                carried.filter(Expr::Column(self.names.found()).or(rank.eq(lit(1_u64))))
            })?,
            false => carried,
        };
        LogicalPlanBuilder::from(carried.plan).project(all)?.build()
    }

    /// An expression of the subquery, which in an outer join is not computed for rows that are only marked.
    fn value(&self, expression: Expr) -> Result<Expr> {
        let bound = self.bind(expression)?;
        match bound {
            Expr::Column(_) | Expr::Literal(..) => Ok(bound),
            _ if !self.is_outer => Ok(bound),
            _ => when(Expr::Column(self.names.found()), bound).end(),
        }
    }

    /// The expression over the hidden columns.
    fn bind(&self, expression: Expr) -> Result<Expr> {
        let bound = expression.transform_up(|inner| match inner {
            Expr::OuterReferenceColumn(field, column) => Ok(match self.schema.maybe_index_of_column(&column) {
                Some(position) => Transformed::yes(Expr::Column(self.names.column(position))),
                None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
            }),
            other => match subquery_of(&other) {
                Some(subquery) if reads(&subquery.subquery, self.schema)? => {
                    self.refused("a subquery in an expression that reads columns of the relations before LATERAL")
                }
                _ => Ok(Transformed::no(other)),
            },
        })?;
        Ok(bound.data)
    }

    /// A plan with a column that is true for each of its rows, for the side of an outer join that may have none for rows of `carried`.
    fn marked(&self, plan: &LogicalPlan, carried: &Carried) -> Result<(LogicalPlan, Column)> {
        let mark = self.names.column(format!("mark_{}", carried.plan.schema().fields().len()));
        let columns = plan.schema().columns().into_iter().map(Expr::Column).chain([hide(lit(true), &mark)]);
        Ok((LogicalPlanBuilder::from(plan.clone()).project(columns.collect::<Vec<_>>())?.build()?, mark))
    }
}

/// Whether a plan has references to columns of the rows before. Those of a relation nearer by that has a column of the same name are meant for that one.
fn reads(plan: &LogicalPlan, before: &DFSchema) -> Result<bool> {
    reads_past(plan, before, &[])
}

fn reads_past(plan: &LogicalPlan, before: &DFSchema, nearer: &[&DFSchema]) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expression| {
        expression.apply(|inner| {
            found = match (inner, subquery_of(inner)) {
                (Expr::OuterReferenceColumn(_, column), _) => {
                    before.has_column(column) && !nearer.iter().any(|schema| schema.has_column(column))
                }
                (_, Some(subquery)) => {
                    let inputs = plan.inputs();
                    let nearer: Vec<&DFSchema> = nearer.iter().copied().chain(inputs.iter().map(|input| input.schema().as_ref())).collect();
                    reads_past(&subquery.subquery, before, &nearer)?
                }
                _ => false,
            };
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    let children: Vec<(&LogicalPlan, Option<&DFSchema>)> = match plan {
        // The right side may be a LATERAL itself.
        LogicalPlan::Join(join) => vec![(join.left.as_ref(), None), (join.right.as_ref(), Some(join.left.schema().as_ref()))],
        other => other.inputs().into_iter().map(|input| (input, None)).collect(),
    };
    for (child, left) in children {
        let nearer: Vec<&DFSchema> = nearer.iter().copied().chain(left).collect();
        found = found || reads_past(child, before, &nearer)?;
    }
    Ok(found)
}

pub fn refers_to(expression: &Expr, before: &DFSchema) -> bool {
    let is_one = |inner: &Expr| matches!(inner, Expr::OuterReferenceColumn(_, column) if before.has_column(column));
    // The closure does not fail.
    expression.exists(|inner| Ok(is_one(inner))).unwrap_or(false)
}

/// Whether a function in a plan has arguments that read columns of the rows before.
fn has_call_over(plan: &LogicalPlan, before: &DFSchema) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Extension(extension) = node
            && let Some(apply) = extension.node.as_any().downcast_ref::<Apply>()
        {
            for argument in &apply.arguments {
                if refers_to(argument, before) {
                    found = true;
                    return Ok(TreeNodeRecursion::Stop);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn holds_limit(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))
}

fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}
