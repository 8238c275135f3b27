//! Types of `$1 ...` that follow from where they stand, as clients are told them: they send values in the binary form of what they are told.
//!
//! DataFusion finds those beside an operator while it reads the text. The rest are found here: under a cast, in LIMIT, and as arguments of functions
//! whose other arguments have a type.

mod calls;
mod texts;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, InList, Like, Placeholder, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use rolloutdb_udfs::TextType;
use rolloutdb_udfs::vector::{DIMENSIONS_MAX, any_halfvec_field, any_vector_field, halfvec_type, is_any_vector, vector_type};

use crate::error::{Error, Result};

pub use calls::{check_sums, is_preferred};
pub use texts::{is_text_or_list, read as read_texts};

/// Parameters of one statement, as the protocol counts them.
pub const PARAMETERS_MAX: usize = 65_535;

/// The plan with the types that are found.
pub fn typed(plan: LogicalPlan) -> Result<LogicalPlan> {
    let typed = plan.transform_up_with_subqueries(|node| {
        if !node.expressions().iter().any(|expression| expression.exists(|inner| Ok(is_untyped(inner))).unwrap_or(true)) {
            return Ok(Transformed::no(node));
        }
        let (is_limit, schema) = (matches!(node, LogicalPlan::Limit(_)), merge_schema(&node.inputs()));
        node.map_expressions(|expression| {
            expression.transform_up(|mut inner| {
                let is_changed = if is_limit { set(&mut inner, &unnamed(DataType::Int64)) } else { infer(&mut inner, &schema) };
                Ok(if is_changed { Transformed::yes(inner) } else { Transformed::no(inner) })
            })
        })
    })?;
    if typed.transformed { with_types_of_calls(with_one_width(typed.data)?) } else { Ok(typed.data) }
}

/// What is computed of parameters has the types that follow from theirs, as `abs($1)` has.
fn with_types_of_calls(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(|node| Ok(Transformed::yes(node.recompute_schema()?)))?.data)
}

/// A parameter that is a vector of any width in one place, and of a known one in another, has this one in both: a value has one type.
fn with_one_width(plan: LogicalPlan) -> Result<LogicalPlan> {
    let (mut known, mut is_open) = (BTreeMap::new(), false);
    each_placeholder(&plan, |placeholder| {
        let Some(field) = &placeholder.field else { return };
        match field.data_type() {
            DataType::FixedSizeList(..) => {
                known.entry(placeholder.id.clone()).or_insert_with(|| Arc::clone(field));
            }
            _ => is_open |= is_any_vector(field),
        }
    })?;
    if !is_open || known.is_empty() {
        return Ok(plan);
    }
    let widened = plan.transform_up_with_subqueries(|node| {
        let node = node.map_expressions(|expression| {
            expression.transform_up(|mut inner| match &mut inner {
                Expr::Placeholder(Placeholder { id, field: Some(field) }) if is_any_vector(field) && known.contains_key(id.as_str()) => {
                    *field = Arc::clone(&known[id.as_str()]);
                    Ok(Transformed::yes(inner))
                }
                _ => Ok(Transformed::no(inner)),
            })
        })?;
        // What is computed from it has another type too.
        Ok(Transformed::yes(node.data.recompute_schema()?))
    })?;
    Ok(widened.data)
}

fn each_placeholder(plan: &LogicalPlan, mut visit: impl FnMut(&Placeholder)) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                if let Expr::Placeholder(placeholder) = inner {
                    visit(placeholder);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The plan with types of parameters that a client has said, in their order, which decide the types of columns too.
pub fn declared(plan: LogicalPlan, types: &[Option<FieldRef>]) -> Result<LogicalPlan> {
    if types.iter().all(Option::is_none) {
        return Ok(plan);
    }
    let declared = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expression| {
            expression.transform_up(|mut inner| {
                let Expr::Placeholder(placeholder) = &mut inner else { return Ok(Transformed::no(inner)) };
                let Some(Some(field)) = position(placeholder).and_then(|position| types.get(position)) else {
                    return Ok(Transformed::no(inner));
                };
                placeholder.field = Some(Arc::clone(field));
                Ok(Transformed::yes(inner))
            })
        })
    })?;
    if !declared.transformed {
        return Ok(declared.data);
    }
    Ok(declared.data.transform_up_with_subqueries(|node| Ok(Transformed::yes(node.recompute_schema()?)))?.data)
}

