//! `CREATE INDEX i ON t USING hnsw (embedding vector_cosine_ops)`, and `((binary_quantize(embedding)::bit(384)) bit_hamming_ops)`.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Token;

use std::ops::ControlFlow;

use crate::ast::{Expr, Ident, ObjectName, Visit, Visitor};
use crate::error::{Error, Result};
use crate::name::{Name, Qualified, column, if_not_exists};
use crate::options::Options;
use crate::parser::Parser;

/// `CREATE INDEX [CONCURRENTLY] [[IF NOT EXISTS] i] ON t [USING method] (column [operator class]) [WITH (name = value, ...)]`
///
/// `CONCURRENTLY` is read and not kept: a build never blocks readers.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateIndex {
    /// `None`: the engine makes a name.
    pub name: Option<String>,
    pub if_not_exists: bool,
    pub table: ObjectName,
    /// The access method in lower case: `hnsw`, `bm25`; `btree` if the text names none.
    pub using: String,
    pub column: Ident,
    /// What is indexed, where that is more than the column, which is then the first one in it: of vectors alone.
    pub expression: Option<Box<Expr>>,
    /// pgvector's name for the distance: `vector_cosine_ops`.
    pub operator_class: Option<String>,
    pub options: Options,
}

const DEFAULT_METHOD: &str = "btree";

impl CreateIndex {
    pub(crate) fn parse(parser: &mut Parser) -> Result<Self> {
        parser.expect("CREATE INDEX")?;
        parser.eat("CONCURRENTLY");
        let if_not_exists = parser.eat("IF NOT EXISTS");
        let name = if parser.is_at("ON") { None } else { Some(parser.name("the index's name or ON")?) };
        if if_not_exists && name.is_none() {
            return Err(parser.expected("the index's name after IF NOT EXISTS"));
        }
        parser.expect("ON")?;
        let table = parser.object_name("the table's name")?;
        let using = if parser.eat("USING") { parser.name("the index method")? } else { DEFAULT_METHOD.to_string() };
        let (column, expression, operator_class) = parse_key(parser, &using)?;
        refuse(parser, &["INCLUDE", "NULLS", "TABLESPACE"])?;
        let options = Options::parse_with(parser)?;
        refuse(parser, &["TABLESPACE", "WHERE"])?;
        Ok(Self { name, if_not_exists, table, using, column, expression, operator_class, options })
    }
}

type Key = (Ident, Option<Box<Expr>>, Option<String>);

/// `(column [operator class])`, or an expression in parentheses, or a call, in the column's place.
fn parse_key(parser: &mut Parser, using: &str) -> Result<Key> {
    let keys = parser.parenthesized(|parser| {
        let is_call = matches!(parser.peek_token(), Token::Word(_)) && *parser.peek_nth_token(1) == Token::LParen;
        let expression = if parser.is_left_parenthesis() || is_call { Some(parse_expression(parser, using)?) } else { None };
        let column = match &expression {
            Some(expression) => first_column(expression).ok_or_else(|| parser.expected("a column in the index's expression"))?,
            None => parser.ident("a column's name")?,
        };
        refuse(parser, &["ASC", "DESC", "NULLS", "COLLATE"])?;
        let is_named = matches!(parser.peek_token(), Token::Word(_));
        let operator_class = if is_named { Some(parser.name("the operator class")?) } else { None };
        Ok((column, expression, operator_class))
    })?;
    let count = keys.len();
    match keys.into_iter().next() {
        Some(key) if count == 1 => Ok(key),
        _ => Err(Error::not_supported_but("CREATE INDEX on several columns", "create one index for each")),
    }
}

fn parse_expression(parser: &mut Parser, using: &str) -> Result<Box<Expr>> {
    if !matches!(using, "hnsw" | "ivfflat") {
        return Err(Error::not_supported_but("CREATE INDEX on an expression", "add a generated column and index that"));
    }
    let expression = parser.ast(|parser| parser.parse_prefix())?;
    Ok(Box::new(match expression {
        Expr::Nested(inner) => *inner,
        call => call,
    }))
}

fn first_column(expression: &Expr) -> Option<Ident> {
    struct First;
    impl Visitor for First {
        type Break = Ident;
        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<Ident> {
            match expression {
                Expr::Identifier(name) if name.quote_style.is_none() => ControlFlow::Break(Ident::new(name.value.to_ascii_lowercase())),
                Expr::Identifier(name) => ControlFlow::Break(name.clone()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match expression.visit(&mut First) {
        ControlFlow::Break(name) => Some(name),
        ControlFlow::Continue(()) => None,
    }
}

fn refuse(parser: &Parser, clauses: &[&str]) -> Result<()> {
    match parser.peek_word(0) {
        Some(word) if clauses.contains(&word.as_str()) => Err(Error::not_supported(format!("CREATE INDEX ... {word}"))),
        _ => Ok(()),
    }
}

impl fmt::Display for CreateIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE INDEX {}", if_not_exists(self.if_not_exists))?;
        if let Some(name) = &self.name {
            write!(f, "{} ", Name(name))?;
        }
        write!(f, "ON {} USING {} (", Qualified(&self.table), Name(&self.using))?;
        match &self.expression {
            Some(expression) => write!(f, "({expression})")?,
            None => write!(f, "{}", column(&self.column))?,
        }
        if let Some(operator_class) = &self.operator_class {
            write!(f, " {}", Name(operator_class))?;
        }
        write!(f, "){}", self.options.display_with())
    }
}
