use std::fmt::{self, Display, Formatter};

use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, UnaryOperator, Value};

use crate::agent::protocol::protocol;
use crate::engine::apply::arguments::{Parameter, assign};
use crate::engine::apply::planner::{split_table_name, table_name};
use crate::error::{Error, Result};

/// The table that a macro reads; printed with its schema, both quoted.
pub struct Nodes {
    schema: String,
    /// Quoted: by this its columns are told from those of others where it has no alias.
    pub table: String,
}

impl Nodes {
    /// The table, with the columns of tokens. Tables of earlier versions lack some, and others may have none: there they are NULL.
    pub fn with_tokens(&self) -> String {
        let none = "CAST(NULL AS integer[])";
        format!(
            "(SELECT * FROM {self} UNION ALL BY NAME SELECT {none} AS token_ids, {none} AS prompt_ids, {none} AS token_mask WHERE false)"
        )
    }
}

impl Display for Nodes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// The arguments of one call: literals, since they become part of a query's text.
pub struct Call<'a> {
    function: &'static str,
    arguments: Vec<(&'static str, &'a Expr)>,
}

impl<'a> Call<'a> {
    /// # Errors
    /// Those of [`assign`].
    pub fn new(function: &'static str, parameters: &'static [Parameter], arguments: &'a [FunctionArg]) -> Result<Self> {
        let assigned = assign(function, parameters, arguments)?;
        Ok(Self { function, arguments: assigned.into_iter().map(|(parameter, argument)| (parameter.name, argument)).collect() })
    }

    /// The table of rollouts.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for an expression that is not a name.
    pub fn nodes(&self) -> Result<Nodes> {
        let argument = self.argument("nodes");
        let name = argument.and_then(table_name).ok_or_else(|| self.wrong("nodes", "an expression", "a table of rollouts"))?;
        let (schema, table) = split_table_name(&name);
        Ok(Nodes { schema: quoted(&schema), table: quoted(&table) })
    }

    /// A finite number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        self.read(name, "a number", |argument| number(argument).filter(|number| number.is_finite()))
    }

    pub fn positive_number(&self, name: &str) -> Result<Option<f64>> {
        self.read(name, "a number above 0", |argument| number(argument).filter(|number| number.is_finite() && *number > 0.0))
    }

    /// An integer of at least `minimum`.
    pub fn integer(&self, name: &str, minimum: i64) -> Result<Option<i64>> {
        let integer = |argument: &Expr| {
            literal(argument).and_then(|value| if let Value::Number(digits, _) = value { digits.parse::<i64>().ok() } else { None })
        };
        self.read(name, &format!("an integer, {minimum} or more"), |argument| integer(argument).filter(|integer| *integer >= minimum))
    }

    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        let boolean = |value: &Value| if let Value::Boolean(boolean) = value { Some(*boolean) } else { None };
        self.read(name, "true or false", |argument| literal(argument).and_then(boolean))
    }

    /// The condition that a step can be read by its protocol, or is in the form of the one that is named. `None`: every step is wanted.
    ///
    /// # Errors
    /// [`Error::UnknownOption`] for a protocol that is not known; [`Error::InvalidParameter`].
    pub fn well_formed(&self) -> Result<Option<String>> {
        let protocol = self.protocol("protocol")?;
        Ok(match (self.boolean("malformed")?.unwrap_or(false), protocol) {
            (true, Some(name)) => {
                return Err(self.wrong("malformed", "true", &format!("no protocol beside it: '{name}' says which steps are wanted")));
            }
            (true, None) => None,
            (false, Some(name)) => Some(format!("coalesce(steps_well_formed('{name}', state, response), false)")),
            (false, None) => Some("coalesce(action, '') <> 'malformed'".to_owned()),
        })
    }

    pub fn text(&self, name: &str) -> Result<Option<String>> {
        let text = |value: &Value| if let Value::SingleQuotedString(text) = value { Some(text.clone()) } else { None };
        self.read(name, "a text", |argument| literal(argument).and_then(text))
    }

    /// The name of a protocol, which has no quote in it.
    ///
    /// # Errors
    /// [`Error::UnknownOption`] for one that is not known.
    pub fn protocol(&self, name: &str) -> Result<Option<&'static str>> {
        self.text(name)?.map(|name| Ok(protocol(&name)?.name())).transpose()
    }

    /// What `known` has for a word; the first of them if the argument is not given.
    ///
    /// # Errors
    /// [`Error::UnknownOption`] for a word that is not known.
    pub fn word<T: Copy>(&self, name: &'static str, known: &[(&'static str, T)]) -> Result<T> {
        let Some(word) = self.text(name)? else { return Ok(known[0].1) };
        known.iter().find(|(known, _)| *known == word).map(|(_, value)| *value).ok_or_else(|| Error::UnknownOption {
            kind: name,
            name: word,
            of: format!("{}()", self.function),
            known: known.iter().map(|(known, _)| (*known).to_owned()).collect(),
        })
    }

    fn argument(&self, name: &str) -> Option<&'a Expr> {
        self.arguments.iter().find(|(given, _)| *given == name).map(|(_, argument)| *argument)
    }

    /// None if the argument is not given, or NULL.
    fn read<T>(&self, name: &str, expected: &str, read: impl Fn(&Expr) -> Option<T>) -> Result<Option<T>> {
        let Some(argument) = self.argument(name).filter(|argument| literal(argument) != Some(&Value::Null)) else { return Ok(None) };
        read(argument).map(Some).ok_or_else(|| self.wrong(name, &argument.to_string(), expected))
    }

    pub fn wrong(&self, name: &str, found: &str, expected: &str) -> Error {
        let name = format!("{name} of {}()", self.function);
        Error::InvalidParameter { name, found: found.to_owned(), expected: expected.to_owned() }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(argument: &Expr) -> Option<&Value> {
    if let Expr::Value(value) = argument { Some(&value.value) } else { None }
}

fn number(argument: &Expr) -> Option<f64> {
    match argument {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number(expr).map(|value: f64| -value),
        other => literal(other).and_then(|value| if let Value::Number(digits, _) = value { digits.parse().ok() } else { None }),
    }
}
