"""SQLAlchemy 2: Core, ORM and reflection over psycopg 3, and the other two drivers in short."""

import asyncio
import datetime
import decimal
import threading
import uuid

import sqlalchemy
import sqlalchemy as sa
from checks import DATABASE, HOST, LARGE, LARGE_COUNT, LARGE_SUM, LONG, PORT, USER, Checks, bounded_memory, equal, expect, soon
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

check = Checks("SQLAlchemy", sqlalchemy.__version__)


def engine(driver="psycopg", **options):
    return sa.create_engine(f"postgresql+{driver}://{USER}@{HOST}:{PORT}/{DATABASE}", **options)


def everything(name):
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("small", sa.SmallInteger),
        sa.Column("whole", sa.Integer),
        sa.Column("ratio", sa.Float(53)),
        sa.Column("price", sa.Numeric(12, 3)),
        sa.Column("is_true", sa.Boolean),
        sa.Column("name", sa.String(20), nullable=False),
        sa.Column("body", sa.Text),
        sa.Column("raw", sa.LargeBinary),
        sa.Column("day", sa.Date),
        sa.Column("local", sa.DateTime),
        sa.Column("instant", sa.DateTime(timezone=True)),
        sa.Column("key", sa.Uuid),
        sa.Column("document", sa.JSON),
        sa.Column("binary_document", postgresql.JSONB),
        sa.Column("tags", postgresql.ARRAY(sa.Text)),
    )


def a_row(id):
    return {
        "id": id,
        "small": -1,
        "whole": 2,
        "ratio": 0.5,
        "price": decimal.Decimal("1.250"),
        "is_true": True,
        "name": f"name {id}",
        "body": "grüß",
        "raw": b"\x00\xff",
        "day": datetime.date(2024, 2, 29),
        "local": datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
        "instant": datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.timezone.utc),
        "key": uuid.UUID(int=id),
        "document": {"a": [1, None]},
        "binary_document": {"b": "{x}"},
        "tags": ["a,b", None],
    }


@check("connect")
def _():
    with engine().connect() as connection:
        equal(connection.execute(sa.text("SELECT 1")).scalar(), 1)
        assert connection.dialect.server_version_info >= (14,), connection.dialect.server_version_info
        equal(connection.dialect.default_schema_name, "public")
        connection.rollback()


def round_trip(driver):
    def run():
        table = everything(f"sqlalchemy_types_{driver}")
        with engine(driver).connect() as connection:
            table.create(connection)
            connection.commit()
            connection.execute(table.insert(), [a_row(1), a_row(2)])
            connection.commit()
            connection.execute(table.insert(), {"id": 3, "name": "three"})
            connection.commit()
            rows = connection.execute(table.select().order_by(table.c.id)).mappings().all()
            equal([dict(row) for row in rows[:2]], [a_row(1), a_row(2)])
            equal([value for name, value in rows[2].items() if name not in ("id", "name")], [None] * 14)

    return run


for driver in ("psycopg", "psycopg2"):
    check(f"types, {driver}")(round_trip(driver))


@check("types, asyncpg")
def _():
    async def run():
        table = everything("sqlalchemy_types_asyncpg")
        asynchronous = create_async_engine(f"postgresql+asyncpg://{USER}@{HOST}:{PORT}/{DATABASE}")
        async with asynchronous.connect() as connection:
            await connection.run_sync(table.create)
            await connection.commit()
            await connection.execute(table.insert(), [a_row(1), a_row(2)])
            await connection.commit()
            rows = (await connection.execute(table.select().order_by(table.c.id))).mappings().all()
            equal([dict(row) for row in rows], [a_row(1), a_row(2)])
        await asynchronous.dispose()

    asyncio.run(run())


