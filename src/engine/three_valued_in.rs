//! `x IN (SELECT ...)` under NOT, or NOT IN under OR, with SQL's three values; and in a SELECT list, in SET and in RETURNING.
//!
//! DataFusion turns such an IN into a mark that is true or false. In SQL it is NULL where nothing is equal and there is a NULL on either side, so that its
//! NOT is not true; with the mark, `DELETE ... WHERE a OR NOT (x IN (SELECT y ...))` removes rows that it must not. Directly among the conjuncts of a WHERE
//! DataFusion is right where there is no NULL (but refuses a NOT IN that names columns of the outer query), and an IN that only passes AND and OR need not
//! tell NULL from false.
//! Where rows are not filtered DataFusion runs no IN at all; what it becomes here, [`super::exists_as_column`] runs.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, when};
use datafusion::optimizer::AnalyzerRule;

#[derive(Debug)]
pub struct ThreeValuedIn;

impl AnalyzerRule for ThreeValuedIn {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Filter(Filter { predicate, input, .. }) if has_in_subquery(&predicate)? => {
                let schema = Arc::clone(input.schema());
                let conjuncts = split_conjunction_owned(predicate).into_iter().map(|conjunct| conjunct_of_filter(conjunct, &schema));
                let predicate = conjunction(conjuncts.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
                Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
            }
            node @ (LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_)) if has_in(&node)? => in_expressions(node),
            other => Ok(Transformed::no(other)),
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "three_valued_in"
    }
}

