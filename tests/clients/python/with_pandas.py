"""pandas: `read_sql` and `to_sql` over SQLAlchemy."""

import datetime
import threading

import pandas
import sqlalchemy as sa
from checks import DATABASE, HOST, LARGE, LARGE_COUNT, LARGE_SUM, LONG, PORT, USER, Checks, bounded_memory, equal, expect, soon

check = Checks("pandas", pandas.__version__)


def engine():
    return sa.create_engine(f"postgresql+psycopg://{USER}@{HOST}:{PORT}/{DATABASE}")


def a_frame(count=1000):
    return pandas.DataFrame(
        {
            "id": range(count),
            "name": [None if number % 3 == 0 else f"name {number}" for number in range(count)],
            "score": [number / 4 for number in range(count)],
            "is_even": [number % 2 == 0 for number in range(count)],
            "seen": pandas.date_range("2024-02-29", periods=count, freq="h", unit="us"),
        }
    )


@check("to_sql and read_sql")
def _():
    frame = a_frame()
    with engine().connect() as connection:
        frame.to_sql("pandas_frame", connection, index=False, chunksize=250, method="multi")
        connection.commit()
        found = pandas.read_sql("SELECT * FROM pandas_frame ORDER BY id", connection)
        for name in frame.columns:
            equal([None if value is pandas.NA or value != value else value for value in found[name]],
                  [None if value is pandas.NA or value != value else value for value in frame[name]])
        equal([str(found[name].dtype) for name in ("id", "score", "is_even")], ["int64", "float64", "bool"])
        assert str(found["seen"].dtype).startswith("datetime64"), found["seen"].dtype


@check("replace and append")
def _():
    with engine().connect() as connection:
        for mode, count in (("replace", 10), ("replace", 5), ("append", 5)):
            a_frame(count).to_sql("pandas_again", connection, if_exists=mode, index=False)
            connection.commit()
        equal(pandas.read_sql("SELECT count(*) AS n FROM pandas_again", connection)["n"].tolist(), [10])
        try:
            a_frame(1).to_sql("pandas_again", connection, if_exists="fail")
        except ValueError as error:
            assert "already exists" in str(error), error
        else:
            raise AssertionError("the table is there already")


@check("read_sql_table")
def _():
    with engine().connect() as connection:
        a_frame(20).to_sql("pandas_table", connection, index_label="row")
        connection.commit()
        found = pandas.read_sql_table("pandas_table", connection, index_col="row", columns=["id", "name"])
        equal((found.index.name, list(found.columns), len(found)), ("row", ["id", "name"], 20))


@check("parameters")
def _():
    with engine().connect() as connection:
        query = sa.text("SELECT value FROM generate_series(1, 10) t(value) WHERE value > :least AND value < :most ORDER BY value")
        equal(pandas.read_sql(query, connection, params={"least": 3, "most": 6})["value"].tolist(), [4, 5])


@check("types")
def _():
    with engine().connect() as connection:
        query = "SELECT 1.25::numeric(10, 2) AS n, date '2024-02-29' AS d, timestamptz '2024-02-29 12:00:00+00' AS t, '{\"a\": 1}'::jsonb AS j, NULL::bigint AS e"
        found = pandas.read_sql(query, connection, parse_dates=["d"])
        equal(found["t"][0].to_pydatetime(), datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc))
        equal((str(found["n"][0]), found["d"][0].date(), found["j"][0]), ("1.25", datetime.date(2024, 2, 29), {"a": 1}))
        assert found["e"].isna().all()


@check("large result")
def _():
    with engine().connect().execution_options(stream_results=True) as connection, bounded_memory(96):
        count = total = 0
        for piece in pandas.read_sql(LARGE, connection, chunksize=20_000):
            count += len(piece)
            total += int(piece["value"].sum())
        equal((count, total), (LARGE_COUNT, LARGE_SUM))


@check("errors")
def _():
    with engine().connect() as connection:
        for statement, sqlstate in (("SELECT * FROM no_such_table", "42P01"), ("SELEC 1", "42601")):
            try:
                pandas.read_sql(sa.text(statement), connection)
            except pandas.errors.DatabaseError as error:
                equal(error.__cause__.orig.sqlstate, sqlstate)
            else:
                raise AssertionError(f"no error instead of {sqlstate}")
            connection.rollback()


@check("cancel")
def _():
    with engine().connect() as connection:
        threading.Timer(0.5, connection.connection.driver_connection.cancel).start()
        with soon(), expect("57014", lambda error: error.__cause__.orig.sqlstate):
            pandas.read_sql(sa.text(LONG), connection)
        connection.rollback()
        equal(pandas.read_sql("SELECT 1 AS one", connection)["one"].tolist(), [1])


if __name__ == "__main__":
    check.run()
