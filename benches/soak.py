"""Half an hour of 64 clients that read, write, search, cancel and vanish: no wrong result, no lost write, memory flat, nothing leaked.

Each client knows the rows it owns and checks every answer against them. A write whose outcome it never heard (cancelled, or cut off) must be there as a
whole or not at all. Prints what the server holds every minute and the latencies at the end; exits with 1 if anything was wrong. README.md has the command.
"""

import argparse
import collections
import os
import random
import socket
import statistics
import sys
import threading
import time
import traceback

import numpy as np
import psycopg

from harness import machine
from server import Server

NUM_DOCUMENTS, WIDTH, NUM_WORDS, NEAREST = 2_000, 32, 50, 5
TABLES = 4
ROWS_MAX = 400
SAMPLE_SECONDS = 5
# Of what the server holds in the last third of the time over the middle third.
MEMORY_RATIO_MAX, MEMORY_SLACK_MB = 1.10, 48
DESCRIPTORS_SLACK, THREADS_SLACK = 40, 24
ENDLESS = "SELECT count(*) FROM generate_series(1, 100000000) a(value) CROSS JOIN generate_series(1, 100000) b(value) WHERE a.value % 7 = b.value"
CANCELLED, CONFLICT, ABORTED = "57014", "40001", "25P02"


class Wrong(Exception):
    """An answer that cannot be."""


class Soak:
    def __init__(self, server, options):
        self.server = server
        self.options = options
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.latencies = collections.defaultdict(list)
        self.wrong = []
        self.samples = []
        seeds = np.random.default_rng(options.seed)
        vectors = seeds.standard_normal((NUM_DOCUMENTS, WIDTH)).astype(np.float32)
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        self.words = [f"word{seeds.integers(NUM_WORDS)}" for _ in range(NUM_DOCUMENTS)]

    def prepare(self):
        with self.server.connect() as connection:
            connection.execute(f"CREATE TABLE documents (id bigint PRIMARY KEY, word text, v vector({WIDTH}))")
            for first in range(0, NUM_DOCUMENTS, 500):
                rows = range(first, min(first + 500, NUM_DOCUMENTS))
                values = ", ".join(f"({row}, 'common {self.words[row]}', '{text(self.vectors[row])}')" for row in rows)
                connection.execute(f"INSERT INTO documents VALUES {values}")
            connection.execute("CREATE INDEX documents_words ON documents USING bm25 (word)")
            for table in range(TABLES):
                connection.execute(f"CREATE TABLE owned{table} (id bigint PRIMARY KEY, client bigint, batch bigint, n bigint, note text)")

    def note(self, kind, seconds):
        with self.lock:
            self.latencies[kind].append(seconds)

    def report(self, what):
        with self.lock:
            self.wrong.append(what)
        print(f"WRONG {what}", file=sys.stderr, flush=True)

    def sample(self):
        sample = {
            "at": time.monotonic(),
            "mb": self.server.status("VmRSS") / 1024,
            "threads": self.server.status("Threads"),
            "descriptors": self.server.num_descriptors(),
            "calls": sum(len(times) for times in self.latencies.values()),
        }
        self.samples.append(sample)
        return sample

    def run(self):
        before = self.sample()
        clients = [Client(self, number) for number in range(self.options.clients)]
        threads = [threading.Thread(target=client.run, daemon=True) for client in clients] + [threading.Thread(target=self.keep_up, daemon=True)]
        for thread in threads:
            thread.start()
        start = time.monotonic()
        print("  minute      MB  threads  descriptors  calls/s", flush=True)
        shown = {"at": start, "calls": 0}
        while time.monotonic() - start < self.options.minutes * 60 and len(self.wrong) < 20:
            time.sleep(SAMPLE_SECONDS)
            sample = self.sample()
            if sample["at"] - shown["at"] >= min(60, self.options.minutes * 6):
                rate = (sample["calls"] - shown["calls"]) / (sample["at"] - shown["at"])
                print(f"  {(sample['at'] - start) / 60:6.1f} {sample['mb']:7.0f} {sample['threads']:8d} {sample['descriptors']:12d} {rate:8.0f}", flush=True)
                shown = sample
        measured = list(self.samples)
        self.stop.set()
        for thread in threads:
            thread.join(timeout=120)
            if thread.is_alive():
                self.report(f"{thread.name} hangs")
        self.check_rows(clients)
        self.check_flat(measured)
        self.check_leaks(before)

    def keep_up(self):
        """Small commits by the thousand are what OPTIMIZE and VACUUM are for."""
        with self.server.connect() as connection:
            while not self.stop.wait(15):
                for table in range(TABLES):
                    for statement in (f"OPTIMIZE owned{table}", f"VACUUM owned{table}"):
                        start = time.perf_counter()
                        try:
                            connection.execute(statement)
                            self.note(statement.split()[0], time.perf_counter() - start)
                        except psycopg.Error as error:
                            if error.sqlstate != CONFLICT:
                                self.report(f"{statement}: {error.sqlstate} {error}")

    def check_rows(self, clients):
        """Every write that was acknowledged is there once; of each other one all rows or none."""
        with self.server.connect() as connection:
            for client in clients:
                rows = connection.execute(f"SELECT id, n FROM owned{client.table} WHERE client = %s", (client.number,)).fetchall()
                if len(rows) != len(set(rows)) or dict(rows) != client.rows:
                    missing = len(client.rows.keys() - dict(rows).keys())
                    self.report(f"client {client.number}: {len(rows)} rows at the end, {len(client.rows)} acknowledged, {missing} missing")
                query = f"SELECT batch, count(*) FROM owned{client.table} WHERE client = %s GROUP BY batch"
                for batch, count in connection.execute(query, (client.doubtful,)).fetchall():
                    if client.batches.get(batch) != count:
                        self.report(f"client {client.number}: {count} of the {client.batches.get(batch)} rows of a statement whose end was not heard")

    def check_flat(self, samples):
        third = len(samples) // 3
        middle = statistics.median(sample["mb"] for sample in samples[third : 2 * third] or samples)
        last = statistics.median(sample["mb"] for sample in samples[2 * third :])
        print(f"memory: {middle:.0f} MB in the middle third, {last:.0f} MB in the last")
        if last > middle * MEMORY_RATIO_MAX + MEMORY_SLACK_MB:
            self.report(f"memory grows from {middle:.0f} to {last:.0f} MB")

    def check_leaks(self, before):
        deadline = time.monotonic() + 60
        while True:
            after = self.sample()
            leaks = [
                f"{name}: {before[name]} before, {after[name]} after"
                for name, slack in (("descriptors", DESCRIPTORS_SLACK), ("threads", THREADS_SLACK))
                if after[name] > before[name] + slack
            ]
            if not leaks or time.monotonic() > deadline:
                break
            time.sleep(1)
        print(f"descriptors: {before['descriptors']} before, {after['descriptors']} after; threads: {before['threads']} before, {after['threads']} after")
        for leak in leaks:
            self.report(f"leaked {leak}")

    def print_latencies(self):
        print(f"  {'kind':14} {'calls':>8} {'p50 ms':>9} {'p99 ms':>9} {'max ms':>9}")
        for kind, times in sorted(self.latencies.items()):
            p50, p99 = np.percentile(times, [50, 99]) * 1e3
            print(f"  {kind:14} {len(times):8d} {p50:9.1f} {p99:9.1f} {max(times) * 1e3:9.1f}")


