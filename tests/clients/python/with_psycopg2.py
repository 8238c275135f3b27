"""psycopg2: parameters are put into the text by the client, results are text."""

import io
import threading

import psycopg2
import psycopg2.errorcodes
import psycopg2.extras
from checks import (DATABASE, LONG, HOST, LARGE, LARGE_COUNT, LARGE_SUM, PASSWORD, PORT, ROLE, USER, Checks, bounded_memory, equal, expect,
                    soon)
from psycopg2.extensions import TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INERROR, TRANSACTION_STATUS_INTRANS
from psycopg2.extras import Json
from samples import SAMPLES

check = Checks("psycopg2", psycopg2.__version__.split()[0])


def connect(autocommit=True, **options):
    connection = psycopg2.connect(**{"host": HOST, "port": PORT, "user": USER, "dbname": DATABASE, **options})
    connection.autocommit = autocommit
    return connection


def code_of(error):
    return getattr(error, "pgcode", None) or type(error).__name__


def one(cursor, statement, parameters=None):
    cursor.execute(statement, parameters)
    return cursor.fetchone()


@check("connect")
def _():
    connection = connect()
    equal(one(connection.cursor(), "SELECT 1 AS one, NULL AS two"), (1, None))
    equal((connection.encoding, connection.status), ("UTF8", 1))


@check("password")
def _():
    equal(one(connect(user=ROLE, password=PASSWORD).cursor(), "SELECT current_user"), (ROLE,))
    try:
        connect(user=ROLE, password="wrong")
    except psycopg2.OperationalError as error:
        assert "password" in str(error), error
    else:
        raise AssertionError("connected with a wrong password")


def check_type(number, sample):
    def run():
        cursor = connect().cursor()
        psycopg2.extras.register_uuid()
        value = sample.with_documents(sample.value, Json)
        # A cast by `::` would bind more tightly than the minus of a number that the client writes into the text.
        equal(as_values(one(cursor, f"SELECT CAST(%s AS {sample.type}), CAST(NULL AS {sample.type})", (value,))), [sample.value, None])
        if sample.is_stored:
            cursor.execute(f"CREATE TABLE psycopg2_type_{number} (id bigint, v {sample.type})")
            cursor.execute(f"INSERT INTO psycopg2_type_{number} VALUES (1, CAST(%s AS {sample.type})), (2, NULL)", (value,))
            cursor.execute(f"SELECT v FROM psycopg2_type_{number} ORDER BY id")
            equal([as_values(row)[0] for row in cursor.fetchall()], [sample.value, None])

    return run


def as_values(row):
    """psycopg2 gives bytes as memoryviews."""
    if isinstance(row, memoryview):
        return bytes(row)
    return [as_values(item) for item in row] if isinstance(row, (list, tuple)) else row


for number, sample in enumerate(SAMPLES):
    check(f"type {sample.type}")(check_type(number, sample))


@check("casts to text")
def _():
    cursor = connect().cursor()
    wrong = []
    for sample in SAMPLES:
        if sample.type not in ("json", "jsonb"):
            found = one(cursor, f"SELECT CAST(CAST(%s AS {sample.type}) AS text)", (sample.text,))[0]
            expected = "true" if sample.type == "boolean" else sample.text
            wrong += [] if found == expected else [f"{sample.type}: {found!r} instead of {expected!r}"]
    assert not wrong, "; ".join(wrong)


@check("json documents and their parts")
def _():
    cursor = connect().cursor()
    for type in ("json", "jsonb"):
        equal(one(cursor, f"SELECT %s::{type}, NULL::{type}", (Json({"a": [1, None, "{x}"]}),)), ({"a": [1, None, "{x}"]}, None))
    cursor.execute("CREATE TABLE psycopg2_json (id bigint, document jsonb)")
    cursor.execute("INSERT INTO psycopg2_json VALUES (1, %s)", (Json({"a": "it's"}),))
    equal(one(cursor, "SELECT document, document ->> 'a' FROM psycopg2_json"), ({"a": "it's"}, "it's"))


@check("type vector")
def _():
    cursor = connect().cursor()
    cursor.execute("CREATE TABLE psycopg2_vectors (v vector(3), h halfvec(3))")
    cursor.execute("INSERT INTO psycopg2_vectors VALUES (%s, %s)", ("[1,2.5,-3]", "[1,2.5,-3]"))
    equal(one(cursor, "SELECT v, h FROM psycopg2_vectors"), ("[1,2.5,-3]",) * 2)


@check("parameters")
def _():
    cursor = connect().cursor()
    equal(one(cursor, "SELECT %s + 1, %s, %s, %s, %s", (41, "it's \\ %", None, 2.5, True)), (42, "it's \\ %", None, 2.5, True))
    equal(one(cursor, "SELECT %(a)s || %(b)s", {"a": "x", "b": "y"}), ("xy",))
    equal(one(cursor, "SELECT count(*) FROM generate_series(1, 9) t(value) WHERE value IN %s", ((1, 2, 30),)), (2,))
    equal(one(cursor, "SELECT count(*) FROM generate_series(1, 9) t(value) WHERE value = ANY(%s)", ([1, 2, 30],)), (2,))


