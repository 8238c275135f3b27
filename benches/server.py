"""A server for one bench, and how the bench talks to it."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import ExecStatus, Format


class Server:
    """A server of the binary that ROLLOUTDB names, on an empty data directory that goes with it, or on `data`, which stays.

    `folder` is a place for the bench's own files, on the same disk; it goes too. BENCH_DIR says where both are made. `options` go to `rolloutdb serve`.
    """

    def __init__(self, *options, data=None):
        binary = os.environ.get("ROLLOUTDB")
        if not binary:
            sys.exit("ROLLOUTDB must name the rolloutdb binary; benches/run builds one and sets it")
        self.folder = Path(tempfile.mkdtemp(prefix="rolloutdb-bench-", dir=os.environ.get("BENCH_DIR")))
        self.port = free_port()
        self.log = open(self.folder / "server.log", "wb")
        arguments = [binary, "serve", "--data", str(data or self.folder / "data"), "--listen", f"127.0.0.1:{self.port}", "--superuser", "bench", *options]
        self.process = subprocess.Popen(arguments, stdout=self.log, stderr=self.log)

    def __enter__(self):
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        has_died = self.process.poll() is not None
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        said = (self.folder / "server.log").read_text(errors="replace")
        if has_died or "panicked" in said:
            print(f"the server {'ended early' if has_died else 'panicked'}; it said:\n{said[-4000:]}", file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.connect().close()
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the server does not answer")
                time.sleep(0.05)

    def connect(self):
        return psycopg.connect(host="127.0.0.1", port=self.port, user="bench", dbname="rolloutdb", autocommit=True)

    def conninfo(self):
        return f"host=127.0.0.1 port={self.port} user=bench dbname=rolloutdb"

    def memory_peak(self):
        """Most bytes of memory that the process has held at once."""
        return self.status("VmHWM") * 1024

    def status(self, name):
        """A number of what the system says of the process: `VmRSS` and `VmHWM` in KiB, `Threads`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1])

    def seconds_by_thread(self):
        """Processor time of the threads that there are, by their names."""
        seconds = Counter()
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            name, numbers = (thread / "stat").read_text().split("(", 1)[1].rsplit(") ", 1)
            user, system = numbers.split()[11:13]
            seconds[name] += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return seconds

    def num_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prepared:
    """One statement through one connection, prepared on the server at its first call; rows come in binary form."""

    def __init__(self, connection, statement):
        self.cursor = connection.cursor(binary=True)
        self.statement = statement

    def __call__(self, *parameters):
        return self.cursor.execute(self.statement, parameters, prepare=True).fetchall()

    def column(self, *parameters):
        """The first column of the rows."""
        return [row[0] for row in self(*parameters)]


class PreparedInLibpq:
    """One statement prepared on the server, through the libpq of a psycopg connection: without the work that psycopg's cursors do in Python for each call.

    Parameters and the column that comes back are texts.
    """

    def __init__(self, connection, statement):
        self.pgconn = connection.pgconn
        self.name = f"statement{id(self)}".encode()
        self.check(self.pgconn.prepare(self.name, statement.replace("%s", "$1").encode()))

    def check(self, result):
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise psycopg.DatabaseError(result.error_message.decode())
        return result

    def __call__(self, parameter):
        result = self.check(self.pgconn.exec_prepared(self.name, [parameter.encode()]))
        return [result.get_value(row, 0).decode() for row in range(result.ntuples)]


def round_trip(connection, seconds=1.0):
    """Median seconds of the empty statement: the client, the socket and nothing else. No query through this client takes less."""
    times = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        start = time.perf_counter()
        connection.execute("")
        times.append(time.perf_counter() - start)
    return float(np.median(times[len(times) // 10 :]))


class VectorDumper(Dumper):
    """pgvector's binary form, which its Python package sends: width, 16 unused bits, numbers."""

    format = Format.BINARY

    def dump(self, vector):
        return struct.pack(">HH", len(vector), 0) + vector.astype(">f4").tobytes()


class RealArrayDumper(Dumper):
    """PostgreSQL's binary form of real[]: one dimension from 1, no NULLs, and a length before every number."""

    format = Format.BINARY
    oid = psycopg.adapters.types["float4"].array_oid
    element = np.dtype([("length", ">i4"), ("number", ">f4")])

    def dump(self, vector):
        elements = np.empty(len(vector), dtype=self.element)
        elements["length"], elements["number"] = 4, vector
        header = struct.pack(">iiIii", 1, 0, psycopg.adapters.types["float4"].oid, len(vector), 1)
        return header + elements.tobytes()


def send_vectors(server, connection, statement, vector):
    """Lets NumPy arrays be parameters of `connection`: in pgvector's binary form if the server takes it for `statement`, else as real[]."""
    # Tried on a connection of its own, which a refusal may leave unusable.
    with server.connect() as trial:
        found = trial.execute("SELECT oid::bigint FROM pg_type WHERE typname = 'vector'").fetchone()
        VectorDumper.oid = found[0] if found else 0
        trial.adapters.register_dumper(np.ndarray, VectorDumper)
        try:
            trial.execute(statement, (vector,), prepare=True).fetchall()
            form, dumper = "pgvector's binary form", VectorDumper
        except psycopg.Error as error:
            print(f"the server refuses pgvector's binary form: {str(error).splitlines()[0]!r}")
            form, dumper = "real[] in binary form", RealArrayDumper
    connection.adapters.register_dumper(np.ndarray, dumper)
    print(f"vectors travel as {form}")
