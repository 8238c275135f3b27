//! The name that PostgreSQL gives an output without an alias (its `FigureColname`).

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, Query, SelectItem, SetExpr, TimezoneInfo, TrimWhereField,
};

/// Of an expression that gives no name.
const NO_NAME: &str = "?column?";

/// The casts that are calls here (`vector_in('[1,2]')` for `'[1,2]'::vector`).
const CASTS: [(&str, &str); 6] = [
    ("vector_in", "vector"),
    ("halfvec_in", "halfvec"),
    ("json_in", "json"),
    ("jsonb_in", "jsonb"),
    ("uuid_in", "uuid"),
    ("bytea_in", "bytea"),
];

/// `None` for a subquery whose name only its tables tell: `(SELECT * FROM t)`.
pub fn name_of(expression: &Expr) -> Option<String> {
    match figured(expression) {
        Figured::Unknown => None,
        Figured::Nothing => Some(NO_NAME.to_owned()),
        Figured::Weak(name) | Figured::Strong(name) => Some(name),
    }
}

/// A name as it is looked up.
pub fn folded(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

/// How sure a name is: a cast keeps a strong one, that of a column or a call, and gives its type's otherwise.
enum Figured {
    Unknown,
    Nothing,
    Weak(String),
    Strong(String),
}

fn figured(expression: &Expr) -> Figured {
    let strong = |name: &str| Figured::Strong(name.to_owned());
    match expression {
        Expr::Identifier(name) => Figured::Strong(folded(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map_or(Figured::Nothing, |name| Figured::Strong(folded(name))),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figured(inner),
        Expr::Cast { expr, data_type, .. } => cast(expr, type_name(data_type)),
        Expr::TypedString(typed) => Figured::Weak(type_name(&typed.data_type)),
        Expr::Interval(_) => Figured::Weak("interval".to_owned()),
        Expr::Function(call) => called(&call.name, first_argument(call)),
        Expr::Case { else_result, .. } => match else_result.as_deref().map(figured) {
            Some(Figured::Strong(name)) => Figured::Strong(name),
            _ => Figured::Weak("case".to_owned()),
        },
        Expr::Exists { negated: false, .. } => strong("exists"),
        Expr::Subquery(query) => of_subquery(query),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::CompoundFieldAccess { root, access_chain } => accessed(root, access_chain),
        _ => Figured::Nothing,
    }
}

fn cast(value: &Expr, type_name: String) -> Figured {
    match figured(value) {
        Figured::Strong(name) => Figured::Strong(name),
        _ => Figured::Weak(type_name),
    }
}

fn called(name: &ObjectName, argument: Option<&Expr>) -> Figured {
    let Some(name) = name.0.last().and_then(|part| part.as_ident()).map(folded) else { return Figured::Nothing };
    match (CASTS.iter().find(|(call, _)| *call == name), argument) {
        (Some((_, data_type)), Some(value)) => cast(value, (*data_type).to_owned()),
        _ => Figured::Strong(name),
    }
}

fn first_argument(call: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &call.args else { return None };
    match list.args.first()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    }
}

/// `(SELECT max(x) FROM t)` has the name of its one output.
fn of_subquery(query: &Query) -> Figured {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => {
                return match select.projection.as_slice() {
                    [SelectItem::UnnamedExpr(expression)] => name_of(expression).map_or(Figured::Unknown, Figured::Strong),
                    [SelectItem::ExprWithAlias { alias, .. }] => Figured::Strong(folded(alias)),
                    _ => Figured::Unknown,
                };
            }
            SetExpr::Query(inner) => body = &inner.body,
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Values(_) => return Figured::Strong("column1".to_owned()),
            _ => return Figured::Unknown,
        }
    }
}

/// `(row).field` is the field's, `list[1]` the list's.
fn accessed(root: &Expr, chain: &[AccessExpr]) -> Figured {
    let field = chain.iter().rev().find_map(|access| match access {
        AccessExpr::Dot(Expr::Identifier(name)) => Some(folded(name)),
        _ => None,
    });
    field.map_or_else(|| figured(root), Figured::Strong)
}

/// The name that a type has in PostgreSQL's catalog.
fn type_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::Real | DataType::Float4 | DataType::Float(ExactNumberInfo::Precision(1..=24)) => "float4",
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float(_) => "float8",
        DataType::Boolean | DataType::Bool => "bool",
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "numeric",
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => "varchar",
        DataType::Character(_) | DataType::Char(_) => "bpchar",
        DataType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "timestamptz",
        DataType::Timestamp(..) => "timestamp",
        DataType::Time(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "timetz",
        DataType::Time(..) => "time",
        DataType::Interval { .. } => "interval",
        DataType::Array(inner) => return array_name(inner),
        DataType::Custom(name, _) => return name.0.last().and_then(|part| part.as_ident()).map(folded).unwrap_or_default(),
        other => return other.to_string().to_lowercase(),
    };
    name.to_owned()
}

/// `text[]` is `text` in a name.
fn array_name(inner: &ArrayElemTypeDef) -> String {
    match inner {
        ArrayElemTypeDef::AngleBracket(element) | ArrayElemTypeDef::SquareBracket(element, _) | ArrayElemTypeDef::Parenthesis(element) => {
            type_name(element)
        }
        ArrayElemTypeDef::None => "array".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_postgres() {
        for (expression, name) in [
            ("1", "?column?"),
            ("-1", "?column?"),
            ("a + 1", "?column?"),
            ("a IS NULL", "?column?"),
            ("count(*)", "count"),
            ("COUNT(*) FILTER (WHERE a > 1)", "count"),
            ("pg_catalog.version()", "version"),
            ("row_number() OVER (ORDER BY a)", "row_number"),
            ("(lower(a))", "lower"),
            ("a::text", "a"),
            ("lower(a)::varchar", "lower"),
            ("'x'::text", "text"),
            ("1::bigint", "int8"),
            ("CAST('1' AS double precision)", "float8"),
            ("(1 + 1)::numeric(10, 2)", "numeric"),
            ("'{}'::text[]", "text"),
            ("'[1,2]'::vector", "vector"),
            ("'[1,2]'::vector(2)", "vector"),
            ("'{}'::jsonb", "jsonb"),
            ("j::jsonb", "j"),
            ("DATE '2020-01-01'", "date"),
            ("CASE WHEN a THEN 1 END", "case"),
            ("CASE WHEN a THEN 1 ELSE b END", "b"),
            ("coalesce(a, 1)", "coalesce"),
            ("EXISTS (SELECT 1)", "exists"),
            ("(SELECT max(x) FROM t)", "max"),
            ("(SELECT 1)", "?column?"),
            ("(SELECT 1 AS one)", "one"),
            ("ARRAY[1, 2]", "array"),
            ("list[1]", "list"),
            ("trim(a)", "btrim"),
            ("\"Mixed\"", "Mixed"),
        ] {
            let parsed = rolloutdb_sql::parse_expression(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
            assert_eq!(name_of(&parsed).as_deref(), Some(name), "{expression}");
        }
        let all = rolloutdb_sql::parse_expression("(SELECT * FROM t)").expect("it parses");
        assert_eq!(name_of(&all), None);
    }
}
