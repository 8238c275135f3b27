"""The same rows, statements and client beside PostgreSQL: point SELECT, a fetch of 10,000 rows, COPY out and in, 64 connections.

1,000,000 rows unless --rows says otherwise. Both sync what they commit. The client of statements is libpq, called from Python without conversion of the
rows; the client of COPY is psql. README.md describes the measures; Debian's `postgresql` package has the peer.
"""

import os
import pwd
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import pq

from harness import Bench, Calls, parse, parser
from server import Server, free_port, round_trip

COLUMNS = "id bigint PRIMARY KEY, n int, price double precision, flag boolean, name text, at timestamp, day date"
ROWS = """SELECT i AS id, (i * 7919 % 1000003)::int AS n, i / 8.0::double precision AS price, i % 3 = 0 AS flag, md5(i::text) AS name,
  timestamp '2020-01-01' + i * interval '1 second' AS at, date '2020-01-01' + (i % 3650)::int AS day FROM generate_series(0::bigint, {last}) AS i ORDER BY i"""
POINT = b"SELECT id, n, price, flag, name, at, day FROM items WHERE id = $1"
FETCH = b"SELECT id, n, price, flag, name, at, day FROM items WHERE id >= $1 AND id < $2"
NUM_FETCHED = 10_000
NUM_CONNECTIONS = 64
INT8 = 20
STRIDE = 7_368_787


def main():
    options = parser(__doc__)
    options.add_argument("--rows", type=int, help="default 1000000, quick 20000")
    options = parse(options, rounds=5)
    num_rows = options.rows or (20_000 if options.quick else 1_000_000)
    with Bench("postgres", options) as bench, Postgres() as peer, Server() as server:
        contest = Contest(server, peer, num_rows)
        bench.run("point SELECT by primary key", contest.point)
        bench.run(f"fetch of {NUM_FETCHED:,} rows in binary", contest.fetch)
        bench.run(f"point SELECT, {NUM_CONNECTIONS} connections", contest.connections)
        for form in ("text", "csv", "binary"):
            bench.run(f"COPY TO STDOUT, {form}", lambda measure, form=form: contest.copy_out(measure, form))
        for form in ("csv", "binary"):
            bench.run(f"COPY FROM STDIN, {form}", lambda measure, form=form: contest.copy_in(measure, form))


