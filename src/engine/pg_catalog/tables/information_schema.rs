//! The views of `information_schema`.

use super::Spec;
use crate::engine::pg_catalog::functions::definitions::argument_types;
use crate::engine::pg_catalog::snapshot::{Column, Relation, RelationKind, Snapshot, database_name};
use crate::engine::pg_catalog::types::{Kind, PgType, precision_and_scale};
use crate::engine::pg_catalog::value::{Row, Value, row};
use crate::engine::privileges::{Grant, PUBLIC, role_name};
use rolloutdb_catalogs::{Identity, is_temporary_schema};
use rolloutdb_sql::Privilege;

pub const SPECS: &[Spec] = &[
    Spec { name: "information_schema_catalog_name", oid: 13_001, columns: "catalog_name:name", rows: |_| vec![row![database_name()]] },
    Spec {
        name: "schemata",
        oid: 13_002,
        columns: "catalog_name:name schema_name:name schema_owner:name default_character_set_catalog:name default_character_set_schema:name \
            default_character_set_name:name sql_path:varchar",
        rows: schemata,
    },
    Spec {
        name: "tables",
        oid: 13_003,
        columns: "table_catalog:name table_schema:name table_name:name table_type:varchar self_referencing_column_name:name \
            reference_generation:varchar user_defined_type_catalog:name user_defined_type_schema:name user_defined_type_name:name \
            is_insertable_into:varchar is_typed:varchar commit_action:varchar",
        rows: tables,
    },
    Spec {
        name: "columns",
        oid: 13_004,
        columns: "table_catalog:name table_schema:name table_name:name column_name:name ordinal_position:int4 column_default:varchar \
            is_nullable:varchar data_type:varchar character_maximum_length:int4 character_octet_length:int4 numeric_precision:int4 \
            numeric_precision_radix:int4 numeric_scale:int4 datetime_precision:int4 interval_type:varchar interval_precision:int4 \
            character_set_catalog:name character_set_schema:name character_set_name:name collation_catalog:name collation_schema:name \
            collation_name:name domain_catalog:name domain_schema:name domain_name:name udt_catalog:name udt_schema:name udt_name:name \
            scope_catalog:name scope_schema:name scope_name:name maximum_cardinality:int4 dtd_identifier:name \
            is_self_referencing:varchar is_identity:varchar identity_generation:varchar identity_start:varchar \
            identity_increment:varchar identity_maximum:varchar identity_minimum:varchar identity_cycle:varchar is_generated:varchar \
            generation_expression:varchar is_updatable:varchar",
        rows: columns,
    },
    Spec {
        name: "views",
        oid: 13_005,
        columns: "table_catalog:name table_schema:name table_name:name view_definition:varchar check_option:varchar is_updatable:varchar \
            is_insertable_into:varchar is_trigger_updatable:varchar is_trigger_deletable:varchar is_trigger_insertable_into:varchar",
        rows: views,
    },
    Spec {
        name: "table_constraints",
        oid: 13_006,
        columns: "constraint_catalog:name constraint_schema:name constraint_name:name table_catalog:name table_schema:name table_name:name \
            constraint_type:varchar is_deferrable:varchar initially_deferred:varchar enforced:varchar nulls_distinct:varchar",
        rows: table_constraints,
    },
    Spec {
        name: "key_column_usage",
        oid: 13_007,
        columns: "constraint_catalog:name constraint_schema:name constraint_name:name table_catalog:name table_schema:name table_name:name \
            column_name:name ordinal_position:int4 position_in_unique_constraint:int4",
        rows: key_columns,
    },
    Spec {
        name: "constraint_column_usage",
        oid: 13_008,
        columns: "table_catalog:name table_schema:name table_name:name column_name:name constraint_catalog:name constraint_schema:name \
            constraint_name:name",
        rows: constraint_columns,
    },
    Spec {
        name: "referential_constraints",
        oid: 13_009,
        columns: "constraint_catalog:name constraint_schema:name constraint_name:name unique_constraint_catalog:name \
            unique_constraint_schema:name unique_constraint_name:name match_option:varchar update_rule:varchar delete_rule:varchar",
        rows: none,
    },
    Spec {
        name: "check_constraints",
        oid: 13_010,
        columns: "constraint_catalog:name constraint_schema:name constraint_name:name check_clause:varchar",
        rows: none,
    },
    Spec {
        name: "routines",
        oid: 13_011,
        columns: "specific_catalog:name specific_schema:name specific_name:name routine_catalog:name routine_schema:name routine_name:name \
            routine_type:varchar data_type:varchar type_udt_catalog:name type_udt_schema:name type_udt_name:name routine_body:varchar \
            routine_definition:varchar external_language:varchar is_deterministic:varchar sql_data_access:varchar security_type:varchar",
        rows: routines,
    },
    Spec {
        name: "parameters",
        oid: 13_012,
        columns: "specific_catalog:name specific_schema:name specific_name:name ordinal_position:int4 parameter_mode:varchar \
            is_result:varchar as_locator:varchar parameter_name:name data_type:varchar udt_catalog:name udt_schema:name udt_name:name",
        rows: parameters,
    },
    Spec {
        name: "sequences",
        oid: 13_013,
        columns: "sequence_catalog:name sequence_schema:name sequence_name:name data_type:varchar numeric_precision:int4 \
            numeric_precision_radix:int4 numeric_scale:int4 start_value:varchar minimum_value:varchar maximum_value:varchar \
            increment:varchar cycle_option:varchar",
        rows: none,
    },
    Spec {
        name: "triggers",
        oid: 13_014,
        columns: "trigger_catalog:name trigger_schema:name trigger_name:name event_manipulation:varchar event_object_catalog:name \
            event_object_schema:name event_object_table:name action_order:int4 action_condition:varchar action_statement:varchar \
            action_orientation:varchar action_timing:varchar",
        rows: none,
    },
    Spec { name: "domains", oid: 13_015, columns: "domain_catalog:name domain_schema:name domain_name:name data_type:varchar", rows: none },
    Spec { name: "enabled_roles", oid: 13_016, columns: "role_name:name", rows: enabled_roles },
    Spec { name: "applicable_roles", oid: 13_017, columns: "grantee:name role_name:name is_grantable:varchar", rows: applicable_roles },
    Spec {
        name: "table_privileges",
        oid: 13_018,
        columns: "grantor:name grantee:name table_catalog:name table_schema:name table_name:name privilege_type:varchar is_grantable:varchar \
            with_hierarchy:varchar",
        rows: |snapshot| table_privileges(snapshot, true),
    },
    Spec {
        name: "role_table_grants",
        oid: 13_019,
        columns: "grantor:name grantee:name table_catalog:name table_schema:name table_name:name privilege_type:varchar is_grantable:varchar \
            with_hierarchy:varchar",
        rows: |snapshot| table_privileges(snapshot, false),
    },
    Spec {
        name: "element_types",
        oid: 13_020,
        columns: "object_catalog:name object_schema:name object_name:name object_type:varchar collection_type_identifier:name \
            data_type:varchar udt_catalog:name udt_schema:name udt_name:name dtd_identifier:name",
        rows: element_types,
    },
];