/// The types of a plan's parameters in their order; `None` where it follows from nothing.
///
/// # Errors
/// [`Error::UnknownObject`] for a number that the protocol has not.
pub fn of(plan: &LogicalPlan) -> Result<Vec<Option<FieldRef>>> {
    let mut found: BTreeMap<usize, Option<FieldRef>> = BTreeMap::new();
    let mut unknown = None;
    each_placeholder(plan, |placeholder| match position(placeholder) {
        // A parameter has the type of the first place that gives it one.
        Some(position) => {
            let known = found.entry(position).or_default();
            *known = known.take().or_else(|| placeholder.field.clone());
        }
        None => unknown = Some(placeholder.id.clone()),
    })?;
    if let Some(name) = unknown {
        return Err(Error::UnknownObject { kind: "parameter", name, known: vec!["$1".to_owned(), format!("${PARAMETERS_MAX}")] });
    }
    let count = found.keys().next_back().map_or(0, |last| last + 1);
    Ok((0..count).map(|position| found.remove(&position).flatten()).collect())
}

/// From 0; `None` for a number that there is not.
fn position(placeholder: &Placeholder) -> Option<usize> {
    let number: usize = placeholder.id.strip_prefix('$')?.parse().ok()?;
    (1..=PARAMETERS_MAX).contains(&number).then(|| number - 1)
}

fn is_untyped(expression: &Expr) -> bool {
    matches!(expression, Expr::Placeholder(Placeholder { field: None, .. }))
}

