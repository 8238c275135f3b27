"""Vectors for the benches: made from a seed, searched exactly with NumPy, loaded into a server."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

DIMENSION = 384
K = 10
# Rows of one bucket per thousand: `bucket < 10` keeps one row in a hundred.
NUM_BUCKETS = 1000
# The length of the noise beside a centre of length 1; with 1.8, FAISS HNSW32 finds 97 % of 100,000 vectors' neighbours at efSearch 64.
NOISE = 1.8
ROWS_PER_CLUSTER = 100
# Two ways of summing 384 products differ by less than this.
ROUNDING = 2e-6


class Vectors:
    """`num_rows` vectors and queries drawn from the same mixture of normal distributions, all of length 1.

    `rows`: f32 [num_rows, 384]; `queries`: f32 [num_queries, 384]; `buckets`: i32 [num_rows], uniform from 0 to 999.
    """

    def __init__(self, num_rows, num_queries, seed=20240601):
        random = np.random.default_rng(seed)
        centres = normalised(random.standard_normal((max(1, num_rows // ROWS_PER_CLUSTER), DIMENSION), dtype=np.float32))
        self.rows = draw(random, centres, num_rows)
        self.queries = draw(random, centres, num_queries)
        self.buckets = random.integers(0, NUM_BUCKETS, num_rows).astype(np.int32)
        self.truths = {}

    def matching(self, bucket_end):
        """Numbers of the rows whose bucket is less than `bucket_end`."""
        return np.flatnonzero(self.buckets < bucket_end)

    def truth(self, bucket_end=NUM_BUCKETS):
        """Similarity of each query's k-th nearest row among those that match, by exact search: `[num_queries]`."""
        if bucket_end not in self.truths:
            matching = self.rows[self.matching(bucket_end)]
            blocks = [self.queries[start : start + 200] @ matching.T for start in range(0, len(self.queries), 200)]
            self.truths[bucket_end] = np.concatenate([-np.partition(-block, K - 1, axis=1)[:, K - 1] for block in blocks])
        return self.truths[bucket_end]

    def recall(self, search, bucket_end=NUM_BUCKETS, num_queries=None):
        """Share of the k nearest that `search(i)` finds for the i-th query, over the first `num_queries`.

        Another row just as near counts too. Raises `ValueError` if an answer has not exactly k different rows, or one that does not match.
        """
        truth = self.truth(bucket_end)[:num_queries]
        found_count = 0
        for query, least in enumerate(truth):
            ids = np.asarray(search(query), dtype=np.int64)
            if len(ids) != K or len(set(ids.tolist())) != K:
                raise ValueError(f"query {query}: {len(ids)} rows ({len(set(ids.tolist()))} different ones) instead of {K}")
            if (self.buckets[ids] >= bucket_end).any():
                raise ValueError(f"query {query}: rows that the filter leaves out: {ids[self.buckets[ids] >= bucket_end].tolist()}")
            found_count += int((self.rows[ids] @ self.queries[query] >= least - ROUNDING).sum())
        return found_count / (len(truth) * K)

    def load(self, connection, folder, table, num_rows=None):
        """Makes `table (id, bucket, embedding)` on the server."""
        rows = self.rows[:num_rows]
        columns = {"id": np.arange(len(rows)), "bucket": self.buckets[: len(rows)], "embedding": fixed_lists(rows)}
        path = folder / f"{table}.parquet"
        parquet.write_table(pa.table(columns), path)
        connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, bucket integer, embedding vector({DIMENSION}))")
        connection.execute(f"COPY {table} FROM '{path}' (FORMAT parquet)")
        path.unlink()

    def load_queries(self, connection, folder, batch):
        """Makes `queries (id, batch, embedding)` on the server, `batch` queries of each batch number."""
        numbers = np.arange(len(self.queries))
        path = folder / "queries.parquet"
        parquet.write_table(pa.table({"id": numbers, "batch": (numbers // batch).astype(np.int32), "embedding": fixed_lists(self.queries)}), path)
        connection.execute(f"CREATE TABLE queries (id bigint PRIMARY KEY, batch integer, embedding vector({DIMENSION}))")
        connection.execute(f"COPY queries FROM '{path}' (FORMAT parquet)")
        path.unlink()

    def write_raw(self, folder):
        """The files of a library command, as the environment that names them: little-endian f32, row after row."""
        files = {"BENCH_VECTORS": folder / "vectors.f32", "BENCH_QUERIES": folder / "queries.f32"}
        self.rows.astype("<f4").tofile(files["BENCH_VECTORS"])
        self.queries.astype("<f4").tofile(files["BENCH_QUERIES"])
        return files | {"BENCH_DIMENSION": DIMENSION, "BENCH_K": K, "BENCH_FOUND": folder / "found.i64"}


def draw(random, centres, count):
    noise = random.standard_normal((count, DIMENSION), dtype=np.float32) * np.float32(NOISE / np.sqrt(DIMENSION))
    return normalised(centres[random.integers(0, len(centres), count)] + noise)


def normalised(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def fixed_lists(vectors):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(vectors).reshape(-1)), DIMENSION)


def numpy_search(rows, query):
    """Numbers of the k nearest rows, nearest first."""
    similarity = rows @ query
    nearest = np.argpartition(similarity, -K)[-K:]
    return nearest[np.argsort(-similarity[nearest])]


def numpy_search_batch(rows, queries):
    """The same for many queries at once: `[num_queries, k]`."""
    similarity = queries @ rows.T
    nearest = np.argpartition(similarity, -K, axis=1)[:, -K:]
    order = np.argsort(-np.take_along_axis(similarity, nearest, axis=1), axis=1)
    return np.take_along_axis(nearest, order, axis=1)
