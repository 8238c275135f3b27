//! Bounds on how deep a statement's tree is, so that no text can overflow the stack.
//!
//! sqlparser bounds parentheses, but builds `a + b + c` in a loop, as a tree that leans to the left and is as deep as the chain
//! is long; dropping, cloning and planning it are recursive. So [`check_chains`] refuses chains that could not even be dropped,
//! before anything is built; [`balance`] gives the long chains of real life, AND and OR, the depth of their logarithm; and
//! [`rewrite`](crate::rewrite::rewrite) refuses what is then deeper than [`DEPTH_MAX`].

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::ast::{BinaryOperator, Expr, Value};
use crate::error::{Error, Result};

/// Levels of expressions within expressions. A clone of a tree takes up to 4 KiB of stack for each (measured, unoptimised),
/// and threads have 2 MiB.
pub(crate) const DEPTH_MAX: usize = 256;

/// Queries within queries, where they stand in expressions or in WITH. Making a plan takes up to twice as long for each such level.
pub(crate) const QUERY_DEPTH_MAX: usize = 12;

/// Arrays and rows within each other. The parser reads each twice, as a type and as a value, and so the innermost 2^n times; PostgreSQL's arrays have at
/// most 6 dimensions.
const LIST_DEPTH_MAX: usize = 12;

/// Operators in one chain. Half of them, `a = 1 OR a = 2 ...`, is the longest list of alternatives; IN has no such bound.
const CHAIN_MAX: usize = 4096;

/// Chains of AND and OR this long get balanced; shorter ones keep the shape that sqlparser gave them.
const BALANCED_FROM: usize = 32;

/// What is open at one level of parentheses.
#[derive(Default)]
struct Level {
    /// Depth of the expression that is being read.
    chain: usize,
    /// Number of queries joined by UNION and the like; commas do not end these.
    set_operators: usize,
    /// Depth of the deepest expression that ended with a comma.
    deepest: usize,
}

impl Level {
    fn depth(&self) -> usize {
        self.chain.max(self.set_operators).max(self.deepest)
    }
}

/// Refuses chains of more than [`CHAIN_MAX`] operators, however they are spread over parentheses.
///
/// Counts from above: a statement has a tree no deeper than what is counted here.
pub(crate) fn check_chains(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut outer: Vec<Level> = Vec::new();
    let mut level = Level::default();
    let mut open_lists = OpenLists::default();
    let mut previous = &Token::EOF;
    for token in tokens.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_))) {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                level.chain += bracket_depth(token, previous);
                open_lists.open(*token == Token::LBracket || is_row(previous))?;
                outer.push(std::mem::take(&mut level));
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                open_lists.close();
                let inner = std::mem::replace(&mut level, outer.pop().unwrap_or_default());
                level.chain = level.chain.max(inner.depth() + 1);
            }
            Token::Comma => level.deepest = level.deepest.max(std::mem::take(&mut level.chain)),
            Token::SemiColon => {
                outer.clear();
                open_lists = OpenLists::default();
                level = Level::default();
            }
            token if is_set_operator(token) => level.set_operators += 1,
            token => level.chain += usize::from(is_operator(token)),
        }
        if level.depth().max(outer.len()) > CHAIN_MAX {
            return Err(Error::TooDeep { limit: CHAIN_MAX, what: "operators in one expression" });
        }
        previous = token;
    }
    Ok(())
}

/// The brackets that are open, and how many of them are of arrays and rows.
#[derive(Default)]
struct OpenLists {
    is_list: Vec<bool>,
    count: usize,
}

impl OpenLists {
    fn open(&mut self, is_list: bool) -> Result<()> {
        self.is_list.push(is_list);
        self.count += usize::from(is_list);
        match self.count > LIST_DEPTH_MAX {
            true => Err(Error::TooDeep { limit: LIST_DEPTH_MAX, what: "arrays and rows within each other" }),
            false => Ok(()),
        }
    }

    fn close(&mut self) {
        self.count -= usize::from(self.is_list.pop().unwrap_or_default());
    }
}

fn is_row(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.keyword == Keyword::ROW)
}

/// `int[][]` is an array of an array: a tree that [`rewrite`](crate::rewrite::rewrite) does not see, so its levels weigh as much
/// as makes [`DEPTH_MAX`] of them the bound.
fn bracket_depth(token: &Token, previous: &Token) -> usize {
    match (previous, token) {
        (Token::RBracket, Token::LBracket) => CHAIN_MAX / DEPTH_MAX,
        (_, Token::LBracket) => 1,
        _ => 0,
    }
}

/// Words that join queries.
const SET_OPERATORS: &[Keyword] = &[Keyword::UNION, Keyword::EXCEPT, Keyword::INTERSECT, Keyword::MINUS];

/// Words that can add a level to an expression (or, PIVOT, to a table).
const OPERATORS: &[Keyword] = &[
    Keyword::AND,
    Keyword::AT,
    Keyword::BETWEEN,
    Keyword::COLLATE,
    Keyword::DIV,
    Keyword::ILIKE,
    Keyword::IN,
    Keyword::IS,
    Keyword::LIKE,
    Keyword::MATCH,
    Keyword::MEMBER,
    Keyword::NOT,
    Keyword::NOTNULL,
    Keyword::OPERATOR,
    Keyword::OR,
    Keyword::OVERLAPS,
    Keyword::PIVOT,
    Keyword::REGEXP,
    Keyword::RLIKE,
    Keyword::SIMILAR,
    Keyword::UNPIVOT,
    Keyword::XOR,
];

fn is_set_operator(token: &Token) -> bool {
    matches!(token, Token::Word(word) if SET_OPERATORS.contains(&word.keyword))
}

/// Whether the token can add a level to an expression. Signs do, unless they are known not to.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => OPERATORS.contains(&word.keyword),
        Token::Number(..) | Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) | Token::DollarQuotedString(_) => false,
        Token::Placeholder(_) | Token::Period | Token::RArrow | Token::EOF => false,
        _ => true,
    }
}

/// Turns a chain of ANDs, or of ORs, into a tree of the depth of its logarithm, with the operands in their order.
///
/// Both are associative, with NULL too. It prints the same and reads as the same again.
pub(crate) fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } = expr else { return };
    let op = op.clone();
    if chain_length(expr, &op) >= BALANCED_FROM {
        let operands = operands(std::mem::replace(expr, Expr::value(Value::Null)), &op);
        let count = operands.len();
        *expr = join(&mut operands.into_iter(), count, &op);
    }
}

fn chain_length(mut expr: &Expr, chain: &BinaryOperator) -> usize {
    let mut length = 1;
    while let Expr::BinaryOp { left, op, .. } = expr
        && op == chain
    {
        expr = left;
        length += 1;
    }
    length
}

/// The operands of the chain from left to right; takes the tree apart without recursion.
fn operands(expr: Expr, chain: &BinaryOperator) -> Vec<Expr> {
    let mut operands = Vec::new();
    let mut rest = vec![expr];
    while let Some(expr) = rest.pop() {
        match expr {
            Expr::BinaryOp { left, op, right } if op == *chain => rest.extend([*right, *left]),
            operand => operands.push(operand),
        }
    }
    operands
}

/// A balanced tree of the next `count` operands, of which there must be as many.
fn join(operands: &mut impl Iterator<Item = Expr>, count: usize, op: &BinaryOperator) -> Expr {
    if count == 1 {
        return operands.next().expect("the halves of the count add up to the number of operands");
    }
    let left = Box::new(join(operands, count / 2, op));
    let right = Box::new(join(operands, count - count / 2, op));
    Expr::BinaryOp { left, op: op.clone(), right }
}