fn none(_: &Snapshot) -> Vec<Row> {
    Vec::new()
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "YES" } else { "NO" }
}

fn schemata(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |schema: &crate::engine::pg_catalog::snapshot::SchemaEntry| {
        let owner = snapshot.held(&schema.object()).owner;
        row![database_name(), schema.name.as_str(), owner, Value::Null, Value::Null, Value::Null, Value::Null]
    };
    snapshot.schemas.iter().map(row_of).collect()
}

fn tables(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |relation: &Relation| {
        let is_table = relation.kind == RelationKind::Table;
        row![
            database_name(),
            relation.schema.as_str(),
            relation.name.as_str(),
            match is_table {
                true if is_temporary_schema(&relation.schema) => "LOCAL TEMPORARY",
                true => "BASE TABLE",
                false => "VIEW",
            },
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            yes(is_table && !relation.is_of_system()),
            "NO",
            Value::Null,
        ]
    };
    snapshot.relations.iter().map(row_of).collect()
}

/// The words of the standard for a type: arrays and types of extensions are named by `udt_name`.
fn standard_name(pg_type: &PgType) -> &'static str {
    match pg_type {
        PgType::Many(_) | PgType::Records(_) => "ARRAY",
        PgType::One(kind) if kind.is_of_extension() => "USER-DEFINED",
        PgType::One(Kind::Int2Vector | Kind::OidVector) => "ARRAY",
        PgType::One(kind) => kind.info().sql_name,
        PgType::Record(_) => "record",
    }
}

