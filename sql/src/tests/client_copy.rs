//! COPY through the client, in the forms that clients write; cursors.

use expect_test::expect;

use super::check;

#[test]
fn copy_through_the_client() {
    check("COPY t FROM STDIN", expect!["COPY | COPY t FROM STDIN"]);
    check("copy t (a, B) from stdin with csv header", expect!["COPY | COPY t (a, b) FROM STDIN (format 'csv', header true)"]);
    check("COPY (SELECT 1 AS x) TO STDOUT (FORMAT binary)", expect!["COPY | COPY (SELECT 1 AS x) TO STDOUT (format 'binary')"]);
    check("COPY t TO STDIN", expect!["COPY | COPY t TO STDOUT"]);
    check("COPY BINARY t FROM STDIN", expect!["COPY | COPY t FROM STDIN (format 'binary')"]);
    check("COPY binary FROM STDIN", expect!["COPY | COPY binary FROM STDIN"]);
    check(
        "COPY t FROM STDIN WITH DELIMITER AS ';' NULL '' CSV QUOTE '\"' ESCAPE AS '\"' FORCE NOT NULL a, b FORCE NULL c ON ERROR SKIP",
        expect![[
            r#"COPY | COPY t FROM STDIN (delimiter ';', "null" '', format 'csv', quote '"', escape '"', force_not_null ['a', 'b'], force_null ['c'], on_error 'skip')"#
        ]],
    );
    check("COPY t TO STDOUT CSV FORCE QUOTE *", expect!["COPY | COPY t TO STDOUT (format 'csv', force_quote '*')"]);
    check("COPY t TO STDOUT (FORMAT csv, FORCE_QUOTE *)", expect!["COPY | COPY t TO STDOUT (format 'csv', force_quote '*')"]);
    check("COPY t FROM 'x.csv' CSV HEADER", expect!["COPY | COPY t FROM 'x.csv' (format 'csv', header true)"]);
    check("COPY t FROM STDIN (FORMAT csv, HEADER match)", expect!["COPY | COPY t FROM STDIN (format 'csv', header 'match')"]);
    check("COPY t FROM PROGRAM 'ls'", expect!["COPY with PROGRAM is not supported yet; name a file in quotes, or STDIN or STDOUT"]);
    check(
        "COPY t FROM STDIN WITH",
        expect![[r#"syntax error at end of input: expected "(" and options, as in (FORMAT csv, HEADER true) [at character 23]"#]],
    );
    check("COPY t FROM STDIN CSV CSV", expect![[r#"option "format" is given twice"#]]);
}

#[test]
fn cursors() {
    check("DECLARE c CURSOR FOR SELECT 1", expect!["DECLARE CURSOR | DECLARE c CURSOR FOR SELECT 1"]);
    check(
        "DECLARE \"C\" NO SCROLL BINARY INSENSITIVE CURSOR WITH HOLD FOR VALUES (1)",
        expect![[r#"DECLARE CURSOR | DECLARE "C" BINARY CURSOR WITH HOLD FOR VALUES (1)"#]],
    );
    check("DECLARE c CURSOR WITHOUT HOLD FOR TABLE t", expect!["DECLARE CURSOR | DECLARE c CURSOR FOR TABLE t"]);
    check(
        "DECLARE c SCROLL CURSOR FOR SELECT 1",
        expect!["DECLARE ... SCROLL CURSOR is not supported yet; rows come forward only; leave out SCROLL"],
    );
    check(
        "FETCH c; FETCH NEXT c; FETCH 5 FROM c; FETCH FORWARD 2000 FROM c; FETCH ALL IN c; FETCH FORWARD ALL FROM c; FETCH next",
        expect![[r#"
            FETCH | FETCH FORWARD 1 FROM c
            FETCH | FETCH FORWARD 1 FROM c
            FETCH | FETCH FORWARD 5 FROM c
            FETCH | FETCH FORWARD 2000 FROM c
            FETCH | FETCH ALL FROM c
            FETCH | FETCH ALL FROM c
            FETCH | FETCH FORWARD 1 FROM next"#]],
    );
    check(
        "MOVE -2 c; MOVE PRIOR FROM c; FETCH LAST c; MOVE ABSOLUTE 7 FROM c; FETCH RELATIVE 3 c; FETCH BACKWARD ALL c",
        expect![[r#"
            MOVE | MOVE FORWARD -2 FROM c
            MOVE | MOVE FORWARD -1 FROM c
            FETCH | FETCH ABSOLUTE -1 FROM c
            MOVE | MOVE ABSOLUTE 7 FROM c
            FETCH | FETCH RELATIVE 3 FROM c
            FETCH | FETCH BACKWARD ALL FROM c"#]],
    );
    check(
        "CLOSE c; CLOSE ALL",
        expect![[r#"
        CLOSE CURSOR | CLOSE c
        CLOSE CURSOR ALL | CLOSE ALL"#]],
    );
}
