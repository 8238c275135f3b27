"""ADBC's PostgreSQL driver: results by COPY in binary, straight to Arrow; types looked up in pg_catalog."""

import datetime
import decimal
import os
import threading

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi as adbc
import pyarrow
import pyarrow.compute
from checks import DATABASE, HOST, LARGE, LARGE_COUNT, LARGE_SUM, LONG, PASSWORD, PORT, ROLE, USER, Checks, bounded_memory, equal, expect, soon

check = Checks("ADBC", adbc_driver_postgresql.__version__)
URI = f"postgresql://{USER}@{HOST}:{PORT}/{DATABASE}"


def connect(autocommit=True, uri=URI):
    return adbc.connect(uri, autocommit=autocommit)


def code_of(error):
    return getattr(error, "sqlstate", None) or type(error).__name__


def table(cursor, statement, parameters=None):
    cursor.execute(statement, parameters)
    return cursor.fetch_arrow_table()


@check("connect")
def _():
    with connect() as connection, connection.cursor() as cursor:
        equal(table(cursor, "SELECT 1 AS one").to_pylist(), [{"one": 1}])
        assert connection.adbc_get_info()["vendor_name"] == "PostgreSQL"


@check("password")
def _():
    os.environ["PGPASSWORD"] = PASSWORD
    with connect(uri=f"postgresql://{ROLE}@{HOST}:{PORT}/{DATABASE}") as connection, connection.cursor() as cursor:
        equal(table(cursor, "SELECT 1 AS one").to_pylist(), [{"one": 1}])
    os.environ["PGPASSWORD"] = "wrong"
    try:
        connect(uri=f"postgresql://{ROLE}@{HOST}:{PORT}/{DATABASE}").close()
    except adbc.Error as error:
        assert "password" in str(error), error
    else:
        raise AssertionError("connected with a wrong password")


# (type, text, Arrow type, value): what the driver makes of each.
TYPES = [
    ("smallint", "-5", pyarrow.int16(), -5),
    ("integer", "2147483647", pyarrow.int32(), 2147483647),
    ("bigint", "9223372036854775807", pyarrow.int64(), 9223372036854775807),
    ("real", "0.5", pyarrow.float32(), 0.5),
    ("double precision", "0.1", pyarrow.float64(), 0.1),
    ("boolean", "true", pyarrow.bool_(), True),
    ("text", "grüß", pyarrow.string(), "grüß"),
    ("varchar(10)", "ten", pyarrow.string(), "ten"),
    ("bytea", "\\x00ff", pyarrow.binary(), b"\x00\xff"),
    ("date", "2024-02-29", pyarrow.date32(), datetime.date(2024, 2, 29)),
    ("timestamp", "2024-02-29 01:02:03.456", pyarrow.timestamp("us"), datetime.datetime(2024, 2, 29, 1, 2, 3, 456000)),
    ("timestamptz", "2024-02-29 01:02:03+00", pyarrow.timestamp("us", "UTC"),
     datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.timezone.utc)),
    ("bigint[]", "{1,NULL,3}", pyarrow.list_(pyarrow.int64()), [1, None, 3]),
    ("text[]", '{"a,b",NULL}', pyarrow.list_(pyarrow.string()), ["a,b", None]),
    ("double precision[]", "{0.5}", pyarrow.list_(pyarrow.float64()), [0.5]),
]


def check_type(number, type, text, arrow, value):
    def run():
        with connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE adbc_type_{number} (id bigint, v {type})")
            cursor.execute(f"INSERT INTO adbc_type_{number} VALUES (1, '{text}'), (2, NULL)")
            found = table(cursor, f"SELECT v FROM adbc_type_{number} ORDER BY id")
            equal(found.schema.field("v").type, arrow)
            equal(found["v"].to_pylist(), [value, None])

    return run


for number, sample in enumerate(TYPES):
    check(f"type {sample[0]}")(check_type(number, *sample))


@check("types that the driver has as text")
def _():
    with connect() as connection, connection.cursor() as cursor:
        found = table(cursor, "SELECT 1.25::numeric(10, 2) AS n, '{\"a\": 1}'::json AS j, '{\"a\": 1}'::jsonb AS b").to_pylist()[0]
        equal((decimal.Decimal(found["n"]), found["j"], found["b"]), (decimal.Decimal("1.25"), '{"a": 1}', '{"a": 1}'))
        uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
        found = table(cursor, f"SELECT '{uuid}'::uuid AS u").to_pylist()[0]["u"]
        equal(found.hex() if isinstance(found, bytes) else str(found).replace("-", ""), uuid.replace("-", ""))


@check("type vector")
def _():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE adbc_vectors (v vector(3))")
        cursor.execute("INSERT INTO adbc_vectors VALUES ('[1,2.5,-3]')")
        equal(table(cursor, "SELECT v FROM adbc_vectors")["v"][0].as_py(), bytes.fromhex("00030000" + "3f800000" + "40200000" + "c0400000"))


@check("parameters")
def _():
    with connect() as connection, connection.cursor() as cursor:
        equal(table(cursor, "SELECT $1::bigint + 1 AS a, $2::text AS b", (41, "it's")).to_pylist(), [{"a": 42, "b": "it's"}])
        cursor.execute("CREATE TABLE adbc_parameters (id bigint, name text)")
        cursor.execute("INSERT INTO adbc_parameters VALUES ($1, $2)", (1, None))
        equal(table(cursor, "SELECT * FROM adbc_parameters WHERE id = $1", (1,)).to_pylist(), [{"id": 1, "name": None}])