/// Schema and name in `pg_type`.
fn udt(pg_type: &PgType) -> (&'static str, String) {
    match pg_type {
        PgType::One(kind) | PgType::Many(kind) => {
            let schema = if kind.is_of_extension() { "public" } else { "pg_catalog" };
            let prefix = if matches!(pg_type, PgType::Many(_)) { "_" } else { "" };
            (schema, format!("{prefix}{}", kind.info().name))
        }
        PgType::Record(_) => ("pg_catalog", "record".to_owned()),
        PgType::Records(_) => ("pg_catalog", "_record".to_owned()),
    }
}

/// Precision, radix and scale of a number.
fn numeric(column: &Column) -> (Option<i64>, Option<i64>, Option<i64>) {
    match column.pg_type.kind() {
        Some(Kind::Int2) => (Some(16), Some(2), Some(0)),
        Some(Kind::Int4) => (Some(32), Some(2), Some(0)),
        Some(Kind::Int8) => (Some(64), Some(2), Some(0)),
        Some(Kind::Float4) => (Some(24), Some(2), None),
        Some(Kind::Float8) => (Some(53), Some(2), None),
        Some(Kind::Numeric) => {
            let declared = precision_and_scale(column.modifier);
            (declared.map(|(precision, _)| i64::from(precision)), Some(10), declared.map(|(_, scale)| i64::from(scale)))
        }
        _ => (None, None, None),
    }
}

fn column_row(relation: &Relation, position: usize, column: &Column) -> Row {
    let kind = column.pg_type.kind();
    let length = matches!(kind, Some(Kind::Varchar | Kind::Bpchar)).then_some(i64::from(column.modifier) - 4).filter(|length| *length > 0);
    let is_text = matches!(kind, Some(Kind::Varchar | Kind::Bpchar | Kind::Text));
    // A character takes up to four bytes.
    let octets = length.map(|length| length * 4).or(is_text.then_some(1 << 30));
    let (precision, radix, scale) = numeric(column);
    let datetime = match kind {
        Some(Kind::Timestamp | Kind::Timestamptz | Kind::Time | Kind::Interval) => Some(6_i64),
        Some(Kind::Date) => Some(0),
        _ => None,
    };
    let (udt_schema, udt_name) = udt(&column.pg_type);
    let default = column.expression.as_ref().filter(|_| !column.is_generated).map(|(_, text)| text.as_str());
    let generation = column.expression.as_ref().filter(|_| column.is_generated).map(|(_, text)| text.as_str());
    let identity = column.identity.map(|identity| if identity == Identity::Always { "ALWAYS" } else { "BY DEFAULT" });
    let of_identity = |text: &'static str| identity.map(|_| text);
    let is_updatable = relation.kind == RelationKind::Table && !relation.is_of_system();
    let mut row = row![
        database_name(),
        relation.schema.as_str(),
        relation.name.as_str(),
        column.name.as_str(),
        position as i64 + 1,
        default,
        yes(!column.not_null),
        standard_name(&column.pg_type),
        length,
        octets,
        precision,
        radix,
        scale,
        datetime,
    ];
    // Of intervals, character sets, collations and domains.
    row.extend(std::iter::repeat_n(Value::Null, 11));
    row.extend(row![database_name(), udt_schema, udt_name]);
    row.extend(std::iter::repeat_n(Value::Null, 4));
    row.extend(row![
        (position as i64 + 1).to_string(),
        "NO",
        yes(identity.is_some()),
        identity,
        of_identity("1"),
        of_identity("1"),
        of_identity(match kind {
            Some(Kind::Int2) => "32767",
            Some(Kind::Int4) => "2147483647",
            _ => "9223372036854775807",
        }),
        of_identity("1"),
        of_identity("NO").unwrap_or("NO"),
        if column.is_generated { "ALWAYS" } else { "NEVER" },
        generation,
        yes(is_updatable),
    ]);
    row
}

