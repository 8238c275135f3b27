"""PostgreSQL's own regression scripts, statement by statement, beside a PostgreSQL server: how many statements give the same rows.

    postgres_suite.py --scripts postgresql-15.18/src/test/regress --peer 'host=.. user=postgres' --binary target/debug/rolloutdb [--write FOLDER] [script ...]

`--scripts` is the folder `src/test/regress` of Debian's source package `postgresql-15` (`apt-get source postgresql-15`, with a `deb-src` line for bookworm);
`--peer` a PostgreSQL 15 whose user may create databases. Needs psycopg 3.

Each script runs in a fresh database on both sides, after `test_setup.sql`. Rows are compared as texts, in order where the statement ends in an ORDER BY of its own, else as a
bag. psql's commands are left out, but for the variables of file names and the rows of COPY.

| column | a statement that |
|---|---|
| equal | gives the same rows, or has no rows and succeeds on both sides, or fails on both |
| value | gives as many rows as PostgreSQL, with another value |
| rows | gives another number of rows |
| names | gives the same rows under other column names (it counts as equal too) |
| refused | fails here and not there |
| accepted | succeeds here and not there |
| after | differs, and names a table or view that an earlier difference has left in another state |
| lost | ended the connection, or did not end in time |
"""

import argparse
import collections
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from psycopg import pq

SECONDS_MAX = 20
COUNTS = ("equal", "value", "rows", "names", "refused", "accepted", "after", "lost")
TUPLES, DONE, COPY_IN, COPY_OUT = pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT
Outcome = collections.namedtuple("Outcome", "kind names rows code message")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=Path, required=True)
    parser.add_argument("--peer", required=True, help="conninfo of PostgreSQL, without a database")
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--write", type=Path, help="a folder for what differed, a file for each script")
    parser.add_argument("only", nargs="*", help="names of scripts; default: all of parallel_schedule")
    options = parser.parse_args()
    names = options.only or schedule(options.scripts)
    total = collections.Counter()
    print(f"{'script':24}" + "".join(f"{name:>10}" for name in COUNTS), flush=True)
    for name in names:
        counts, report = compare(options, name)
        total.update(counts)
        line(name, counts)
        if options.write:
            options.write.mkdir(parents=True, exist_ok=True)
            (options.write / f"{name}.txt").write_text("\n".join(report))
    line("all", total)


def line(name, counts):
    print(f"{name:24}" + "".join(f"{counts[count]:>10}" for count in COUNTS), flush=True)


def schedule(folder):
    names = re.findall(r"^test: (.*)$", (folder / "parallel_schedule").read_text(), re.M)
    return [name for names in names for name in names.split() if name != "test_setup" and (folder / "sql" / f"{name}.sql").exists()]


def compare(options, name):
    """The counts of one script, and what differed."""
    counts, report, differing = collections.Counter(), [], set()
    with Peer(options.peer) as peer, Server(options.binary) as server:
        sides = [Side(peer.conninfo), Side(server.conninfo)]
        for statement, data in statements(options.scripts, "test_setup"):
            for side in sides:
                side.run(statement, data)
        for statement, data in statements(options.scripts, name):
            theirs, ours = (side.run(statement, data) for side in sides)
            if theirs.kind == "lost":
                continue
            kind = verdict(theirs, ours)
            if kind != "equal" and not differing.isdisjoint(re.findall(r"\w+", statement.lower())):
                kind = "after"
            if kind != "equal":
                differing |= written_names(statement)
            counts[kind] += 1
            if kind == "equal" and theirs.names != ours.names:
                counts["names"] += 1
                kind = "names"
            if kind != "equal":
                report.append(f"-- {kind}\n{statement};\n{described('theirs', theirs)}{described('ours', ours)}")
    return counts, report


def described(whose, outcome):
    if outcome.kind != "rows":
        return f"--   {whose}: {outcome.kind} {outcome.code} {outcome.message}\n"
    return f"--   {whose}: {outcome.names}\n" + "".join(f"--     {row}\n" for row in outcome.rows[:6])


