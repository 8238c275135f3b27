"""psql: its backslash commands, `\\copy`, `\\watch`, Ctrl-C, cursors by FETCH_COUNT. Needs nothing but Python and psql."""

import os
import re
import signal
import subprocess
import tempfile
import time

from checks import DATABASE, LARGE, LARGE_COUNT, LARGE_SUM, LONG, PASSWORD, PORT, ROLE, USER, Checks, equal, soon
from samples import SAMPLES

check = Checks("psql", subprocess.run(["psql", "--version"], capture_output=True, text=True, check=True).stdout.split()[2])
PLAIN = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1"]


def psql(script, *options, status=0, **environment):
    """What psql printed for the script; its errors too."""
    found = subprocess.run(
        [*PLAIN, *options, "-f", "-"],
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=50,
        env={**os.environ, "PAGER": "cat", **environment},
    )
    assert found.returncode == status, f"psql ended with {found.returncode}: {found.stdout[-500:]}"
    return found.stdout


def holds(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in {text!r}"


@check("connect")
def _():
    equal(psql("SELECT 1, NULL, 'x';", "-At"), "1||x\n")
    holds(psql(r"\conninfo"), f'database "{DATABASE}" as user "{USER}"', f'port "{PORT}"')


@check("password")
def _():
    equal(psql("SELECT current_user;", "-At", "-U", ROLE, PGPASSWORD=PASSWORD), f"{ROLE}\n")
    holds(psql("SELECT 1;", "-w", "-U", ROLE, status=2, PGPASSWORD="wrong"), "password authentication failed")


@check("objects to describe")
def _():
    psql(
        """
        CREATE TABLE psql_films (
          id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title varchar(80) NOT NULL, year integer DEFAULT 1970, price numeric(8, 2), tags text[],
          loud text GENERATED ALWAYS AS (upper(title)) STORED, seen timestamptz, document jsonb, CONSTRAINT psql_one UNIQUE (title, year));
        CREATE INDEX psql_films_year ON psql_films USING btree (year);
        CREATE VIEW psql_titles AS SELECT id, title FROM psql_films;
        CREATE SCHEMA psql_other;
        CREATE TABLE psql_other.notes (id bigint);
        INSERT INTO psql_films (title, price) VALUES ('Jaws', 1.5), ('Duel', NULL);
        """
    )


@check("comments")
def _():
    psql(
        """
        COMMENT ON TABLE psql_films IS 'What was shown';
        COMMENT ON COLUMN psql_films.title IS 'As printed';
        """
    )
    holds(psql(r"\dt+ psql_films"), "What was shown")
    holds(psql(r"\d+ psql_films"), "As printed")


COLUMNS = ["character varying(80)", "not null", "integer", "1970", "numeric(8,2)", "text[]", "timestamp with time zone", "jsonb", "generated always as identity"]
DESCRIBED = {
    r"\d": ["psql_films", "psql_titles", "table", "view"],
    r"\d+": ["psql_films", "psql_titles"],
    r"\d psql_films": [*COLUMNS, "psql_films_pkey", "PRIMARY KEY", "psql_one", "UNIQUE", "psql_films_year", "generated always as (", "stored"],
    r"\d+ psql_films": COLUMNS,
    r"\d psql_titles": ["View", "title", "character varying(80)"],
    r"\d+ psql_titles": ["View definition", "psql_films"],
    r"\d psql_films_year": ["Index", "year", "btree"],
    r"\d psql_other.notes": ["id", "bigint"],
    r"\dt": ["psql_films", "table"],
    r"\dt+": ["psql_films", "table"],
    r"\dt psql_*": ["psql_films"],
    r"\dt psql_other.*": ["notes"],
    r"\dt *.*": ["psql_films", "notes", "pg_class"],
    r"\dv": ["psql_titles", "view"],
    r"\di": ["psql_films_year", "index"],
    r"\di+": ["psql_films_year", "btree"],
    r"\dn": ["public", "psql_other"],
    r"\dn+": ["public"],
    r"\df": ["List of functions", "embed", "vector_search"],
    r"\df upper": ["upper", "text"],
    r"\df+ upper": ["upper"],
    r"\du": [USER],
    r"\du+": [USER],
    r"\l": [DATABASE, "UTF8"],
    r"\l+": [DATABASE],
    r"\dT": ["List of data types", "vector", "halfvec"],
    r"\dT+": ["List of data types", "vector", "halfvec"],
    r"\dT numeric": ["numeric"],
    r"\dp": ["psql_films"],
    r"\dx": ["List of installed extensions", "vector", "public"],
    r"\ds": [],
    r"\sv psql_titles": ["SELECT"],
}
for command, parts in DESCRIBED.items():

    def check_command(command=command, parts=parts):
        holds(psql(command), *parts)

    check(command)(check_command)


@check(r"\dT vector")
def _():
    holds(psql(r"\dT vector"), "vector")
    psql("CREATE TABLE psql_vectors (v vector(3), h halfvec(4));")
    holds(psql(r"\d psql_vectors"), "vector(3)", "halfvec(4)")


@check(r"\gdesc")
def _():
    found = psql("SELECT 1::bigint AS a, 'x'::text AS b, 1.5::numeric(8, 2) AS c, now() AS d \\gdesc", "-At")
    equal(found, "a|bigint\nb|text\nc|numeric(8,2)\nd|timestamp with time zone\n")


@check(r"\timing, \gset, \gexec, \errverbose")
def _():
    holds(psql("\\timing on\nSELECT 1;"), "Time: ", " ms")
    equal(psql("SELECT 41 + 1 AS answer \\gset\n\\echo :answer\n", "-At"), "42\n")
    equal(psql("SELECT 'SELECT ' || n FROM generate_series(1, 2) t(n) ORDER BY n \\gexec\n", "-At"), "1\n2\n")
    holds(psql("\\set ON_ERROR_STOP 0\nSELECT * FROM no_such_table;\n\\errverbose\n"), "42P01")


@check("variables of the session")
def _():
    found = psql("\\echo :SERVER_VERSION_NUM :ENCODING :DBNAME\nSHOW server_encoding;", "-At")
    assert re.fullmatch(rf"1[4-9]\d{{4}} UTF8 {DATABASE}\nUTF8\n", found), found


@check("search_path")
def _():
    equal(psql("SET search_path = psql_other, public; SELECT count(*) FROM notes; SELECT count(*) FROM psql_films;", "-At"), "0\n2\n")


def check_text(sample):
    def run():
        quoted = sample.text.replace("'", "''")
        equal(psql(f"SELECT '{quoted}'::{sample.type};", "-At").removesuffix("\n"), sample.text)
        equal(psql(f"SELECT NULL::{sample.type} IS NULL, NULL::{sample.type};", "-At"), "t|\n")

    return run


for sample in SAMPLES:
    check(f"type {sample.type}")(check_text(sample))


@check("type edges")
def _():
    for type, text in [
        ("real", "Infinity"), ("double precision", "-Infinity"), ("double precision", "NaN"), ("double precision", "1e+300"), ("text[]", "{}"),
        ("double precision", "1e-10"), ("real", "1.1"), ("bytea", "\\x"), ("date", "0001-01-01"), ("numeric(10, 2)", "0.00"), ("boolean", "f"),
    ]:
        equal(psql(f"SELECT '{text}'::{type};", "-At"), f"{text}\n")


@check("type integer[], two dimensions")
def _():
    equal(psql("SELECT ARRAY[[1, 2], [3, 4]];", "-At"), "{{1,2},{3,4}}\n")


@check("type record")
def _():
    equal(psql("SELECT ROW(1, 'a b', NULL, 'c');", "-At"), '(1,"a b",,c)\n')


@check(r"\copy from and to files")
def _():
    psql("CREATE TABLE psql_copy (id bigint, name text);")
    with tempfile.TemporaryDirectory() as folder:
        for format, content in [("csv, HEADER", 'id,name\n1,"one, 1"\n2,\n'), ("text", "1\tone, 1\n2\t\\N\n")]:
            with open(f"{folder}/in", "w") as file:
                file.write(content)
            equal(psql(f"TRUNCATE psql_copy;\n\\set QUIET 0\n\\copy psql_copy FROM '{folder}/in' WITH (FORMAT {format})\n").splitlines()[-1], "COPY 2")
            found = psql(f"\\set QUIET 0\n\\copy (SELECT * FROM psql_copy ORDER BY id) TO '{folder}/out' WITH (FORMAT {format})\n")
            equal(found.splitlines()[-1], "COPY 2")
            with open(f"{folder}/out") as file:
                equal(file.read(), content)
        psql(f"\\copy psql_copy TO '{folder}/binary' WITH (FORMAT binary)\nTRUNCATE psql_copy;\n\\copy psql_copy FROM '{folder}/binary' WITH (FORMAT binary)\n")
        equal(psql("SELECT * FROM psql_copy ORDER BY id;", "-At"), "1|one, 1\n2|\n")


@check("batch insert")
def _():
    rows = [(number, f"name {number}") for number in range(1000)]
    values = ",\n".join(f"({id}, '{name}')" for id, name in rows[:500])
    found = psql(f"\\set QUIET 0\nCREATE TABLE psql_batch (id bigint PRIMARY KEY, name text);\nINSERT INTO psql_batch VALUES\n{values};\n")
    equal(found.splitlines()[-1], "INSERT 0 500")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rows", "w") as file:
            file.writelines(f"{id}\t{name}\n" for id, name in rows[500:])
        equal(psql(f"\\set QUIET 0\n\\copy psql_batch FROM '{folder}/rows'\n").splitlines()[-1], "COPY 500")
    equal(psql("SELECT * FROM psql_batch ORDER BY id;", "-At"), "".join(f"{id}|{name}\n" for id, name in rows))


@check("COPY in the script")
def _():
    found = psql("CREATE TABLE psql_inline (id bigint, name text);\nCOPY psql_inline FROM STDIN;\n1\tone\n2\ttwo\n\\.\nCOPY psql_inline TO STDOUT;\n")
    equal(sorted(found.splitlines()), ["1\tone", "2\ttwo"])
    failed = psql("COPY psql_inline FROM STDIN;\n3\tthree\nfour\tfour\n\\.\n", "-v", "VERBOSITY=verbose", status=3)
    holds(failed, "22P02", "line 2")
    equal(psql("SELECT count(*) FROM psql_inline;", "-At"), "2\n")


@check(r"\watch")
def _():
    watching = subprocess.Popen([*PLAIN, "-At", "-f", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watching.stdin.write("SELECT 'again' \\watch 0.2\n")
    watching.stdin.flush()
    time.sleep(1.5)
    watching.send_signal(signal.SIGINT)
    out, _ = watching.communicate(timeout=20)
    assert out.count("again") >= 3, out


@check("Ctrl-C")
def _():
    running = subprocess.Popen(
        ["psql", "-X", "-At", "-v", "VERBOSITY=verbose", "-f", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    running.stdin.write(f"{LONG};\n")
    running.stdin.close()
    time.sleep(1)
    with soon():
        running.send_signal(signal.SIGINT)
        running.wait(timeout=50)
    holds(running.stdout.read(), "57014")


@check("large result, FETCH_COUNT")
def _():
    total = count = 0
    options = ["-At", "-v", "FETCH_COUNT=10000", "-c", LARGE]
    with subprocess.Popen([*PLAIN, *options], stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            count += 1
            total += int(line.split("|")[0])
        _, _, usage = os.wait4(running.pid, 0)
        running.returncode = 0
    equal((count, total), (LARGE_COUNT, LARGE_SUM))
    assert usage.ru_maxrss < 64 * 1024, f"psql took {usage.ru_maxrss} kB"


@check("errors")
def _():
    for sqlstate, statement in [
        ("23505", "INSERT INTO psql_errors VALUES (1)"),
        ("42P01", "SELECT * FROM no_such_table"),
        ("22P02", "SELECT 'x'::bigint"),
        ("42601", "SELEC 1"),
    ]:
        psql("CREATE TABLE IF NOT EXISTS psql_errors (id bigint PRIMARY KEY); INSERT INTO psql_errors VALUES (1) ON CONFLICT DO NOTHING;")
        holds(psql(f"{statement};", "-v", "VERBOSITY=verbose", status=3), f"ERROR:  {sqlstate}")
    found = psql("SELEC 1;", status=3)
    assert re.search(r"LINE 1: SELEC 1;\n +\^", found), found


@check("transactions")
def _():
    found = psql("BEGIN;\nSELECT 1;\nCOMMIT;\n\\set ON_ERROR_STOP 0\n\\set VERBOSITY verbose\nBEGIN;\nSELECT no_column;\nSELECT 1;\nROLLBACK;\nSELECT 'after';", "-At")
    holds(found, "42703", "25P02", "after")


@check("--single-transaction and ON_ERROR_ROLLBACK")
def _():
    equal(psql("SELECT 1;", "-At", "-1"), "1\n")
    found = psql("\\set ON_ERROR_STOP 0\n\\set ON_ERROR_ROLLBACK on\nBEGIN;\nSELECT no_column;\nSELECT 'goes on';\nCOMMIT;", "-At")
    holds(found, "goes on")


if __name__ == "__main__":
    check.run()
