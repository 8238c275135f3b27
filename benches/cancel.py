"""How long a client waits for the end of a statement that it cancels, by kind of statement.

Each statement would run for a long time; it is cancelled at a random moment of its first second, as libpq's PQcancel does, over and over. The time is that
from before the cancel request, which opens a connection of its own, to the error 57014; the work itself ends with it: the next statement of the same
connection is answered right away, which is measured too.

A second table has the other ways to end statements: pg_cancel_backend, statement_timeout (the time beyond it), pg_terminate_backend, and a client whose
process dies (the time until pg_stat_activity no longer lists it). Not one of `benches/run`: it has no peer. all-MiniLM-L6-v2 (`make models`) embeds.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psycopg

from server import Server

SETUP = [
    "CREATE TABLE numbers AS SELECT value AS id, (value * 7919) % 1000003 AS n, 'row ' || value AS name FROM generate_series(1, {rows}) t(value)",
    "CREATE TABLE kept (id bigint PRIMARY KEY, n bigint)",
    "INSERT INTO kept SELECT value, value FROM generate_series(1, 100000) t(value)",
    "CREATE MODEL policy FROM 'builtin://tinyhop' WITH (task = 'generate')",
    "CREATE TABLE wiki AS SELECT id, contents FROM hopworld_passages(seed => 3)",
    "CREATE INDEX wiki_text ON wiki USING bm25 (contents)",
    "CREATE TABLE questions AS SELECT * FROM hopworld_questions(seed => 3, count => 5000)",
    "CREATE AGENT qa WITH (policy = 'policy', corpus = 'wiki', retriever = 'text', prompts = 'short', max_tokens = 48)",
    "CREATE TABLE points (id bigint PRIMARY KEY, v vector(128))",
    "COPY (SELECT a.id + {rows} * b.i AS id, a.n, a.name FROM numbers a, generate_series(0, 9) b(i)) TO '{folder}/numbers.csv'",
    "CREATE MODEL embedder FROM '{model}' WITH (task = 'embed')",
    "CREATE TABLE texts AS SELECT id, name AS body FROM numbers LIMIT 100000",
]
# Nothing but a plan: it joins so many tables that the order of the joins takes long.
PLANNED = "EXPLAIN SELECT count(*) FROM numbers t0 " + " ".join(f"JOIN numbers t{i} ON t{i}.id = t{i - 1}.n + {i}" for i in range(1, 250))

# Kind, statement, and what is run before each attempt.
STATEMENTS = [
    ("scan and filter", "SELECT count(*) FROM numbers a, generate_series(1, 100000) b(i) WHERE a.n % 7 = b.i % 5", None),
    ("sort", "SELECT a.name FROM numbers a, generate_series(1, 1000) b(i) ORDER BY a.n * b.i % 1000003", None),
    ("aggregate", "SELECT a.n * b.i % 1000003, count(*) FROM numbers a, generate_series(1, 10000) b(i) GROUP BY 1", None),
    ("rows to the client", "SELECT a.id, a.name, b.i FROM numbers a, generate_series(1, 10000) b(i)", None),
    ("INSERT .. SELECT", "INSERT INTO kept SELECT value + 100000, value FROM generate_series(1, 1000000000) t(value)", None),
    ("COPY TO a file", "COPY (SELECT a.id, a.name FROM numbers a, generate_series(1, 10000) b(i)) TO '{folder}/out.csv'", None),
    ("COPY FROM a file", "COPY copied FROM '{folder}/numbers.csv'", "DROP TABLE IF EXISTS copied; CREATE TABLE copied (id bigint PRIMARY KEY, n bigint, name text)"),
    ("UPDATE", "UPDATE kept SET n = kept.n + 1 FROM generate_series(1, 1000000000) t(value) WHERE kept.id = t.value", None),
    ("planning", PLANNED, None),
    ("embed()", "SELECT embed('embedder', name) FROM numbers", None),
    ("ADD COLUMN, generated", "ALTER TABLE texts ADD COLUMN v vector(384) GENERATED ALWAYS AS (embed('embedder', body)) STORED", None),
    ("CREATE INDEX hnsw", "CREATE INDEX points_v ON points USING hnsw (v vector_l2_ops)", "DROP INDEX IF EXISTS points_v"),
    ("answer()", "SELECT a.answer FROM questions q CROSS JOIN LATERAL answer(q.question, agent => 'qa') a", None),
    ("GENERATE ROLLOUTS", "GENERATE ROLLOUTS INTO run{n} USING AGENT qa FROM (SELECT * FROM questions) WITH (simulations = 32, seed = 5)", None),
    (
        "TRAIN SFT",
        "TRAIN SFT MODEL learnt FROM policy USING (SELECT question AS prompt, golden_answers[1] AS completion FROM questions) "
        "WITH (epochs = 1000, gradient_accumulation = 64)",
        None,
    ),
    (
        "TRAIN DPO",
        "TRAIN DPO MODEL preferred FROM policy USING (SELECT question AS prompt, golden_answers[1] AS chosen, 'no' AS rejected FROM questions) "
        "WITH (max_steps = 100000)",
        None,
    ),
]
# A scan, a model at work, and an index.
ENDED = ["aggregate", "answer()", "CREATE INDEX hnsw"]
TIMEOUT = 0.3


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--attempts", type=int, default=50, help="cancels of each kind")
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--points", type=int, default=100_000)
    options.add_argument("--model", default=str(Path(__file__).parents[1] / ".cache/models/all-MiniLM-L6-v2"), help="directory of an encoder")
    options.add_argument("--only", default="", help="only the kinds whose names contain this text")
    options = options.parse_args()
    with Server() as server, tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        with server.connect() as connection:
            for statement in SETUP:
                connection.execute(statement.format(rows=options.rows, folder=folder, model=options.model))
            vectors = np.random.default_rng(1).random((options.points, 128))
            with connection.cursor().copy("COPY points FROM STDIN") as copy:
                for number, vector in enumerate(vectors):
                    copy.write(f"{number}\t[{','.join(map('{:.4f}'.format, vector))}]\n")
        print("| statement | cancels | p50 ms | p99 ms | most ms | next statement, most ms |\n|---|---|---|---|---|---|", flush=True)
        for kind, statement, before in STATEMENTS:
            if options.only in kind:
                print(row(kind, [attempt(server, statement, before, Path(folder), n) for n in range(options.attempts)]), flush=True)
        print("\n| statement, ended by | times | p50 ms | p99 ms | most ms |\n|---|---|---|---|---|", flush=True)
        for kind, statement, before in STATEMENTS:
            for name, end in (ENDS if kind in ENDED and options.only in kind else {}).items():
                waits = [end(server, statement, before) for _ in range(options.attempts)]
                print(row(f"{kind}, {name}", [(wait, 0.0) for wait in waits]).rsplit("|", 2)[0] + "|", flush=True)


def ended_by(server, statement, before, error, end, settings=""):
    """Milliseconds from what ends the statement, which is given the session's number, to the client's error."""
    with server.connect() as connection, server.connect() as other:
        for preparation in filter(None, [before, settings]):
            connection.execute(preparation)
        asked = []

        def ask():
            asked.append(time.perf_counter())
            end(other, connection.info.backend_pid)

        timer = threading.Timer(TIMEOUT + random.random() / 2, ask)
        start = time.perf_counter()
        timer.start()
        try:
            connection.execute(statement)
        except error:
            ended = time.perf_counter()
        finally:
            timer.cancel()
        return (ended - (start + TIMEOUT if settings else asked[0])) * 1e3


def by_function(function, error):
    def end(other, session):
        other.execute(f"SELECT {function}(%s)", [session])

    return lambda server, statement, before: ended_by(server, statement, before, error, end)


def by_timeout(server, statement, before):
    # The question that ends it otherwise comes too late.
    settings = f"SET statement_timeout = {round(TIMEOUT * 1e3)}"
    return ended_by(server, statement, before, psycopg.errors.QueryCanceled, lambda *_: None, settings)


def by_death(server, statement, before):
    """The client is a process of its own, which is killed; the statement is gone when nobody is said to run it."""
    if before:
        with server.connect() as connection:
            connection.execute(before)
    client = subprocess.Popen([sys.executable, "-c", f"import psycopg; psycopg.connect({server.conninfo()!r}, autocommit=True).execute({statement!r})"])
    with server.connect() as other:
        running = "SELECT count(*) FROM pg_stat_activity WHERE query = %s AND state = 'active'"
        while other.execute(running, [statement[:1024]]).fetchone()[0] == 0:
            time.sleep(0.01)
        time.sleep(random.random() / 2)
        client.kill()
        killed = time.perf_counter()
        while other.execute(running, [statement[:1024]]).fetchone()[0] > 0:
            time.sleep(0.001)
        ended = time.perf_counter()
    client.wait()
    return (ended - killed) * 1e3


ENDS = {
    "pg_cancel_backend": by_function("pg_cancel_backend", psycopg.errors.QueryCanceled),
    "pg_terminate_backend": by_function("pg_terminate_backend", psycopg.Error),
    "statement_timeout": by_timeout,
    "death of the client": by_death,
}


def attempt(server, statement, before, folder, n):
    """Milliseconds from the cancel to the error, and of the statement after it."""
    with server.connect() as connection:
        if before:
            connection.execute(before)
        asked = []

        def cancel():
            asked.append(time.perf_counter())
            connection.cancel()

        timer = threading.Timer(0.05 + random.random(), cancel)
        timer.start()
        try:
            connection.execute(statement.format(folder=folder, n=n))
        except psycopg.errors.QueryCanceled:
            ended = time.perf_counter()
        else:
            raise SystemExit(f"it ended by itself, take more rows: {statement}")
        connection.execute("SELECT 1")
        return (ended - asked[0]) * 1e3, (time.perf_counter() - ended) * 1e3


def row(kind, times):
    waits, after = sorted(wait for wait, _ in times), max(after for _, after in times)
    p99 = statistics.quantiles(waits, n=100)[98] if len(waits) > 1 else waits[0]
    return f"| {kind} | {len(waits)} | {statistics.median(waits):.1f} | {p99:.1f} | {waits[-1]:.1f} | {after:.1f} |"


if __name__ == "__main__":
    main()
