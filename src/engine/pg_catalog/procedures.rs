//! Functions, as `pg_proc` lists them: those of catalog queries, the engine's, and the readers and writers of types.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::execution::SessionState;

use super::functions::{self, Function};
use super::procedure_types::{AGGREGATES, of_built_in, of_ours};
use super::snapshot::{PG_CATALOG_OID, PUBLIC_OID};
use super::types::{Kind, TYPES};

/// Numbers of functions that PostgreSQL does not know: they come of the function's name and arguments, and so stay what they are.
const FIRST: u32 = 1_000_000_000;
const COUNT: u32 = 1_000_000_000;

#[derive(Debug, Clone)]
pub struct Procedure {
    pub oid: u32,
    pub name: String,
    pub schema_oid: u32,
    /// Name, empty for none, and the number of the type.
    pub arguments: Vec<(String, u32)>,
    pub returns: u32,
    /// `prokind`: `f`, `a` or `w`.
    pub kind: char,
    pub is_set: bool,
    pub is_strict: bool,
    pub description: Option<String>,
}

/// The functions that read and write a type, by number.
#[derive(Debug, Clone, Copy)]
pub struct InOut {
    pub input: u32,
    pub output: u32,
    pub receive: u32,
    pub send: u32,
}

/// Those of a type; `None`: of arrays, by whose numbers clients know that a type is one.
pub fn in_out(kind: Option<Kind>) -> InOut {
    let Some(kind) = kind else { return InOut { input: 750, output: 751, receive: 2400, send: 2401 } };
    let position = TYPES.iter().position(|info| info.kind == kind).map_or(0, |position| position as u32);
    let first = 9_500 + position * 4;
    InOut { input: first, output: first + 1, receive: first + 2, send: first + 3 }
}

/// `int4in`, `timestamp_in`: older types have no sign between.
fn in_out_names(kind: Kind) -> [String; 4] {
    let name = kind.info().name;
    let has_sign = matches!(
        kind,
        Kind::Json
            | Kind::NodeTree
            | Kind::Date
            | Kind::Time
            | Kind::Timestamp
            | Kind::Timestamptz
            | Kind::Interval
            | Kind::Numeric
            | Kind::Record
            | Kind::Cstring
            | Kind::Any
            | Kind::AnyArray
            | Kind::AnyElement
            | Kind::Void
            | Kind::Trigger
            | Kind::LanguageHandler
            | Kind::Internal
            | Kind::EventTrigger
            | Kind::Uuid
            | Kind::Jsonb
            | Kind::Vector
            | Kind::Halfvec
    );
    let sign = if has_sign { "_" } else { "" };
    ["in", "out", "recv", "send"].map(|end| format!("{name}{sign}{end}"))
}

/// Every function, in the order of their names.
pub fn all(state: &SessionState, table_functions: &BTreeMap<&'static str, Vec<&'static str>>) -> Vec<Procedure> {
    let mut found: Vec<Procedure> = functions::all().map(of_catalog).collect();
    let mut names: BTreeSet<String> = found.iter().map(|procedure| procedure.name.clone()).collect();
    let any = Kind::Any.info().oid;
    let mut add = |procedure: Procedure| {
        let is_plain = !procedure.name.is_empty() && !procedure.name.starts_with('_') && names.insert(procedure.name.clone());
        if is_plain {
            found.push(procedure);
        }
    };
    let of = |name: &str, schema_oid: u32, arguments: Vec<(String, u32)>, returns: u32, kind: char| {
        let name = name.to_owned();
        Procedure { oid: 0, name, schema_oid, arguments, returns, kind, is_set: false, is_strict: false, description: None }
    };
    let types = rolloutdb_udfs::argument_types();
    for (name, documentation) in rolloutdb_udfs::documentation() {
        let known =
            types.get(name.as_str()).into_iter().flatten().map(|known| known.and_then(Kind::named).map_or(any, |kind| kind.info().oid));
        // Of arguments of several types, and of aggregates, it is any.
        let known = known.chain(std::iter::repeat(any));
        let is_aggregate = state.aggregate_functions().contains_key(&name);
        let known_aggregate = AGGREGATES.iter().find(|(known, ..)| is_aggregate && *known == name);
        let types: Vec<u32> = match known_aggregate {
            Some((_, kinds, _)) => kinds.iter().map(|kind| kind.info().oid).collect(),
            None => known.take(documentation.arguments.as_ref().map_or(0, Vec::len)).collect(),
        };
        let arguments = documentation.arguments.unwrap_or_default().into_iter().zip(types).map(|((name, _), oid)| (name, oid)).collect();
        let returns = known_aggregate.map(|(.., kind)| kind.info().oid).or_else(|| of_ours(&name)).unwrap_or(any);
        let procedure = of(&name, PUBLIC_OID, arguments, returns, if is_aggregate { 'a' } else { 'f' });
        add(Procedure { description: Some(documentation.description), ..procedure });
    }
    for (name, parameters) in table_functions {
        let arguments = parameters.iter().map(|parameter| ((*parameter).to_owned(), any)).collect();
        add(Procedure { is_set: true, ..of(name, PUBLIC_OID, arguments, Kind::Record.info().oid, 'f') });
    }
    let unnamed = |types: &[u32]| types.iter().map(|oid| (String::new(), *oid)).collect::<Vec<_>>();
    for name in state.scalar_functions().keys() {
        let (arguments, returns) = of_built_in(name).map_or_else(|| (vec![any], any), Clone::clone);
        add(of(name, PG_CATALOG_OID, unnamed(&arguments), returns, 'f'));
    }
    for name in state.aggregate_functions().keys().filter(|name| !AGGREGATES.iter().any(|(known, ..)| known == name)) {
        add(of(name, PG_CATALOG_OID, unnamed(&[any]), any, 'a'));
    }
    state.window_functions().keys().for_each(|name| add(of(name, PG_CATALOG_OID, vec![], any, 'w')));
    let ours: BTreeSet<String> = found.iter().map(|procedure| procedure.name.clone()).collect();
    for (name, kinds, returns) in AGGREGATES.iter().filter(|(name, ..)| !ours.contains(*name)) {
        let types: Vec<u32> = kinds.iter().map(|kind| kind.info().oid).collect();
        found.push(of(name, PG_CATALOG_OID, unnamed(&types), returns.info().oid, 'a'));
    }
    found.sort_by(|left, right| (&left.name, left.arguments.len()).cmp(&(&right.name, right.arguments.len())));
    number(&mut found);
    found.extend(readers_and_writers());
    found
}

