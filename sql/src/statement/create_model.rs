//! `CREATE MODEL m FROM 'uri'`.

use std::fmt;

use crate::ast::Query;
use crate::error::Result;
use crate::name::{Name, Text, if_not_exists};
use crate::options::Options;
use crate::parser::Parser;

/// `CREATE MODEL [IF NOT EXISTS] m FROM 'uri' [USING (SELECT ...)] [WITH (name = value, ...)]`
#[derive(Debug, Clone, PartialEq)]
pub struct CreateModel {
    pub name: String,
    pub if_not_exists: bool,
    /// Where the weights come from: a directory, `hf://..`, `builtin://tinyhop`, `random://qwen2`.
    pub source: String,
    /// The texts that a new model's tokenizer is trained on.
    pub using: Option<Box<Query>>,
    pub options: Options,
}

impl CreateModel {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE MODEL")?;
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = parser.new_name("the model's name")?;
        parser.expect("FROM")?;
        let source = parser.string("the model's source in quotes, such as 'hf://org/name'")?;
        let using = if parser.eat("USING") { Some(parser.parenthesized_query("a query that gives texts")?) } else { None };
        let options = Options::parse_with(parser)?;
        Ok(Self { name, if_not_exists, source, using, options })
    }
}

impl fmt::Display for CreateModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, if_not_exists: quietly, source, using, options } = self;
        write!(f, "CREATE MODEL {}{} FROM {}", if_not_exists(*quietly), Name(name), Text(source))?;
        if let Some(query) = using {
            write!(f, " USING ({query})")?;
        }
        write!(f, "{}", options.display_with())
    }
}
