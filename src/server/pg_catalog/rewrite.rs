//! Catalog queries of clients in a form that DataFusion plans.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use rolloutdb_sql::Statement;
use rolloutdb_sql::ast;
use rolloutdb_sql::sqlparser::dialect::PostgreSqlDialect;
use rolloutdb_sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::{SCHEMA, activity};

static PARSER: LazyLock<PostgresCompatibilityParser> = LazyLock::new(PostgresCompatibilityParser::new);

/// Types whose values are names of catalog objects, as in `'wiki'::regclass`.
const OBJECT_TYPES: &[&str] = &["regclass", "regtype", "regproc", "regnamespace"];

/// The statements of `text` if all are queries and they ask about the catalog; `None` for every other text, and for one that
/// cannot be read, which the caller's own parser then reports.
///
/// The rewrites change what a query means (an uncorrelated subquery in a projection gets LIMIT 1, operators lose their schema),
/// which is right for what psql and drivers send and for nothing else: hence the condition.
pub fn rewrite_catalog_query(text: &str) -> Option<Vec<Statement>> {
    if !asks_about_catalog(text) {
        return None;
    }
    let statements = PARSER.parse(text).ok()?;
    statements.into_iter().map(query).collect()
}

fn query(mut statement: ast::Statement) -> Option<Statement> {
    let _: ControlFlow<()> = ast::visit_expressions_mut(&mut statement, |expression| {
        if is_array_of_subquery(expression) || is_storage_options(expression) {
            *expression = null_text_array();
        }
        ControlFlow::Continue(())
    });
    let _: ControlFlow<()> = ast::visit_relations_mut(&mut statement, |name| {
        let unqualified = name.to_string().to_ascii_lowercase();
        if activity::is_here(&unqualified) || unqualified == "pg_user" {
            // The library puts its own tables into their schema, which these are not.
            name.0.insert(0, ast::ObjectNamePart::Identifier(ast::Ident::new(SCHEMA)));
        }
        ControlFlow::Continue(())
    });
    match statement {
        ast::Statement::Query(query) => Some(Statement::Query(query)),
        _ => None,
    }
}

/// `ARRAY(SELECT ...)`, which DataFusion lacks. Clients list with it what we do not have: role memberships, storage options.
fn is_array_of_subquery(expression: &ast::Expr) -> bool {
    match expression {
        ast::Expr::Function(function) => {
            matches!(function.args, ast::FunctionArguments::Subquery(_)) && function.name.to_string().eq_ignore_ascii_case("array")
        }
        _ => false,
    }
}

/// `pg_class.reloptions`, which the library's table lacks.
fn is_storage_options(expression: &ast::Expr) -> bool {
    match expression {
        ast::Expr::Identifier(name) => name.value == "reloptions",
        ast::Expr::CompoundIdentifier(names) => names.last().is_some_and(|name| name.value == "reloptions"),
        _ => false,
    }
}

fn null_text_array() -> ast::Expr {
    ast::Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(ast::Expr::Value(ast::Value::Null.into())),
        data_type: ast::DataType::Array(ast::ArrayElemTypeDef::SquareBracket(Box::new(ast::DataType::Text), None)),
        array: false,
        format: None,
    }
}

/// Whether a name in `text`, not a literal or a comment, is one of the catalog's.
fn asks_about_catalog(text: &str) -> bool {
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize() else { return false };
    tokens.iter().any(|token| match token {
        Token::Word(word) => is_catalog_name(&word.value.to_ascii_lowercase()),
        _ => false,
    })
}

fn is_catalog_name(name: &str) -> bool {
    name.starts_with("pg_") || name == "information_schema" || OBJECT_TYPES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_queries_that_name_the_catalog_are_rewritten() {
        for text in ["SELECT * FROM pg_class", "select 1 from information_schema.tables", "SELECT 't'::regclass"] {
            assert!(rewrite_catalog_query(text).is_some(), "{text}");
        }
        for text in [
            "SELECT * FROM wiki WHERE title = 'pg_class'",
            "SELECT 1 -- pg_class",
            "DROP TABLE pg_notes",
            "TRAIN SFT MODEL m FROM p USING (SELECT * FROM pg_notes)",
            "SELECT * FROM pg_class WHERE",
        ] {
            assert!(rewrite_catalog_query(text).is_none(), "{text}");
        }
    }

    #[test]
    fn an_array_of_a_subquery_is_null() {
        let statements = rewrite_catalog_query("SELECT ARRAY(SELECT m.roleid FROM pg_auth_members m) AS members FROM pg_roles");
        let text = statements.expect("a catalog query")[0].to_string();
        assert!(text.contains("CAST(NULL AS TEXT[]) AS members"), "{text}");
    }
}