/// In an expression or in a comparison with ANY or ALL of a subquery.
fn has_in(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expression| {
        found = found || has_in_subquery(expression)? || has_set_comparison(expression)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn has_set_comparison(expression: &Expr) -> Result<bool> {
    expression.exists(|inner| Ok(matches!(inner, Expr::SetComparison(_))))
}

fn in_expressions(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
    node.map_expressions(|expression| {
        let name = names.save(&expression);
        // DataFusion changes ANY and ALL later on, and the name of the column with them unless it has an alias.
        let alias =
            (has_set_comparison(&expression)? && !matches!(expression, Expr::Alias(_))).then(|| expression.schema_name().to_string());
        let rewritten = under_not(expression, &schema)?;
        Ok(Transformed::yes(match alias {
            Some(alias) => rewritten.alias(alias),
            None => name.restore(rewritten),
        }))
    })
}

fn has_in_subquery(expression: &Expr) -> Result<bool> {
    let mut found = false;
    expression.apply(|inner| {
        found |= matches!(inner, Expr::InSubquery(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn conjunct_of_filter(conjunct: Expr, schema: &DFSchema) -> Result<Expr> {
    match conjunct {
        Expr::InSubquery(in_subquery) => direct(in_subquery, schema),
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => direct(InSubquery { expr, subquery, negated: !negated }, schema),
            other => under_not(Expr::Not(Box::new(other)), schema),
        },
        other => under_and_or(other, schema),
    }
}

/// DataFusion plans these itself, but for a NOT IN that may meet a NULL, or whose subquery names columns of the outer query.
fn direct(in_subquery: InSubquery, schema: &DFSchema) -> Result<Expr> {
    if !in_subquery.negated {
        return Ok(Expr::InSubquery(in_subquery));
    }
    match in_subquery.subquery.outer_ref_columns.is_empty() && !is_one_row(&in_subquery.subquery.subquery) {
        true => not_in(in_subquery, schema),
        false => three_valued(in_subquery, schema),
    }
}

/// `NOT EXISTS (equal) AND NOT EXISTS (NULL) AND (x IS NOT NULL OR NOT EXISTS (any))`, in which a NULL counts as false.
///
/// DataFusion looks for NULLs while it joins by `x`. That misses them where `x` has no column to join by, as in `5 NOT IN (...)`, and where a condition
/// beside it is taken for one of the subquery too, as in `x = 5 AND x NOT IN (...)`.
fn not_in(in_subquery: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let InSubquery { expr: value, subquery, .. } = &in_subquery;
    let (relation, field) = subquery.subquery.schema().qualified_field(0);
    let (value_may_be_null, has_nulls) = (value.nullable(schema)?, field.is_nullable());
    if !value_may_be_null && !has_nulls {
        return Ok(Expr::InSubquery(in_subquery));
    }
    let element = Expr::Column(Column::from((relation, field)));
    let is_equal = element.clone().eq(outer_reference(value.as_ref().clone(), schema)?);
    let mut is_absent = not_exists(subquery, Some(is_equal))?;
    if has_nulls {
        is_absent = is_absent.and(not_exists(&one_row_of(subquery, Some(element.is_null()))?, None)?);
    }
    if value_may_be_null {
        is_absent = is_absent.and(value.as_ref().clone().is_not_null().or(not_exists(&one_row_of(subquery, None)?, None)?));
    }
    Ok(is_absent)
}

/// Here a NULL counts as false.
fn under_and_or(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let (left, right) = (under_and_or(*left, schema)?, under_and_or(*right, schema)?);
            Ok(Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) }))
        }
        positive @ Expr::InSubquery(InSubquery { negated: false, .. }) => Ok(positive),
        other => under_not(other, schema),
    }
}

/// Here a NULL is not a false.
fn under_not(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewritten = expression.transform_up(|inner| match inner {
        Expr::InSubquery(in_subquery) => three_valued(in_subquery, schema).map(Transformed::yes),
        other => Ok(Transformed::no(other)),
    });
    Ok(rewritten?.data)
}

/// `CASE WHEN EXISTS (equal) THEN true WHEN x IS NULL AND EXISTS (any) THEN NULL WHEN EXISTS (NULL) THEN NULL ELSE false END`
fn three_valued(in_subquery: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let InSubquery { expr: value, subquery, negated } = in_subquery;
    refuse_limit(&subquery)?;
    if is_one_row(&subquery.subquery) {
        let is_equal = (*value).eq(Expr::ScalarSubquery(subquery));
        return Ok(if negated { Expr::Not(Box::new(is_equal)) } else { is_equal });
    }
    let (relation, field) = subquery.subquery.schema().qualified_field(0);
    let has_nulls = field.is_nullable();
    let element = Expr::Column(Column::from((relation, field)));
    let value_may_be_null = value.nullable(schema)?;
    let is_equal = element.clone().eq(outer_reference(value.as_ref().clone(), schema)?);
    let null = lit(ScalarValue::Boolean(None));
    let mut case = when(exists(&subquery, Some(is_equal))?, lit(true));
    if value_may_be_null {
        case = case.when(value.is_null().and(exists(&subquery, None)?), null.clone());
    }
    if has_nulls {
        case = case.when(exists(&subquery, Some(element.is_null()))?, null);
    }
    let is_in = case.otherwise(lit(false))?;
    Ok(if negated { Expr::Not(Box::new(is_in)) } else { is_in })
}

/// An aggregate without groups: it has a row, of NULL, where an EXISTS of it would find none.
fn is_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_one_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

/// In an EXISTS that names columns of the outer query DataFusion leaves a LIMIT above them out, which would let an IN see more rows than there are.
fn refuse_limit(subquery: &Subquery) -> Result<()> {
    let is_limit = |node: &LogicalPlan| matches!(node, LogicalPlan::Limit(_)) && !node.all_out_ref_exprs().is_empty();
    match subquery.subquery.as_ref().exists(|node| Ok(is_limit(node)))? {
        true => not_impl_err!("x IN (SELECT ... LIMIT n) that names columns of the outer query is not supported here; write a join"),
        false => Ok(()),
    }
}

/// `EXISTS (SELECT * FROM (subquery) WHERE condition)`
fn exists(subquery: &Subquery, condition: Option<Expr>) -> Result<Expr> {
    let mut outer_ref_columns = subquery.outer_ref_columns.clone();
    let mut builder = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
    if let Some(condition) = condition {
        condition.apply(|inner| {
            if matches!(inner, Expr::OuterReferenceColumn(..)) {
                outer_ref_columns.push(inner.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        builder = builder.filter(condition)?;
    }
    let subquery = Subquery { subquery: Arc::new(builder.build()?), outer_ref_columns, spans: subquery.spans.clone() };
    Ok(Expr::Exists(Exists { subquery, negated: false }))
}

fn not_exists(subquery: &Subquery, condition: Option<Expr>) -> Result<Expr> {
    Ok(match exists(subquery, condition)? {
        Expr::Exists(found) => Expr::Exists(Exists { negated: true, ..found }),
        other => Expr::Not(Box::new(other)),
    })
}

/// One row of those of the condition, if there is one: of a subquery that names no column of the outer query every row is joined with every row.
fn one_row_of(subquery: &Subquery, condition: Option<Expr>) -> Result<Subquery> {
    let mut builder = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
    if let Some(condition) = condition {
        builder = builder.filter(condition)?;
    }
    let plan = builder.limit(0, Some(1))?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns: Vec::new(), spans: subquery.spans.clone() })
}

/// The value as a subquery sees it.
fn outer_reference(value: Expr, schema: &DFSchema) -> Result<Expr> {
    let referenced = value.transform_up(|inner| match inner {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(referenced?.data)
}
