"""Runs the checks of one client and prints a line for each: `client | check | passed`, or `client | check | FAILED why`.

The server's address is in libpq's environment variables. Each check runs in a process of its own with a connection of its own, so that one that
hangs, or takes the interpreter with it, costs only itself.
"""

import os
import resource
import sys
import time
import traceback

SECONDS_MAX = 60
HOST = os.environ["PGHOST"]
PORT = int(os.environ["PGPORT"])
USER = os.environ["PGUSER"]
DATABASE = os.environ["PGDATABASE"]
# A role that the runner makes before the clients start. Its password is asked for; that of the user who started the server is not.
ROLE, PASSWORD = "clients", os.environ.get("CLIENTS_PASSWORD", "clients' password")

# A minute of work and more, of which the client wants to see a second at most.
LONG = (
    "SELECT count(*) FROM generate_series(1, 10) a(value) CROSS JOIN generate_series(1, 100000000) b(value)"
    " WHERE (a.value + b.value) % 7 = 3"
)
LARGE = "SELECT value, 'name ' || value AS name FROM generate_series(1, 1000000) t(value)"
LARGE_COUNT = 1_000_000
LARGE_SUM = LARGE_COUNT * (LARGE_COUNT + 1) // 2


class Checks:
    """The checks of one client, in the order of their definition."""

    def __init__(self, client, version):
        self.client = client
        self.functions = []
        print(f"{client} | version | {version}", flush=True)

    def __call__(self, name):
        def add(function):
            self.functions.append((name, function))
            return function

        return add

    def run(self):
        for name, function in self.functions:
            failure = run_apart(function)
            outcome = "passed" if failure is None else f"FAILED {failure}"
            print(f"{self.client} | {name} | {outcome}", flush=True)


def run_apart(function):
    """What went wrong, in one line, or None."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        failure = b""
        try:
            function()
        except BaseException as error:
            failure = describe(error).encode()
        os.write(writer, failure[:2000])
        os._exit(1 if failure else 0)
    os.close(writer)
    status = wait(child)
    with os.fdopen(reader, "rb") as pipe:
        failure = pipe.read().decode(errors="replace")
    if status is None:
        return f"no answer within {SECONDS_MAX} s"
    if status != 0 and not failure:
        return f"the client's process ended with status {status}"
    return failure or None


def wait(child):
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def describe(error):
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if os.path.dirname(frame.filename) == os.path.dirname(os.path.abspath(__file__))]
    line = f" (line {ours[-1].lineno} of {os.path.basename(ours[-1].filename)})" if ours else ""
    text = str(error) or (ours[-1].line if ours else "")
    return " ".join(f"{type(error).__name__}: {text}{line}".split())


def equal(found, expected):
    assert found == expected, f"{found!r} instead of {expected!r}"


class expect:
    """The block fails with an error that `sqlstate_of` gives this code for: `with expect("42P01", code_of): ...`."""

    def __init__(self, sqlstate, sqlstate_of):
        self.sqlstate, self.sqlstate_of = sqlstate, sqlstate_of

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        assert error is not None, f"no error instead of {self.sqlstate}"
        if not isinstance(error, Exception):
            return False
        found = self.sqlstate_of(error)
        assert found == self.sqlstate, f"{found} instead of {self.sqlstate}: {error}"
        return True


class bounded_memory:
    """The block takes at most so much more memory than the process had before."""

    def __init__(self, megabytes=64):
        self.megabytes = megabytes

    def __enter__(self):
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def __exit__(self, kind, *_):
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.before) / 1024
        assert kind or grown < self.megabytes, f"the client took {grown:.0f} MB for a result that it read in pieces"


class soon:
    """The block ends within so many seconds."""

    def __init__(self, seconds=5):
        self.seconds = seconds

    def __enter__(self):
        self.started = time.monotonic()

    def __exit__(self, kind, *_):
        took = time.monotonic() - self.started
        assert kind or took < self.seconds, f"took {took:.1f} s instead of {self.seconds} s at most"


if __name__ == "__main__":
    sys.exit("checks.py is a library")