class Postgres:
    """A cluster of its own, on the disk of BENCH_DIR, that goes when the bench ends."""

    def __init__(self, folder=None, **settings):
        """`folder`: of the programs; without it Debian's. `settings`: beside those that all benches have."""
        self.binaries = folder or binaries()
        self.settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-bench-", dir=os.environ.get("BENCH_DIR")))
        self.data = self.folder / "data"
        self.port = free_port()

    def __enter__(self):
        if os.getuid() == 0:
            # PostgreSQL refuses to run as root.
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self.run("initdb", "-D", self.data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale")
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": NUM_CONNECTIONS + 36,
            "shared_buffers": "512MB",
            "max_wal_size": "4GB",
        } | self.settings
        said = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in settings.items())
        self.run("pg_ctl", "-D", self.data, "-w", "-l", self.folder / "log", "-o", said, "start")
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE bench")
            version = connection.execute("SHOW server_version").fetchone()[0]
        print(f"beside PostgreSQL {version}, shared_buffers 512MB, max_wal_size 4GB, otherwise as it comes", flush=True)
        return self

    def __exit__(self, *_):
        try:
            self.run("pg_ctl", "-D", self.data, "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, program, *arguments):
        command = [str(self.binaries / program), *map(str, arguments)]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        # A server that stays behind must not hold the pipe of its starter.
        log = open(self.folder / "commands", "wb") if os.getuid() != 0 else open(os.path.join(tempfile.gettempdir(), f"{self.folder.name}.log"), "wb")
        with log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        said = Path(log.name).read_text(errors="replace")
        Path(log.name).unlink()
        if done.returncode != 0:
            sys.exit(f"{program} failed: {said}")

    def conninfo(self, database="bench"):
        return f"host=127.0.0.1 port={self.port} user=bench dbname={database}"

    def connect(self):
        return psycopg.connect(self.conninfo(), autocommit=True)


def binaries():
    """The folder of PostgreSQL 15's programs, or of the newest version that is there."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    exact = [path for path in folders if path.parts[4] == "15"]
    if not folders:
        sys.exit("PostgreSQL is not installed: apt-get install postgresql")
    return (exact or folders)[-1].parent


class Raw:
    """One connection of libpq, with the statements of this bench prepared; rows stay as they came, in binary form."""

    def __init__(self, conninfo):
        self.connection = pq.PGconn.connect(f"{conninfo} sslmode=disable gssencmode=disable".encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise RuntimeError(self.connection.error_message.decode())
        self.check(self.connection.prepare(b"point", POINT, [INT8]))
        self.check(self.connection.prepare(b"fetch", FETCH, [INT8, INT8]))

    def check(self, result):
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            raise RuntimeError(result.error_message.decode(errors="replace"))
        return result

    def rows(self, name, *numbers):
        values = [struct.pack(">q", number) for number in numbers]
        return self.check(self.connection.exec_prepared(name, values, [1] * len(values), 1))

    def point(self, key):
        result = self.rows(b"point", key)
        if result.ntuples != 1 or result.get_value(0, 0) != struct.pack(">q", key):
            raise RuntimeError(f"the row of {key} is wrong")

    def fetch(self, first):
        result = self.rows(b"fetch", first, first + NUM_FETCHED)
        if result.ntuples != NUM_FETCHED:
            raise RuntimeError(f"{result.ntuples} rows instead of {NUM_FETCHED}")

    def values(self, name, *numbers):
        result = self.rows(name, *numbers)
        return sorted(tuple(result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples))

    def close(self):
        self.connection.finish()


@dataclass
class Whole:
    """A contestant whose turn is one piece of work over all rows; `prepare` is not timed."""

    name: str
    run: object
    num_rows: int
    prepare: object = None
    latencies: list = field(default_factory=list)

    def warm_up(self, _seconds):
        self.rate(0)

    def rate(self, _seconds):
        if self.prepare:
            self.prepare()
        start = time.perf_counter()
        self.run()
        return self.num_rows / (time.perf_counter() - start)


class Crowd:
    """Many connections that ask at once, each from a thread of its own; `least_share` is the least that one got of an even share, over all turns."""

    def __init__(self, name, conninfo, num_rows):
        self.name = name
        self.num_rows = num_rows
        self.latencies = []
        self.clients = [Raw(conninfo) for _ in range(NUM_CONNECTIONS)]
        self.least_share = 1.0

    def warm_up(self, seconds):
        self.rate(seconds)
        self.latencies.clear()
        self.least_share = 1.0

    def rate(self, seconds):
        counts, failures = [0] * NUM_CONNECTIONS, []
        seconds = max(seconds, 1.0)
        barrier = threading.Barrier(NUM_CONNECTIONS + 1)

        def ask(index):
            client, key, times = self.clients[index], index * 104_729, []
            barrier.wait()
            deadline = time.perf_counter() + seconds
            try:
                while (start := time.perf_counter()) < deadline:
                    key = (key + STRIDE) % self.num_rows
                    client.point(key)
                    times.append(time.perf_counter() - start)
                    counts[index] += 1
            except RuntimeError as error:
                failures.append(str(error))
            self.latencies.extend(times)

        threads = [threading.Thread(target=ask, args=(index,)) for index in range(NUM_CONNECTIONS)]
        for thread in threads:
            thread.start()
        barrier.wait()
        start = time.perf_counter()
        for thread in threads:
            thread.join()
        spent = time.perf_counter() - start
        if failures:
            raise RuntimeError(f"{len(failures)} clients failed, one with: {failures[0]}")
        self.least_share = min(self.least_share, min(counts) * NUM_CONNECTIONS / max(sum(counts), 1))
        return sum(counts) / spent

    def close(self):
        for client in self.clients:
            client.close()


class Contest:
    """Two servers with the same rows."""

    def __init__(self, server, peer, num_rows):
        self.server, self.peer, self.num_rows = server, peer, num_rows
        self.files = {form: server.folder / f"items.{form}" for form in ("text", "csv", "binary")}
        with peer.connect() as connection:
            connection.execute(f"CREATE TABLE items ({COLUMNS})")
            connection.execute(f"INSERT INTO items {ROWS.format(last=num_rows - 1)}")
            connection.execute("VACUUM ANALYZE items")
        for form, path in self.files.items():
            psql(peer.conninfo(), f"\\copy items TO '{path}' (FORMAT {form})")
        with server.connect() as connection:
            connection.execute(f"CREATE TABLE items ({COLUMNS})")
        psql(server.conninfo(), f"\\copy items FROM '{self.files['csv']}' (FORMAT csv)")
        self.ours, self.theirs = Raw(server.conninfo()), Raw(peer.conninfo())

    def key(self, call):
        return call * STRIDE % self.num_rows

    def same_rows(self, measure, what, name, *numbers):
        measure.check_equal(what, self.ours.values(name, *numbers), self.theirs.values(name, *numbers))

    def point(self, measure):
        for call in range(100):
            self.same_rows(measure, "the same row", b"point", self.key(call))
        measure.checks[:] = ["100 rows as in PostgreSQL"]
        contestants = [Calls("RolloutDB", lambda call: self.ours.point(self.key(call))), Calls("PostgreSQL", lambda call: self.theirs.point(self.key(call)))]
        with self.server.connect() as connection:
            floor = 1 / round_trip(connection)
        measure.compare(contestants[0], contestants[1:], target=0.9, floor=(floor, "round trips of the empty statement"))

    def fetch(self, measure):
        places = max(1, self.num_rows - NUM_FETCHED)
        self.same_rows(measure, f"{NUM_FETCHED:,} rows as in PostgreSQL", b"fetch", places // 2, places // 2 + NUM_FETCHED)

        def calls(name, client):
            return Calls(name, lambda call: client.fetch(call * STRIDE % places), units=NUM_FETCHED)

        with self.server.connect() as connection:
            floor = NUM_FETCHED / round_trip(connection)
        measure.compare(
            calls("RolloutDB", self.ours), [calls("PostgreSQL", self.theirs)], target=1.0, unit="rows/s", floor=(floor, "one round trip of the empty statement")
        )

    def connections(self, measure):
        crowds = [Crowd("RolloutDB", self.server.conninfo(), self.num_rows), Crowd("PostgreSQL", self.peer.conninfo(), self.num_rows)]
        try:
            crowds[0].warm_up(2.0)
            crowds[0].rate(3.0)
            measure.check("the least that one client got of an even share", crowds[0].least_share, at_least=0.25)
            measure.compare(crowds[0], crowds[1:], target=0.9)
            print(f"  least share of an even one: RolloutDB {crowds[0].least_share:.2f}, PostgreSQL {crowds[1].least_share:.2f}", flush=True)
        finally:
            for crowd in crowds:
                crowd.close()

    def copy_out(self, measure, form):
        ours = self.server.folder / f"ours.{form}"
        psql(self.server.conninfo(), f"\\copy items TO '{ours}' (FORMAT {form})")
        self.check_copy(measure, form, ours)
        ours.unlink()

        def whole(name, server):
            return Whole(name, lambda: psql(server.conninfo(), f"\\copy items TO '/dev/null' (FORMAT {form})"), self.num_rows)

        measure.compare(whole("RolloutDB", self.server), [whole("PostgreSQL", self.peer)], target=1.2, unit="rows/s", floor=self.floor(form, "read"))

    def check_copy(self, measure, form, ours):
        """Every line, or every byte, is PostgreSQL's; the order of lines is free."""
        if form != "binary":
            with open(ours, "rb") as found, open(self.files[form], "rb") as expected:
                measure.check_equal("lines as in PostgreSQL", sorted(found) == sorted(expected), True)
        else:
            with self.peer.connect() as connection:
                connection.execute("DROP TABLE IF EXISTS back")
                connection.execute(f"CREATE TABLE back ({COLUMNS})")
                psql(self.peer.conninfo(), f"\\copy back FROM '{ours}' (FORMAT binary)")
                differ = connection.execute("SELECT count(*) FROM (TABLE items EXCEPT TABLE back) d").fetchone()[0]
                found = connection.execute("SELECT count(*) FROM back").fetchone()[0]
                connection.execute("DROP TABLE back")
            measure.check_equal("PostgreSQL reads the same rows", (found, differ), (self.num_rows, 0))

    def copy_in(self, measure, form):
        def whole(name, server):
            load = f"\\copy loaded FROM '{self.files[form]}' (FORMAT {form})"
            return Whole(name, lambda: psql(server.conninfo(), load), self.num_rows, prepare=lambda: self.make_table(server))

        ours, theirs = whole("RolloutDB", self.server), whole("PostgreSQL", self.peer)
        summary = "SELECT count(*)::bigint, sum(n)::bigint, sum(length(name))::bigint, min(at), max(day), sum(price) FROM loaded"
        found = []
        for contestant, server in ((ours, self.server), (theirs, self.peer)):
            contestant.rate(0)
            with server.connect() as connection:
                found.append(connection.execute(summary).fetchone())
        measure.check_equal("all rows", found[0], found[1])
        measure.compare(ours, [theirs], target=0.5, unit="rows/s", floor=self.floor(form, "copied and synced"))

    def make_table(self, server):
        with server.connect() as connection:
            connection.execute("DROP TABLE IF EXISTS loaded")
            connection.execute(f"CREATE TABLE loaded ({COLUMNS})")

    def floor(self, form, what):
        """The file's bytes read, or copied and synced: the best of three."""
        path, times = self.files[form], []
        copy = path.with_suffix(".copy")
        for _ in range(3):
            start = time.perf_counter()
            if what == "read":
                path.read_bytes()
            else:
                shutil.copyfile(path, copy)
                with open(copy, "rb") as file:
                    os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
            copy.unlink(missing_ok=True)
        return self.num_rows / min(times), f"its bytes {what}"


def psql(conninfo, command):
    """psql is C and does nothing with the rows but move them."""
    done = subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", conninfo, "-c", command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"psql: {command}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
