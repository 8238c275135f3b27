"""Rounds that alternate between ours and the peers, checks before them, and the table after them.

A bench is a script with a function per measure, a row of the table:

    with Bench("vectors", options) as bench:
        bench.run("exact, batch 1", lambda measure: exact(measure, ...))

    def exact(measure, ...):
        measure.check("ours", recall(...), at_least=1.0)
        measure.compare(Calls("RolloutDB", ...), [Calls("FAISS", ...), Calls("NumPy", ...)], target=1.0)

A failed check or an error ends its measure, is printed with its numbers, and makes the script exit with 1 once the other measures are done. A missed
target does not: it is a finding, and stands in the table with what is missing.

`harness.py FILE` prints the one table of the results that several scripts added to FILE.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from importlib import metadata

import numpy as np

PEERS = ["faiss-cpu", "numpy", "lancedb", "bm25s", "numba", "duckdb", "psycopg"]


def parser(description):
    """The options that every bench has; `description` is the script's docstring."""
    options = argparse.ArgumentParser(description=description.split("\n\n")[0])
    options.add_argument("--quick", action="store_true", help="small sizes: to see that everything works, not to measure")
    options.add_argument("--rounds", type=int, help="rounds of each comparison; default 7 (load: 3), quick 3")
    options.add_argument("--seconds", type=float, help="time of one contestant in one round; default 1.5, quick 0.3")
    options.add_argument("--only", default="", help="only the measures whose names contain this text")
    options.add_argument("--results", default=os.environ.get("BENCH_RESULTS"), help="file that the results are added to, as JSON lines")
    return options


def parse(options, rounds=7):
    """The command line, with the defaults that depend on --quick."""
    options = options.parse_args()
    options.rounds = options.rounds or (min(rounds, 3) if options.quick else rounds)
    options.seconds = options.seconds or (0.3 if options.quick else 1.5)
    return options


# ---- Contestants: a name, warm_up(seconds), rate(seconds) in units per second, and latencies in seconds where they are known ----


@dataclass
class Calls:
    """`call(i)` does the i-th piece of work, which is `units` queries or rows. A round has `least` calls or more: one of calls that take a minute, which need no
    call before them."""

    name: str
    call: object
    units: float = 1
    least: int = 2
    count: int = 0
    latencies: list = field(default_factory=list)

    def warm_up(self, seconds):
        if self.least > 1:
            self.rate(seconds)
            self.latencies.clear()

    def rate(self, seconds):
        start = last = time.perf_counter()
        done = 0
        while done < self.least or last - start < seconds:
            self.call(self.count)
            now = time.perf_counter()
            self.latencies.append(now - last)
            last, done, self.count = now, done + 1, self.count + 1
        return done * self.units / (last - start)


