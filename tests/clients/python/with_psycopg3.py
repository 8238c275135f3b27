"""psycopg 3: text and binary, server-side binding, pipeline mode (libpq's own), COPY, named cursors."""

import datetime
import decimal
import io
import math
import threading
import uuid

import psycopg
from checks import (DATABASE, LONG, HOST, LARGE, LARGE_COUNT, LARGE_SUM, PASSWORD, PORT, ROLE, USER, Checks, bounded_memory, equal, expect,
                    soon)
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.json import Json, Jsonb
from samples import EDGES, SAMPLES

check = Checks("psycopg 3", psycopg.__version__)


def connect(**options):
    return psycopg.connect(**{"host": HOST, "port": PORT, "user": USER, "dbname": DATABASE, "autocommit": True, **options})


def code_of(error):
    return getattr(error, "sqlstate", None) or type(error).__name__


def bound(sample):
    """The sample as a psycopg user passes it: JSON is wrapped."""
    return sample.with_documents(sample.value, Jsonb if "jsonb" in sample.type else Json)


@check("connect")
def _():
    with connect() as connection:
        equal(connection.execute("SELECT 1 AS one").fetchone(), (1,))
        info = connection.info
        equal((info.encoding, info.parameter_status("TimeZone"), info.parameter_status("standard_conforming_strings")), ("utf-8", "UTC", "on"))
        assert info.server_version >= 140000, info.server_version
        equal((info.parameter_status("integer_datetimes"), info.parameter_status("DateStyle").split(",")[0]), ("on", "ISO"))


@check("password")
def _():
    with connect(user=ROLE, password=PASSWORD) as connection:
        equal(connection.execute("SELECT current_user").fetchone(), (ROLE,))
    for password in ("wrong", ""):
        try:
            connect(user=ROLE, password=password).close()
        except psycopg.OperationalError as error:
            assert "password" in str(error), error
        else:
            raise AssertionError("connected with a wrong password")


def check_type(number, sample):
    def run():
        with connect() as connection:
            table = f"psycopg3_type_{number}"
            for binary in (False, True):
                found = connection.execute(f"SELECT %s::{sample.type}, NULL::{sample.type}", (bound(sample),), binary=binary).fetchone()
                equal(found, (sample.value, None))
            if not sample.is_stored:
                return
            connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, v {sample.type})")
            for id, format in enumerate(("%s", "%t", "%b")):
                connection.execute(f"INSERT INTO {table} VALUES (%s, {format})", (id, bound(sample)))
            connection.execute(f"INSERT INTO {table} VALUES (3, %s)", (None,))
            for binary in (False, True):
                cursor = connection.execute(f"SELECT v FROM {table} ORDER BY id", binary=binary)
                equal(cursor.fetchall(), [(sample.value,)] * 3 + [(None,)])
                equal(cursor.description[0].type_code, sample.oid)

    return run


for number, sample in enumerate(SAMPLES):
    check(f"type {sample.type}")(check_type(number, sample))


@check("type edges")
def _():
    with connect() as connection:
        for type, value in EDGES:
            for binary in (False, True):
                equal(connection.execute(f"SELECT %s::{type}", (value,), binary=binary).fetchone(), (value,))
        for binary in (False, True):
            assert math.isnan(connection.execute("SELECT 'NaN'::double precision", binary=binary).fetchone()[0])


@check("type integer[], two dimensions")
def _():
    with connect() as connection:
        for binary in (False, True):
            equal(connection.execute("SELECT ARRAY[[1, 2], [3, 4]]", binary=binary).fetchone()[0], [[1, 2], [3, 4]])


@check("type record")
def _():
    with connect() as connection:
        for binary in (False, True):
            equal(connection.execute("SELECT ROW(1, 'x'::text, NULL)", binary=binary).fetchone()[0], (1, "x", None) if binary else ("1", "x", None))


