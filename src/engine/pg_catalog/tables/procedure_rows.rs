//! `pg_proc`, `pg_aggregate` and `pg_language`.

use super::{OWNER, Spec};
use crate::engine::pg_catalog::snapshot::Snapshot;
use crate::engine::pg_catalog::value::{Row, Value, row};

/// PostgreSQL's language of functions that are part of the server.
const INTERNAL: u32 = 12;

pub const SPECS: &[Spec] = &[
    Spec {
        name: "pg_proc",
        oid: 1255,
        columns: "oid:oid proname:name pronamespace:oid proowner:oid prolang:oid procost:float4 prorows:float4 provariadic:oid \
            prosupport:regproc prokind:char prosecdef:bool proleakproof:bool proisstrict:bool proretset:bool provolatile:char \
            proparallel:char pronargs:int2 pronargdefaults:int2 prorettype:oid proargtypes:oidvector proallargtypes:oid[] proargmodes:char[] \
            proargnames:text[] proargdefaults:pg_node_tree protrftypes:oid[] prosrc:text probin:text prosqlbody:pg_node_tree \
            proconfig:text[] proacl:aclitem[]",
        rows: procedures,
    },
    Spec {
        name: "pg_aggregate",
        oid: 2600,
        columns: "aggfnoid:regproc aggkind:char aggnumdirectargs:int2 aggtransfn:regproc aggfinalfn:regproc aggcombinefn:regproc \
            aggserialfn:regproc aggdeserialfn:regproc aggmtransfn:regproc aggminvtransfn:regproc aggmfinalfn:regproc aggfinalextra:bool \
            aggmfinalextra:bool aggfinalmodify:char aggmfinalmodify:char aggsortop:oid aggtranstype:oid aggtransspace:int4 \
            aggmtranstype:oid aggmtransspace:int4 agginitval:text aggminitval:text",
        rows: aggregates,
    },
    Spec {
        name: "pg_language",
        oid: 2612,
        columns: "oid:oid lanname:name lanowner:oid lanispl:bool lanpltrusted:bool lanplcallfoid:oid laninline:oid lanvalidator:oid \
            lanacl:aclitem[]",
        rows: |_| vec![row![INTERNAL, "internal", OWNER, false, false, 0_u32, 0_u32, 0_u32, Value::Null]],
    },
];

fn procedures(snapshot: &Snapshot) -> Vec<Row> {
    let row_of = |procedure: &crate::engine::pg_catalog::procedures::Procedure| {
        let types = procedure.arguments.iter().map(|(_, oid)| Value::oid(*oid));
        let has_names = procedure.arguments.iter().any(|(name, _)| !name.is_empty());
        let names = if has_names { Value::list(procedure.arguments.iter().map(|(name, _)| Value::text(name))) } else { Value::Null };
        row![
            procedure.oid,
            procedure.name.as_str(),
            procedure.schema_oid,
            OWNER,
            INTERNAL,
            1.0,
            if procedure.is_set { 1000.0 } else { 0.0 },
            0_u32,
            0_u32,
            procedure.kind,
            false,
            false,
            procedure.is_strict,
            procedure.is_set,
            's',
            's',
            procedure.arguments.len() as i64,
            0_i64,
            procedure.returns,
            Value::list(types),
            Value::Null,
            Value::Null,
            names,
            Value::Null,
            Value::Null,
            procedure.name.as_str(),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
        ]
    };
    snapshot.procedures.iter().map(row_of).collect()
}

fn aggregates(snapshot: &Snapshot) -> Vec<Row> {
    let aggregates = snapshot.procedures.iter().filter(|procedure| procedure.kind == 'a');
    let row_of = |procedure: &crate::engine::pg_catalog::procedures::Procedure| {
        let mut row = row![procedure.oid, 'n', 0_i64];
        // They are computed as a whole: no functions make them, and no type holds what is between.
        row.extend(std::iter::repeat_n(Value::oid(0), 8));
        row.extend(row![false, false, 'r', 'r', 0_u32, 0_u32, 0_i64, 0_u32, 0_i64, Value::Null, Value::Null]);
        row
    };
    aggregates.map(row_of).collect()
}
