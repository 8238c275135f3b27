//! Definitions of objects as SQL: what `pg_get_indexdef` and its like give.

use rolloutdb_catalogs::Metric;
use rolloutdb_udfs::quoting::identifier;

use super::cast::known_class;
use super::texts::RESERVED;
use super::{Call, Function, Returns};
use crate::engine::pg_catalog::procedures::Procedure;
use crate::engine::pg_catalog::snapshot::{Class, Constraint, Index, Relation, RelationKind};
use crate::engine::pg_catalog::tables::operator_class_name;
use crate::engine::pg_catalog::types::{Kind, PgType, type_of_oid};
use crate::engine::pg_catalog::value::Value;
use crate::error::{Error, Result, Unresolved};

const TEXT: Returns = Returns::One(Kind::Text);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("pg_get_indexdef", &[Kind::Oid], TEXT, |call| index_text(call, 0)),
    Function::new("pg_get_indexdef", &[Kind::Oid, Kind::Int4, Kind::Bool], TEXT, |call| index_text(call, call.int(1).unwrap_or(0))),
    Function::new("pg_get_constraintdef", &[Kind::Oid, Kind::Bool], TEXT, constraint_text).required(1),
    Function::new("pg_get_viewdef", &[Kind::RegClass, Kind::Any], TEXT, view_text).required(1),
    // Expressions are kept as their texts.
    Function::new("pg_get_expr", &[Kind::NodeTree, Kind::Oid, Kind::Bool], TEXT, |call| Ok(call.value(0).clone())).required(2),
    Function::new("pg_get_functiondef", &[Kind::Oid], TEXT, function_text),
    Function::new("pg_get_function_arguments", &[Kind::Oid], TEXT, |call| Ok(of_procedure(call, arguments_text))),
    Function::new("pg_get_function_identity_arguments", &[Kind::Oid], TEXT, |call| Ok(of_procedure(call, arguments_text))),
    Function::new("pg_get_function_result", &[Kind::Oid], TEXT, |call| Ok(of_procedure(call, result_text))),
    Function::new("pg_get_function_sqlbody", &[Kind::Oid], TEXT, |_| Ok(Value::Null)),
    Function::new("pg_get_function_arg_default", &[Kind::Oid, Kind::Int4], TEXT, |_| Ok(Value::Null)),
    Function::new("pg_get_triggerdef", &[Kind::Oid, Kind::Bool], TEXT, |_| Ok(Value::Null)).required(1),
    Function::new("pg_get_ruledef", &[Kind::Oid, Kind::Bool], TEXT, |_| Ok(Value::Null)).required(1),
    Function::new("pg_get_partkeydef", &[Kind::Oid], TEXT, |_| Ok(Value::Null)),
    Function::new("pg_get_partition_constraintdef", &[Kind::Oid], TEXT, |_| Ok(Value::Null)),
    Function::new("pg_get_statisticsobjdef", &[Kind::Oid], TEXT, |_| Ok(Value::Null)),
    Function::new("pg_get_statisticsobjdef_columns", &[Kind::Oid], TEXT, |_| Ok(Value::Null)),
    Function::new("pg_get_serial_sequence", &[Kind::Text, Kind::Text], TEXT, sequence_name),
    Function::new(
        "pg_get_keywords",
        &[],
        Returns::Record(&[("word", Kind::Text), ("catcode", Kind::Char), ("catdesc", Kind::Text)]),
        |_| {
            let keyword = |word: &&str| Value::Record([Value::text(word), Value::text("R"), Value::text("reserved")].into());
            Ok(Value::list(RESERVED.iter().map(keyword)))
        },
    )
    .set(),
];

/// `CREATE INDEX i ON s.t USING hnsw (v vector_cosine_ops) WITH (m='16')`
pub fn index_definition(relation: &Relation, index: &Index) -> String {
    let definition = &index.definition;
    let class = index_class(relation, index).map(|class| format!(" {class}")).unwrap_or_default();
    let options: Vec<String> = definition.options.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    let options = if options.is_empty() { String::new() } else { format!(" WITH ({})", options.join(", ")) };
    if let Some(key) = &definition.unbuilt {
        return format!(
            "CREATE INDEX {} ON {}.{} USING {} ({key}){options}",
            identifier(&definition.name),
            identifier(&relation.schema),
            identifier(&relation.name),
            definition.kind.name(),
        );
    }
    format!(
        "CREATE INDEX {} ON {}.{} USING {} ({}{class}){options}",
        identifier(&definition.name),
        identifier(&relation.schema),
        identifier(&relation.name),
        definition.kind.name(),
        identifier(&definition.column),
    )
}

/// The operator class of an index over vectors.
fn index_class(relation: &Relation, index: &Index) -> Option<String> {
    let position = usize::try_from(index.column - 1).ok()?;
    let column = relation.columns.get(position).and_then(|column| column.pg_type.kind());
    let metric = index.definition.metric.unwrap_or(Metric::Cosine);
    index.definition.kind.is_vector().then(|| operator_class_name(metric, column))
}

