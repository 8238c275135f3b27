//! Rows beside the rows of a subquery: `(a, b) IN (SELECT c, d ..)`, `(a, b) = (SELECT c, d ..)`.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, Query, SelectItem, SetExpr, TableAliasColumnDef, TableFactor, Value,
};

use super::{all, binary, by_columns, columns, negated_if};

/// The relation that the rows of the subquery become.
const ROWS: &str = "__rows";

/// `(a, b) IN (SELECT ..)` and its negation as a value, which may be NULL.
pub fn in_subquery(row: &[Expr], subquery: &Query, is_negated: bool) -> Option<Expr> {
    let when = |condition: Expr, result: Value| CaseWhen { condition, result: Expr::value(result) };
    Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![
            when(exists(row, subquery, is_equal)?, Value::Boolean(!is_negated)),
            when(exists(row, subquery, may_be_equal)?, Value::Null),
        ],
        else_result: Some(Box::new(Expr::value(Value::Boolean(is_negated)))),
    })
}

/// The same in the conditions of WHERE that all have to hold: where NULL is as good as false, one look at the rows tells.
pub fn as_conditions(condition: &mut Expr) {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            as_conditions(left);
            as_conditions(right);
        }
        Expr::Nested(inner) => as_conditions(inner),
        Expr::InSubquery { expr, subquery, negated } => {
            let Some(row) = columns(expr) else { return };
            let compare = if *negated { may_be_equal } else { is_equal };
            if let Some(exists) = exists(&row, subquery, compare) {
                *condition = negated_if(*negated, exists);
            }
        }
        _ => {}
    }
}

/// `(a, b) = (SELECT ..)`: NULL if there is no row.
pub fn with_row_of(row: &[Expr], op: &BinaryOperator, subquery: &Query) -> Option<Expr> {
    let compared = by_columns(row, op, &names(row.len()))?;
    Some(Expr::Subquery(Box::new(over(subquery, row.len(), compared, None)?)))
}

fn exists(row: &[Expr], subquery: &Query, compare: fn(&Expr, &Expr) -> Expr) -> Option<Expr> {
    let condition = all(row.iter().zip(names(row.len())).map(|(left, right)| compare(&right, left)));
    let subquery = over(subquery, row.len(), Expr::value(Value::Number("1".to_owned(), false)), Some(condition))?;
    Some(Expr::Exists { subquery: Box::new(subquery), negated: false })
}

fn is_equal(left: &Expr, right: &Expr) -> Expr {
    binary(left, BinaryOperator::Eq, right)
}

fn may_be_equal(left: &Expr, right: &Expr) -> Expr {
    Expr::IsNotFalse(Box::new(Expr::Nested(Box::new(is_equal(left, right)))))
}

fn column(position: usize) -> Ident {
    Ident::new(format!("c{position}"))
}

fn names(count: usize) -> Vec<Expr> {
    (0..count).map(|position| Expr::CompoundIdentifier(vec![Ident::new(ROWS), column(position)])).collect()
}

/// `SELECT item FROM (subquery) AS __rows (c0, c1) WHERE condition`
fn over(subquery: &Query, width: usize, item: Expr, condition: Option<Expr>) -> Option<Query> {
    let text = format!("SELECT 1 FROM (SELECT 1) AS {ROWS}");
    let Some(rolloutdb_sql::Statement::Query(mut query)) = rolloutdb_sql::parse(&text).ok()?.pop() else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let TableFactor::Derived { subquery: rows, alias: Some(alias), .. } = &mut select.from[0].relation else { return None };
    **rows = subquery.clone();
    alias.columns = (0..width).map(|position| TableAliasColumnDef { name: column(position), data_type: None }).collect();
    select.projection = vec![SelectItem::UnnamedExpr(item)];
    select.selection = condition;
    Some(*query)
}
