"""Loading a corpus: `COPY passages FROM` a file of JSON lines against DuckDB, which reads it and writes Parquet; and memory as the corpus grows.

1,000,000 generated passages of about 600 bytes unless --rows says otherwise. README.md describes the measures.
"""

import json
import os
import shutil
import time
from dataclasses import dataclass, field

import duckdb
import numpy as np

from harness import Bench, parse, parser
from server import Server

COLUMNS = ("id", "title", "contents")
NUM_WORDS = 50_000
PASSAGES_AT_ONCE = 10_000
CHECK = "SELECT count(*)::bigint, sum(length(contents))::bigint, min(id), max(id) FROM"


def main():
    options = parser(__doc__)
    options.add_argument("--rows", type=int, help="default 1000000, quick 20000")
    options = parse(options, rounds=3)
    num_rows = options.rows or (20_000 if options.quick else 1_000_000)
    with Bench("load", options) as bench:
        with Server() as server:
            contest = Contest(server, Corpus(server.folder / "passages.jsonl", num_rows))
            bench.run("COPY from JSON lines", contest.copy)
            bench.run("COPY from JSON lines into a table with a primary key", contest.copy_with_key)
        bench.run("memory peak, a tenth of the corpus to all of it", lambda measure: memory(measure, num_rows))


class Corpus:
    """`num_rows` passages of pseudo-words, whose frequencies fall as in English (Zipf), as one JSON object per line."""

    def __init__(self, path, num_rows, seed=20240601):
        self.path = path
        self.num_rows = num_rows
        self.num_letters = 0
        random = np.random.default_rng(seed)
        words, ends = vocabulary(random)
        start = time.perf_counter()
        with open(path, "w", encoding="utf-8") as file:
            for first in range(0, num_rows, PASSAGES_AT_ONCE):
                for passage in passages(random, words, ends, first, min(first + PASSAGES_AT_ONCE, num_rows)):
                    self.num_letters += len(passage["contents"])
                    file.write(json.dumps(passage, ensure_ascii=False) + "\n")
        print(f"{num_rows:,} passages, {path.stat().st_size / 1e6:,.0f} MB, written in {time.perf_counter() - start:.0f} s", flush=True)

    def summary(self):
        """What `CHECK` must give."""
        return (self.num_rows, self.num_letters, passage_id(0), passage_id(self.num_rows - 1))


def vocabulary(random):
    """Words, and the end of each one's share of the interval from 0 to 1."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkéü"))
    shares = 1 / np.arange(2, len(letters) + 2)
    lengths = random.integers(2, 11, NUM_WORDS)
    spelt = random.choice(letters, size=int(lengths.sum()), p=shares / shares.sum())
    words = ["".join(word) for word in np.split(spelt, np.cumsum(lengths)[:-1])]
    frequencies = 1 / (np.arange(NUM_WORDS) + 2.7)
    return words, np.cumsum(frequencies / frequencies.sum())


def passages(random, words, ends, first, last):
    """Passages with the numbers from `first` to `last`: a title, and contents of 30 to 120 words that begin with it, as FlashRAG's corpora do."""
    lengths = random.integers(30, 120, last - first)
    drawn = np.searchsorted(ends, random.random(int(lengths.sum())))
    end = 0
    for number, length in zip(range(first, last), lengths):
        end += length
        text = [words[index] for index in drawn[end - length : end]]
        title = " ".join(text[:3]).title()
        yield {"id": passage_id(number), "title": title, "contents": f'"{title}"\n{" ".join(text)}.'}


def passage_id(number):
    return f"p{number:09}"


@dataclass
class Load:
    """A contestant that loads the whole corpus once per round; `prepare` is not timed."""

    name: str
    run: object
    prepare: object
    num_rows: int
    latencies: list = field(default_factory=list)

    def warm_up(self, _seconds):
        pass

    def rate(self, _seconds):
        self.prepare()
        start = time.perf_counter()
        self.run()
        return self.num_rows / (time.perf_counter() - start)


