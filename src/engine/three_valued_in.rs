//! `x IN (SELECT ...)` under NOT, or NOT IN under OR, with SQL's three values; in a SELECT list, in SET and in RETURNING; and in the condition of a JOIN.
//!
//! DataFusion turns such an IN into a mark that is true or false. In SQL it is NULL where nothing is equal and there is a NULL on either side, so that its
//! NOT is not true; with the mark, `DELETE ... WHERE a OR NOT (x IN (SELECT y ...))` removes rows that it must not. Directly among the conjuncts of a WHERE
//! DataFusion is right where there is no NULL (but refuses a NOT IN that names columns of the outer query), and an IN that only passes AND and OR need not
//! tell NULL from false.
//! Where rows are not filtered DataFusion runs no IN at all; what it becomes here, [`super::exists_as_column`] runs.
//!
//! A subquery whose rows may differ from one run to the next, or that calls a model, runs once, and so does such a value for each row: their rows are
//! gathered into a list ([`in_list`]). Others run twice at most, once to join by and once to ask for rows and NULLs.

mod in_list;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{bool_or, count};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, case, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use self::in_list::in_list;
use super::apply::calls_model;
use super::apply::extract::async_function;

#[derive(Debug)]
pub struct ThreeValuedIn;

impl AnalyzerRule for ThreeValuedIn {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Filter(Filter { predicate, input, .. }) if has_in_subquery(&predicate)? => {
                filtered(split_conjunction_owned(predicate), input).map(Transformed::yes)
            }
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner && has_subquery(join.filter.as_ref())? => filter_above(join),
            LogicalPlan::Join(join) if has_subquery(join.filter.as_ref())? => condition_of_outer_join(join),
            node @ (LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_)) if has_in(&node)? => in_expressions(node),
            other => Ok(Transformed::no(other)),
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "three_valued_in"
    }
}

/// The rows of the input for which all conjuncts are true.
fn filtered(conjuncts: Vec<Expr>, input: Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let conjuncts = conjuncts.into_iter().map(|conjunct| conjunct_of_filter(conjunct, input.schema()));
    let predicate = conjunction(conjuncts.collect::<Result<Vec<_>>>()?).unwrap_or_else(|| lit(true));
    Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?))
}

/// An inner join with its conditions on subqueries in a filter above it, where DataFusion runs all of them.
fn filter_above(join: Join) -> Result<Transformed<LogicalPlan>> {
    let (mut above, mut kept) = (Vec::new(), Vec::new());
    for conjunct in join.filter.clone().map(split_conjunction_owned).unwrap_or_default() {
        let conditions = if has_subquery(Some(&conjunct))? { &mut above } else { &mut kept };
        conditions.push(conjunct);
    }
    let join = LogicalPlan::Join(Join { filter: conjunction(kept), ..join });
    filtered(above, Arc::new(join)).map(Transformed::yes)
}

/// Rows that find no partner stay, so that no filter can stand above; the condition takes lists and values, which are no joins.
fn condition_of_outer_join(join: Join) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&[join.left.as_ref(), join.right.as_ref()]);
    let conjuncts = join.filter.clone().map(split_conjunction_owned).unwrap_or_default().into_iter().map(|conjunct| match conjunct {
        // DataFusion moves it to the side that it is about, or refuses it.
        Expr::InSubquery(positive) if !positive.negated && !positive.subquery.outer_ref_columns.is_empty() => {
            Ok(Expr::InSubquery(positive))
        }
        other => in_outer_join(other, &schema),
    });
    let filter = conjunction(conjuncts.collect::<Result<Vec<_>>>()?);
    Ok(Transformed::yes(LogicalPlan::Join(Join { filter, ..join })))
}