@check("type vector")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE psycopg3_vectors (id bigint, v vector(3), h halfvec(3))")
        connection.execute("INSERT INTO psycopg3_vectors VALUES (1, %s, %s), (2, NULL, NULL)", ("[1,2.5,-3]", "[1,2.5,-3]"))
        equal(connection.execute("SELECT v, h FROM psycopg3_vectors ORDER BY id").fetchall(), [("[1,2.5,-3]",) * 2, (None, None)])
        cursor = connection.execute("SELECT v, h FROM psycopg3_vectors WHERE id = 1", binary=True)
        equal(cursor.fetchone()[0], bytes.fromhex("00030000" + "3f800000" + "40200000" + "c0400000"))
        oids = dict(connection.execute("SELECT typname::text, oid FROM pg_type WHERE typname IN ('vector', 'halfvec')").fetchall())
        equal([column.type_code for column in cursor.description], [oids["vector"], oids["halfvec"]])


@check("parameters")
def _():
    with connect() as connection:
        row = connection.execute("SELECT %s + 1, %s, %s, %s::double precision, %s", (41, "it's", None, 2.5, True)).fetchone()
        equal(row, (42, "it's", None, 2.5, True))
        for value in (7, 3_000_000_000, -1, 2.25, "grüß", True, None, [1, 2, 3], [1.5, 2.5], b"\x00\xff", decimal.Decimal("1.10")):
            for binary in (False, True):
                equal(connection.execute("SELECT %s AS value", (value,), binary=binary).fetchone(), (value,))
        connection.execute("CREATE TABLE psycopg3_parameters (id bigint, name text, score double precision)")
        connection.execute("INSERT INTO psycopg3_parameters VALUES (%(id)s, %(name)s, %(score)s)", {"id": 1, "name": "one", "score": 0.5})
        connection.execute("INSERT INTO psycopg3_parameters VALUES (%s, %s, %s)", ("2", None, "1.5"))
        equal(connection.execute("SELECT id FROM psycopg3_parameters WHERE id = ANY(%s) ORDER BY id", ([1, 2, 3],)).fetchall(), [(1,), (2,)])
        equal(connection.execute("SELECT id FROM psycopg3_parameters WHERE name = %s AND score < %s LIMIT %s", ("one", 1, 5)).fetchall(), [(1,)])
        equal(connection.execute("SELECT count(*) FROM psycopg3_parameters WHERE name IS NOT DISTINCT FROM %s", (None,)).fetchone(), (1,))
        equal(connection.execute("SELECT %s::text", ('{"a": 1}',)).fetchone(), ('{"a": 1}',))
        key, hour = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), datetime.timedelta(hours=1)
        for binary in (False, True):
            row = connection.execute("SELECT coalesce(%s, NULL), (SELECT %s), ARRAY[%s], nullif(%s, NULL)", (key, key, key, key), binary=binary).fetchone()
            equal(row, (key, key, [key], key))
            equal(connection.execute("SELECT %s -> 'a', %s = ANY(%s)", (Jsonb({"a": 1}), key, [key]), binary=binary).fetchone(), (1, True))
            row = connection.execute("SELECT timestamptz '2024-03-01' - %s, %s > %s", (hour, 2, 1), binary=binary).fetchone()
            equal(row, (datetime.datetime(2024, 2, 29, 23, tzinfo=datetime.timezone.utc), True))


@check("prepared statements")
def _():
    with connect() as connection:
        for number in range(12):  # prepared on the server when it was seen five times
            equal(connection.execute("SELECT %s::bigint + 1", (number,)).fetchone(), (number + 1,))
        connection.execute("DEALLOCATE ALL")
        connection.execute("PREPARE twice(bigint) AS SELECT $1 * 2")
        equal(connection.execute("EXECUTE twice(21)").fetchone(), (42,))
        equal(connection.execute("SELECT name FROM pg_prepared_statements").fetchall(), [("twice",)])
        connection.execute("DEALLOCATE twice")
        with connect() as other, expect("26000", code_of):
            other.execute("EXECUTE twice(1)")


