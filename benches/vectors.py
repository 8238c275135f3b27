"""Exact, approximate and filtered nearest neighbours: RolloutDB against FAISS, NumPy and LanceDB.

100,000 vectors of 384 numbers unless --rows says otherwise, the 10 nearest by cosine, one query at a time except where a measure says 64. The queries reach
RolloutDB through psycopg 3 and a prepared statement. README.md describes the measures.
"""

import time

import faiss
import numpy as np

from harness import Bench, Calls, CheckFailed, Library, LibraryCalls, multiply_rate, parse, parser, read_bandwidth
from lance_peer import LanceTable
from server import Prepared, Server, round_trip, send_vectors
from vector_data import DIMENSION, K, NUM_BUCKETS, Vectors, numpy_search, numpy_search_batch

BATCH = 64
RECALL = 0.95
# Some queries choose the least effort that reaches this recall and a little more; all of them check the choice.
NUM_TUNING_QUERIES = 300
TUNING_MARGIN = 0.003
EF_SEARCH = [10, 16, 24, 32, 40, 48, 64, 80, 100, 128, 160, 200, 300, 400, 800]
NEAREST = f"SELECT id FROM {{table}} ORDER BY embedding <=> %s LIMIT {K}"
NEAREST_OF_BATCH = f"""
    SELECT q.id, s.id, s.rank FROM (SELECT id, embedding FROM queries WHERE batch = %s) q
    CROSS JOIN LATERAL vector_search(plain, q.embedding, k => {K}) s"""
NEAREST_FILTERED = f"SELECT id FROM indexed WHERE bucket < %s ORDER BY embedding <=> %s LIMIT {K}"


def main():
    options = parser(__doc__)
    options.add_argument("--rows", type=int, help="default 100000, quick 5000")
    options.add_argument("--queries", type=int, help="default 2000, quick 256")
    options.add_argument("--hnsw", default="", help="options of the hnsw index, such as 'm = 32, ef_construction = 200'; the database's defaults otherwise")
    options.add_argument("--library", help="command that measures the library without a server; README.md says how it is asked")
    options = parse(options)
    vectors = Vectors(options.rows or (5_000 if options.quick else 100_000), options.queries or (256 if options.quick else 2_000))
    with Bench("vectors", options) as bench, Server() as server:
        connection = load(server, vectors, options.hnsw)
        contest = Contest(vectors, connection, Floors(round_trip(connection)))
        bench.run("exact, batch 1", contest.exact)
        bench.run(f"exact, batch {BATCH}", contest.exact_batch)
        bench.run("HNSW, prepared statement", contest.approximate)
        for percent in (1, 10, 50):
            bench.run(f"filtered to {percent} %", lambda measure, percent=percent: contest.filtered(measure, percent))
        if options.library:
            run_library(bench, contest, options.library, server.folder)


def load(server, vectors, hnsw_options=""):
    """Tables `plain`, `indexed` and `queries`; a connection that can send vectors."""
    connection = server.connect()
    vectors.load(connection, server.folder, "plain")
    vectors.load(connection, server.folder, "indexed")
    vectors.load_queries(connection, server.folder, BATCH)
    start = time.perf_counter()
    with_options = f"WITH ({hnsw_options})" if hnsw_options else ""
    connection.execute(f"CREATE INDEX ON indexed USING hnsw (embedding vector_cosine_ops) {with_options}")
    print(f"hnsw index made in {time.perf_counter() - start:.1f} s", flush=True)
    connection.execute("CREATE INDEX ON indexed USING btree (bucket)")
    send_vectors(server, connection, NEAREST.format(table="plain"), vectors.queries[0])
    return connection


class Floors:
    """What each kind of search must take at least: the bytes at the memory's bandwidth or the products at the cores' rate, and a round trip to the server."""

    def __init__(self, round_trip_seconds):
        self.round_trip = round_trip_seconds
        self.bandwidth = read_bandwidth()
        self.multiply_rate = multiply_rate()
        print(f"memory reads {self.bandwidth / 1e9:.1f} GB/s, products {self.multiply_rate / 1e9:.0f} GFLOP/s, round trip {round_trip_seconds * 1e6:.0f} µs")

    def rows(self, num_rows, round_trips=1, batch=1):
        """`num_rows` vectors read once for `batch` queries: queries per second."""
        num_bytes = num_rows * DIMENSION * 4
        reading, multiplying = num_bytes / self.bandwidth, batch * num_bytes / 2 / self.multiply_rate
        seconds = max(reading, multiplying) + round_trips * self.round_trip
        what = f"{num_bytes / 1e6:.3g} MB at {self.bandwidth / 1e9:.0f} GB/s" if reading > multiplying else f"products at {self.multiply_rate / 1e9:.0f} GFLOP/s"
        return batch / seconds, what + (" + round trip" if round_trips else "")