fn columns(snapshot: &Snapshot) -> Vec<Row> {
    let of_relation = |relation: &Relation| -> Vec<Row> {
        relation.columns.iter().enumerate().map(|(position, column)| column_row(relation, position, column)).collect()
    };
    snapshot.relations.iter().flat_map(of_relation).collect()
}

fn views(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |relation: &Relation| {
        let query = match &relation.kind {
            RelationKind::View(query) => Some(format!("{query};")),
            RelationKind::System => None,
            RelationKind::Table => return None,
        };
        Some(row![database_name(), relation.schema.as_str(), relation.name.as_str(), query, "NONE", "NO", "NO", "NO", "NO", "NO"])
    };
    snapshot.relations.iter().filter_map(row_of).collect()
}

fn table_constraints(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &snapshot.relations {
        for constraint in &relation.constraints {
            rows.push(row![
                database_name(),
                relation.schema.as_str(),
                constraint.name.as_str(),
                database_name(),
                relation.schema.as_str(),
                relation.name.as_str(),
                if constraint.is_primary { "PRIMARY KEY" } else { "UNIQUE" },
                "NO",
                "NO",
                "YES",
                (!constraint.is_primary).then_some("YES"),
            ]);
        }
    }
    rows
}

/// Relation, name of the constraint, name of a column of it and the column's place in it from 1.
fn constrained(snapshot: &Snapshot) -> Vec<(&Relation, &str, &str, i64)> {
    let mut found = Vec::new();
    for relation in &snapshot.relations {
        for constraint in &relation.constraints {
            for (place, number) in constraint.columns.iter().enumerate() {
                let column = usize::try_from(number - 1).ok().and_then(|position| relation.columns.get(position));
                found.extend(column.map(|column| (relation, constraint.name.as_str(), column.name.as_str(), place as i64 + 1)));
            }
        }
    }
    found
}

fn key_columns(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |(relation, constraint, column, place): (&Relation, &str, &str, i64)| {
        let (schema, table) = (relation.schema.as_str(), relation.name.as_str());
        row![database_name(), schema, constraint, database_name(), schema, table, column, place, Value::Null]
    };
    constrained(snapshot).into_iter().map(row_of).collect()
}

fn constraint_columns(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |(relation, constraint, column, _): (&Relation, &str, &str, i64)| {
        let (schema, table) = (relation.schema.as_str(), relation.name.as_str());
        row![database_name(), schema, table, column, database_name(), schema, constraint]
    };
    constrained(snapshot).into_iter().map(row_of).collect()
}

fn schema_of(snapshot: &Snapshot, oid: u32) -> &str {
    snapshot.schema(oid).map_or("", |schema| schema.name.as_str())
}