@check("batch insert")
def _():
    cursor = connect().cursor()
    rows = [(number, f"name {number}", number / 2) for number in range(1000)]
    cursor.execute("CREATE TABLE psycopg2_batch (id bigint PRIMARY KEY, name text, score double precision)")
    cursor.executemany("INSERT INTO psycopg2_batch VALUES (%s, %s, %s)", rows[:20])
    psycopg2.extras.execute_values(cursor, "INSERT INTO psycopg2_batch VALUES %s", rows[20:950], page_size=500)
    psycopg2.extras.execute_batch(cursor, "INSERT INTO psycopg2_batch VALUES (%s, %s, %s)", rows[950:])
    cursor.execute("SELECT * FROM psycopg2_batch ORDER BY id")
    equal(cursor.fetchall(), rows)


@check("large result, named cursor")
def _():
    with connect(autocommit=False) as connection, connection.cursor("large") as cursor, bounded_memory():
        cursor.itersize = 10_000
        cursor.execute(LARGE)
        count = total = 0
        for value, _ in cursor:
            count += 1
            total += value
        equal((count, total), (LARGE_COUNT, LARGE_SUM))


@check("large result, COPY")
def _():
    class Adding:
        count = 0

        def write(self, data):
            self.count += data.count(b"\n" if isinstance(data, bytes) else "\n")

    adding = Adding()
    with bounded_memory():
        connect().cursor().copy_expert(f"COPY ({LARGE}) TO STDOUT", adding)
    equal(adding.count, LARGE_COUNT)


@check("errors")
def _():
    cursor = connect().cursor()
    cursor.execute("CREATE TABLE psycopg2_errors (id bigint PRIMARY KEY)")
    cursor.execute("INSERT INTO psycopg2_errors VALUES (1)")
    for sqlstate, statement, parameters in [
        ("23505", "INSERT INTO psycopg2_errors VALUES (%s)", (1,)),
        ("42P01", "SELECT * FROM no_such_table", None),
        ("22P02", "INSERT INTO psycopg2_errors VALUES (%s)", ("not a number",)),
        ("42601", "SELEC 1", None),
    ]:
        with expect(sqlstate, code_of):
            cursor.execute(statement, parameters)
    equal(psycopg2.errorcodes.lookup("23505"), "UNIQUE_VIOLATION")


@check("cancel")
def _():
    connection = connect()
    threading.Timer(0.5, connection.cancel).start()
    with soon(), expect("57014", code_of):
        connection.cursor().execute(LONG)
    equal(one(connection.cursor(), "SELECT 1"), (1,))


@check("transactions")
def _():
    connection = connect(autocommit=False)
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE psycopg2_transactions (id bigint PRIMARY KEY)")
    connection.commit()
    cursor.execute("INSERT INTO psycopg2_transactions VALUES (1)")
    equal(connection.info.transaction_status, TRANSACTION_STATUS_INTRANS)
    connection.commit()
    equal(connection.info.transaction_status, TRANSACTION_STATUS_IDLE)
    with expect("42P01", code_of):
        cursor.execute("SELECT * FROM no_such_table")
    equal(connection.info.transaction_status, TRANSACTION_STATUS_INERROR)
    with expect("25P02", code_of):
        cursor.execute("SELECT 1")
    connection.rollback()
    equal(one(cursor, "SELECT id FROM psycopg2_transactions"), (1,))
    connection.rollback()
    cursor.execute("INSERT INTO psycopg2_transactions VALUES (2)")
    try:
        connection.rollback()
        remaining = 0
    except psycopg2.Error as error:
        equal(code_of(error), "0A000")
        remaining = 1
    equal(one(connect().cursor(), "SELECT count(*) FROM psycopg2_transactions WHERE id = 2"), (remaining,))


@check("copy")
def _():
    cursor = connect().cursor()
    cursor.execute("CREATE TABLE psycopg2_copy (id bigint, name text)")
    cursor.copy_from(io.StringIO("1\tone\n2\t\\N\n3\ta\\tb\n"), "psycopg2_copy")
    cursor.copy_expert("COPY psycopg2_copy FROM STDIN WITH (FORMAT csv, HEADER)", io.StringIO('id,name\n4,"four, 4"\n5,\n'))
    cursor.execute("SELECT * FROM psycopg2_copy ORDER BY id")
    equal(cursor.fetchall(), [(1, "one"), (2, None), (3, "a\tb"), (4, "four, 4"), (5, None)])
    text = io.StringIO()
    cursor.copy_to(text, "psycopg2_copy", columns=("id", "name"))
    equal(sorted(text.getvalue().splitlines()), ["1\tone", "2\t\\N", "3\ta\\tb", "4\tfour, 4", "5\t\\N"])
    text = io.StringIO()
    cursor.copy_expert("COPY (SELECT * FROM psycopg2_copy ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER)", text)
    equal(text.getvalue(), 'id,name\n1,one\n2,\n3,a\tb\n4,"four, 4"\n5,\n')


if __name__ == "__main__":
    check.run()