@check("lists without a type")
def _():
    """A list of texts has no type of its own to psycopg: what takes texts and lists takes it for a list."""
    with connect() as connection:
        for binary in (False, True):
            for prepare in (False, True):
                with connection.cursor(binary=binary) as cursor:
                    one = lambda statement, *values: cursor.execute(statement, values, prepare=prepare).fetchone()[0]
                    equal(one("SELECT recall_at_k(%s, %s, 20)", ["a", "b", "b", "c"], ["b", "x"]), 0.5)
                    equal(one("SELECT exact_match('Paris', %s)", ["Rome", "Paris"]), 1.0)
                    equal(one("SELECT exact_match('Paris', %s)", "Paris"), 1.0)
                    equal(one("SELECT exact_match(%s, %s)", "Paris", ["Rome"]), 0.0)
                    equal(one("SELECT redundant_searches(%s)", ["a", "a"]), 1)
                    equal(one("SELECT count(*) FROM generate_series(1, %s)", 5), 5)
                    equal(one("SELECT abs(%s)", -3), 3)


@check("tags and descriptions")
def _():
    with connect() as connection:
        for statement, tag in [
            ("CREATE TABLE psycopg3_tags (id bigint, name text)", "CREATE TABLE"),
            ("INSERT INTO psycopg3_tags VALUES (1, 'a'), (2, 'b')", "INSERT 0 2"),
            ("UPDATE psycopg3_tags SET name = 'c'", "UPDATE 2"),
            ("DELETE FROM psycopg3_tags WHERE id = 2", "DELETE 1"),
            ("SELECT * FROM psycopg3_tags", "SELECT 1"),
            ("BEGIN", "BEGIN"),
            ("COMMIT", "COMMIT"),
            ("SET application_name = 'x'", "SET"),
            ("SHOW application_name", "SHOW"),
            ("DROP TABLE psycopg3_tags", "DROP TABLE"),
        ]:
            equal(connection.execute(statement).statusmessage, tag)
        cursor = connection.execute("SELECT 1::bigint AS one, 'x' AS two, 1.50::numeric(10, 2) AS three")
        equal([(column.name, column.type_code) for column in cursor.description], [("one", 20), ("two", 25), ("three", 1700)])
        with connection.cursor(row_factory=dict_row) as cursor:
            equal(cursor.execute("SELECT 1 AS a, NULL AS b").fetchall(), [{"a": 1, "b": None}])
        equal(connection.execute("").statusmessage, None)
        cursor = connection.execute("SELECT 1; SELECT 2")
        equal(cursor.fetchone(), (1,))
        assert cursor.nextset()
        equal(cursor.fetchone(), (2,))


@check("precision of a column")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE psycopg3_precision (n numeric(10, 2), v varchar(7))")
        number, text = connection.execute("SELECT n, v FROM psycopg3_precision").description
        equal((number.precision, number.scale, text.display_size), (10, 2, 7))


@check("batch insert")
def _():
    rows = [(number, f"name {number}", ["a", None, "{b}"], number / 2) for number in range(500)]
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE psycopg3_batch (id bigint PRIMARY KEY, name text, tags text[], score double precision)")
        cursor.executemany("INSERT INTO psycopg3_batch VALUES (%s, %s, %s, %s)", rows[:50])
        equal(cursor.rowcount, 50)
        columns = [list(column) for column in zip(*[(row[0], row[1], row[3]) for row in rows[50:]])]
        cursor.execute("INSERT INTO psycopg3_batch (id, name, score) SELECT * FROM unnest(%s::bigint[], %s::text[], %s::double precision[])", columns)
        equal(cursor.rowcount, 450)
        cursor.executemany("INSERT INTO psycopg3_batch (id) VALUES (%s) RETURNING id", [(1000,), (1001,)], returning=True)
        equal([row for result in cursor.results() for row in result.fetchall()], [(1000,), (1001,)])
        cursor.execute("SELECT * FROM psycopg3_batch WHERE id < 50 ORDER BY id")
        equal(cursor.fetchall(), rows[:50])
        equal(cursor.execute("SELECT count(*), sum(score) FROM psycopg3_batch").fetchone(), (502, sum(range(500)) / 2))


