//! Which columns of the queries round it a plan names.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

/// The subquery that an expression is.
pub fn is_subquery(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Whether a query within the plan names columns of one round it, or is compared with them by ANY or ALL.
pub fn has_any(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = node.contains_outer_reference();
        node.apply_expressions(|expression| {
            found = found || expression.exists(|inner| Ok(matches!(inner, Expr::SetComparison(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The columns that a plan names of queries round it, each once. Subqueries in its expressions name none of them: they have been unnested, or name
/// columns of the query next to them alone.
pub fn outer_columns(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let columns = plan.all_out_ref_exprs().into_iter().filter_map(|expression| match expression {
        Expr::OuterReferenceColumn(_, column) => Some(column),
        _ => None,
    });
    let mut different: Vec<Column> = Vec::new();
    for column in columns {
        if !different.contains(&column) {
            different.push(column);
        }
    }
    Ok(different)
}

/// Whether a subquery in the expressions of a node names columns of queries round it.
pub fn names_outer_columns(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expression| {
        found = found || expression.exists(|inner| Ok(is_correlated(inner)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether an expression is a subquery that names such columns, or a test of a value that does.
pub fn is_correlated(expression: &Expr) -> bool {
    let names_some = is_subquery(expression).is_some_and(|subquery| !subquery.subquery.all_out_ref_exprs().is_empty());
    names_some
        || match expression {
            Expr::InSubquery(InSubquery { expr, .. }) => expr.contains_outer(),
            // It becomes an EXISTS whose condition names the value.
            Expr::SetComparison(_) => true,
            _ => false,
        }
}

/// The subquery with the list of what it names, as it is now.
pub fn with_own_references(subquery: Subquery) -> Subquery {
    Subquery { outer_ref_columns: subquery.subquery.all_out_ref_exprs(), ..subquery }
}

/// An expression over these columns as a subquery sees it.
pub fn as_outer(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let referenced = expression.transform_up(|inner| match inner {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(referenced?.data)
}
