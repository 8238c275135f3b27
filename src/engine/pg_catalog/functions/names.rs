//! Names and numbers of objects, whether they are visible, and comments on them.

use rolloutdb_catalogs::IndexKind;

use super::cast::{class_number, name_parts, number_of_object};
use super::{Call, Function, Returns};
use crate::engine::pg_catalog::tables;
use crate::engine::pg_catalog::types::{Kind, format_type, type_named};
use crate::engine::pg_catalog::value::Value;
use crate::error::Result;

const BOOL: Returns = Returns::One(Kind::Bool);
const TEXT: Returns = Returns::One(Kind::Text);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("format_type", &[Kind::Oid, Kind::Int4], TEXT, formatted_type).with_null(),
    Function::new("to_regclass", &[Kind::Text], Returns::One(Kind::RegClass), |call| {
        Ok(class_number(&name_parts(call.text(0)), call.context.snapshot).map(Value::oid).unwrap_or(Value::Null))
    }),
    Function::new("to_regtype", &[Kind::Text], Returns::One(Kind::RegType), |call| {
        Ok(type_named(call.text(0)).map_or(Value::Null, |named| Value::oid(named.oid())))
    }),
    Function::new("to_regproc", &[Kind::Text], Returns::One(Kind::RegProc), |call| found(call, Kind::RegProc)),
    Function::new("to_regprocedure", &[Kind::Text], Returns::One(Kind::RegProcedure), |call| found(call, Kind::RegProcedure)),
    Function::new("to_regnamespace", &[Kind::Text], Returns::One(Kind::RegNamespace), |call| found(call, Kind::RegNamespace)),
    Function::new("to_regrole", &[Kind::Text], Returns::One(Kind::RegRole), |call| found(call, Kind::RegRole)),
    Function::new("pg_table_is_visible", &[Kind::Oid], BOOL, |call| {
        let class = call.oid(0).and_then(|oid| call.context.snapshot.class(oid));
        Ok(class.map_or(Value::Null, |class| Value::Bool(call.context.snapshot.is_visible(class))))
    }),
    Function::new("pg_type_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_function_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_operator_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_opclass_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_opfamily_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_collation_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_statistics_obj_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_conversion_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_ts_config_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_ts_dict_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_ts_parser_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_ts_template_is_visible", &[Kind::Oid], BOOL, |_| Ok(Value::Bool(true))),
    Function::new("pg_indexam_has_property", &[Kind::Oid, Kind::Text], BOOL, |call| Ok(method_property(call))),
    Function::new("pg_get_userbyid", &[Kind::Oid], Returns::One(Kind::Name), |call| {
        let oid = call.oid(0).unwrap_or(0);
        let name = call.context.snapshot.role(oid).map_or_else(|| format!("unknown (OID={oid})"), str::to_owned);
        Ok(Value::text(name))
    }),
    Function::new("obj_description", &[Kind::Oid, Kind::Name], TEXT, described).required(1),
    Function::new("shobj_description", &[Kind::Oid, Kind::Name], TEXT, |_| Ok(Value::Null)),
    Function::new("col_description", &[Kind::Oid, Kind::Int4], TEXT, |call| Ok(comment(call, 1259, call.int(1).unwrap_or(0)))),
    Function::new("getdatabaseencoding", &[], Returns::One(Kind::Name), |_| Ok(Value::text("UTF8"))),
    Function::new("oidvectortypes", &[Kind::OidVector], TEXT, |call| {
        let types = call.list(0).iter().filter_map(Value::as_oid).map(|oid| format_type(oid, None).unwrap_or_else(|| "???".to_owned()));
        Ok(Value::text(types.collect::<Vec<_>>().join(", ")))
    }),
    Function::new("pg_encoding_to_char", &[Kind::Int4], Returns::One(Kind::Name), |call| {
        Ok(Value::text(if call.int(0) == Some(UTF8) { "UTF8" } else { "" }))
    }),
    Function::new("pg_char_to_encoding", &[Kind::Name], Returns::One(Kind::Int4), |call| {
        let is_utf8 = matches!(call.text(0).to_ascii_lowercase().as_str(), "utf8" | "utf-8" | "unicode");
        Ok(Value::Int(if is_utf8 { UTF8 } else { -1 }))
    }),
    Function::new("pg_typeof", &[Kind::Any], Returns::One(Kind::RegType), |call| {
        Ok(call.types.first().map_or(Value::Null, |pg_type| Value::oid(pg_type.oid())))
    })
    .with_null(),
    Function::new("pg_describe_object", &[Kind::Oid, Kind::Oid, Kind::Int4], TEXT, |_| Ok(Value::Null)),
];

/// What clients may count on of an access method: constraints over several columns have indexes of the method `btree`. NULL where there is no such
/// method or property.
fn method_property(call: &Call<'_>) -> Value {
    let is_it = |method: &IndexKind| call.oid(0) == Some(tables::access_method(*method));
    let Some(method) = IndexKind::ALL.into_iter().find(is_it) else { return Value::Null };
    match call.text(1) {
        "can_order" | "can_unique" | "can_multi_col" => Value::Bool(method == IndexKind::BTree),
        "can_exclude" | "can_include" => Value::Bool(false),
        _ => Value::Null,
    }
}

/// PostgreSQL's number of the encoding.
const UTF8: i64 = 6;

fn formatted_type(call: &Call<'_>) -> Result<Value> {
    let Some(oid) = call.oid(0) else { return Ok(Value::Null) };
    let modifier = call.int(1).and_then(|modifier| i32::try_from(modifier).ok());
    // Where PostgreSQL was asked for the bare name, `character` is no `bpchar`.
    let modifier = if call.value(1).is_null() { None } else { modifier };
    Ok(Value::text(format_type(oid, modifier).unwrap_or_else(|| "???".to_owned())))
}

/// NULL instead of the error of a cast.
fn found(call: &Call<'_>, kind: Kind) -> Result<Value> {
    Ok(number_of_object(kind, call.text(0), call.context.snapshot).map_or(Value::Null, Value::oid))
}

fn described(call: &Call<'_>) -> Result<Value> {
    let listed_in = match call.value(1).as_str() {
        Some(catalog) => call.context.snapshot.class_named(Some(tables::PG_CATALOG), catalog).unwrap_or(0),
        None => 0,
    };
    Ok(comment(call, listed_in, 0))
}

/// The comment on an object that a catalog table lists; 0: any of them.
fn comment(call: &Call<'_>, listed_in: u32, column: i64) -> Value {
    let Some(oid) = call.oid(0) else { return Value::Null };
    Value::optional_text(call.context.snapshot.comment(oid, column, listed_in))
}