fn of_catalog(function: &'static Function) -> Procedure {
    let arguments = function.parameters.iter().map(|kind| (String::new(), kind.info().oid)).collect();
    let returns = function.returns(&[]).map_or(Kind::Any.info().oid, |returns| returns.oid());
    Procedure {
        oid: 0,
        name: function.name.to_owned(),
        schema_oid: PG_CATALOG_OID,
        arguments,
        returns,
        kind: 'f',
        is_set: function.is_set,
        is_strict: function.is_strict,
        description: None,
    }
}

/// Gives each the number that its name and arguments hash to, or the next that is free.
fn number(procedures: &mut [Procedure]) {
    let mut taken = BTreeSet::new();
    for procedure in procedures {
        let types: Vec<u32> = procedure.arguments.iter().map(|(_, oid)| *oid).collect();
        let mut oid = FIRST + hash(&format!("{} {types:?}", procedure.name)) % COUNT;
        while !taken.insert(oid) {
            oid += 1;
        }
        procedure.oid = oid;
    }
}

/// FNV-1a, which is the same in every version of the program.
fn hash(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

fn readers_and_writers() -> Vec<Procedure> {
    let cstring = Kind::Cstring.info().oid;
    let procedure = |oid: u32, name: String, argument: u32, returns: u32| Procedure {
        oid,
        name,
        schema_oid: PG_CATALOG_OID,
        arguments: vec![(String::new(), argument)],
        returns,
        kind: 'f',
        is_set: false,
        is_strict: true,
        description: Some("I/O".to_owned()),
    };
    let of = |kind: Option<Kind>, names: [String; 4]| {
        let numbers = in_out(kind);
        let own = kind.unwrap_or(Kind::AnyArray).info().oid;
        let bytes = Kind::Bytea.info().oid;
        let [input, output, receive, send] = names;
        [
            procedure(numbers.input, input, cstring, own),
            procedure(numbers.output, output, own, cstring),
            procedure(numbers.receive, receive, bytes, own),
            procedure(numbers.send, send, own, bytes),
        ]
    };
    let arrays = of(None, ["in", "out", "recv", "send"].map(|end| format!("array_{end}")));
    arrays.into_iter().chain(TYPES.iter().flat_map(|info| of(Some(info.kind), in_out_names(info.kind)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procedure(name: &str) -> Procedure {
        Procedure {
            oid: 0,
            name: name.to_owned(),
            schema_oid: PG_CATALOG_OID,
            arguments: vec![],
            returns: 16,
            kind: 'f',
            is_set: false,
            is_strict: false,
            description: None,
        }
    }

    #[test]
    fn numbers_follow_from_names_and_differ() {
        let mut first = [procedure("embed"), procedure("generate")];
        let mut later = [procedure("another"), procedure("embed"), procedure("generate")];
        number(&mut first);
        number(&mut later);
        assert_eq!((first[0].oid, first[1].oid), (later[1].oid, later[2].oid));
        let mut twice = [procedure("embed"), procedure("embed")];
        number(&mut twice);
        assert_eq!(twice[0].oid + 1, twice[1].oid);
        assert!(twice.iter().all(|procedure| i32::try_from(procedure.oid).is_ok()));
    }
}