class Client:
    """One client, the rows that it owns, and one thing after the other in an order of its own."""

    def __init__(self, soak, number):
        self.soak, self.number = soak, number
        self.doubtful = -1 - number
        self.table = number % TABLES
        self.random = random.Random(f"{soak.options.seed} {number}")
        self.rows = {}
        self.batches = {}
        self.next_id = number * 100_000_000
        self.connection = None
        self.actions = [
            (self.point, 24), (self.sum, 10), (self.insert, 12), (self.update, 8), (self.delete, 4), (self.nearest, 14), (self.find, 10),
            (self.transaction, 5), (self.fail, 4), (self.cancel, 4), (self.cancel_insert, 2), (self.vanish, 2), (self.reconnect, 1),
        ]

    def run(self):
        kinds, weights = zip(*self.actions)
        try:
            self.connect()
            while not self.soak.stop.is_set():
                action = self.random.choices(kinds, weights)[0]
                start = time.perf_counter()
                try:
                    action()
                    self.soak.note(action.__name__, time.perf_counter() - start)
                except Wrong as error:
                    self.soak.report(f"client {self.number}: {action.__name__}: {error}")
                except psycopg.Error as error:
                    if error.sqlstate != CONFLICT:
                        self.soak.report(f"client {self.number}: {action.__name__}: {error.sqlstate} {error}")
                    if self.connection.closed:
                        self.connect()
                time.sleep(self.random.random() * self.soak.options.pause)
        except Exception:
            self.soak.report(f"client {self.number}: {traceback.format_exc()}")
        finally:
            if self.connection:
                self.connection.close()

    def connect(self):
        self.connection = self.soak.server.connect()

    def reconnect(self):
        self.connection.close()
        self.connect()

    def ask(self, statement, *parameters):
        return self.connection.execute(statement, parameters, prepare=True).fetchall()

    def same(self, found, expected):
        if found != expected:
            raise Wrong(f"{found!r:.200} instead of {expected!r:.200}")

    def some_row(self):
        return self.random.choice(list(self.rows)) if self.rows else None

    # ---- Reads ----

    def point(self):
        row = self.some_row()
        if row is None or self.random.random() < 0.1:
            self.same(self.ask(f"SELECT n FROM owned{self.table} WHERE id = %s::bigint", self.next_id + 50_000_000), [])
        else:
            self.same(self.ask(f"SELECT n FROM owned{self.table} WHERE id = %s::bigint", row), [(self.rows[row],)])

    def sum(self):
        found = self.ask(f"SELECT count(*), coalesce(sum(n), 0)::bigint FROM owned{self.table} WHERE client = %s::bigint", self.number)
        self.same(found, [(len(self.rows), sum(self.rows.values()))])

    def nearest(self):
        query = np.array([self.random.gauss(0, 1) for _ in range(WIDTH)], dtype=np.float32)
        distances = 1 - self.soak.vectors @ (query / np.linalg.norm(query))
        found = self.ask(f"SELECT id FROM documents ORDER BY v <=> %s::vector({WIDTH}) LIMIT {NEAREST}", text(query))
        bound = np.sort(distances)[NEAREST - 1] + 1e-5
        if len(set(found)) != NEAREST or any(distances[row] > bound for (row,) in found):
            raise Wrong(f"{found} are not the {NEAREST} nearest")

    def find(self):
        word = f"word{self.random.randrange(NUM_WORDS)}"
        known = {row for row, has in enumerate(self.soak.words) if has == word}
        found = {row for (row,) in self.ask(f"SELECT id FROM text_search(documents, '{word}', k => 100)")}
        self.same(found, known)

    # ---- Writes ----

    def batch(self, client):
        ids = list(range(self.next_id, self.next_id + self.random.randint(1, 5)))
        self.next_id += len(ids)
        rows = {row: self.random.randrange(1000) for row in ids}
        self.batches[ids[0]] = len(ids)
        values = ", ".join(f"({row}, {client}, {ids[0]}, {n}, 'note {row}')" for row, n in rows.items())
        return rows, f"INSERT INTO owned{self.table} VALUES {values}"

    def insert(self):
        if len(self.rows) > ROWS_MAX:
            return self.delete()
        rows, statement = self.batch(self.number)
        self.same(self.connection.execute(statement).rowcount, len(rows))
        self.rows.update(rows)

    def update(self):
        row = self.some_row()
        if row is not None:
            found = self.ask(f"UPDATE owned{self.table} SET n = n + 7 WHERE id = %s::bigint RETURNING n", row)
            self.rows[row] += 7
            self.same(found, [(self.rows[row],)])

    def delete(self):
        rows = self.random.sample(sorted(self.rows), min(len(self.rows), self.random.randint(1, 8)))
        if rows:
            deleted = self.connection.execute(f"DELETE FROM owned{self.table} WHERE id IN ({', '.join(map(str, rows))})").rowcount
            for row in rows:
                del self.rows[row]
            self.same(deleted, len(rows))

    # ---- Transactions and errors ----

    def transaction(self):
        self.connection.execute("BEGIN")
        try:
            self.sum()
            self.insert()
            self.sum()
        finally:
            self.connection.execute("COMMIT")

    def fail(self):
        self.connection.execute("BEGIN")
        self.refused("SELECT 1 / 0", "22012")
        self.refused("SELECT 1", ABORTED)
        self.connection.execute("ROLLBACK")
        self.refused("SELECT missing FROM documents", "42703")

    def refused(self, statement, code):
        try:
            self.connection.execute(statement)
        except psycopg.Error as error:
            return self.same(error.sqlstate, code)
        raise Wrong(f"{statement} is not refused")

    # ---- Cancelled and cut off ----

    def cancel(self):
        timer = threading.Timer(0.05 + self.random.random() / 5, self.connection.cancel)
        timer.start()
        try:
            self.refused(ENDLESS, CANCELLED)
        finally:
            timer.join()
        # A request that comes late means the next statement, as in PostgreSQL.
        self.same(self.ask("SELECT 1"), [(1,)])

    def cancel_insert(self):
        """An INSERT that may be cancelled before or after its commit."""
        _, statement = self.batch(self.doubtful)
        timer = threading.Timer(self.random.random() / 50, self.connection.cancel)
        timer.start()
        try:
            self.connection.execute(statement)
        except psycopg.Error as error:
            self.same(error.sqlstate, CANCELLED)
        finally:
            timer.join()

    def vanish(self):
        """The socket goes away under a statement that writes, or under one that never ends."""
        statement = self.batch(self.doubtful)[1] if self.random.random() < 0.5 else ENDLESS
        descriptor = os.dup(self.connection.fileno())
        cut = socket.socket(fileno=descriptor)
        timer = threading.Timer(self.random.random() / 20, lambda: cut.shutdown(socket.SHUT_RDWR))
        timer.start()
        try:
            self.connection.execute(statement)
        except psycopg.OperationalError:
            pass
        finally:
            timer.join()
            cut.close()
            self.connection.close()
            self.connect()


def text(vector):
    return f"[{','.join(f'{number:.6g}' for number in vector)}]"


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--pause", type=float, default=0.2, help="longest pause of a client between two statements, in seconds")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--memory-limit", default="2GB", help="of the server")
    options = options.parse_args()
    print(machine(), flush=True)
    # Versions are kept for a minute: the server is to be as after days.
    with Server("--memory-limit", options.memory_limit, "--version-retention", "1 minute") as server:
        soak = Soak(server, options)
        soak.prepare()
        soak.run()
        soak.print_latencies()
    if soak.wrong:
        sys.exit(f"{len(soak.wrong)} things were wrong; the first: {soak.wrong[0]}")
    print(f"{options.clients} clients for {options.minutes:g} minutes: nothing wrong")


if __name__ == "__main__":
    main()
