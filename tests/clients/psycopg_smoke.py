"""What a psycopg 3 user does first, against a running server: `psycopg_smoke.py HOST PORT`.

Exits with 0 if everything holds; the first thing that does not is a failed assertion. Leaves no table behind.
"""

import datetime
import decimal
import json
import sys
import threading
import time

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Json

ENDLESS = (
    "SELECT count(*) FROM generate_series(1, 100000000) a CROSS JOIN generate_series(1, 1000000) b"
    " WHERE a.value % 7 = b.value"
)


def connect(host, port):
    return psycopg.connect(host=host, port=port, user="someone", dbname="rolloutdb", autocommit=True)


def check_server(connection):
    assert connection.info.server_version == 160000, connection.info.server_version
    assert "RolloutDB" in connection.info.parameter_status("server_version")
    assert connection.info.encoding == "utf-8"
    assert connection.info.parameter_status("TimeZone") == "UTC"


def check_queries(connection):
    cursor = connection.execute("SELECT 1 AS one, 'text' AS two, NULL AS three, true AS four, 0.5::double precision AS five")
    assert cursor.fetchall() == [(1, "text", None, True, 0.5)]
    assert [column.name for column in cursor.description] == ["one", "two", "three", "four", "five"]
    assert cursor.statusmessage == "SELECT 1" and cursor.rowcount == 1, cursor.statusmessage
    cursor = connection.execute("SELECT date '2024-02-29' AS d, timestamp '2024-02-29 01:02:03' AS t, 1.50::numeric(10, 2) AS n")
    expected = (datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3), decimal.Decimal("1.50"))
    assert cursor.fetchone() == expected
    assert connection.execute("").statusmessage is None


def check_parameters(connection):
    row = connection.execute(
        "SELECT %s + 1, %s, %s, %s::double precision, %s",
        (41, "it's", None, 2.5, True),
    ).fetchone()
    assert row == (42, "it's", None, 2.5, True), row
    for value in (7, 3_000_000_000, -1, 2.25, "grüß", True, None, [1, 2, 3], [1.5, 2.5], b"\x00\xff"):
        for binary in (False, True):
            found = connection.execute("SELECT %s AS value", (value,), binary=binary).fetchone()[0]
            assert found == value, (value, found, binary)
    texts = ["a,b", 'c"d', "", None, "{}"]
    for binary in (False, True):
        assert connection.execute("SELECT %s::text[]", (texts,), binary=binary).fetchone() == (texts,)
    assert connection.execute("SELECT %s::vector(3)", ("[1,2.5,-3]",)).fetchone() == ("[1,2.5,-3]",)
    document = json.dumps({"a": [1, 2], "b": "{x}"})
    assert connection.execute("SELECT %s::text", (document,)).fetchone() == (document,)
    assert json.loads(connection.execute("SELECT %s::text", (Json({"a": 1}),)).fetchone()[0]) == {"a": 1}
    when = datetime.datetime(2024, 2, 29, 1, 2, 3, 456000)
    for binary in (False, True):
        found = connection.execute("SELECT %t::timestamp" if not binary else "SELECT %b::timestamp", (when,), binary=binary)
        assert found.fetchone()[0] == when


def check_table(connection):
    statements = [
        ("CREATE TABLE smoke (id bigint, name text, tags text[], embedding vector(3))", "CREATE TABLE"),
        ("INSERT INTO smoke (id, name) VALUES (1, 'one'), (2, NULL)", "INSERT 0 2"),
    ]
    for statement, tag in statements:
        assert connection.execute(statement).statusmessage == tag, statement
    with connection.cursor() as cursor:
        rows = [(number, f"name {number}", ["a", None, "{b}"], "[1,2.5,-3]") for number in range(3, 23)]
        cursor.executemany("INSERT INTO smoke VALUES (%s, %s, %s, %s)", rows)
        assert cursor.rowcount == len(rows), cursor.rowcount
    for binary in (False, True):
        cursor = connection.execute("SELECT * FROM smoke WHERE id > %s ORDER BY id LIMIT %s", (2, 2), binary=binary, prepare=True)
        assert cursor.fetchall() == rows[:2]
    with connection.cursor(row_factory=dict_row) as cursor:
        assert cursor.execute("SELECT id, name FROM smoke WHERE name IS NULL").fetchall() == [{"id": 2, "name": None}]
    cursor = connection.execute("SELECT name FROM smoke WHERE id = ANY(%s) ORDER BY id", ([3, 4],))
    assert cursor.fetchall() == [("name 3",), ("name 4",)]
    assert connection.execute("SELECT count(*) FROM smoke").fetchone() == (22,)


def check_prepared(connection):
    for number in range(10):  # psycopg prepares a statement on the server when it has seen it five times
        assert connection.execute("SELECT id + %s FROM smoke WHERE id = 1", (number,)).fetchone() == (1 + number,)
    for binary in (False, True):
        found = [connection.execute("SELECT %s::bigint * 2", (number,), prepare=True, binary=binary).fetchone()[0] for number in (1, 2, 3)]
        assert found == [2, 4, 6]
    with connection.pipeline():
        cursors = [connection.execute("SELECT %s::bigint", (number,)) for number in range(20)]
    assert [cursor.fetchone()[0] for cursor in cursors] == list(range(20))


def check_errors(connection):
    for statement, parameters, error in [
        ("SELECT * FROM no_such_table", None, psycopg.errors.UndefinedTable),
        ("SELECT no_such_column FROM smoke", None, psycopg.errors.UndefinedColumn),
        ("SELECT no_such_function(1)", None, psycopg.errors.UndefinedFunction),
        ("SELEC 1", None, psycopg.errors.SyntaxError),
        ("SELECT 1; SELECT %s", (1,), psycopg.errors.SyntaxError),
        ("INSERT INTO smoke (id) VALUES (%s)", ("not a number",), psycopg.errors.InvalidTextRepresentation),
        ("INSERT INTO smoke (id, embedding) VALUES (%s, %s)", (1, "[1,2]"), psycopg.errors.DatatypeMismatch),
        ("SELECT 1 / (id - 1) FROM smoke", None, psycopg.errors.DivisionByZero),
    ]:
        try:
            connection.execute(statement, parameters)
        except error as found:
            assert found.diag.severity == "ERROR" and found.diag.message_primary
        else:
            raise AssertionError(f"{statement} should fail with {error.__name__}")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def check_transaction(connection):
    with connection.transaction():
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        connection.execute("SELECT count(*) FROM smoke")
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def check_streaming(connection):
    with connection.cursor() as cursor:
        stream = cursor.stream("SELECT value FROM generate_series(1, 20000) ORDER BY value")
        assert [value for (value,) in stream] == list(range(1, 20001))


def check_cancel(connection):
    timer = threading.Timer(0.5, connection.cancel)
    timer.start()
    started = time.monotonic()
    try:
        connection.execute(ENDLESS)
    except psycopg.errors.QueryCanceled:
        assert time.monotonic() - started < 5
    else:
        raise AssertionError("the statement should be cancelled")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    checks = [
        check_server, check_queries, check_parameters, check_table, check_prepared, check_errors, check_transaction,
        check_streaming, check_cancel,
    ]
    with connect(host, port) as connection:
        try:
            for check in checks:
                check(connection)
                print(f"ok {check.__name__.removeprefix('check_')}")
        finally:
            connection.execute("DROP TABLE IF EXISTS smoke")


if __name__ == "__main__":
    main()