def add_up(rows):
    count = total = 0
    for value, _ in rows:
        count += 1
        total += value
    equal((count, total), (LARGE_COUNT, LARGE_SUM))


@check("large result, named cursor")
def _():
    with connect(autocommit=False) as connection, connection.cursor(name="large") as cursor, bounded_memory():
        cursor.itersize = 10_000
        add_up(cursor.execute(LARGE))


@check("large result, binary named cursor")
def _():
    with connect(autocommit=False) as connection, connection.cursor(name="large", binary=True) as cursor, bounded_memory():
        cursor.itersize = 10_000
        add_up(cursor.execute(LARGE))


@check("large result, row by row")
def _():
    with connect() as connection, connection.cursor() as cursor, bounded_memory():
        add_up(cursor.stream(LARGE, binary=True, size=1000))


@check("cursors")
def _():
    with connect(autocommit=False) as connection:
        with connection.cursor(name="some") as cursor:
            cursor.execute("SELECT value FROM generate_series(1, 10) t(value)")
            equal(cursor.fetchmany(3), [(1,), (2,), (3,)])
            equal(cursor.fetchone(), (4,))
            equal(len(cursor.fetchall()), 6)
        connection.execute("DECLARE c CURSOR FOR SELECT value FROM generate_series(1, 3) t(value)")
        equal(connection.execute("FETCH FORWARD 2 FROM c").fetchall(), [(1,), (2,)])
        equal(connection.execute("FETCH ALL FROM c").fetchall(), [(3,)])
        connection.execute("CLOSE c")
        with expect("34000", code_of):
            connection.execute("FETCH 1 FROM c")


@check("pipeline")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE psycopg3_pipeline (id bigint PRIMARY KEY)")
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::bigint", (number,)) for number in range(200)]
        equal([cursor.fetchone()[0] for cursor in cursors], list(range(200)))
        with connection.pipeline() as pipeline:
            first = connection.execute("INSERT INTO psycopg3_pipeline VALUES (1)")
            pipeline.sync()
            equal(first.statusmessage, "INSERT 0 1")
        # After an error the server leaves out what comes before the next Sync.
        with expect("23505", code_of), connection.pipeline() as pipeline:
            connection.execute("INSERT INTO psycopg3_pipeline VALUES (1)")
            skipped = connection.cursor()
            skipped.execute("INSERT INTO psycopg3_pipeline VALUES (2)")
            pipeline.sync()
        equal(connection.execute("SELECT id FROM psycopg3_pipeline").fetchall(), [(1,)])


