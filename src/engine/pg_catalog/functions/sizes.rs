//! What tables and indexes take on disk, from their metadata.

use super::{Call, Function, Returns};
use crate::engine::pg_catalog::snapshot::{Class, database_name};
use crate::engine::pg_catalog::types::Kind;
use crate::engine::pg_catalog::value::Value;

const SIZE: Returns = Returns::One(Kind::Int8);
const TEXT: Returns = Returns::One(Kind::Text);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("pg_relation_size", &[Kind::RegClass, Kind::Text], SIZE, |call| Ok(size(call, Part::Own))).required(1),
    Function::new("pg_table_size", &[Kind::RegClass], SIZE, |call| Ok(size(call, Part::Own))),
    Function::new("pg_indexes_size", &[Kind::RegClass], SIZE, |call| Ok(size(call, Part::Indexes))),
    Function::new("pg_total_relation_size", &[Kind::RegClass], SIZE, |call| Ok(size(call, Part::All))),
    Function::new("pg_database_size", &[Kind::Any], SIZE, |call| {
        let snapshot = call.context.snapshot;
        let is_this = call.value(0).as_str().is_none_or(|name| name == database_name());
        let bytes: u64 = snapshot.relations.iter().map(crate::engine::pg_catalog::snapshot::Relation::total_bytes).sum();
        Ok(if is_this { number(bytes) } else { Value::Null })
    }),
    Function::new("pg_tablespace_size", &[Kind::Any], SIZE, |_| Ok(Value::Null)),
    Function::new("pg_size_pretty", &[Kind::Any], TEXT, |call| {
        Ok(call.int(0).map_or(Value::Null, |bytes| Value::text(pretty_size(bytes))))
    }),
];

enum Part {
    Own,
    Indexes,
    All,
}

fn number(bytes: u64) -> Value {
    Value::Int(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// NULL for a number of nothing, as in PostgreSQL.
fn size(call: &Call<'_>, part: Part) -> Value {
    let class = call.oid(0).and_then(|oid| call.context.snapshot.class(oid));
    class.map_or(Value::Null, |class| {
        number(match (class, part) {
            (Class::Relation(relation), Part::Own) => relation.bytes,
            (Class::Relation(relation), Part::Indexes) => relation.total_bytes() - relation.bytes,
            (Class::Relation(relation), Part::All) => relation.total_bytes(),
            (Class::Index(..) | Class::ConstraintIndex(..), Part::Indexes) => 0,
            // Its next number is in the table.
            (Class::Sequence(..), _) => 0,
            (Class::Index(_, index), _) => index.bytes,
            // A constraint is checked by what is kept in memory.
            (Class::ConstraintIndex(..), _) => 0,
        })
    })
}

/// As PostgreSQL has it: the next unit from 10240 of the last, rounded half up.
fn pretty_size(bytes: i64) -> String {
    const LIMIT: i128 = 10 * 1024;
    let mut size = i128::from(bytes);
    for unit in ["bytes", "kB", "MB", "GB", "TB"] {
        if size.abs() < LIMIT {
            return format!("{size} {unit}");
        }
        size = (size + 512 * size.signum()) / 1024;
    }
    format!("{size} PB")
}

#[cfg(test)]
mod tests {
    use super::pretty_size;

    #[test]
    fn sizes_read_as_in_postgres() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (-10_240, "-10 kB"),
            (123_456_789, "118 MB"),
            (i64::MIN, "-8192 PB"),
            (i64::MAX, "8192 PB"),
        ] {
            assert_eq!(pretty_size(bytes), text);
        }
    }
}
