//! `MERGE INTO t USING s ON ...`.

use std::fmt;

use datafusion::sql::sqlparser::parser;

use super::insert::Overriding;
use super::target::{Assignment, Returning, SetClause, Target, WithQueries, assignments, parse_returning, refuse_with_in_returning};
use crate::ast::{Expr, Ident, SelectItem, TableFactor, With};
use crate::error::Result;
use crate::name::{Columns, Separated, parse_optional_columns};
use crate::parser::Parser;

/// `[WITH ...] MERGE INTO t [AS x] USING source ON condition WHEN ... THEN ... [RETURNING ...]`
#[derive(Debug, Clone, PartialEq)]
pub struct Merge {
    /// Queries that `source`, the conditions and the values can name.
    pub with: Option<With>,
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
    Insert(MergeInsert),
}

/// `INSERT [(a, b)] [OVERRIDING ...] VALUES (1, DEFAULT)`, `INSERT DEFAULT VALUES`
#[derive(Debug, Clone, PartialEq)]
pub struct MergeInsert {
    /// Empty: those of the table.
    pub columns: Vec<Ident>,
    pub overriding: Option<Overriding>,
    /// A value may be the word DEFAULT; empty: DEFAULT VALUES.
    pub values: Vec<Expr>,
}

impl Merge {
    pub(crate) fn parse(parser: &mut Parser, with: Option<With>) -> Result<Self> {
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
        let returning = parse_returning(parser)?;
        refuse_with_in_returning(with.as_ref(), &returning)?;
        Ok(Self { with, target, source, on, clauses, returning })
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
                MergeAction::Update(assignments(parser, list)?)
            }
            Some("INSERT") if inserts => MergeInsert::parse(parser).map(MergeAction::Insert)?,
            _ if inserts => return Err(parser.expected("INSERT or DO NOTHING")),
            _ => return Err(parser.expected("UPDATE, DELETE or DO NOTHING")),
        };
        Ok(Self { matching, condition, action })
    }
}

impl MergeInsert {
    fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("INSERT")?;
        if parser.eat("DEFAULT VALUES") {
            return Ok(Self { columns: Vec::new(), overriding: None, values: Vec::new() });
        }
        let columns = parse_optional_columns(parser)?;
        let overriding = Overriding::parse(parser)?;
        parser.expect("VALUES")?;
        let values = parser.parenthesized(|parser| parser.ast(parser::Parser::parse_expr))?;
        Ok(Self { columns, overriding, values })
    }
}

impl fmt::Display for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}MERGE INTO {} USING {} ON {}", WithQueries(self.with.as_ref()), self.target, self.source, self.on)?;
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
            MergeAction::Insert(insert) => write!(f, " THEN {insert}"),
        }
    }
}

impl fmt::Display for MergeInsert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.values.is_empty() {
            return f.write_str("INSERT DEFAULT VALUES");
        }
        write!(f, "INSERT{}", Columns(&self.columns))?;
        if let Some(overriding) = self.overriding {
            write!(f, " {overriding}")?;
        }
        write!(f, " VALUES ({})", Separated(self.values.iter()))
    }
}
