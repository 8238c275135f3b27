"""How the cost of a query grows with the corpus: exact search should grow linearly, approximate search as the logarithm.

10,000 to 300,000 vectors unless --sizes says otherwise, each size on a server of its own, at the same recall. README.md describes the measures.
"""

import math

from harness import Bench, CheckFailed, parse, parser
from server import Server, round_trip
from vector_data import Vectors
from vectors import Contest, Floors, load

# Growth may exceed what it is compared with by a quarter: rounds differ, and small sets lie in the processor's cache.
TARGET = 0.8


def main():
    options = parser(__doc__)
    options.add_argument("--sizes", help="default 10000,30000,100000,300000; quick 2000,10000")
    options.add_argument("--queries", type=int, help="default 1000, quick 100")
    options = parse(options, rounds=5)
    default = "2000,10000" if options.quick else "10000,30000,100000,300000"
    sizes = sorted(int(size) for size in (options.sizes or default).split(","))
    with Bench("growth", options) as bench:
        costs = Costs()
        for size in sizes:
            run_size(bench, Vectors(size, options.queries or (100 if options.quick else 1_000)), costs)
        bench.run(f"exact, growth from {sizes[0]:,} to {sizes[-1]:,}", lambda measure: exact_growth(measure, costs, sizes))
        bench.run(f"HNSW, growth from {sizes[0]:,} to {sizes[-1]:,}", lambda measure: hnsw_growth(measure, costs, sizes))


class Costs:
    """Seconds per query by kind and size, and the least round trip that was measured at any size: one that the machine delayed would leave nothing of a query."""

    def __init__(self):
        self.seconds = {"exact": {}, "HNSW": {}}
        self.round_trip = math.inf

    def factors(self, kind, sizes):
        """How many times the cost of the smallest size the largest one costs: ours without the round trip, FAISS's."""
        missing = [size for size in sizes if size not in self.seconds[kind]]
        if missing:
            raise CheckFailed(f"no cost was measured at {missing}")
        costs = {size: (ours - self.round_trip, faiss) for size, (ours, faiss) in self.seconds[kind].items()}
        for size in sizes:
            print(f"  {size:,} vectors: {costs[size][0] * 1e3:.3f} ms without the round trip; FAISS {costs[size][1] * 1e3:.3f} ms")
        return [costs[sizes[-1]][who] / costs[sizes[0]][who] for who in (0, 1)]


def run_size(bench, vectors, costs):
    """Adds the seconds per query of ours and of FAISS at one size."""
    size = len(vectors.rows)
    with Server() as server:
        connection = load(server, vectors)
        contest = Contest(vectors, connection, Floors(round_trip(connection)))
        costs.round_trip = min(costs.round_trip, contest.floors.round_trip)

        def run(measure, kind, compare):
            ours, faiss = compare(measure)
            costs.seconds[kind][size] = 1 / ours, 1 / faiss

        bench.run(f"exact, {size:,} vectors", lambda measure: run(measure, "exact", contest.exact_beside_faiss))
        bench.run(f"HNSW, {size:,} vectors", lambda measure: run(measure, "HNSW", contest.hnsw_beside_faiss))


def exact_growth(measure, costs, sizes):
    """Linear: as many times the cost as there are times the rows."""
    ours, faiss = costs.factors("exact", sizes)
    linear = sizes[-1] / sizes[0]
    measure.report(ours, {"linear": linear, "FAISS IndexFlatIP": faiss}, [linear / ours], TARGET, unit="x")


def hnsw_growth(measure, costs, sizes):
    """Logarithmic, or as FAISS's graph grows: it too pays for leaving the cache, which no logarithm knows."""
    ours, faiss = costs.factors("HNSW", sizes)
    logarithmic = math.log(sizes[-1]) / math.log(sizes[0])
    measure.report(ours, {"logarithmic": logarithmic, "FAISS HNSW32": faiss}, [max(logarithmic, faiss) / ours], TARGET, unit="x")


if __name__ == "__main__":
    main()