class Library:
    """A program that measures the library without a server, and whose figures stand in the same rounds as the peers'.

    It is started once, with `files` in its environment. It prints `ready 1` when its indexes are made. Then it reads names from its standard input, one
    per line, and answers each with a line `name value`. README.md lists the names.
    """

    def __init__(self, command, files):
        environment = os.environ | {name: str(value) for name, value in files.items()}
        self.process = subprocess.Popen(command, shell=True, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.read("ready")

    def ask(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return self.read(name)

    def read(self, name):
        line = self.process.stdout.readline()
        words = line.split()
        if len(words) != 2 or words[0] != name:
            raise RuntimeError(f"the library command answered {line!r} where `{name} value` was expected")
        return float(words[1])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


@dataclass
class LibraryCalls:
    library: Library
    measure: str
    name: str = "RolloutDB, library"
    latencies: list = field(default_factory=list)

    def warm_up(self, seconds):
        self.rate(seconds)

    def rate(self, _seconds):
        return self.library.ask(self.measure)


# ---- Measures ----


class CheckFailed(Exception):
    """One of them does not find what it should, so there is nothing to compare."""


class Bench:
    """One script's measures, in order."""

    def __init__(self, name, options):
        self.name = name
        self.options = options
        self.results = []
        self.failed = []

    def __enter__(self):
        print(machine(), flush=True)
        return self

    def __exit__(self, kind, _error, _traceback):
        if kind is not None:
            return
        print("\n" + table(self.results))
        if self.failed:
            sys.exit(f"\n{self.name}: failed: {'; '.join(self.failed)}")

    def run(self, name, measure):
        """Does a measure, unless --only leaves it out. What goes wrong in it is printed and remembered, and the next measures follow."""
        if self.options.only not in name:
            return
        print(f"\n{self.name}: {name}", flush=True)
        try:
            measure(Measure(self, name))
        except CheckFailed as error:
            self.fail(name, str(error))
        except Exception as error:
            traceback.print_exc()
            self.fail(name, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")

    def fail(self, name, reason):
        print(f"FAILED {self.name}: {name}: {reason}", file=sys.stderr, flush=True)
        self.failed.append(name)
        self.add({"measure": name, "failure": reason})

    def add(self, result):
        result = {"bench": self.name, "quick": self.options.quick} | result
        self.results.append(result)
        if self.options.results:
            with open(self.options.results, "a", encoding="utf-8") as results:
                results.write(json.dumps(result) + "\n")


class Measure:
    """One row of the table."""

    def __init__(self, bench, name):
        self.bench = bench
        self.name = name
        self.checks = []

    def check(self, what, value, at_least):
        """The row shows the value; less than `at_least` ends the measure."""
        print(f"  {what} {value:.4f}, at least {at_least} is right", flush=True)
        if not value >= at_least:
            raise CheckFailed(f"{what} is {value:.4f}, but must be at least {at_least}")
        self.checks.append(f"{what} {value:.3f}")

    def check_equal(self, what, found, expected):
        if found != expected:
            raise CheckFailed(f"{what}: {found!r} instead of {expected!r}")
        self.checks.append(what)

    def compare(self, ours, peers, target=None, floor=None, unit="queries/s", beside=()):
        """Rounds in which every contestant has its turn. The ratio of a round is ours to the best of `peers`; it is not judged by those `beside`.

        `target`: least ratio that is wanted, `None` for a row that only informs. `floor`: the rate that the data alone would allow, and what it is made of.
        Returns the rates by name, medians over the rounds.
        """
        options = self.bench.options
        contestants = [ours, *peers, *beside]
        for contestant in contestants:
            contestant.warm_up(options.seconds)
        rounds = [one_round(contestants, start, options.seconds) for start in range(options.rounds)]

        def against(others):
            return [rates[ours.name] / max(rates[other.name] for other in others) for rates in rounds]

        rates = {contestant.name: statistics.median(rates[contestant.name] for rates in rounds) for contestant in contestants}
        peer_rates = {other.name: rates[other.name] for other in contestants[1:]}
        self.report(rates[ours.name], peer_rates, against(peers), target, floor, unit, ours.latencies)
        for other in contestants[1:]:
            print(f"  ratio to {other.name}: {statistics.median(against([other])):.3g}")
        return rates

    def report(self, ours, peers, ratios, target=None, floor=None, unit="queries/s", latencies=()):
        """Adds the row: ours and the peers' figures by name in `unit`, and the ratios of the rounds. For measures with rounds of their own too."""
        result = {"measure": self.name, "unit": unit, "ours": ours, "peers": peers, "target": target, "checks": self.checks}
        result |= {"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
        if floor:
            result |= {"floor": floor[0], "floor_is": floor[1]}
        if len(latencies) >= 100:
            result |= {"ms_p50": float(np.percentile(latencies, 50)) * 1e3, "ms_p99": float(np.percentile(latencies, 99)) * 1e3}
        for name, figure in {"RolloutDB": ours, **peers}.items():
            print(f"  {name}: {number(figure)} {unit}")
        if floor:
            print(f"  floor: {number(floor[0])} {unit} ({floor[1]})")
        print(f"  ratio {ratio(result)}; target {verdict(result)}", flush=True)
        self.bench.add(result)


def one_round(contestants, start, seconds):
    """Each contestant's rate. Rounds start with another one each, and a pause lets the threads of the one before come to rest."""
    rates = {}
    for index in range(len(contestants)):
        contestant = contestants[(start + index) % len(contestants)]
        time.sleep(0.05)
        rates[contestant.name] = contestant.rate(seconds)
    return rates


# ---- The machine ----


def machine():
    """What a figure needs beside it: hardware, commit, versions."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=os.path.dirname(os.path.abspath(__file__)))
    versions = ", ".join(f"{package} {version(package)}" for package in PEERS)
    busy = os.getloadavg()[0]
    lines = [f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB; commit {git.stdout.strip() or 'unknown'}; {versions}"]
    if busy > 0.5:
        lines.append(f"WARNING: the machine is busy with other work (load {busy:.1f}); the ratios will spread")
    return "\n".join(lines)


def version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def read_bandwidth():
    """Bytes per second that all cores together read from memory: the dot product of a long vector with itself, the best of several."""
    parts = [np.ones(64 * 2**20 // 4, dtype=np.float32) for _ in range(4 * os.cpu_count())]
    shares = [parts[core :: os.cpu_count()] for core in range(os.cpu_count())]
    best = 0
    for _ in range(7):
        threads = [threading.Thread(target=lambda share=share: [part.dot(part) for part in share]) for share in shares]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = max(best, sum(part.nbytes for part in parts) / (time.perf_counter() - start))
    return best


def multiply_rate():
    """Floating point operations per second of a large matrix product, the best of several."""
    left, right = np.ones((2048, 2048), dtype=np.float32), np.ones((2048, 2048), dtype=np.float32)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - start)
    return 2 * 2048**3 / min(times)


# ---- The table ----

COLUMNS = ["bench", "measure", "ours", "p50 / p99 ms", "peers", "ratio (min..max)", "target", "floor", "checked before"]


def table(results):
    """The results as a Markdown table."""
    lines = [COLUMNS, ["---"] * len(COLUMNS)] + [cells(result) for result in results]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(result):
    start = [result["bench"] + (" (quick)" if result["quick"] else ""), result["measure"]]
    if "failure" in result:
        return start + ["", "", "", "FAILED", "", "", result["failure"].replace("|", "/")]
    latencies = f"{result['ms_p50']:.2f} / {result['ms_p99']:.2f}" if "ms_p50" in result else ""
    peers = ", ".join(f"{name} {number(rate)}" for name, rate in result["peers"].items())
    floor = f"{number(result['floor'])} ({result['floor_is']})" if "floor" in result else ""
    ours = f"{number(result['ours'])} {result['unit']}"
    return start + [ours, latencies, peers, ratio(result), verdict(result), floor, ", ".join(result["checks"])]


def ratio(result):
    return f"{result['ratio']:.2f} ({result['ratio_min']:.2f}..{result['ratio_max']:.2f})"


def verdict(result):
    if result["target"] is None:
        return "none"
    if result["ratio"] >= result["target"]:
        return f"{result['target']:g} met"
    return f"{result['target']:g} **missed by {100 * (1 - result['ratio'] / result['target']):.0f} %**"


def number(value):
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as lines:
        print(f"{machine()}\n\n{table([json.loads(line) for line in lines])}")
