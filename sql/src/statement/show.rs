//! `SHOW`.

use std::fmt;

use super::{Statement, set};
use crate::error::Result;
use crate::parser::Parser;

/// `SHOW variable`, `SHOW ALL`, `SHOW TIME ZONE`, `SHOW TRANSACTION ISOLATION LEVEL`
#[derive(Debug, Clone, PartialEq)]
pub struct Show {
    /// The setting's name in lower case, with its dots: `timezone`, `rollout.seed`; `all` for every setting.
    pub variable: String,
}

pub(super) fn parse(parser: &mut Parser) -> Result<Statement> {
    parser.expect("SHOW")?;
    const LISTS: [(&str, Statement); 5] = [
        ("TABLES", Statement::ShowTables),
        ("INDEXES", Statement::ShowIndexes),
        ("MODELS", Statement::ShowModels),
        ("AGENTS", Statement::ShowAgents),
        ("JOBS", Statement::ShowJobs),
    ];
    for (word, statement) in LISTS {
        if parser.eat(word) {
            return Ok(statement);
        }
    }
    let variable = if parser.eat("TRANSACTION ISOLATION LEVEL") {
        "transaction_isolation".to_string()
    } else if parser.eat("SESSION AUTHORIZATION") {
        "session_authorization".to_string()
    } else {
        set::parse_variable(parser)?
    };
    Ok(Statement::Show(Show { variable }))
}

impl fmt::Display for Show {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHOW {}", set::Variable(&self.variable))
    }
}
