//! `MERGE INTO t USING s ON ...`.

use std::fmt;

use datafusion::sql::sqlparser::parser;

use super::target::{Assignment, Returning, SetClause, Target, assignments};
use crate::ast::{Expr, Ident, SelectItem, TableFactor};
use crate::error::{Error, Result};
use crate::name::{Columns, Separated, parse_optional_columns};
use crate::parser::Parser;

/// `MERGE INTO t [AS x] USING source ON condition WHEN ... THEN ... [RETURNING ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct Merge {
    pub target: Target,
    /// A table or a subquery.
    pub source: TableFactor,
    pub on: Expr,
    /// At least one; of those for a row, the first whose condition is true is done.
    pub clauses: Vec<MergeClause>,
    pub returning: Vec<SelectItem>,
}

/// `WHEN MATCHED [AND condition] THEN action`
#[derive(Debug, Clone, PartialEq)]
pub struct MergeClause {
    pub matching: Matching,
    pub condition: Option<Expr>,
    pub action: MergeAction,
}

/// Which pairs of rows a clause is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// A row of the target with a row of the source.
    Matched,
    /// A row of the source without one of the target.
    NotMatchedByTarget,
    /// A row of the target without one of the source.
    NotMatchedBySource,
}

#[derive(Debug, Clone, PartialEq)]
pub enum MergeAction {
    Nothing,
    Delete,
    Update(Vec<Assignment>),
    /// Columns (empty: those of the table) and their values; a value may be the word DEFAULT.
    Insert(Vec<Ident>, Vec<Expr>),
}

impl Merge {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("MERGE")?;
        parser.eat("INTO");
        let target = Target::from_relation(parser.ast(parser::Parser::parse_table_factor)?, "MERGE")?;
        parser.expect("USING")?;
        let source = parser.ast(parser::Parser::parse_table_factor)?;
        parser.expect("ON")?;
        let on = parser.ast(parser::Parser::parse_expr)?;
        let mut clauses = Vec::new();
        while parser.eat("WHEN") {
            clauses.push(MergeClause::parse(parser)?);
        }
        if clauses.is_empty() {
            return Err(parser.expected("WHEN MATCHED or WHEN NOT MATCHED"));
        }
        let returning = if parser.eat("RETURNING") {
            parser.comma_separated(|parser| parser.ast(parser::Parser::parse_select_item))?
        } else {
            Vec::new()
        };
        Ok(Self { target, source, on, clauses, returning })
    }
}

impl MergeClause {
    fn parse(parser: &mut Parser) -> Result<Self> {
        let matching = if parser.eat("MATCHED") {
            Matching::Matched
        } else {
            parser.expect("NOT MATCHED")?;
            match (parser.eat("BY SOURCE"), parser.eat("BY TARGET")) {
                (true, _) => Matching::NotMatchedBySource,
                (false, _) => Matching::NotMatchedByTarget,
            }
        };
        let condition = if parser.eat("AND") { Some(parser.ast(parser::Parser::parse_expr)?) } else { None };
        parser.expect("THEN")?;
        let inserts = matching == Matching::NotMatchedByTarget;
        let action = match parser.peek_word(0).as_deref() {
            Some("DO") => parser.expect("DO NOTHING").map(|()| MergeAction::Nothing)?,
            Some("DELETE") if !inserts => parser.expect("DELETE").map(|()| MergeAction::Delete)?,
            Some("UPDATE") if !inserts => {
                parser.expect("UPDATE SET")?;
                let list = parser.comma_separated(|parser| parser.ast(parser::Parser::parse_assignment))?;
                MergeAction::Update(assignments(list)?)
            }
            Some("INSERT") if inserts => parse_insert(parser)?,
            _ if inserts => return Err(parser.expected("INSERT or DO NOTHING")),
            _ => return Err(parser.expected("UPDATE, DELETE or DO NOTHING")),
        };
        Ok(Self { matching, condition, action })
    }
}

fn parse_insert(parser: &mut Parser) -> Result<MergeAction> {
    parser.expect("INSERT")?;
    let columns = parse_optional_columns(parser)?;
    if parser.is_at("DEFAULT VALUES") {
        return Err(Error::not_supported_but("INSERT DEFAULT VALUES", "give at least one value"));
    }
    parser.expect("VALUES")?;
    let values = parser.parenthesized(|parser| parser.ast(parser::Parser::parse_expr))?;
    Ok(MergeAction::Insert(columns, values))
}

impl fmt::Display for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MERGE INTO {} USING {} ON {}", self.target, self.source, self.on)?;
        for clause in &self.clauses {
            write!(f, " {clause}")?;
        }
        write!(f, "{}", Returning(&self.returning))
    }
}

impl fmt::Display for MergeClause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.matching {
            Matching::Matched => "WHEN MATCHED",
            Matching::NotMatchedByTarget => "WHEN NOT MATCHED",
            Matching::NotMatchedBySource => "WHEN NOT MATCHED BY SOURCE",
        })?;
        if let Some(condition) = &self.condition {
            write!(f, " AND {condition}")?;
        }
        match &self.action {
            MergeAction::Nothing => f.write_str(" THEN DO NOTHING"),
            MergeAction::Delete => f.write_str(" THEN DELETE"),
            MergeAction::Update(assignments) => write!(f, " THEN UPDATE{}", SetClause(assignments)),
            MergeAction::Insert(columns, values) => {
                write!(f, " THEN INSERT{} VALUES ({})", Columns(columns), Separated(values.iter()))
            }
        }
    }
}
