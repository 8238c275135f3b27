"""The `pgvector` package: its types registered with psycopg 3, asyncpg and SQLAlchemy."""

import asyncio
import importlib.metadata
import threading

import asyncpg
import numpy
import pgvector.asyncpg
import pgvector.psycopg
import psycopg
import sqlalchemy as sa
from checks import DATABASE, HOST, LONG, PORT, USER, Checks, bounded_memory, equal, expect, soon
from pgvector import HalfVector, Vector
from pgvector.sqlalchemy import HALFVEC, VECTOR
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

check = Checks("pgvector (Python)", importlib.metadata.version("pgvector"))
VALUES = [1.0, 2.5, -3.0]


def as_list(value):
    """Of a number of classes, by version: numpy's arrays, Vector, HalfVector."""
    if value is None:
        return None
    return [float(item) for item in (value.to_list() if hasattr(value, "to_list") else value)]


def connect():
    connection = psycopg.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE, autocommit=True)
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    pgvector.psycopg.register_vector(connection)
    return connection


@check("psycopg: register")
def _():
    connect().close()


@check("psycopg: round trip, text and binary")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE pgvector_psycopg (id bigint PRIMARY KEY, v vector(3), h halfvec(3))")
        for id, format in enumerate(("%s", "%t", "%b")):
            connection.execute(f"INSERT INTO pgvector_psycopg VALUES (%s, {format}, {format})", (id, Vector(VALUES), HalfVector(VALUES)))
        connection.execute("INSERT INTO pgvector_psycopg VALUES (3, %s, %s)", (numpy.array(VALUES), None))
        for binary in (False, True):
            rows = connection.execute("SELECT v, h FROM pgvector_psycopg ORDER BY id", binary=binary).fetchall()
            equal([(as_list(v), as_list(h)) for v, h in rows], [(VALUES, VALUES)] * 3 + [(VALUES, None)])


@check("psycopg: nearest rows")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE pgvector_nearest (id bigint PRIMARY KEY, v vector(2))")
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO pgvector_nearest VALUES (%s, %s)", [(number, Vector([number, 1])) for number in range(20)])
        for binary in (False, True):
            query = "SELECT id, v <-> %s AS distance FROM pgvector_nearest ORDER BY v <-> %s LIMIT 3"
            found = connection.execute(query, (Vector([5, 1]), Vector([5, 1])), binary=binary).fetchall()
            equal((found[0], {id for id, _ in found}), ((5, 0.0), {4, 5, 6}))
            equal(connection.execute("SELECT id FROM pgvector_nearest ORDER BY v <#> %s LIMIT 1", (Vector([1, 0]),), binary=binary).fetchone(), (19,))
            # As most people write it.
            for parameter in ("[5,1]", Vector([5, 1])):
                cast = "SELECT id FROM pgvector_nearest ORDER BY v <-> %s::vector LIMIT 1"
                equal(connection.execute(cast, (parameter,), binary=binary).fetchone(), (5,))
            equal(as_list(connection.execute("SELECT %s::vector", ("[5,1,2]",), binary=binary).fetchone()[0]), [5.0, 1.0, 2.0])
        connection.execute("CREATE INDEX ON pgvector_nearest USING hnsw (v vector_cosine_ops)")
        equal(connection.execute("SELECT id FROM pgvector_nearest ORDER BY v <=> %s LIMIT 1", (Vector([0, 1]),)).fetchone(), (0,))
        equal(as_list(connection.execute("SELECT avg(v) FROM pgvector_nearest WHERE id < 3").fetchone()[0]), [1.0, 1.0])