/// What a client takes for the index of a constraint.
pub fn unique_index_definition(relation: &Relation, constraint: &Constraint) -> String {
    let (name, schema, table) = (identifier(&constraint.name), identifier(&relation.schema), identifier(&relation.name));
    format!("CREATE UNIQUE INDEX {name} ON {schema}.{table} USING btree ({})", column_list(relation, constraint))
}

fn column_list(relation: &Relation, constraint: &Constraint) -> String {
    let position = |number: &i64| usize::try_from(number - 1).ok();
    let columns = constraint.columns.iter().filter_map(|number| relation.columns.get(position(number)?));
    columns.map(|column| identifier(&column.name)).collect::<Vec<_>>().join(", ")
}

/// The whole index, or the name of one of its columns, from 1.
fn index_text(call: &Call<'_>, column: i64) -> Result<Value> {
    let class = call.oid(0).and_then(|oid| call.context.snapshot.class(oid));
    let name_of = |relation: &Relation, number: i64| {
        let position = usize::try_from(number - 1).ok();
        position.and_then(|position| relation.columns.get(position)).map(|column| identifier(&column.name))
    };
    let text = match class {
        Some(Class::Index(relation, index)) if column == 0 => Some(index_definition(relation, index)),
        Some(Class::ConstraintIndex(relation, constraint)) if column == 0 => Some(unique_index_definition(relation, constraint)),
        Some(Class::Index(relation, index)) if column == 1 => name_of(relation, index.column),
        Some(Class::ConstraintIndex(relation, constraint)) => {
            let number = usize::try_from(column.saturating_sub(1)).ok().and_then(|position| constraint.columns.get(position));
            number.and_then(|number| name_of(relation, *number))
        }
        _ => None,
    };
    Ok(Value::optional_text(text))
}

fn constraint_text(call: &Call<'_>) -> Result<Value> {
    let found = call.oid(0).and_then(|oid| call.context.snapshot.constraint(oid)).map(|(relation, constraint)| {
        let kind = if constraint.is_primary { "PRIMARY KEY" } else { "UNIQUE" };
        format!("{kind} ({})", column_list(relation, constraint))
    });
    Ok(Value::optional_text(found))
}

/// The sequence of an identity column, with its schema; NULL for another column.
fn sequence_name(call: &Call<'_>) -> Result<Value> {
    let class = call.context.snapshot.class(known_class(call.text(0), call.context.snapshot)?);
    let Some(Class::Relation(relation)) = class else { return Ok(Value::Null) };
    let Some(column) = relation.columns.iter().find(|column| column.name == call.text(1)) else {
        let message = format!("column \"{}\" of relation \"{}\" does not exist", call.text(1), relation.name);
        return Err(Error::Unresolved { kind: Unresolved::Column, message });
    };
    let name = column.sequence.as_ref().map(|sequence| format!("{}.{}", identifier(&relation.schema), identifier(&sequence.name)));
    Ok(Value::optional_text(name))
}

fn view_text(call: &Call<'_>) -> Result<Value> {
    Ok(match call.oid(0).and_then(|oid| call.context.snapshot.class(oid)) {
        Some(Class::Relation(Relation { kind: RelationKind::View(query), .. })) => Value::text(format!(" {query};")),
        _ => Value::Null,
    })
}

/// The types of a function's arguments.
pub fn argument_types(procedure: &Procedure) -> Vec<PgType> {
    procedure.arguments.iter().map(|(_, oid)| type_of_oid(*oid).unwrap_or(PgType::One(Kind::Any))).collect()
}

fn of_procedure(call: &Call<'_>, text: fn(&Procedure) -> String) -> Value {
    let oid = call.oid(0);
    let procedure = call.context.snapshot.procedures.iter().find(|procedure| Some(procedure.oid) == oid);
    Value::optional_text(procedure.map(text))
}

/// `question "any", k "any"`
fn arguments_text(procedure: &Procedure) -> String {
    let texts = procedure.arguments.iter().zip(argument_types(procedure)).map(|((name, _), pg_type)| match name.as_str() {
        "" => pg_type.sql_name(),
        name => format!("{} {}", identifier(name), pg_type.sql_name()),
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn result_text(procedure: &Procedure) -> String {
    let returns = type_of_oid(procedure.returns).map_or_else(|| "\"any\"".to_owned(), |pg_type| pg_type.sql_name());
    if procedure.is_set { format!("SETOF {returns}") } else { returns }
}

/// Functions are part of the program: their definition says what they take and give.
fn function_text(call: &Call<'_>) -> Result<Value> {
    Ok(of_procedure(call, |procedure| {
        let (name, arguments, result) = (identifier(&procedure.name), arguments_text(procedure), result_text(procedure));
        format!("CREATE OR REPLACE FUNCTION {name}({arguments})\n RETURNS {result}\n LANGUAGE internal\nAS '{}'\n", procedure.name)
    }))
}
