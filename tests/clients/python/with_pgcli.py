"""pgcli: what it asks the catalog for its completion, its own backslash commands, and a run of the program itself."""

import importlib.metadata
import os
import subprocess
import sys
import tempfile

from checks import DATABASE, HOST, PORT, USER, Checks, equal
from pgcli.pgexecute import PGExecute
from pgspecial.main import PGSpecial

check = Checks("pgcli", importlib.metadata.version("pgcli"))


def executor():
    return PGExecute(DATABASE, USER, "", HOST, PORT)


def run(statement, special=None):
    results = list(executor().run(statement, special))
    equal(len(results) > 0, True)
    for title, rows, headers, status, *_, is_success, is_special in results:
        assert is_success, status
    return [list(rows) if rows is not None else [] for _, rows, *_ in results][-1]


@check("connect")
def _():
    equal(run("SELECT 1 AS one"), [(1,)])
    run("DROP TABLE IF EXISTS pgcli_films")
    run("CREATE TABLE pgcli_films (id bigint PRIMARY KEY, title text NOT NULL DEFAULT 'none')")
    run("CREATE INDEX pgcli_films_title ON pgcli_films USING btree (title)")
    run("CREATE VIEW pgcli_titles AS SELECT title FROM pgcli_films")


@check("completion: tables, views, columns")
def _():
    found = executor()
    assert ("public", "pgcli_films") in list(found.tables())
    assert ("public", "pgcli_titles") in list(found.views())
    columns = [tuple(column)[:5] for column in found.table_columns() if column[1] == "pgcli_films"]
    equal([column[2:5] for column in columns], [("id", "bigint", False), ("title", "text", True)])
    assert [column[2] for column in found.view_columns() if column[1] == "pgcli_titles"] == ["title"]


@check("completion: schemas, databases, search path")
def _():
    found = executor()
    assert "public" in list(found.schemata()) and DATABASE in found.databases()
    assert "public" in found.search_path(), found.search_path()


@check("completion: functions")
def _():
    assert any(function.func_name == "upper" for function in executor().functions())


@check("completion: types and keys")
def _():
    found = executor()
    list(found.datatypes())
    equal(list(found.foreignkeys()), [])


@check("time zone")
def _():
    assert executor().get_timezone()


@check("definition of a view")
def _():
    assert "title" in executor().view_definition("pgcli_titles")


# Those of psql that the other programs of this folder do not run, as pgcli asks for them.
for command, holds in [
    (r"\l", DATABASE), (r"\du", USER), (r"\dn", "public"), (r"\dt", "pgcli_films"), (r"\dv", "pgcli_titles"), (r"\di", "pgcli_films_title"),
    (r"\df", "embed"), (r"\dT", "halfvec"), (r"\d", "pgcli_films"), (r"\d pgcli_films", "title"), (r"\d+ pgcli_films", "title"), (r"\dx", "vector"),
]:

    def check_command(command=command, holds=holds):
        rows = run(command, PGSpecial())
        assert holds in repr(rows), f"{holds} is not in {rows!r}"

    check(command)(check_command)


@check("the program")
def _():
    environment = {**os.environ, "PGPASSWORD": "", "XDG_CONFIG_HOME": tempfile.gettempdir(), "TERM": "dumb", "PAGER": "cat"}
    program = os.path.join(os.path.dirname(sys.executable), "pgcli")
    command = [program, "-h", HOST, "-p", str(PORT), "-U", USER, "-d", DATABASE, "--less-chatty", "-c", "SELECT 40 + 2 AS answer"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL)
    assert "42" in found.stdout, (found.stdout, found.stderr[-300:])


if __name__ == "__main__":
    check.run()