class Contest:
    def __init__(self, server, corpus):
        self.corpus = corpus
        self.connection = server.connect()
        self.parquet = server.folder / "passages.parquet"
        self.duckdb = duckdb.connect()

    def load(self, measure, key, **compared):
        ours = Load("RolloutDB", self.run_ours, lambda: self.make_table(key), self.corpus.num_rows)
        peer = Load("DuckDB to Parquet", self.run_duckdb, self.remove_parquet, self.corpus.num_rows)
        # DuckDB leaves its file to the page cache, an acknowledged COPY is on the disk.
        peer_synced = Load("DuckDB to Parquet and fsync", lambda: (self.run_duckdb(), sync(self.parquet)), self.remove_parquet, self.corpus.num_rows)
        ours.rate(0)
        measure.check_equal("rows and letters", self.connection.execute(f"{CHECK} passages").fetchone(), self.corpus.summary())
        peer.rate(0)
        found = self.duckdb.execute(f"{CHECK} read_parquet('{self.parquet}')").fetchone()
        measure.check_equal("those of DuckDB", found, self.corpus.summary())
        measure.compare(ours, [peer], beside=[peer_synced], unit="rows/s", floor=self.floor(), **compared)

    def copy(self, measure):
        self.load(measure, key="", target=1.0)

    def copy_with_key(self, measure):
        self.load(measure, key="PRIMARY KEY")

    def make_table(self, key):
        self.connection.execute("DROP TABLE IF EXISTS passages")
        self.connection.execute(f"CREATE TABLE passages (id text {key}, title text, contents text)")

    def run_ours(self):
        self.connection.execute(f"COPY passages FROM '{self.corpus.path}' (FORMAT jsonl)")

    def run_duckdb(self):
        columns = ", ".join(f"{column}: 'VARCHAR'" for column in COLUMNS)
        rows = f"read_json('{self.corpus.path}', format = 'newline_delimited', columns = {{{columns}}})"
        self.duckdb.execute(f"COPY (SELECT * FROM {rows}) TO '{self.parquet}' (FORMAT parquet)")

    def remove_parquet(self):
        self.parquet.unlink(missing_ok=True)

    def floor(self):
        """The corpus copied byte by byte and synced: the best of three."""
        copy = self.corpus.path.with_suffix(".copy")
        times = []
        for _ in range(3):
            start = time.perf_counter()
            shutil.copyfile(self.corpus.path, copy)
            sync(copy)
            times.append(time.perf_counter() - start)
            copy.unlink()
        return self.corpus.num_rows / min(times), "its bytes copied and synced"


def sync(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def memory(measure, num_rows):
    """The most memory that a server of its own held while it loaded a corpus and read all of it."""
    peaks = {}
    for rows in (num_rows // 10, num_rows):
        with Server() as server:
            corpus = Corpus(server.folder / "passages.jsonl", rows)
            connection = server.connect()
            connection.execute("CREATE TABLE passages (id text, title text, contents text)")
            idle = server.memory_peak()
            connection.execute(f"COPY passages FROM '{corpus.path}' (FORMAT jsonl)")
            loaded = server.memory_peak()
            measure.check_equal(f"all of {rows:,} rows", connection.execute(f"{CHECK} passages").fetchone(), corpus.summary())
            connection.execute("SELECT length(contents), count(*), max(title) FROM passages GROUP BY 1 ORDER BY 2 DESC LIMIT 1").fetchall()
            peaks[rows] = server.memory_peak() / 1e6
            print(f"  {rows:,} rows: {idle / 1e6:.0f} MB before, {loaded / 1e6:.0f} MB after COPY, {peaks[rows]:.0f} MB after the queries", flush=True)
    small, large = peaks.values()
    measure.report(large, {"with a tenth of the corpus": small}, [small / large], target=0.8, unit="MB")


if __name__ == "__main__":
    main()
