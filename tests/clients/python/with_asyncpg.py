"""asyncpg: the extended protocol in binary, with types that it looks up in pg_catalog."""

import asyncio
import datetime
import json

import asyncpg
from checks import (DATABASE, LONG, HOST, LARGE, LARGE_COUNT, LARGE_SUM, PASSWORD, PORT, ROLE, USER, Checks, bounded_memory, equal, expect,
                    soon)
from samples import EDGES, SAMPLES

check = Checks("asyncpg", asyncpg.__version__)


async def connect(**options):
    return await asyncpg.connect(**{"host": HOST, "port": PORT, "user": USER, "database": DATABASE, **options})


def code_of(error):
    return getattr(error, "sqlstate", None) or type(error).__name__


def checks(name):
    """A check that is given a connection."""

    def add(function):
        async def run():
            connection = await connect()
            await function(connection)
            await connection.close(timeout=5)

        check(name)(lambda: asyncio.run(run()))
        return function

    return add


@checks("connect")
async def _(connection):
    equal(await connection.fetchval("SELECT 1"), 1)
    settings = connection.get_settings()
    equal((settings.client_encoding, settings.TimeZone), ("UTF8", "UTC"))
    assert connection.get_server_version() >= (14,), connection.get_server_version()


@checks("password")
async def _(_connection):
    connection = await connect(user=ROLE, password=PASSWORD)
    equal(await connection.fetchval("SELECT current_user"), ROLE)
    with expect("28P01", code_of):
        await connect(user=ROLE, password="wrong")


def as_asyncpg(sample):
    """JSON is text to asyncpg unless a codec is set."""
    return sample.with_documents(sample.value, json.dumps)


def as_found(sample, found):
    return sample.with_documents(found, json.loads)


def check_type(number, sample):
    async def run(connection):
        value = as_asyncpg(sample)
        found = await connection.fetchrow(f"SELECT $1::{sample.type} AS v, NULL::{sample.type} AS n", value)
        equal((as_found(sample, found["v"]), found["n"]), (sample.value, None))
        if not sample.is_stored:
            return
        table = f"asyncpg_type_{number}"
        await connection.execute(f"CREATE TABLE {table} (id bigint, v {sample.type})")
        await connection.execute(f"INSERT INTO {table} VALUES (1, $1), (2, $2)", value, None)
        rows = await connection.fetch(f"SELECT v FROM {table} ORDER BY id")
        equal([as_found(sample, row["v"]) for row in rows], [sample.value, None])
        statement = await connection.prepare(f"SELECT v FROM {table}")
        equal(statement.get_attributes()[0].type.oid, sample.oid)

    return run


for number, sample in enumerate(SAMPLES):
    checks(f"type {sample.type}")(check_type(number, sample))


@checks("type edges")
async def _(connection):
    for type, value in EDGES:
        equal(await connection.fetchval(f"SELECT $1::{type}", value), value)


@checks("type integer[], two dimensions")
async def _(connection):
    equal(await connection.fetchval("SELECT ARRAY[[1, 2], [3, 4]]"), [[1, 2], [3, 4]])


@checks("type record")
async def _(connection):
    equal(tuple(await connection.fetchval("SELECT ROW(1, 'x'::text, NULL)")), (1, "x", None))


@checks("type vector, own codec")
async def _(connection):
    def encode(value):
        return "[" + ",".join(map(str, value)) + "]"

    def decode(text):
        return [float(item) for item in text[1:-1].split(",")]

    await connection.set_type_codec("vector", schema="public", encoder=encode, decoder=decode, format="text")
    equal(await connection.fetchval("SELECT $1::vector(3)", [1.0, 2.5, -3.0]), [1.0, 2.5, -3.0])