/// Gives types to the parameters that are operands of an expression; whether there was one.
fn infer(expression: &mut Expr, schema: &DFSchema) -> bool {
    match expression {
        Expr::Cast(cast) => set(&mut cast.expr, &cast.field),
        Expr::Not(operand) => set(operand, &unnamed(DataType::Boolean)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            let boolean = unnamed(DataType::Boolean);
            // Both are looked at.
            set(left, &boolean) | set(right, &boolean)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => share_width(left, right, schema),
        Expr::InList(InList { expr, list, .. }) => share(std::iter::once(expr.as_mut()).chain(list), schema),
        Expr::Between(Between { expr, low, high, .. }) => share([expr.as_mut(), low.as_mut(), high.as_mut()].into_iter(), schema),
        Expr::Like(Like { expr, pattern, .. }) => {
            let text = unnamed(DataType::Utf8);
            set(expr, &text) | set(pattern, &text)
        }
        Expr::Case(case) => infer_case(case, schema),
        Expr::ScalarFunction(function) => infer_arguments(function, schema),
        _ => false,
    }
}

fn infer_case(case: &mut Case, schema: &DFSchema) -> bool {
    let Case { expr, when_then_expr, else_expr } = case;
    let mut conditions = Vec::with_capacity(when_then_expr.len());
    let mut values = Vec::with_capacity(when_then_expr.len() + 1);
    for (when, then) in when_then_expr {
        conditions.push(when.as_mut());
        values.push(then.as_mut());
    }
    values.extend(else_expr.as_deref_mut());
    let are_conditions = match expr {
        Some(expr) => share(std::iter::once(expr.as_mut()).chain(conditions), schema),
        None => conditions.into_iter().fold(false, |changed, condition| set(condition, &unnamed(DataType::Boolean)) | changed),
    };
    share(values.into_iter(), schema) | are_conditions
}

fn infer_arguments(ScalarFunction { func, args }: &mut ScalarFunction, schema: &DFSchema) -> bool {
    let integers = match func.name() {
        // What casts to types of ours are.
        "uuid_in" | "json_in" | "jsonb_in" | "vector_in" | "halfvec_in" => {
            let field = read_as(func.name(), args.get(1));
            let (Some(value), Some(field)) = (args.first_mut(), field) else { return false };
            return set(value, &field);
        }
        "coalesce" | "greatest" | "least" | "nullif" | "nvl" | "array_has_all" | "array_has_any" => return share(args.iter_mut(), schema),
        "l2_distance" | "cosine_distance" | "inner_product" | "negative_inner_product" | "l1_distance" => {
            let [left, right] = args.as_mut_slice() else { return false };
            return share_width(left, right, schema);
        }
        "array_has" | "array_append" | "array_position" | "array_positions" | "array_remove" => {
            let [array, item, ..] = args.as_mut_slice() else { return false };
            return infer_item(array, item, schema);
        }
        "array_prepend" => {
            let [item, array] = args.as_mut_slice() else { return false };
            return infer_item(array, item, schema);
        }
        "substr" | "substring" => 1..3,
        "left" | "right" | "repeat" | "lpad" | "rpad" => 1..2,
        "split_part" => 2..3,
        name => return calls::infer(name, args, schema),
    };
    let number = unnamed(DataType::Int64);
    let arguments = args.iter_mut().enumerate().filter(|(position, _)| integers.contains(position));
    arguments.fold(false, |changed, (_, argument)| set(argument, &number) | changed)
}

/// What a function reads that a cast to a type of ours is; `width` is its second argument, without which it reads vectors of any width.
fn read_as(function: &str, width: Option<&Expr>) -> Option<FieldRef> {
    let text_type = match function {
        "uuid_in" => TextType::Uuid,
        "json_in" => TextType::Json,
        "jsonb_in" => TextType::Jsonb,
        _ if width.is_none() => {
            return Some(Arc::new(if function == "halfvec_in" { any_halfvec_field("") } else { any_vector_field("") }));
        }
        _ => {
            let Some(Expr::Literal(ScalarValue::Int64(Some(width)), _)) = width else { return None };
            let width = usize::try_from(*width).ok().filter(|width| (1..=DIMENSIONS_MAX).contains(width))?;
            return Some(unnamed(if function == "halfvec_in" { halfvec_type(width) } else { vector_type(width) }));
        }
    };
    Some(Arc::new(text_type.field("", true)))
}

/// `v <-> $1::vector`: the parameter has the width of what it stands beside, so that a search takes it for one of the column's vectors.
fn share_width(left: &mut Expr, right: &mut Expr, schema: &DFSchema) -> bool {
    let width = |side: &Expr| match side.get_type(schema) {
        Ok(DataType::FixedSizeList(item, width)) if item.data_type().is_floating() => usize::try_from(width).ok(),
        _ => None,
    };
    match (width(left), width(right)) {
        (Some(width), None) => give_width(right, width),
        (None, Some(width)) => give_width(left, width),
        _ => false,
    }
}

fn give_width(side: &mut Expr, width: usize) -> bool {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = side else { return false };
    let data_type = match func.name() {
        "vector_in" => vector_type(width),
        "halfvec_in" => halfvec_type(width),
        _ => return false,
    };
    let [Expr::Placeholder(placeholder)] = args.as_slice() else { return false };
    *side = Expr::Placeholder(Placeholder::new_with_field(placeholder.id.clone(), Some(unnamed(data_type))));
    true
}

/// An array and one of its items, as in `item = ANY(array)`: the type of one is that of the other.
fn infer_item(array: &mut Expr, item: &mut Expr, schema: &DFSchema) -> bool {
    if is_untyped(item) && is_untyped(array) {
        let texts = unnamed(DataType::new_list(DataType::Utf8, true));
        return set(array, &texts) | set(item, &unnamed(DataType::Utf8));
    }
    if is_untyped(item) {
        let found = known_field(array, schema);
        let of_items = found.as_ref().and_then(|field| match (TextType::of_items(field), field.data_type()) {
            (Some(text_type), _) => Some(Arc::new(text_type.field("", true))),
            (None, DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) => Some(Arc::clone(item)),
            _ => None,
        });
        return of_items.is_some_and(|field| set(item, &field));
    }
    if !is_untyped(array) {
        return false;
    }
    let of_arrays = known_field(item, schema).map(|field| match TextType::of(&field) {
        Some(text_type) => Arc::new(text_type.array_field("", true)),
        None => unnamed(DataType::new_list(field.data_type().clone(), true)),
    });
    of_arrays.is_some_and(|field| set(array, &field))
}

/// Operands that have one type: that of the first that has one.
fn share<'a>(operands: impl Iterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let operands: Vec<&mut Expr> = operands.collect();
    let Some(field) = operands.iter().find_map(|operand| known_field(operand, schema)) else { return false };
    operands.into_iter().fold(false, |changed, operand| set(operand, &field) | changed)
}

/// What is known of an expression that has a type.
fn known_field(expression: &Expr, schema: &DFSchema) -> Option<FieldRef> {
    if is_untyped(expression) {
        return None;
    }
    let (_, field) = expression.to_field(schema).ok()?;
    (!field.data_type().is_null()).then_some(field)
}