class Contest:
    """The measures over one set of vectors; peers' indexes are made when a measure first asks for them."""

    def __init__(self, vectors, connection, floors):
        self.vectors = vectors
        self.connection = connection
        self.floors = floors
        self.flat = faiss.IndexFlatIP(DIMENSION)
        self.flat.add(vectors.rows)
        self.made = {}

    def once(self, make):
        """What `make` gives, made once."""
        if make not in self.made:
            start = time.perf_counter()
            self.made[make] = make(self.vectors)
            print(f"  {make.__name__} took {time.perf_counter() - start:.1f} s", flush=True)
        return self.made[make]

    def query(self, number):
        return self.vectors.queries[number % len(self.vectors.queries)]

    def batch(self, number):
        """The number of a full batch, and its queries."""
        number %= len(self.vectors.queries) // BATCH
        return number, self.vectors.queries[number * BATCH : (number + 1) * BATCH]

    # ---- Exact ----

    def exact_peers(self):
        faiss_call = Calls("FAISS IndexFlatIP", lambda i: self.flat.search(self.query(i)[None], K))
        return [faiss_call, Calls("NumPy", lambda i: numpy_search(self.vectors.rows, self.query(i)))]

    def exact_batch_peers(self):
        faiss_call = Calls("FAISS IndexFlatIP", lambda i: self.flat.search(self.batch(i)[1], K), units=BATCH)
        return [faiss_call, Calls("NumPy", lambda i: numpy_search_batch(self.vectors.rows, self.batch(i)[1]), units=BATCH)]

    def exact(self, measure):
        statement = Prepared(self.connection, NEAREST.format(table="plain"))
        measure.check("recall", self.vectors.recall(lambda i: statement.column(self.query(i))), 1.0)
        measure.check("recall of FAISS", self.vectors.recall(lambda i: self.flat.search(self.query(i)[None], K)[1][0]), 1.0)
        measure.check("recall of NumPy", self.vectors.recall(lambda i: numpy_search(self.vectors.rows, self.query(i))), 1.0)
        ours = Calls("RolloutDB", lambda i: statement(self.query(i)))
        measure.compare(ours, self.exact_peers(), target=1.0, floor=self.floors.rows(len(self.vectors.rows)))

    def exact_batch(self, measure):
        statement = Prepared(self.connection, NEAREST_OF_BATCH)
        found = {}
        for batch in range(-(-len(self.vectors.queries) // BATCH)):
            for query, row, _rank in sorted(statement(batch), key=lambda row: (row[0], row[2])):
                found.setdefault(query, []).append(row)
        measure.check("recall", self.vectors.recall(lambda i: found.get(i, [])), 1.0)
        ours = Calls("RolloutDB", lambda i: statement(self.batch(i)[0]), units=BATCH)
        measure.compare(ours, self.exact_batch_peers(), target=1.0, floor=self.floors.rows(len(self.vectors.rows), batch=BATCH))

    def exact_beside_faiss(self, measure):
        """For growth.py: rates of ours and of FAISS."""
        statement = Prepared(self.connection, NEAREST.format(table="plain"))
        measure.check("recall", self.vectors.recall(lambda i: statement.column(self.query(i))), 1.0)
        ours, peer = Calls("RolloutDB", lambda i: statement(self.query(i))), self.exact_peers()[0]
        rates = measure.compare(ours, [peer], floor=self.floors.rows(len(self.vectors.rows)))
        return rates[ours.name], rates[peer.name]

    # ---- Approximate ----

    def tune(self, measure, name, set_ef, search, bucket_end=NUM_BUCKETS):
        """Sets the least ef whose recall suffices, and checks it with all queries."""
        recalls = {}
        for ef in EF_SEARCH:
            set_ef(ef)
            recalls[ef] = self.vectors.recall(search, bucket_end, NUM_TUNING_QUERIES)
            if recalls[ef] >= RECALL + TUNING_MARGIN:
                # The queries of the tuning are a sample: where all of them disagree with it, the next ef is tried.
                recalls[ef] = self.vectors.recall(search, bucket_end)
                if recalls[ef] >= RECALL:
                    return measure.check(f"recall of {name} at ef {ef}", recalls[ef], RECALL)
        raise CheckFailed(f"recall of {name} stays below {RECALL + TUNING_MARGIN}: {recalls}")

    def set_ef(self, ef):
        self.connection.execute(f"SET hnsw.ef_search = {ef}")

    def faiss_hnsw(self, measure):
        """FAISS at the cheapest efSearch, and how many vectors its graph compares per query."""
        index = self.once(make_faiss_hnsw)

        def search(number):
            return index.search(self.query(number)[None], K)[1][0]

        self.tune(measure, "FAISS", lambda ef: setattr(index.hnsw, "efSearch", ef), search)
        faiss.cvar.hnsw_stats.reset()
        index.search(self.vectors.queries, K)
        return Calls("FAISS HNSW32", search), faiss.cvar.hnsw_stats.ndis / len(self.vectors.queries)

    def lance(self, measure, bucket_end=NUM_BUCKETS):
        """LanceDB at its fastest setting."""
        setting, search = self.once(LanceTable).tuned(bucket_end, RECALL + TUNING_MARGIN, NUM_TUNING_QUERIES)
        measure.check(f"recall of {setting}", self.vectors.recall(search, bucket_end), RECALL)
        return Calls("LanceDB IVF_HNSW_SQ", search)

    def approximate(self, measure):
        statement = Prepared(self.connection, NEAREST.format(table="indexed"))
        self.tune(measure, "ours", self.set_ef, lambda i: statement.column(self.query(i)))
        faiss_hnsw, num_compared = self.faiss_hnsw(measure)
        lance = self.lance(measure)
        ours = Calls("RolloutDB", lambda i: statement(self.query(i)))
        measure.compare(ours, [lance], target=5.0, beside=[faiss_hnsw], floor=self.floors.rows(num_compared))

    def hnsw_beside_faiss(self, measure):
        """For growth.py: rates of ours and of FAISS at the same recall."""
        statement = Prepared(self.connection, NEAREST.format(table="indexed"))
        self.tune(measure, "ours", self.set_ef, lambda i: statement.column(self.query(i)))
        peer, num_compared = self.faiss_hnsw(measure)
        ours = Calls("RolloutDB", lambda i: statement(self.query(i)))
        rates = measure.compare(ours, [peer], floor=self.floors.rows(num_compared))
        return rates[ours.name], rates[peer.name]

    def filtered(self, measure, percent):
        bucket_end = NUM_BUCKETS * percent // 100
        statement = Prepared(self.connection, NEAREST_FILTERED)
        self.tune(measure, "ours", self.set_ef, lambda i: statement.column(bucket_end, self.query(i)), bucket_end)
        lance = self.lance(measure, bucket_end)
        ours = Calls("RolloutDB", lambda i: statement(bucket_end, self.query(i)))
        measure.compare(ours, [lance], target=3.0, floor=self.floors.rows(len(self.vectors.matching(bucket_end))))

    # ---- The library without a server ----

    def library(self, measure, library, name):
        """What the library command answers to `name`, against the peers of the same search."""
        library.ask(f"{name}_check")
        found = np.fromfile(self.found, "<i8").reshape(-1, K)
        measure.check("recall", self.vectors.recall(lambda i: found[i]), RECALL if name == "hnsw" else 1.0)
        num_rows = len(self.vectors.rows)
        if name == "hnsw":
            peer, num_compared = self.faiss_hnsw(measure)
            peers, target, floor = [peer], 0.67, self.floors.rows(num_compared, round_trips=0)
        elif name == "exact_batch":
            peers, target, floor = self.exact_batch_peers(), 1.0, self.floors.rows(num_rows, round_trips=0, batch=BATCH)
        else:
            peers, target, floor = self.exact_peers(), 1.0, self.floors.rows(num_rows, round_trips=0)
        measure.compare(LibraryCalls(library, name), peers, target, floor)


def make_faiss_hnsw(vectors):
    index = faiss.IndexHNSWFlat(DIMENSION, 32)
    if len(vectors.rows) > 100_000:
        # With its default of 40, no efSearch up to 800 finds 95 % of the neighbours among 300,000.
        index.hnsw.efConstruction = 200
    index.add(vectors.rows)
    return index


def run_library(bench, contest, command, folder):
    """The library's rows, last: the program keeps a copy of the vectors in memory."""
    files = contest.vectors.write_raw(folder)
    contest.found = files["BENCH_FOUND"]
    library = Library(command, files | {"BENCH_BATCH": BATCH, "BENCH_RECALL": RECALL})
    try:
        for name in ("exact", "exact_batch", "hnsw"):
            bench.run(f"library call: {name}", lambda measure, name=name: contest.library(measure, library, name))
    finally:
        library.close()


if __name__ == "__main__":
    main()
