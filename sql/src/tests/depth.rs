//! No text overflows the stack.

use expect_test::expect;

use super::*;

#[test]
fn nesting_has_a_bound() {
    let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(60)).is_ok());
    assert!(matches!(parse(&nested(100_000)), Err(Error::TooDeep { .. })));
}

/// Threads of a server have 2 MiB of stack, as those of tests do: an overflow would end the process.
#[test]
fn long_chains_do_not_overflow_the_stack() {
    let is_too_deep = |text: &str| matches!(parse(text), Err(Error::TooDeep { .. }));
    for (start, link) in [
        ("SELECT 1", " + 1"),
        ("SELECT a", "::int"),
        ("SELECT a::int", "[]"),
        ("SELECT a", " IS NULL"),
        ("SELECT a", " BETWEEN 1 AND 2"),
        ("SELECT 1", " + ARRAY[1, 2]"),
        ("SELECT 1", " + CASE WHEN a THEN 2 END"),
        ("SELECT 1, 2", " UNION SELECT 1, 2"),
        ("SELECT a FROM t WHERE a = 0", " OR a = 1"),
    ] {
        // Around the bound of depth, and around that of chains; with `)`, sqlparser drops a tree that is half built.
        for count in [100, 255, 2_000, 4_000] {
            let text = format!("{start}{}", link.repeat(count));
            match parse(&text) {
                Ok(statements) => drop(statements.iter().map(print_and_read).collect::<Vec<_>>()),
                Err(error) => assert!(matches!(error, Error::TooDeep { .. }), "{start}{link}: {error}"),
            }
            assert!(parse(&format!("{text} )")).is_err(), "{start}{link}");
        }
        assert!(is_too_deep(&format!("{start}{}", link.repeat(20_000))), "{start}{link}");
    }
    assert!(is_too_deep(&format!("SELECT * FROM {}t", "(".repeat(100_000))));
    assert!(is_too_deep(&format!("SELECT {}1", "- ".repeat(4_000))));
}

#[test]
fn long_chains_of_alternatives_are_balanced() {
    check_grouping("a OR b OR c", expect!["[[a OR b] OR c]"]);
    let text = format!("SELECT * FROM t WHERE a = 0{}", " OR a = 1 AND b < 2".repeat(1_000));
    let statement = parse_one(&text);
    assert_eq!(statement.to_string(), text);
    print_and_read(&statement);
}

#[test]
fn long_lists_are_no_chains() {
    let rows = vec!["(1, -2, a.b + 1)"; 5_000].join(", ");
    print_and_read(&parse_one(&format!("INSERT INTO t VALUES {rows}")));
    print_and_read(&parse_one(&format!("SELECT * FROM t WHERE a IN ({})", vec!["-1"; 5_000].join(", "))));
    print_and_read(&parse_one(&format!("SELECT * FROM t{}", " JOIN u ON t.a = u.a AND t.b = u.b".repeat(500))));
}

/// Each level would double the time that parsing, or planning, takes.
#[test]
fn levels_that_double_the_work_are_read_once_or_refused() {
    let nested = |start: &str, end: &str, depth: usize| format!("SELECT {}1{}", start.repeat(depth), end.repeat(depth));
    print_and_read(&parse_one(&nested("abs(", ")", 60)));
    print_and_read(&parse_one(&nested("coalesce(k => ", ")", 60)));
    for (start, end) in [("(SELECT ", ")"), ("EXISTS (SELECT ", ")"), ("1 IN (SELECT ", ")"), ("(WITH a AS (SELECT 1) SELECT ", ")")] {
        assert!(parse(&nested(start, end, 6)).is_ok(), "{start}");
        assert!(matches!(parse(&nested(start, end, 14)), Err(Error::TooDeep { .. })), "{start}");
    }
    // Side by side they are no levels, and in FROM they take no longer.
    print_and_read(&parse_one(&format!("SELECT {}", vec!["(SELECT 1)"; 40].join(", "))));
    print_and_read(&parse_one(&format!("SELECT 1 FROM {}(SELECT 1) AS x{}", "(SELECT 1 FROM ".repeat(30), ") AS x".repeat(30))));
}
