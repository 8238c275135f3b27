//! The functions of catalog queries. Each is data and a function of values; `pg_proc` lists them.

mod access_lists;
mod cast;
pub mod definitions;
mod lists;
mod names;
mod own_session;
mod privileges;
mod sessions;
mod sizes;
mod texts;
mod times;

use super::query::Context;
use super::types::{Kind, PgType};
use super::value::Value;
use crate::error::Result;

pub use cast::{cast, object_name, shown};

/// A function; functions of one name differ in how many arguments they take.
#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    /// Types of the arguments; the last is that of all further ones if `is_variadic`.
    pub parameters: &'static [Kind],
    /// How many arguments a call must give.
    pub required: usize,
    pub is_variadic: bool,
    pub returns: Returns,
    /// Whether it is NULL when an argument is.
    pub is_strict: bool,
    /// Whether its value is a list of rows.
    pub is_set: bool,
    pub run: fn(&Call<'_>) -> Result<Value>,
}

/// The type of what a function gives; of a set, that of a row.
#[derive(Debug, Clone, Copy)]
pub enum Returns {
    One(Kind),
    Many(Kind),
    /// As the argument at this place.
    Same(usize),
    /// A row with these fields.
    Record(&'static [(&'static str, Kind)]),
    /// A row with one field for each argument: an item of it.
    Items,
}

/// The arguments of one call.
pub struct Call<'a> {
    pub context: &'a Context<'a>,
    pub values: &'a [Value],
    pub types: &'a [PgType],
}

impl Call<'_> {
    /// NULL where an argument was left out.
    pub fn value(&self, position: usize) -> &Value {
        self.values.get(position).unwrap_or(&Value::Null)
    }

    pub fn text(&self, position: usize) -> &str {
        self.value(position).as_str().unwrap_or_default()
    }

    pub fn int(&self, position: usize) -> Option<i64> {
        self.value(position).as_int()
    }

    pub fn oid(&self, position: usize) -> Option<u32> {
        self.value(position).as_oid()
    }

    pub fn list(&self, position: usize) -> &[Value] {
        self.value(position).as_list().unwrap_or_default()
    }

    /// Numbers of the items of a list begin with this one.
    pub fn first_number(&self, position: usize) -> i64 {
        let is_vector = matches!(self.types.get(position), Some(PgType::One(Kind::Int2Vector | Kind::OidVector)));
        if is_vector { 0 } else { 1 }
    }
}

impl Function {
    const fn new(name: &'static str, parameters: &'static [Kind], returns: Returns, run: fn(&Call<'_>) -> Result<Value>) -> Self {
        Self { name, parameters, required: parameters.len(), is_variadic: false, returns, is_strict: true, is_set: false, run }
    }

    /// Arguments from this one on may be left out.
    const fn required(mut self, required: usize) -> Self {
        self.required = required;
        self
    }

    /// It takes NULL as it takes other values.
    const fn with_null(mut self) -> Self {
        self.is_strict = false;
        self
    }

    const fn variadic(mut self) -> Self {
        self.is_variadic = true;
        self
    }

    const fn set(mut self) -> Self {
        self.is_set = true;
        self
    }

    fn takes(&self, count: usize) -> bool {
        count >= self.required && (self.is_variadic || count <= self.parameters.len())
    }

    /// The type that the argument at this place shall have.
    pub fn parameter(&self, position: usize) -> PgType {
        let kind = self.parameters.get(position).or(self.parameters.last().filter(|_| self.is_variadic));
        PgType::One(kind.copied().unwrap_or(Kind::Any))
    }

    /// `None`: the arguments do not tell.
    pub fn returns(&self, types: &[PgType]) -> Option<PgType> {
        let item = |pg_type: &PgType| Some(pg_type.item()).filter(|item| !item.is_unknown()).unwrap_or(PgType::One(Kind::Text));
        Some(match self.returns {
            Returns::One(kind) => PgType::One(kind),
            Returns::Many(kind) => PgType::Many(kind),
            Returns::Same(position) => types.get(position)?.clone(),
            Returns::Record(fields) => PgType::Record(fields.iter().map(|(name, kind)| ((*name).to_owned(), PgType::One(*kind))).collect()),
            Returns::Items => PgType::Record(types.iter().map(|pg_type| (self.name.to_owned(), item(pg_type))).collect()),
        })
    }

    pub fn call(&self, context: &Context<'_>, values: &[Value], types: &[PgType]) -> Result<Value> {
        if self.is_strict && values.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        (self.run)(&Call { context, values, types })
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Function> {
    let groups: [&'static [Function]; 10] = [
        names::FUNCTIONS,
        definitions::FUNCTIONS,
        sessions::FUNCTIONS,
        own_session::FUNCTIONS,
        privileges::FUNCTIONS,
        access_lists::FUNCTIONS,
        sizes::FUNCTIONS,
        texts::FUNCTIONS,
        times::FUNCTIONS,
        lists::FUNCTIONS,
    ];
    groups.into_iter().flatten()
}

/// The function that a call with so many arguments means.
pub fn find(name: &str, num_arguments: usize) -> Option<&'static Function> {
    all().find(|function| function.name == name && function.takes(num_arguments))
}

/// Functions that are about the catalog or the server, and that a query without a catalog table may call; those that DataFusion has too, for texts, lists and
/// the session itself, leave it the query.
pub fn is_about_catalog(name: &str) -> bool {
    let groups: [&'static [Function]; 6] =
        [names::FUNCTIONS, definitions::FUNCTIONS, sessions::FUNCTIONS, privileges::FUNCTIONS, access_lists::FUNCTIONS, sizes::FUNCTIONS];
    groups.into_iter().flatten().any(|function| function.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_means_one_function() {
        let all: Vec<&Function> = all().collect();
        for (position, function) in all.iter().enumerate() {
            assert!(function.required <= function.parameters.len() || function.is_variadic, "{}", function.name);
            for other in all[..position].iter().filter(|other| other.name == function.name) {
                let both = (0..9).find(|count| function.takes(*count) && other.takes(*count));
                assert_eq!(both, None, "{}", function.name);
            }
        }
        assert!(find("pg_table_is_visible", 1).is_some() && find("pg_table_is_visible", 2).is_none());
    }
}