def verdict(theirs, ours):
    if ours.kind == "lost":
        return "lost"
    if (theirs.kind == "error") != (ours.kind == "error"):
        return "refused" if ours.kind == "error" else "accepted"
    if theirs.kind != "rows" or ours.kind != "rows":
        return "equal"
    if len(theirs.rows) != len(ours.rows):
        return "rows"
    ordered = re.search(r"\border\s+by\b[^()]*$", statement, re.I)
    same = theirs.rows == ours.rows if ordered else collections.Counter(theirs.rows) == collections.Counter(ours.rows)
    return "equal" if same else "value"


class Side:
    """One connection, made again when it was lost."""

    def __init__(self, conninfo):
        self.conninfo = conninfo.encode()
        self.connect()

    def connect(self):
        self.connection = pq.PGconn.connect(self.conninfo)
        if self.connection.status != pq.ConnStatus.OK:
            raise SystemExit(self.connection.error_message.decode())
        # As pg_regress sets them.
        for setting in (f"statement_timeout = '{SECONDS_MAX}s'", "timezone = 'PST8PDT'", "datestyle = 'Postgres, MDY'", "intervalstyle = 'postgres_verbose'"):
            self.connection.exec_(f"SET {setting}".encode())

    def run(self, statement, data):
        try:
            result = self.connection.exec_(statement.encode())
            if result.status == COPY_IN:
                self.connection.put_copy_data((data or "").encode())
                self.connection.put_copy_end()
                result = self.connection.get_result()
                while self.connection.get_result():
                    pass
            elif result.status == COPY_OUT:
                result = self.copied()
        except Exception as error:  # the connection is gone
            return self.lost(str(error))
        if isinstance(result, Outcome):
            return result
        if result.status == TUPLES:
            names = [result.fname(column).decode() for column in range(result.nfields)]
            return Outcome("rows", names, [tuple(text(result.get_value(row, column)) for column in range(result.nfields)) for row in range(result.ntuples)], "", "")
        if result.status in (DONE, pq.ExecStatus.EMPTY_QUERY):
            return Outcome("done", [], [], "", "")
        code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        if self.connection.status != pq.ConnStatus.OK or code == "57014" or not code:
            return self.lost(result.error_message.decode(errors="replace"))
        return Outcome("error", [], [], code, (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace"))

    def copied(self):
        rows = []
        while True:
            size, data = self.connection.get_copy_data(0)
            if size <= 0:
                break
            rows.append((bytes(data).decode(errors="replace"),))
        while self.connection.get_result():
            pass
        return Outcome("rows", [], rows, "", "")

    def lost(self, message):
        self.connection.finish()
        self.connect()
        return Outcome("lost", [], [], "", message)


def text(value):
    return None if value is None else value.decode(errors="replace")


class Peer:
    """A fresh database of PostgreSQL's."""

    def __init__(self, conninfo):
        self.admin, self.name = conninfo, f"suite_{os.getpid()}"
        self.conninfo = f"{conninfo} dbname={self.name}"

    def __enter__(self):
        self.ask(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)", f"CREATE DATABASE {self.name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
        return self

    def __exit__(self, *_):
        self.ask(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    def ask(self, *statements):
        connection = pq.PGconn.connect(f"{self.admin} dbname=postgres".encode())
        for statement in statements:
            result = connection.exec_(statement.encode())
            if result.status != DONE:
                raise SystemExit(result.error_message.decode())
        connection.finish()


class Server:
    """A server on a fresh data directory."""

    def __init__(self, binary):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.binary, self.folder = binary, tempfile.TemporaryDirectory(prefix="suite-")
        self.conninfo = f"host=127.0.0.1 port={self.port} user=postgres dbname=rolloutdb"

    def __enter__(self):
        command = [self.binary, "serve", "--data", f"{self.folder.name}/data", "--listen", f"127.0.0.1:{self.port}", "--superuser", "postgres"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            if pq.PGconn.ping(self.conninfo.encode()) == pq.Ping.OK:
                return self
            time.sleep(0.05)
        sys.exit("the server did not start")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def statements(folder, name):
    """(text, rows of COPY) of each statement of a script."""
    lines = (folder / "sql" / f"{name}.sql").read_text(errors="replace").split("\n")
    variables, pending, position = {"abs_srcdir": str(folder)}, "", 0
    while position < len(lines):
        current = lines[position]
        position += 1
        if not pending.strip() and current.startswith("\\"):
            command(current, variables)
            continue
        pending += with_variables(current, variables) + "\n"
        while (end := ending(pending)) is not None:
            statement, pending = pending[:end].strip(), pending[end + 1 :]
            data = None
            if re.match(r"copy\b.*\bfrom\s+stdin\b", statement, re.I | re.S):
                rows = lines[position:]
                count = next((index for index, row in enumerate(rows) if row == "\\."), len(rows))
                data, position = "".join(f"{row}\n" for row in rows[:count]), position + count + 1
            file = re.match(r"(copy\b.*?\bfrom\s+)'([^']+)'(.*)$", statement, re.I | re.S)
            if file and Path(file[2]).exists():
                statement, data = f"{file[1]}STDIN{file[3]}", Path(file[2]).read_text()
            if without_comments(statement):
                yield statement, data
        # A statement may end in one of psql's commands instead of a semicolon.
        if (match := re.search(r"\\(g|gset|gexec|gdesc|crosstabview)\b", pending)) and ending(pending) is None:
            pending = pending[: match.start()] if match[1] == "g" else ""
            if without_comments(pending):
                yield pending.strip(), None
            pending = ""


def command(text, variables):
    words = text.split()
    if words[0] == "\\set" and len(words) > 1:
        parts = [variables.get(word[1:], "") if word.startswith(":") else word.strip("'") for word in words[2:]]
        variables[words[1]] = "".join(parts)


def with_variables(text, variables):
    quoted = re.sub(r":'(\w+)'", lambda match: "'" + variables[match[1]] + "'" if match[1] in variables else match[0], text)
    return re.sub(r":\"(\w+)\"", lambda match: '"' + variables[match[1]] + '"' if match[1] in variables else match[0], quoted)


def without_comments(text):
    return re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.S).strip()


TOKENS = re.compile(r"--[^\n]*|/\*|\$(?:[A-Za-z_]\w*)?\$|[eE]'|'|\"|[()]|;|\b(?:BEGIN\s+ATOMIC|END|CASE)\b", re.I)


def ending(text):
    """Where the first statement's semicolon is; None: not there yet."""
    position, depth, atomic = 0, 0, []
    while match := TOKENS.search(text, position):
        token, position = match[0], match.end()
        if token == "/*":
            position = after_comment(text, position)
        elif token.startswith("$"):
            position = after(text, token, position)
        elif token == "'":
            position = after(text, "'", position)
        elif token in ("e'", "E'"):
            escaped = re.compile(r"(?:[^'\\]|\\.|'')*'", re.S).match(text, position)
            position = escaped.end() if escaped else None
        elif token == '"':
            position = after(text, '"', position)
        elif token == "(":
            depth += 1
        elif token == ")":
            depth = max(depth - 1, 0)
        elif token == ";":
            if depth == 0 and not atomic:
                return match.start()
        elif token.upper().startswith("BEGIN"):
            atomic.append("atomic")
        elif token.upper() == "CASE" and atomic:
            atomic.append("case")
        elif token.upper() == "END" and atomic:
            atomic.pop()
        if position is None:
            return None
    return None


def after(text, mark, position):
    found = text.find(mark, position)
    return None if found < 0 else found + len(mark)


def after_comment(text, position):
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(text, position):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return None


if __name__ == "__main__":
    main()