fn in_outer_join(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewritten = condition.transform_up(|inner| match inner {
        Expr::InSubquery(in_subquery) if !in_subquery.subquery.outer_ref_columns.is_empty() => {
            three_valued(in_subquery, schema).map(Transformed::yes)
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let is_in = match is_constant(&expr)? {
                true => constant_in(&expr, &subquery)?,
                false => in_list(*expr, &subquery, schema)?,
            };
            Ok(Transformed::yes(if negated { Expr::Not(Box::new(is_in)) } else { is_in }))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(rewritten?.data)
}

/// An IN, an EXISTS, or a comparison with ANY or ALL.
fn has_subquery(expression: Option<&Expr>) -> Result<bool> {
    let is_one = |inner: &Expr| Ok(matches!(inner, Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)));
    expression.map_or(Ok(false), |expression| expression.exists(is_one))
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

/// `NOT EXISTS (equal) AND CASE (state) WHEN 0 THEN true WHEN 1 THEN x IS NOT NULL ELSE false END`, in which a NULL counts as false.
///
/// DataFusion looks for NULLs while it joins by `x`. That misses them where `x` has no column to join by, as in `5 NOT IN (...)`, and where a condition
/// beside it is taken for one of the subquery too, as in `x = 5 AND x NOT IN (...)`.
fn not_in(in_subquery: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let InSubquery { expr: value, subquery, .. } = &in_subquery;
    let (relation, field) = subquery.subquery.schema().qualified_field(0);
    if !value.nullable(schema)? && !field.is_nullable() {
        return Ok(Expr::InSubquery(in_subquery));
    }
    if is_constant(value)? {
        return Ok(Expr::Not(Box::new(constant_in(value, subquery)?)));
    }
    if runs_once(value, subquery)? {
        return Ok(Expr::Not(Box::new(in_list(value.as_ref().clone(), subquery, schema)?)));
    }
    let is_equal = Expr::Column(Column::from((relation, field))).eq(outer_reference(value.as_ref().clone(), schema)?);
    let is_absent = case(state(subquery)?)
        .when(lit(NO_ROW), lit(true))
        .when(lit(NO_NULL), value.as_ref().clone().is_not_null())
        .otherwise(lit(false))?;
    Ok(not_exists(subquery, Some(is_equal))?.and(is_absent))
}

/// Whether another run could give other rows or another value, or calls a model again; or the value is one that no join can be made by.
fn runs_once(value: &Expr, subquery: &Subquery) -> Result<bool> {
    let is_of_row = value.is_volatile() || value.contains_outer() || has_call(value)?;
    Ok(is_of_row || calls_model(&subquery.subquery)? || varies(&subquery.subquery)?)
}

/// Whether two runs of a plan may differ by more than the order of their rows: some rows of many are taken, or something is drawn.
pub fn varies(plan: &LogicalPlan) -> Result<bool> {
    let mut varies = false;
    plan.apply_with_subqueries(|node| {
        varies = matches!(
            node,
            LogicalPlan::Limit(_) | LogicalPlan::Distinct(Distinct::On(_)) | LogicalPlan::Window(_) | LogicalPlan::Extension(_)
        );
        node.apply_expressions(|expression| {
            varies = varies || expression.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if varies { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(varies)
}

/// The same for all rows.
fn is_constant(value: &Expr) -> Result<bool> {
    Ok(value.column_refs().is_empty() && !value.contains_outer() && !value.is_volatile() && !has_call(value)?)
}

fn has_call(value: &Expr) -> Result<bool> {
    value.exists(|inner| Ok(async_function(inner).is_some()))
}

/// `(SELECT CASE WHEN bool_or(y = x) THEN true WHEN count(*) > count(y = x) THEN NULL ELSE false END FROM (subquery))` of an x that has no column.
fn constant_in(value: &Expr, subquery: &Subquery) -> Result<Expr> {
    let is_equal = Expr::Column(Column::from(subquery.subquery.schema().qualified_field(0))).eq(value.clone());
    let counts = [bool_or(is_equal.clone()).alias("is_found"), count(lit(1_i64)).alias("num_rows"), count(is_equal).alias("num_known")];
    let is_in = when(column("is_found"), lit(true))
        .when(column("num_rows").gt(column("num_known")), lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))?;
    aggregated(subquery, counts, is_in)
}

/// The state of a subquery: see [`state`].
const NO_ROW: i64 = 0;
/// Some rows.
const NO_NULL: i64 = 1;
/// Some rows, of which one is NULL or more.
const SOME_NULL: i64 = 2;

/// `(SELECT CASE WHEN count(*) = 0 THEN 0 WHEN count(*) = count(y) THEN 1 ELSE 2 END FROM (subquery))`
fn state(subquery: &Subquery) -> Result<Expr> {
    let element = Expr::Column(Column::from(subquery.subquery.schema().qualified_field(0)));
    let counts = [count(lit(1_i64)).alias("num_rows"), count(element).alias("num_known")];
    let state = when(column("num_rows").eq(lit(0_i64)), lit(NO_ROW))
        .when(column("num_rows").eq(column("num_known")), lit(NO_NULL))
        .otherwise(lit(SOME_NULL))?;
    aggregated(subquery, counts, state)
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// `(SELECT value FROM (SELECT aggregates FROM (subquery)))` of a subquery that names no column of the outer query.
fn aggregated(subquery: &Subquery, aggregates: impl IntoIterator<Item = Expr>, value: Expr) -> Result<Expr> {
    let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
    let plan = rows.aggregate(Vec::<Expr>::new(), aggregates)?.project(vec![value.alias("value")])?.build()?;
    Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), outer_ref_columns: Vec::new(), spans: subquery.spans.clone() }))
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

fn three_valued(in_subquery: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let InSubquery { expr: value, subquery, negated } = in_subquery;
    let is_in = if is_one_row(&subquery.subquery) {
        (*value).eq(Expr::ScalarSubquery(subquery))
    } else if !subquery.outer_ref_columns.is_empty() {
        correlated(*value, &subquery, schema)?
    } else if is_constant(&value)? {
        constant_in(&value, &subquery)?
    } else if runs_once(&value, &subquery)? {
        in_list(*value, &subquery, schema)?
    } else {
        marked(*value, &subquery, schema)?
    };
    Ok(if negated { Expr::Not(Box::new(is_in)) } else { is_in })
}

/// `CASE WHEN EXISTS (equal) THEN true ELSE CASE (state) WHEN 0 THEN false WHEN 1 THEN CASE WHEN x IS NOT NULL THEN false END ELSE NULL END END`
fn marked(value: Expr, subquery: &Subquery, schema: &DFSchema) -> Result<Expr> {
    let (relation, field) = subquery.subquery.schema().qualified_field(0);
    let is_equal = Expr::Column(Column::from((relation, field))).eq(outer_reference(value.clone(), schema)?);
    let mut is_in = when(exists(subquery, Some(is_equal))?, lit(true));
    if !value.nullable(schema)? && !field.is_nullable() {
        return is_in.otherwise(lit(false));
    }
    let null = lit(ScalarValue::Boolean(None));
    let of_known = when(value.is_not_null(), lit(false)).otherwise(null.clone())?;
    let absent = case(state(subquery)?).when(lit(NO_ROW), lit(false)).when(lit(NO_NULL), of_known).otherwise(null)?;
    is_in.otherwise(absent)
}

/// `CASE WHEN EXISTS (equal) THEN true WHEN x IS NULL AND EXISTS (any) THEN NULL WHEN EXISTS (NULL) THEN NULL ELSE false END`
fn correlated(value: Expr, subquery: &Subquery, schema: &DFSchema) -> Result<Expr> {
    let (relation, field) = subquery.subquery.schema().qualified_field(0);
    let has_nulls = field.is_nullable();
    let element = Expr::Column(Column::from((relation, field)));
    let value_may_be_null = value.nullable(schema)?;
    let is_equal = element.clone().eq(outer_reference(value.clone(), schema)?);
    let null = lit(ScalarValue::Boolean(None));
    let mut case = when(exists(subquery, Some(is_equal))?, lit(true));
    if value_may_be_null {
        case = case.when(value.is_null().and(exists(subquery, None)?), null.clone());
    }
    if has_nulls {
        case = case.when(exists(subquery, Some(element.is_null()))?, null);
    }
    case.otherwise(lit(false))
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
