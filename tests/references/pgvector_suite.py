"""Runs pgvector's own regression scripts against a server, one statement after the other, and counts how its answers compare.

    python3 pgvector_suite.py SCRIPTS DSN [--only NAME] [--show KIND]

SCRIPTS: the folder `test` of pgvector's source, with `sql/*.sql` and `expected/*.out`. The source is a package of Debian's (`pgvector`, from trixie on): with
`deb-src` among the types of a source list, `apt-get source pgvector` unpacks it into the working directory.
DSN: of the server, such as "host=127.0.0.1 port=5432 user=postgres dbname=postgres". Each script runs in a session of its own; its tables are called t, t2 ...
in `public`, and are dropped before it.

What is counted of each statement, where pgvector's answer is that of the file:
    equal       the same rows in the same order, or an error where an error is expected
    value       other values in as many rows
    rows        another number of rows, or of columns
    refused     an error where none is expected
    accepted    no error where one is expected
Messages are not compared. Scripts and statements about `sparsevec` are counted apart.

Needs psycopg (version 3).
"""

import argparse
import collections
import pathlib
import re
import sys
import tempfile

import psycopg
from psycopg import pq

KINDS = ["equal", "value", "rows", "refused", "accepted"]


class Statement:
    """One statement of a script, and what is expected of it."""

    def __init__(self, text, output):
        self.text, self.output = text, output
        self.is_error = any(line.startswith("ERROR:") for line in output)

    def rows(self):
        """The rows of the table that psql printed; None for a command without rows."""
        for number, line in enumerate(self.output):
            if re.fullmatch(r"-[-+]*", line) and number > 0:
                cells = line.count("+") + 1
                body = self.output[number + 1 :]
                end = next(i for i, row in enumerate(body) if re.fullmatch(r"\(\d+ rows?\)", row))
                return [[cell.strip() for cell in row.split("|", cells - 1)] for row in body[:end]]
        return None


def statements(sql_text, expected_text):
    """The statements of a script, each with the lines that the expected output has between it and the next one."""
    texts, current = [], []
    for line in sql_text.splitlines():
        if not current and (not line.strip() or line.startswith("--")):
            continue
        current.append(line)
        if line.rstrip().endswith(";") or line.startswith("\\"):
            texts.append("\n".join(current))
            current = []
    lines = expected_text.splitlines()
    places, place = [], 0
    for text in texts:
        wanted = text.splitlines()
        while lines[place : place + len(wanted)] != wanted:
            place += 1
        places.append((place, place + len(wanted)))
        place += len(wanted)
    ends = [start for start, _ in places[1:]] + [len(lines)]
    return [Statement(text, lines[begin:end]) for text, (_, begin), end in zip(texts, places, ends)]


def copied(connection, text, files):
    """Runs psql's \\copy, with files of a folder of our own."""
    table, direction, name, rest = re.fullmatch(r"\\copy (\S+) (TO|FROM) '([^']+)'\s*(.*)", text).groups()
    path = files / pathlib.Path(name).name
    with connection.cursor() as cursor:
        if direction == "TO":
            with cursor.copy(f"COPY {table} TO STDOUT {rest}") as copy, open(path, "wb") as file:
                for block in copy:
                    file.write(block)
        else:
            with cursor.copy(f"COPY {table} FROM STDIN {rest}") as copy:
                copy.write(path.read_bytes())


def answered(connection, statement, files):
    """The kind of an answer, and what it was."""
    if statement.text.startswith("\\"):
        try:
            copied(connection, statement.text, files)
        except (psycopg.Error, OSError) as error:
            return ("equal" if statement.is_error else "refused"), str(error)
        return ("accepted" if statement.is_error else "equal"), ""
    result = connection.pgconn.exec_(statement.text.encode())
    if result.status == pq.ExecStatus.FATAL_ERROR:
        message = result.error_message.decode().strip()
        return ("equal" if statement.is_error else "refused"), message
    if statement.is_error:
        return "accepted", ""
    expected = statement.rows()
    if expected is None:
        return "equal", ""
    if result.status != pq.ExecStatus.TUPLES_OK:
        return "rows", "no rows"
    cell = lambda row, column: (result.get_value(row, column) or b"").decode().strip()
    found = [[cell(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
    if found == expected:
        return "equal", ""
    is_shape = [len(row) for row in found] == [len(row) for row in expected]
    return ("value" if is_shape else "rows"), f"{found} instead of {expected}"


def run(script, expected, dsn, counts, show):
    is_sparse_script = "sparsevec" in script.stem
    with psycopg.connect(dsn, autocommit=True) as connection, tempfile.TemporaryDirectory() as files:
        for table in ("t", "t2"):
            connection.pgconn.exec_(f"DROP TABLE IF EXISTS {table}".encode())
        of_script = collections.Counter()
        # A table of sparse vectors that could not be made makes what follows on it fail.
        is_sparse_section = False
        for statement in statements(script.read_text(), expected.read_text()):
            if statement.text.startswith("CREATE TABLE"):
                is_sparse_section = "sparsevec" in statement.text
            is_sparse = is_sparse_script or is_sparse_section or "sparsevec" in statement.text
            kind, detail = answered(connection, statement, pathlib.Path(files))
            of_script["sparse" if is_sparse else kind] += 1
            counts["sparse " + kind if is_sparse else kind] += 1
            if kind in show and not is_sparse:
                print(f"{script.name} {kind}: {statement.text}\n    {detail}")
        print(f"{script.stem:20}", "  ".join(f"{kind} {of_script[kind]}" for kind in [*KINDS, "sparse"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", type=pathlib.Path)
    parser.add_argument("dsn")
    parser.add_argument("--only", help="the name of one script")
    parser.add_argument("--show", action="append", default=[], choices=KINDS, help="prints the statements of a kind")
    arguments = parser.parse_args()
    counts = collections.Counter()
    for script in sorted((arguments.scripts / "sql").glob("*.sql")):
        if arguments.only in (None, script.stem):
            run(script, arguments.scripts / "expected" / f"{script.stem}.out", arguments.dsn, counts, arguments.show)
    total = sum(counts.values())
    print(f"\n{total} statements:", ", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    sparse = {kind: counts[f"sparse {kind}"] for kind in KINDS if counts[f"sparse {kind}"]}
    print("of sparsevec:", ", ".join(f"{count} {kind}" for kind, count in sparse.items()) or "none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