# Arrow types that are sent as another type than the column's.
OTHER_ARROW_TYPES = [
    ("bigint", pyarrow.int8(), 3),
    ("integer", pyarrow.uint16(), 3),
    ("double precision", pyarrow.float32(), 0.5),
    ("numeric(10, 2)", pyarrow.decimal128(10, 2), decimal.Decimal("1.25")),
    ("text", pyarrow.large_string(), "large"),
    ("text", pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), "one of few"),
    ("timestamp", pyarrow.timestamp("ms"), datetime.datetime(2024, 2, 29, 1, 2, 3)),
    ("time", pyarrow.time64("us"), datetime.time(1, 2, 3)),
]


@check("parameters of each type")
def _():
    with connect() as connection, connection.cursor() as cursor:
        for number, (type, arrow, value) in enumerate([(type, arrow, value) for type, _, arrow, value in TYPES] + OTHER_ARROW_TYPES):
            parameters = pyarrow.table({"v": pyarrow.array([value, None], arrow)})
            cursor.execute(f"CREATE TABLE adbc_parameters_{number} (v {type})")
            cursor.executemany(f"INSERT INTO adbc_parameters_{number} VALUES ($1)", parameters)
            found = table(cursor, f"SELECT v FROM adbc_parameters_{number} ORDER BY v NULLS LAST")["v"].to_pylist()
            equal([str(found[0]), found[1]], [str(value), None])
            cursor.execute(f"SELECT $1::{type} AS v", parameters.slice(0, 1))
            equal(str(cursor.fetch_arrow_table()["v"][0].as_py()), str(value))


@check("batch insert")
def _():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE adbc_batch (id bigint, name text)")
        cursor.executemany("INSERT INTO adbc_batch VALUES ($1, $2)", [(number, f"name {number}") for number in range(100)])
        equal(table(cursor, "SELECT count(*) AS n, max(id) AS m FROM adbc_batch").to_pylist(), [{"n": 100, "m": 99}])


@check("copy: adbc_ingest")
def _():
    data = pyarrow.table(
        {
            "id": pyarrow.array(range(50_000), pyarrow.int64()),
            "name": pyarrow.array([None if number % 3 == 0 else f"name {number}" for number in range(50_000)], pyarrow.string()),
            "score": pyarrow.array([number / 4 for number in range(50_000)], pyarrow.float64()),
            "seen": pyarrow.array([datetime.datetime(2024, 2, 29)] * 50_000, pyarrow.timestamp("us")),
        }
    )
    with connect() as connection, connection.cursor() as cursor:
        equal(cursor.adbc_ingest("adbc_ingested", data, mode="create"), 50_000)
        equal(cursor.adbc_ingest("adbc_ingested", data.slice(0, 10), mode="append"), 10)
        found = table(cursor, "SELECT * FROM adbc_ingested ORDER BY id, name LIMIT 50020")
        equal(found.num_rows, 50_010)
        equal(table(cursor, "SELECT count(name) AS n FROM adbc_ingested WHERE id >= 10").to_pylist()[0]["n"],
              sum(number % 3 != 0 for number in range(10, 50_000)))


@check("large result")
def _():
    with connect() as connection, connection.cursor() as cursor, bounded_memory(128):
        cursor.execute(LARGE)
        count = total = 0
        for batch in cursor.fetch_record_batch():
            count += batch.num_rows
            total += pyarrow.compute.sum(batch.column(0)).as_py() or 0
        equal((count, total), (LARGE_COUNT, LARGE_SUM))


@check("errors")
def _():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE adbc_errors (id bigint PRIMARY KEY)")
        cursor.execute("INSERT INTO adbc_errors VALUES (1)")
        for sqlstate, statement in [
            ("23505", "INSERT INTO adbc_errors VALUES (1)"),
            ("42P01", "SELECT * FROM no_such_table"),
            ("22P02", "SELECT 'x'::bigint"),
            ("42601", "SELEC 1"),
        ]:
            with expect(sqlstate, code_of):
                cursor.execute(statement)
                cursor.fetchall()


@check("cancel")
def _():
    with connect() as connection, connection.cursor() as cursor:
        threading.Timer(0.5, cursor.adbc_cancel).start()
        with soon(), expect("57014", code_of):
            cursor.execute(LONG)
            cursor.fetchall()
    with connect() as connection, connection.cursor() as cursor:
        equal(table(cursor, "SELECT 1 AS one").to_pylist(), [{"one": 1}])


@check("transactions")
def _():
    with connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE adbc_transactions (id bigint)")
        connection.commit()
        cursor.execute("INSERT INTO adbc_transactions VALUES (1)")
        connection.commit()
        with expect("42P01", code_of):
            cursor.execute("SELECT * FROM no_such_table")
        try:
            cursor.execute("SELECT 1")  # the driver knows that the transaction failed
        except adbc.Error as error:
            assert "error state" in str(error) or code_of(error) == "25P02", error
        else:
            raise AssertionError("a statement in a failed transaction")
        connection.rollback()
        equal(table(cursor, "SELECT id FROM adbc_transactions").to_pylist(), [{"id": 1}])
        connection.rollback()


@check("catalog")
def _():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE adbc_catalog (id bigint PRIMARY KEY, name text NOT NULL)")
        equal(connection.adbc_get_table_schema("adbc_catalog").names, ["id", "name"])
        objects = connection.adbc_get_objects(depth="all", table_name_filter="adbc_catalog").read_all().to_pylist()
        schemas = [schema for catalog in objects for schema in catalog["catalog_db_schemas"] or []]
        tables = [found for schema in schemas for found in schema["db_schema_tables"] or []]
        equal([found["table_name"] for found in tables], ["adbc_catalog"])
        equal([column["column_name"] for column in tables[0]["table_columns"]], ["id", "name"])
        equal([constraint["constraint_type"] for constraint in tables[0]["table_constraints"]], ["PRIMARY KEY"])


if __name__ == "__main__":
    check.run()