@checks("type jsonb, own codec")
async def _(connection):
    for type in ("json", "jsonb"):
        await connection.set_type_codec(type, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        equal(await connection.fetchval(f"SELECT $1::{type}", {"a": ["{x}"]}), {"a": ["{x}"]})


@checks("parameters")
async def _(connection):
    row = await connection.fetchrow("SELECT $1::bigint + 1 AS a, $2::text AS b, $3::text AS c, $4::boolean AS d", 41, "it's", None, True)
    equal(tuple(row), (42, "it's", None, True))
    await connection.execute("CREATE TABLE asyncpg_parameters (id bigint, name text, seen timestamptz)")
    now = datetime.datetime.now(datetime.timezone.utc)
    await connection.execute("INSERT INTO asyncpg_parameters VALUES ($1, $2, $3)", 1, "one", now)
    found = await connection.fetchrow("SELECT * FROM asyncpg_parameters WHERE id = $1 AND seen <= $2 AND name LIKE $3 LIMIT $4", 1, now, "o%", 5)
    equal(tuple(found), (1, "one", now))
    equal(await connection.fetchval("SELECT count(*) FROM asyncpg_parameters WHERE id = ANY($1)", [1, 2]), 1)
    with expect("DataError", lambda error: type(error).__name__):
        await connection.fetchval("SELECT $1::bigint", "text")


@checks("prepared statements")
async def _(connection):
    statement = await connection.prepare("SELECT id * $1 AS product FROM (VALUES (1::bigint), (2)) t(id) ORDER BY id")
    equal([parameter.name for parameter in statement.get_parameters()], ["int8"])
    for factor in range(5):
        equal([row["product"] for row in await statement.fetch(factor)], [factor, 2 * factor])


@checks("changed columns")
async def _(connection):
    """What asyncpg has prepared by itself it prepares anew, and what was prepared for the user is refused."""
    other = await connect()
    await other.execute("CREATE TABLE asyncpg_shapes (a int, b int)")
    await other.execute("INSERT INTO asyncpg_shapes VALUES (1, 2)")
    every = "SELECT * FROM asyncpg_shapes"
    equal(dict(await connection.fetchrow(every)), {"a": 1, "b": 2})
    await other.execute("DROP TABLE asyncpg_shapes")
    await other.execute("CREATE TABLE asyncpg_shapes (b int, a int)")
    await other.execute("INSERT INTO asyncpg_shapes VALUES (20, 10)")
    equal(dict(await connection.fetchrow(every)), {"b": 20, "a": 10})
    prepared = await connection.prepare(every)
    await other.execute("ALTER TABLE asyncpg_shapes ADD COLUMN c text")
    with expect("0A000", code_of):
        await prepared.fetch()
    equal(dict(await connection.fetchrow(every)), {"b": 20, "a": 10, "c": None})
    await other.close(timeout=5)


@checks("batch insert")
async def _(connection):
    await connection.execute("CREATE TABLE asyncpg_batch (id bigint PRIMARY KEY, name text, tags text[])")
    rows = [(number, f"name {number}", ["a", None]) for number in range(50)]
    await connection.executemany("INSERT INTO asyncpg_batch VALUES ($1, $2, $3)", rows)
    equal([tuple(row) for row in await connection.fetch("SELECT * FROM asyncpg_batch ORDER BY id")], rows)
    ids = list(range(100, 1100))
    await connection.execute("INSERT INTO asyncpg_batch (id, name) SELECT * FROM unnest($1::bigint[], $2::text[])", ids, [f"n{id}" for id in ids])
    equal(await connection.fetchval("SELECT count(*) FROM asyncpg_batch"), 1050)


@checks("large result, cursor")
async def _(connection):
    count = total = 0
    with bounded_memory():
        async with connection.transaction():
            async for row in connection.cursor(LARGE, prefetch=10_000):
                count += 1
                total += row["value"]
    equal((count, total), (LARGE_COUNT, LARGE_SUM))


@checks("errors")
async def _(connection):
    await connection.execute("CREATE TABLE asyncpg_errors (id bigint PRIMARY KEY)")
    await connection.execute("INSERT INTO asyncpg_errors VALUES (1)")
    for sqlstate, statement in [
        ("23505", "INSERT INTO asyncpg_errors VALUES (1)"),
        ("42P01", "SELECT * FROM no_such_table"),
        ("22P02", "SELECT 'x'::bigint"),
        ("42601", "SELEC 1"),
    ]:
        for run in (connection.execute, connection.fetch):
            with expect(sqlstate, code_of):
                await run(statement)
    equal(await connection.fetchval("SELECT 1"), 1)


@checks("cancel")
async def _(connection):
    with soon():
        try:
            await connection.fetchval(LONG, timeout=0.5)
        except asyncio.TimeoutError:
            pass
        equal(await connection.fetchval("SELECT 1"), 1)


@checks("transactions")
async def _(connection):
    await connection.execute("CREATE TABLE asyncpg_transactions (id bigint PRIMARY KEY)")
    async with connection.transaction():
        await connection.execute("INSERT INTO asyncpg_transactions VALUES (1)")
    equal(await connection.fetchval("SELECT count(*) FROM asyncpg_transactions"), 1)
    transaction = connection.transaction()
    await transaction.start()
    with expect("42P01", code_of):
        await connection.execute("SELECT * FROM no_such_table")
    with expect("25P02", code_of):
        await connection.fetchval("SELECT 1")
    await transaction.rollback()
    for isolation in ("read_committed", "repeatable_read", "serializable"):
        async with connection.transaction(isolation=isolation, readonly=True):
            equal(await connection.fetchval("SELECT count(*) FROM asyncpg_transactions"), 1)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("INSERT INTO asyncpg_transactions VALUES (2)")
    try:
        await transaction.rollback()
        remaining = 0
    except asyncpg.PostgresError as error:
        equal(code_of(error), "0A000")
        remaining = 1
    other = await connect()
    equal(await other.fetchval("SELECT count(*) FROM asyncpg_transactions WHERE id = 2"), remaining)


@checks("copy")
async def _(connection):
    await connection.execute("CREATE TABLE asyncpg_copy (id bigint, name text, v double precision)")
    rows = [(number, None if number % 3 == 0 else f"name {number}", number / 2) for number in range(1000)]
    equal(await connection.copy_records_to_table("asyncpg_copy", records=rows, columns=["id", "name", "v"]), "COPY 1000")
    equal([tuple(row) for row in await connection.fetch("SELECT * FROM asyncpg_copy ORDER BY id")], rows)
    import io
    out = io.BytesIO()
    equal(await connection.copy_from_query("SELECT id, name FROM asyncpg_copy WHERE id < $1 ORDER BY id", 3, output=out, format="csv"), "COPY 3")
    equal(out.getvalue(), b"0,\n1,name 1\n2,name 2\n")
    out.seek(0)
    equal(await connection.copy_to_table("asyncpg_copy", source=out, columns=["id", "name"], format="csv"), "COPY 3")


@checks("pool and reset")
async def _(_connection):
    async with asyncpg.create_pool(host=HOST, port=PORT, user=USER, database=DATABASE, min_size=1, max_size=2) as pool:
        for number in range(5):  # a connection that goes back is reset: UNLISTEN *, RESET ALL and its like
            async with pool.acquire() as connection:
                equal(await connection.fetchval("SELECT $1::bigint", number), number)


if __name__ == "__main__":
    check.run()
