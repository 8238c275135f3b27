//! Names of the columns of a recursive WITH query: `WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)`.
//!
//! DataFusion gives a recursive query its names when both of its parts are planned, so that the second part would know the columns by what the first part happens
//! to call them. Here the first part gets the names, and the query needs no list of them any more.

use crate::ast::{Cte, SetExpr, SetOperator, TableFactor, With};
use crate::sqlparser::dialect::PostgreSqlDialect;
use crate::sqlparser::parser::Parser;

/// Writes the names in the first part of each recursive query that has a list of them.
pub(crate) fn name_first_parts(with: &mut With) {
    if with.recursive {
        with.cte_tables.iter_mut().for_each(name_first_part);
    }
}

/// `r (n) AS (a UNION b)` becomes `r AS (SELECT * FROM (a) AS r (n) UNION b)`.
fn name_first_part(cte: &mut Cte) {
    let SetExpr::SetOperation { op: SetOperator::Union, left, .. } = cte.query.body.as_mut() else { return };
    if cte.alias.columns.is_empty() {
        return;
    }
    let mut named = select_all_of_a_query();
    let SetExpr::Select(select) = &mut named else { return };
    let Some(TableFactor::Derived { subquery, alias: Some(alias), .. }) = select.from.first_mut().map(|from| &mut from.relation) else {
        return;
    };
    alias.name = cte.alias.name.clone();
    alias.columns = std::mem::take(&mut cte.alias.columns);
    std::mem::swap(&mut subquery.body, left);
    **left = named;
}

fn select_all_of_a_query() -> SetExpr {
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql("SELECT * FROM (SELECT 1) AS r");
    let query = parser.and_then(|mut parser| parser.parse_query()).expect("a query that PostgreSQL reads");
    *query.body
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn the_first_part_has_the_names() {
        for (text, expected) in [
            (
                "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
                "WITH RECURSIVE r AS (SELECT * FROM (SELECT 1) AS r (n) UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
            ),
            ("WITH r (n) AS (SELECT 1 UNION SELECT 2) SELECT * FROM r", "WITH r (n) AS (SELECT 1 UNION SELECT 2) SELECT * FROM r"),
            (
                "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n FROM r) SELECT * FROM r",
                "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n FROM r) SELECT * FROM r",
            ),
        ] {
            let statements = parse(text).expect(text);
            let printed = statements[0].to_string();
            assert_eq!(printed, expected);
            assert_eq!(parse(&printed).expect("what is printed is read"), statements);
        }
    }
}
