"""LanceDB as a peer: an IVF_HNSW_SQ index and a scalar index, through the asynchronous API, which costs less per call than the synchronous one."""

import asyncio
import tempfile
import time

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import BTree, HnswSq

from vector_data import K, NUM_BUCKETS, fixed_lists

# Settings that are tried, `None` for LanceDB's default: ef, refine factor, and whether to scan without the vector index, which pays when a filter leaves
# few rows. LanceDB wants an ef of at least k times the refine factor.
EFS = [None, 32, 48, 64, 100, 150, 200, 400]
SETTINGS = [(ef, refine, False) for refine in (None, 1, 2, 4) for ef in EFS if ef is None or ef >= K * (refine or 1)] + [(None, None, True)]


class LanceTable:
    """The vectors as a table of LanceDB in a folder of its own."""

    def __init__(self, vectors):
        self.vectors = vectors
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory(prefix="lancedb-bench-")
        self.table = self.loop.run_until_complete(self.make())

    async def make(self):
        columns = {"id": np.arange(len(self.vectors.rows)), "bucket": self.vectors.buckets, "embedding": fixed_lists(self.vectors.rows)}
        connection = await lancedb.connect_async(self.folder.name)
        table = await connection.create_table("vectors", pa.table(columns))
        await table.create_index("embedding", config=HnswSq(distance_type="cosine"))
        await table.create_index("bucket", config=BTree())
        return table

    def tuned(self, bucket_end, at_least, num_queries):
        """The fastest setting that finds enough: what it is called, and its search by the number of a query."""
        sufficing = []
        for setting in SETTINGS:
            search = self.search(bucket_end, *setting)
            try:
                # The first pass warms the caches.
                self.vectors.recall(search, bucket_end, num_queries // 4)
                recall, seconds = self.timed_recall(search, bucket_end, num_queries)
            except ValueError as error:
                print(f"    LanceDB at ef, refine, scan {setting}: {error}")
                continue
            if recall >= at_least:
                sufficing.append((seconds, setting))
        if not sufficing:
            raise ValueError(f"LanceDB finds less than {at_least} with every setting")
        sufficing.sort(key=lambda pair: pair[0])
        # Other work on the machine may have slowed one of the fast ones, so the best three have another turn.
        again = [(self.timed_recall(self.search(bucket_end, *setting), bucket_end, num_queries)[1], setting) for _, setting in sufficing[:3]]
        setting = min(again + sufficing, key=lambda pair: pair[0])[1]
        return f"LanceDB at ef, refine, scan {setting}", self.search(bucket_end, *setting)

    def timed_recall(self, search, bucket_end, num_queries):
        start = time.perf_counter()
        recall = self.vectors.recall(search, bucket_end, num_queries)
        return recall, time.perf_counter() - start

    def search(self, bucket_end, ef, refine, is_scan):
        """A function that gives the ids of the rows nearest to the i-th query."""

        async def ids(number):
            query = self.table.query().nearest_to(self.vectors.queries[number]).distance_type("cosine").limit(K).select(["id", "_distance"])
            if bucket_end < NUM_BUCKETS:
                query = query.where(f"bucket < {bucket_end}")
            if ef:
                query = query.ef(ef)
            if refine:
                query = query.refine_factor(refine)
            if is_scan:
                query = query.bypass_vector_index()
            return (await query.to_arrow())["id"].to_numpy()

        return lambda number: self.loop.run_until_complete(ids(number % len(self.vectors.queries)))