@check("psycopg: copy in binary")
def _():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE pgvector_copy (id bigint, v vector(3), h halfvec(3))")
        with cursor.copy("COPY pgvector_copy (id, v, h) FROM STDIN WITH (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "vector", "halfvec"])
            for number in range(100):
                copy.write_row([number, Vector([number, 0, 1]), HalfVector([number, 0, 1])])
        row = cursor.execute("SELECT count(*), max(id) FROM pgvector_copy WHERE v <-> '[7,0,1]' = 0").fetchone()
        equal(row, (1, 7))
        with cursor.copy("COPY (SELECT v FROM pgvector_copy WHERE id = 7) TO STDOUT WITH (FORMAT BINARY)") as copy:
            copy.set_types(["vector"])
            equal([as_list(row[0]) for row in copy.rows()], [[7.0, 0.0, 1.0]])


@check("psycopg: wrong dimensions")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE pgvector_wrong (v vector(3))")
        for binary in ("%t", "%b"):
            try:
                connection.execute(f"INSERT INTO pgvector_wrong VALUES ({binary})", (Vector([1, 2]),))
            except psycopg.Error as error:
                assert error.sqlstate in ("22000", "42804"), error
            else:
                raise AssertionError("two numbers in vector(3)")


@check("psycopg: arrays of vectors")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE pgvector_arrays (id bigint, v vector(3))")
        connection.execute("INSERT INTO pgvector_arrays VALUES (1, %s), (2, %s)", (Vector(VALUES), Vector([0, 0, 1])))
        for binary in (False, True):
            found = connection.execute("SELECT array_agg(v ORDER BY id) FROM pgvector_arrays", binary=binary).fetchone()[0]
            equal([as_list(vector) for vector in found], [VALUES, [0.0, 0.0, 1.0]])


@check("psycopg: errors")
def _():
    with connect() as connection:
        connection.execute("CREATE TABLE pgvector_errors (id bigint PRIMARY KEY, v vector(3))")
        connection.execute("INSERT INTO pgvector_errors VALUES (1, %s)", (Vector(VALUES),))
        for sqlstate, statement, parameter in [
            ("23505", "INSERT INTO pgvector_errors VALUES (1, %s)", Vector(VALUES)),
            ("22P02", "INSERT INTO pgvector_errors VALUES (2, %s)", "(1,2,3)"),
            ("42703", "SELECT id FROM pgvector_errors ORDER BY no_such_column <-> %s LIMIT 1", Vector(VALUES)),
            ("42P01", "SELECT id FROM no_such_table ORDER BY v <-> %s LIMIT 1", Vector(VALUES)),
        ]:
            with expect(sqlstate, lambda error: error.sqlstate):
                connection.execute(statement, (parameter,))
        equal(connection.execute("SELECT count(*) FROM pgvector_errors").fetchone(), (1,))


@check("psycopg: large result")
def _():
    count = 200_000
    query = f"SELECT value, ('[' || value || ',1,2]')::vector(3) AS v FROM generate_series(1, {count}) t(value)"
    with connect() as connection, bounded_memory():
        connection.autocommit = False
        with connection.cursor(name="vectors", binary=True) as cursor:
            cursor.itersize = 10_000
            found = total = 0
            for _, vector in cursor.execute(query):
                found += 1
                total += as_list(vector)[0]
        equal((found, total), (count, count * (count + 1) / 2))


@check("psycopg: cancel")
def _():
    with connect() as connection:
        threading.Timer(0.5, connection.cancel).start()
        with soon(), expect("57014", lambda error: error.sqlstate):
            connection.execute(LONG)
        equal(as_list(connection.execute("SELECT '[1,2,3]'::vector(3)").fetchone()[0]), [1.0, 2.0, 3.0])


@check("asyncpg")
def _():
    async def run():
        connection = await asyncpg.connect(host=HOST, port=PORT, user=USER, database=DATABASE)
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await pgvector.asyncpg.register_vector(connection)
        await connection.execute("CREATE TABLE pgvector_asyncpg (id bigint, v vector(3), h halfvec(3))")
        await connection.execute("INSERT INTO pgvector_asyncpg VALUES (1, $1, $2), (2, NULL, NULL)", Vector(VALUES), HalfVector(VALUES))
        rows = await connection.fetch("SELECT v, h FROM pgvector_asyncpg ORDER BY id")
        equal([(as_list(row["v"]), as_list(row["h"])) for row in rows], [(VALUES, VALUES), (None, None)])
        equal(await connection.fetchval("SELECT id FROM pgvector_asyncpg WHERE v IS NOT NULL ORDER BY v <=> $1 LIMIT 1", Vector([1, 0, 0])), 1)
        for query in ("SELECT id FROM pgvector_asyncpg ORDER BY v <=> $1::vector LIMIT 1", "SELECT id FROM pgvector_asyncpg WHERE v = CAST($1 AS vector)"):
            equal(await connection.fetchval(query, Vector(VALUES)), 1)
        equal(await connection.fetchval("SELECT id FROM pgvector_asyncpg ORDER BY h <-> $1::halfvec LIMIT 1", HalfVector(VALUES)), 1)
        await connection.executemany("INSERT INTO pgvector_asyncpg (id, v) VALUES ($1, $2)", [(n, Vector([n, 0, 0])) for n in range(10, 20)])
        await connection.copy_records_to_table("pgvector_asyncpg", records=[(30, Vector(VALUES))], columns=["id", "v"])
        equal(await connection.fetchval("SELECT count(*) FROM pgvector_asyncpg"), 13)
        await connection.close()

    asyncio.run(run())


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "pgvector_items"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    embedding = mapped_column(VECTOR(3))
    half = mapped_column(HALFVEC(3))


def sqlalchemy_check(driver):
    def run():
        engine = sa.create_engine(f"postgresql+{driver}://{USER}@{HOST}:{PORT}/{DATABASE}")
        Base.metadata.drop_all(engine)
        Base.metadata.create_all(engine)
        with Session(engine) as session:
            session.add_all([Item(id=number, embedding=[number, 1, 0], half=[number, 0, 0]) for number in range(10)])
            session.commit()
            nearest = session.scalars(sa.select(Item).order_by(Item.embedding.l2_distance([4, 1, 0])).limit(1)).one()
            equal((nearest.id, as_list(nearest.embedding), as_list(nearest.half)), (4, [4.0, 1.0, 0.0], [4.0, 0.0, 0.0]))
            equal(session.scalar(sa.select(Item.id).order_by(Item.embedding.max_inner_product([1, 0, 0])).limit(1)), 9)
            equal(session.scalar(sa.select(Item.id).order_by(Item.embedding.cosine_distance([0, 1, 0])).limit(1)), 0)
            equal(session.scalars(sa.select(Item.id).where(Item.embedding.l2_distance([4, 1, 0]) < 1.5).order_by(Item.id)).all(), [3, 4, 5])

    return run


for driver in ("psycopg", "psycopg2"):
    check(f"SQLAlchemy over {driver}")(sqlalchemy_check(driver))


@check("SQLAlchemy: reflected type and index")
def _():
    engine = sa.create_engine(f"postgresql+psycopg://{USER}@{HOST}:{PORT}/{DATABASE}")
    table = sa.Table("pgvector_reflected", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("v", VECTOR(3)))
    sa.Index("pgvector_reflected_v", table.c.v, postgresql_using="hnsw", postgresql_ops={"v": "vector_l2_ops"}, postgresql_with={"m": 16})
    table.create(engine)
    found = sa.Table("pgvector_reflected", sa.MetaData(), autoload_with=engine)
    equal((type(found.c.v.type), found.c.v.type.dim), (VECTOR, 3))
    equal([index["name"] for index in sa.inspect(engine).get_indexes("pgvector_reflected")], ["pgvector_reflected_v"])


if __name__ == "__main__":
    check.run()