fn routines(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |procedure: &crate::engine::pg_catalog::procedures::Procedure| {
        let schema = schema_of(snapshot, procedure.schema_oid);
        let specific = format!("{}_{}", procedure.name, procedure.oid);
        let returns = crate::engine::pg_catalog::types::type_of_oid(procedure.returns).unwrap_or(PgType::One(Kind::Any));
        let (udt_schema, udt_name) = udt(&returns);
        row![
            database_name(),
            schema,
            specific,
            database_name(),
            schema,
            procedure.name.as_str(),
            if procedure.kind == 'a' { Value::Null } else { Value::text("FUNCTION") },
            standard_name(&returns),
            database_name(),
            udt_schema,
            udt_name,
            "EXTERNAL",
            Value::Null,
            "INTERNAL",
            "NO",
            "MODIFIES",
            "INVOKER",
        ]
    };
    snapshot.procedures.iter().map(row_of).collect()
}

fn parameters(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for procedure in &snapshot.procedures {
        for (position, ((name, _), pg_type)) in procedure.arguments.iter().zip(argument_types(procedure)).enumerate() {
            let (udt_schema, udt_name) = udt(&pg_type);
            rows.push(row![
                database_name(),
                schema_of(snapshot, procedure.schema_oid),
                format!("{}_{}", procedure.name, procedure.oid),
                position as i64 + 1,
                "IN",
                "NO",
                "NO",
                Some(name.as_str()).filter(|name| !name.is_empty()),
                standard_name(&pg_type),
                database_name(),
                udt_schema,
                udt_name,
            ]);
        }
    }
    rows
}

/// What roles whose rights the session has were granted, or have granted; `with_public`: and what everybody has.
fn table_privileges(snapshot: &Snapshot, with_public: bool) -> Vec<Row> {
    let reader = snapshot.user.role();
    let enabled = snapshot.role_book.memberships(&reader);
    let sees_all = snapshot.role_book.get(&reader).is_some_and(|role| role.is_superuser);
    let is_enabled = |role: &String| role != PUBLIC && (sees_all || enabled.contains(role));
    let is_shown = |grant: &Grant| match grant.grantee == PUBLIC {
        true => with_public,
        false => is_enabled(&grant.grantor) || is_enabled(&grant.grantee),
    };
    let mut rows = Vec::new();
    for relation in snapshot.relations.iter().filter(|relation| !relation.is_of_system()) {
        let object = relation.object();
        let held = snapshot.held(&object);
        for grant in held.grants.iter().filter(|grant| is_shown(grant)) {
            for privilege in object.privileges().iter().filter(|privilege| grant.rights.has(**privilege)) {
                rows.push(row![
                    grant.grantor.as_str(),
                    role_name(&grant.grantee),
                    database_name(),
                    relation.schema.as_str(),
                    relation.name.as_str(),
                    privilege.keyword(),
                    yes(grant.grantee == held.owner || grant.rights.may_grant(*privilege)),
                    yes(*privilege == Privilege::Select),
                ]);
            }
        }
    }
    rows
}

/// Those whose rights the session has.
fn enabled_roles(snapshot: &Snapshot) -> Vec<Row> {
    let enabled = snapshot.role_book.memberships(&snapshot.user.role());
    enabled.iter().map(|name| row![name.as_str()]).collect()
}

/// Memberships through which the session has its rights.
fn applicable_roles(snapshot: &Snapshot) -> Vec<Row> {
    let enabled = snapshot.role_book.memberships(&snapshot.user.role());
    let memberships = snapshot.memberships.iter().filter(|membership| enabled.contains(&membership.member));
    memberships.map(|membership| row![membership.member.as_str(), membership.role.as_str(), yes(membership.admin)]).collect()
}

fn element_types(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = Vec::new();
    for relation in &snapshot.relations {
        for (position, column) in relation.columns.iter().enumerate() {
            let PgType::Many(kind) = column.pg_type else { continue };
            let item = PgType::One(kind);
            let (udt_schema, udt_name) = udt(&item);
            let (schema, table) = (relation.schema.as_str(), relation.name.as_str());
            let number = (position + 1).to_string();
            rows.push(row![
                database_name(),
                schema,
                table,
                "TABLE",
                number.as_str(),
                standard_name(&item),
                database_name(),
                udt_schema,
                udt_name,
                format!("a{number}"),
            ]);
        }
    }
    rows
}