@check("core")
def _():
    metadata = sa.MetaData()
    films = sa.Table("sqlalchemy_films", metadata, sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("title", sa.Text), sa.Column("year", sa.Integer))
    with engine().connect() as connection:
        metadata.create_all(connection)  # asks the catalog first what is there
        metadata.create_all(connection)
        connection.commit()
        rows = [{"id": number, "title": f"film {number}", "year": 1970 + number % 10} for number in range(300)]
        connection.execute(films.insert(), rows)  # insertmanyvalues: one INSERT of many rows
        connection.commit()
        equal(connection.execute(films.update().where(films.c.id < 3).values(year=films.c.year + 1)).rowcount, 3)
        connection.commit()
        equal(connection.execute(films.delete().where(films.c.id.in_([0, 1]))).rowcount, 2)
        connection.commit()
        # Of 30 films a year: 0 and 1 went, and 2 moved from 1972 to 1973.
        by_year = sa.select(films.c.year, sa.func.count()).group_by(films.c.year).having(sa.func.count() != 30).order_by(films.c.year)
        equal(connection.execute(by_year).all(), [(1970, 29), (1971, 29), (1972, 29), (1973, 31)])
        equal(connection.execute(sa.select(sa.func.count(), sa.func.min(films.c.year)).select_from(films)).one(), (298, 1970))
        insert = postgresql.insert(films).values(id=2, title="again", year=1)
        upsert = insert.on_conflict_do_update(index_elements=["id"], set_={"title": insert.excluded.title}).returning(films.c.title)
        equal(connection.execute(upsert).scalar_one(), "again")
        connection.commit()
        other = films.alias()
        joined = sa.select(films.c.id).join(other, films.c.id == other.c.id).where(other.c.title.like("film 1%")).order_by(films.c.id).offset(1).limit(2)
        equal(connection.execute(joined).scalars().all(), [11, 12])
        numbered = sa.select(films.c.id, sa.func.row_number().over(partition_by=films.c.year, order_by=films.c.id).label("n")).cte("numbered")
        equal(connection.execute(sa.select(sa.func.max(numbered.c.n))).scalar(), 31)
        metadata.drop_all(connection)
        connection.commit()
        assert not sa.inspect(connection).has_table("sqlalchemy_films")


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "sqlalchemy_authors"
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(sa.Text)
    born: Mapped[datetime.date | None]
    books: Mapped[list["Book"]] = relationship(
        back_populates="author", primaryjoin="Author.id == foreign(Book.author_id)", cascade="all, delete-orphan", order_by="Book.id"
    )


class Book(Base):
    __tablename__ = "sqlalchemy_books"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    author_id: Mapped[int] = mapped_column(sa.BigInteger)
    title: Mapped[str] = mapped_column(sa.Text)
    author: Mapped[Author] = relationship(back_populates="books", primaryjoin="Author.id == foreign(Book.author_id)")


@check("orm")
def _():
    # One statement that writes in each transaction: more are not promised.
    bound = engine()
    with bound.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        Base.metadata.create_all(connection)
        with Session(connection) as session:
            session.add(Author(name="Austen", born=datetime.date(1775, 12, 16)))
            session.commit()
            author = session.scalars(sa.select(Author)).one()
            author.books = [Book(id=uuid.UUID(int=1), title="Emma"), Book(id=uuid.UUID(int=2), title="Persuasion")]
            session.commit()
            session.expire_all()
            author = session.scalars(sa.select(Author).options(selectinload(Author.books)).where(Author.name == "Austen")).one()
            equal([book.title for book in author.books], ["Emma", "Persuasion"])
            author.name = "Jane Austen"
            session.commit()
            equal(session.scalar(sa.select(Author.name).where(Author.books.any(Book.title == "Emma"))), "Jane Austen")
            equal(session.get(Book, uuid.UUID(int=2)).author.born, datetime.date(1775, 12, 16))
            session.delete(author)
            session.commit()
            equal(session.scalar(sa.select(sa.func.count()).select_from(Book)), 0)


@check("orm in a transaction")
def _():
    class OwnBase(DeclarativeBase):
        pass

    class Note(OwnBase):
        __tablename__ = "sqlalchemy_notes"
        id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
        text: Mapped[str] = mapped_column(sa.Text)

    bound = engine()
    with bound.connect() as connection:
        OwnBase.metadata.create_all(connection)
        connection.commit()
    with Session(bound) as session:
        session.add_all([Note(id=number, text=f"note {number}") for number in range(10)])
        session.commit()
        session.scalars(sa.select(Note).where(Note.id == 3)).one().text = "changed"
        session.commit()
        equal(session.scalar(sa.select(Note.text).where(Note.id == 3)), "changed")


@check("large result")
def _():
    with engine().connect() as connection, bounded_memory():
        result = connection.execution_options(stream_results=True, yield_per=10_000).execute(sa.text(LARGE))
        count = total = 0
        for partition in result.partitions(10_000):
            count += len(partition)
            total += sum(row[0] for row in partition)
        equal((count, total), (LARGE_COUNT, LARGE_SUM))