/// Gives a parameter its type; whether the expression is one that has none.
fn set(expression: &mut Expr, field: &FieldRef) -> bool {
    match expression {
        Expr::Placeholder(Placeholder { field: known @ None, .. }) => {
            *known = Some(Arc::new(field.as_ref().clone().with_name("").with_nullable(true)));
            true
        }
        _ => false,
    }
}

fn unnamed(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("", data_type, true))
}

#[cfg(test)]
mod tests {
    use crate::{Database, Result};

    /// The types of a statement's parameters, in SQL's words; `?` where it is not known.
    async fn types(session: &crate::Session, sql: &str) -> Result<Vec<String>> {
        let statement = session.parse(sql)?.remove(0);
        let parameters = session.describe(&statement).await?.parameters;
        let name = |field: Option<arrow::datatypes::FieldRef>| {
            field.map_or_else(|| "?".to_owned(), |field| super::super::typing::sql_type_of(&field))
        };
        Ok(parameters.into_iter().map(name).collect())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn types_follow_from_where_parameters_stand() -> Result<()> {
        let data = tempfile::tempdir().expect("a temporary directory");
        let session = Database::open(data.path()).await?.session();
        let table = "CREATE TABLE t (id bigint PRIMARY KEY, u uuid, j jsonb, i int, w text, b boolean, v vector(3), tags text[])";
        session.sql(table).await?;
        for (sql, expected) in [
            ("SELECT $1::int, $2", "integer, ?"),
            ("SELECT $1::uuid, CAST($2 AS jsonb), $3::json", "uuid, jsonb, json"),
            ("SELECT $1::vector(3), $2::halfvec(2)", "vector(3), halfvec(2)"),
            ("SELECT id FROM t LIMIT $1 OFFSET $2", "bigint, bigint"),
            ("SELECT id FROM t WHERE id = $1 OR $1 IS NULL", "bigint"),
            ("SELECT id FROM t WHERE u = $1", "uuid"),
            ("SELECT id FROM t WHERE id = ANY($1)", "bigint[]"),
            ("SELECT id FROM t WHERE u = ANY($1)", "uuid[]"),
            ("SELECT id FROM t WHERE $1 = ANY(tags)", "text"),
            ("SELECT id FROM t WHERE id IN ($1, $2)", "bigint, bigint"),
            ("SELECT id FROM t WHERE i BETWEEN $1 AND $2", "integer, integer"),
            ("SELECT coalesce($1, w), coalesce(i, $2), greatest($3, id) FROM t", "text, integer, bigint"),
            ("SELECT CASE WHEN $1 THEN $2 ELSE i END FROM t", "boolean, integer"),
            ("SELECT NOT $1, $2 AND b FROM t", "boolean, boolean"),
            ("SELECT abs($1), round($2, 2), power($3, 2), mod($4, i) FROM t", "double precision, numeric, double precision, integer"),
            ("SELECT recall_at_k($1, $2, 20), exact_match(w, $3), array_length($4, 1) FROM t", "text[], text[], text, text[]"),
            ("SELECT n FROM generate_series(1, $1) AS s (n)", "bigint"),
            ("SELECT substr(w, $1, $2) FROM t", "bigint, bigint"),
            ("SELECT w LIKE $1 FROM t", "text"),
            ("SELECT id FROM t ORDER BY v <-> $1 LIMIT 3", "vector(3)"),
            ("SELECT id FROM t ORDER BY v <-> $1::vector LIMIT 3", "vector(3)"),
            ("SELECT id FROM t ORDER BY l2_distance($1::halfvec, v) LIMIT 3", "halfvec(3)"),
            ("SELECT id FROM t WHERE v = $1::vector", "vector"),
            ("SELECT $1::vector, CAST($2 AS halfvec)", "vector, halfvec"),
            ("SELECT $1::vector FROM t ORDER BY v <-> $1::vector", "vector"),
            ("INSERT INTO t (id, v) VALUES ($1, $2::vector)", "bigint, vector(3)"),
            ("UPDATE t SET v = $1::vector", "vector(3)"),
            ("INSERT INTO t (id, u, j, v, tags) VALUES ($1, $2, $3, $4, $5)", "bigint, uuid, jsonb, vector(3), text[]"),
            ("UPDATE t SET u = $1, v = $2 WHERE id = $3", "uuid, vector(3), bigint"),
        ] {
            assert_eq!(types(&session, sql).await?.join(", "), expected, "{sql}");
        }
        assert!(types(&session, "SELECT $70000::int").await.is_err());
        Ok(())
    }
}
