//! `CREATE [TEMP] VIEW v AS SELECT ...`.

use std::fmt;

use super::eat_temporary;
use crate::ast::{Ident, ObjectName, Query};
use crate::error::Result;
use crate::name::{Columns, Qualified, if_not_exists, parse_optional_columns, temporary};
use crate::parser::Parser;

/// `CREATE [OR REPLACE] [[GLOBAL | LOCAL] {TEMP | TEMPORARY}] VIEW [IF NOT EXISTS] v [(a, b)] AS query`
#[derive(Debug, Clone, PartialEq)]
pub struct CreateView {
    pub name: ObjectName,
    /// Of the session alone, whatever schema the name says.
    pub temporary: bool,
    pub or_replace: bool,
    pub if_not_exists: bool,
    /// New names for the query's first columns.
    pub columns: Vec<Ident>,
    pub query: Box<Query>,
}

impl CreateView {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE")?;
        let or_replace = parser.eat("OR REPLACE");
        let temporary = eat_temporary(parser);
        parser.expect("VIEW")?;
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = parser.object_name("the view's name")?;
        let columns = parse_optional_columns(parser)?;
        parser.expect("AS")?;
        Ok(Self { name, temporary, or_replace, if_not_exists, columns, query: parser.query()? })
    }
}

impl fmt::Display for CreateView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_replace = if self.or_replace { "OR REPLACE " } else { "" };
        let (temporary, name) = (temporary(self.temporary), Qualified(&self.name));
        write!(
            f,
            "CREATE {or_replace}{temporary}VIEW {}{name}{} AS {}",
            if_not_exists(self.if_not_exists),
            Columns(&self.columns),
            self.query
        )
    }
}