@check("errors")
def _():
    table = sa.Table("sqlalchemy_errors", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True))
    with engine().connect() as connection:
        table.create(connection)
        connection.commit()
        connection.execute(table.insert(), {"id": 1})
        connection.commit()
        for statement, error, sqlstate in [
            (table.insert().values(id=1), sa.exc.IntegrityError, "23505"),
            (sa.text("SELECT * FROM no_such_table"), sa.exc.ProgrammingError, "42P01"),
            (sa.text("SELEC 1"), sa.exc.ProgrammingError, "42601"),
            (sa.text("SELECT 'x'::bigint"), sa.exc.DataError, "22P02"),
        ]:
            try:
                connection.execute(statement)
            except error as found:
                equal(found.orig.sqlstate, sqlstate)
            else:
                raise AssertionError(f"no error instead of {sqlstate}")
            connection.rollback()


@check("cancel")
def _():
    with engine().connect() as connection:
        threading.Timer(0.5, connection.connection.driver_connection.cancel).start()
        with soon(), expect("57014", lambda error: error.orig.sqlstate):
            connection.execute(sa.text(LONG))
        connection.rollback()
        equal(connection.execute(sa.text("SELECT 1")).scalar(), 1)


def create_reflected(connection):
    for statement in (
        "CREATE SCHEMA sqlalchemy_reflected",
        "CREATE TABLE sqlalchemy_reflected.films (id bigint GENERATED BY DEFAULT AS IDENTITY, title varchar(80) NOT NULL, price numeric(12, 3) DEFAULT 1.5,"
        " seen timestamptz, tags text[], document jsonb, key uuid, loud text GENERATED ALWAYS AS (upper(title)) STORED,"
        " PRIMARY KEY (id), CONSTRAINT films_one UNIQUE (title, price))",
        "CREATE INDEX films_title ON sqlalchemy_reflected.films USING btree (title)",
        "CREATE VIEW sqlalchemy_reflected.titles AS SELECT title FROM sqlalchemy_reflected.films",
        "COMMENT ON TABLE sqlalchemy_reflected.films IS 'What was shown'",
        "COMMENT ON COLUMN sqlalchemy_reflected.films.title IS 'As printed'",
    ):
        connection.execute(sa.text(statement))
        connection.commit()


@check("reflection")
def _():
    schema = "sqlalchemy_reflected"
    with engine().connect() as connection:
        create_reflected(connection)
        inspector = sa.inspect(connection)
        assert schema in inspector.get_schema_names(), inspector.get_schema_names()
        equal((inspector.get_table_names(schema), inspector.get_view_names(schema)), (["films"], ["titles"]))
        columns = {column["name"]: column for column in inspector.get_columns("films", schema)}
        types = {name: str(column["type"].compile(dialect=connection.dialect)) for name, column in columns.items()}
        expected = {
            "id": "BIGINT", "title": "VARCHAR(80)", "price": "NUMERIC(12, 3)", "seen": "TIMESTAMP WITH TIME ZONE", "tags": "TEXT[]", "document": "JSONB",
            "key": "UUID", "loud": "TEXT",
        }
        equal(types, expected)
        equal([name for name, column in columns.items() if not column["nullable"]], ["id", "title"])
        equal((columns["id"]["identity"]["always"], columns["loud"]["computed"]["persisted"]), (False, True))
        assert "1.5" in columns["price"]["default"], columns["price"]["default"]
        equal(inspector.get_pk_constraint("films", schema)["constrained_columns"], ["id"])
        found = [(constraint["name"], constraint["column_names"]) for constraint in inspector.get_unique_constraints("films", schema)]
        equal(found, [("films_one", ["title", "price"])])
        assert ("films_title", ["title"], False) in [
            (index["name"], index["column_names"], index["unique"]) for index in inspector.get_indexes("films", schema)
        ], inspector.get_indexes("films", schema)
        equal(inspector.get_foreign_keys("films", schema), [])
        equal(inspector.get_check_constraints("films", schema), [])
        equal((inspector.get_table_comment("films", schema)["text"], columns["title"]["comment"]), ("What was shown", "As printed"))
        assert "title" in inspector.get_view_definition("titles", schema)


@check("reflected tables")
def _():
    with engine().connect() as connection:
        connection.execute(sa.text("CREATE TABLE sqlalchemy_mirror (id bigint PRIMARY KEY, name text NOT NULL)"))
        connection.commit()
        metadata = sa.MetaData()
        metadata.reflect(connection, only=["sqlalchemy_mirror"])
        table = metadata.tables["sqlalchemy_mirror"]
        equal([column.name for column in table.primary_key], ["id"])
        connection.execute(table.insert(), {"id": 1, "name": "one"})
        connection.commit()
        equal(connection.execute(table.select()).all(), [(1, "one")])


if __name__ == "__main__":
    check.run()