@check("errors")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE psycopg3_errors (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO psycopg3_errors (id) VALUES (1)")
        for sqlstate, statement, parameters in [
            ("23505", "INSERT INTO psycopg3_errors (id) VALUES (%s)", (1,)),
            ("23502", "INSERT INTO psycopg3_errors (id) VALUES (%s)", (None,)),
            ("42P01", "SELECT * FROM no_such_table", None),
            ("42703", "SELECT no_such_column FROM psycopg3_errors", None),
            ("42883", "SELECT no_such_function(1)", None),
            ("42601", "SELEC 1", None),
            ("42601", "SELECT 1; SELECT %s", (1,)),
            ("22P02", "INSERT INTO psycopg3_errors (id) VALUES (%s)", ("not a number",)),
            ("22P02", "SELECT 'x'::bigint", None),
            ("22012", "SELECT 1 / (id - 1) FROM psycopg3_errors", None),
            ("42P07", "CREATE TABLE psycopg3_errors (id bigint)", None),
            ("42704", "SET no_such_setting = 1", None),
        ]:
            with expect(sqlstate, code_of):
                connection.execute(statement, parameters)
        equal(connection.execute("SELECT 1").fetchone(), (1,))


@check("fields of an error")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE psycopg3_fields (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO psycopg3_fields VALUES (1)")
        try:
            connection.execute("SELEC 1")
        except psycopg.errors.SyntaxError as error:
            equal((error.diag.severity, error.diag.severity_nonlocalized, error.diag.statement_position), ("ERROR", "ERROR", "1"))
        try:
            connection.execute("INSERT INTO psycopg3_fields VALUES (1)")
        except psycopg.errors.UniqueViolation as error:
            found = error.diag.schema_name, error.diag.table_name, error.diag.constraint_name
            equal(found, ("public", "psycopg3_fields", "psycopg3_fields_pkey"))


@check("cancel")
def _():
    for cancel in ("cancel", "cancel_safe"):
        with connect() as connection:
            timer = threading.Timer(0.5, getattr(connection, cancel))
            timer.start()
            with soon(), expect("57014", code_of):
                connection.execute(LONG)
            equal(connection.execute("SELECT 1").fetchone(), (1,))


@check("pg_cancel_backend")
def _():
    with connect() as connection, connect() as other:
        pid = connection.info.backend_pid
        timer = threading.Timer(0.5, lambda: other.execute("SELECT pg_cancel_backend(%s)", (pid,)))
        timer.start()
        with soon(), expect("57014", code_of):
            connection.execute(LONG)
        equal(connection.execute("SELECT 1").fetchone(), (1,))
        timer = threading.Timer(0.5, lambda: other.execute("SELECT pg_terminate_backend(%s)", (pid,)))
        timer.start()
        with soon(), expect("57P01", code_of):
            connection.execute(LONG)


@check("statement_timeout")
def _():
    with connect(options="-c statement_timeout=300") as connection:
        with soon(), expect("57014", code_of):
            connection.execute(LONG)
        connection.execute("SET statement_timeout = 0")
        equal(connection.execute("SHOW statement_timeout").fetchone(), ("0",))


@check("transactions")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE psycopg3_transactions (id bigint PRIMARY KEY)")
        with connection.transaction():
            equal(connection.info.transaction_status, TransactionStatus.INTRANS)
            connection.execute("INSERT INTO psycopg3_transactions VALUES (1)")
        equal(connection.info.transaction_status, TransactionStatus.IDLE)
        equal(connection.execute("SELECT id FROM psycopg3_transactions").fetchall(), [(1,)])
    with connect(autocommit=False) as connection:
        connection.execute("SELECT 1")
        connection.rollback()
        with expect("42P01", code_of):
            connection.execute("SELECT * FROM no_such_table")
        equal(connection.info.transaction_status, TransactionStatus.INERROR)
        with expect("25P02", code_of):
            connection.execute("SELECT 1")
        connection.rollback()
        equal(connection.execute("SELECT id FROM psycopg3_transactions").fetchall(), [(1,)])
        connection.commit()
        # A write that is rolled back is undone, or the client is told that it is not.
        connection.execute("INSERT INTO psycopg3_transactions VALUES (2)")
        try:
            connection.rollback()
            remaining = []
        except psycopg.Error as error:
            equal(code_of(error), "0A000")
            remaining = [(2,)]
    with connect() as connection:
        equal(connection.execute("SELECT id FROM psycopg3_transactions WHERE id = 2").fetchall(), remaining)


@check("transactions that only read")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE psycopg3_read_only (id bigint PRIMARY KEY)")
        # As any other transaction, those of single statements.
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        with expect("25006", code_of):
            connection.execute("INSERT INTO psycopg3_read_only VALUES (0)")
    with connect(autocommit=False) as connection:
        connection.read_only = True
        equal(connection.execute("SHOW transaction_read_only").fetchone(), ("on",))
        for statement in [
            "INSERT INTO psycopg3_read_only VALUES (1)",
            "DELETE FROM psycopg3_read_only",
            "CREATE TABLE psycopg3_read_only_made (id bigint)",
        ]:
            with expect("25006", code_of):
                connection.execute(statement)
            connection.rollback()
        with expect("25006", code_of), connection.cursor().copy("COPY psycopg3_read_only FROM STDIN") as copy:
            copy.write("1\n")
        connection.rollback()
        # A stricter level is taken from those that only read.
        for level in psycopg.IsolationLevel:
            connection.isolation_level = level
            equal(connection.execute("SELECT count(*) FROM psycopg3_read_only").fetchone(), (0,))
            with expect("25006", code_of):
                connection.execute("INSERT INTO psycopg3_read_only VALUES (2)")
            connection.rollback()
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = False
        equal(connection.execute("SHOW transaction_read_only").fetchone(), ("off",))
        connection.execute("INSERT INTO psycopg3_read_only VALUES (3)")
        connection.commit()
        # Who writes gets the level or is told that it is not there.
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        try:
            equal(connection.execute("SHOW transaction_isolation").fetchone(), ("serializable",))
        except psycopg.Error as error:
            equal(code_of(error), "0A000")
        connection.rollback()
        connection.isolation_level = None
        equal(connection.execute("SELECT id FROM psycopg3_read_only").fetchall(), [(3,)])


@check("savepoints")
def _():
    with connect(autocommit=False) as connection:
        connection.execute("SELECT 1")
        try:
            with connection.transaction():
                connection.execute("SELECT * FROM no_such_table")
        except psycopg.errors.UndefinedTable:
            pass
        equal(connection.info.transaction_status, TransactionStatus.INTRANS)
        equal(connection.execute("SELECT 1").fetchone(), (1,))


@check("copy")
def _():
    rows = [(number, None if number % 3 == 0 else f"tab\t new\nline \\ {number}", number / 4) for number in range(1000)]
    with connect() as connection, connection.cursor() as cursor:
        for format in ("text", "csv", "binary"):
            table = f"psycopg3_copy_{format}"
            cursor.execute(f"CREATE TABLE {table} (id bigint, name text, score double precision)")
            with cursor.copy(f"COPY {table} (id, name, score) FROM STDIN (FORMAT {format})") as copy:
                if format == "csv":
                    import csv
                    text = io.StringIO()
                    csv.writer(text, lineterminator="\n").writerows(rows)
                    copy.write(text.getvalue())
                else:
                    copy.set_types(["int8", "text", "float8"])
                    for row in rows:
                        copy.write_row(row)
            equal((cursor.rowcount, cursor.statusmessage), (1000, "COPY 1000"))
            equal(cursor.execute(f"SELECT * FROM {table} ORDER BY id").fetchall(), rows)
            with cursor.copy(f"COPY (SELECT * FROM {table} ORDER BY id) TO STDOUT (FORMAT {format})") as copy:
                if format == "csv":
                    text = b"".join(bytes(block) for block in copy).decode()
                    equal([(int(a), b or None, float(c)) for a, b, c in csv.reader(io.StringIO(text))], rows)
                else:
                    copy.set_types(["int8", "text", "float8"])
                    equal(list(copy.rows()), rows)
        # What the client gives up, and a line that does not fit, leave no row behind.
        try:
            with cursor.copy("COPY psycopg3_copy_text (id) FROM STDIN") as copy:
                copy.write("5000\n")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        with expect("22P02", code_of), cursor.copy("COPY psycopg3_copy_text (id) FROM STDIN") as copy:
            copy.write("5000\nfive\n")
        equal(cursor.execute("SELECT count(*) FROM psycopg3_copy_text").fetchone(), (1000,))


@check("settings are the session's own")
def _():
    with connect() as one, connect() as two:
        one.execute("SET application_name = 'one'")
        equal(two.execute("SELECT current_setting('application_name')").fetchone()[0] == "one", False)
        equal(one.execute("SELECT current_setting('application_name')").fetchone(), ("one",))
        equal(one.info.parameter_status("application_name"), "one")
        one.execute("CREATE TEMP TABLE psycopg3_own (id bigint)")
        with expect("42P01", code_of):
            two.execute("SELECT * FROM psycopg3_own")


@check("notices")
def _():
    with connect() as connection:
        notices = []
        connection.add_notice_handler(lambda diagnostics: notices.append(diagnostics.severity))
        connection.execute("CREATE TABLE IF NOT EXISTS psycopg3_notices (id bigint)")
        connection.execute("CREATE TABLE IF NOT EXISTS psycopg3_notices (id bigint)")
        equal(notices, ["NOTICE"])


if __name__ == "__main__":
    check.run()
