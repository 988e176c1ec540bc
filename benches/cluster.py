"""A cluster on this machine: what each request costs each role, and what a node's death costs clients.

CPU is user and kernel time of all processes of a role, from the kernel's counters. Every figure is the
median of a few rounds. All roles, the load and the disk share this machine.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from martlet import ACCESS_KEY, SECRET_KEY, bench, binary
from rows import Figure

READY_S, STOP_S = 180, 120
ROLES = ["proxy", "storage-node", "replicator"]
SHAPE = ["--nodes", "4", "--replicas", "3"]
SMALL = ["--size", "4KiB", "--concurrency", "16"]
LARGE = ["--size", "64MiB", "--concurrency", "4"]
RANGE = ["--size", "1MiB", "--object-size", "64MiB", "--concurrency", "16", "--objects", "4"]

# Name, what is counted, and the most it should be; then the load.
WORKLOADS = [
    ("GET 64 MiB", "s/GiB", 1.2, ["--op", "get", *LARGE, "--objects", "4"]),
    ("GET 1 MiB ranges", "s/GiB", None, ["--op", "range", *RANGE]),
    ("GET 4 KiB", "ms", 0.25, ["--op", "get", *SMALL, "--objects", "256"]),
    ("PUT 64 MiB", "s/GiB", 6.0, ["--op", "put", *LARGE]),
    ("PUT 1 MiB", "s/GiB", None, ["--op", "put", "--size", "1MiB", "--concurrency", "16"]),
    ("PUT 4 KiB", "ms", 0.9, ["--op", "put", *SMALL]),
    ("LIST 1,000 keys", "ms", None, ["--op", "list"]),
]


class Cluster:
    """A cluster with a folder of its own, for as long as the `with` lasts. `settings` are variables of `up`."""

    def __init__(self, folder, shape=SHAPE, proxies=1, settings=None):
        self.folder, self.data, self.shape = folder, folder / "cluster", shape
        self.proxies, self.settings = proxies, settings or {}

    def __enter__(self):
        self.folder.mkdir(parents=True)
        keys = {"MARTLET_ROOT_ACCESS_KEY": ACCESS_KEY, "MARTLET_ROOT_SECRET_KEY": SECRET_KEY}
        command = [binary(), "cluster", "up", *self.shape, "--proxies", str(self.proxies),
                   "--s3-port", "9800", "--data-dir", str(self.data)]
        environment = {**os.environ, **keys, **self.settings}
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self):
        deadline = time.monotonic() + READY_S
        while "Ctrl-C stops everything" not in self.said():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the cluster does not start:\n{self.said()}")
            time.sleep(0.2)
        time.sleep(2)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def said(self):
        """What it has printed."""
        return (self.folder / "log").read_text()

    def tell(self, *arguments):
        """Runs a command on it."""
        command = [binary(), "cluster", *arguments, "--data-dir", str(self.data)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}{self.said()}")
        return done.stdout

    def status(self):
        """How it is."""
        return json.loads(self.tell("status", "--json"))

    def bench(self, *arguments):
        """Runs the load generator against it, counting every process by its role."""
        status = self.status()
        pids = [f"{it['role']}={it['pid']}" for it in status["processes"] if it["pid"]]
        return bench("--endpoint", status["endpoints"][0], "--pid", ",".join(pids), *arguments)


def cost(result, unit):
    """CPU of all roles together, and by role, for a request or a GiB."""
    cpu = result["cpu"]
    total = cpu["s_per_gib"] if unit == "s/GiB" else cpu["ms_per_request"]
    shares = [cpu["by_role"][role] / max(cpu["seconds"], 1e-9) for role in ROLES]
    return [total, *(total * share for share in shares)]


def measure(cluster, rounds, seconds):
    """One row for each workload."""
    rows = []
    for name, unit, most, load in WORKLOADS:
        results = []
        for number in range(rounds):
            print(f"{name} ({number + 1}/{rounds}) …", file=sys.stderr, flush=True)
            # The whole cluster is removed at the end: nothing is cleaned up between runs.
            prefix = f"{name.lower().replace(' ', '-').replace(',', '')}-{number}"
            own = ["--keep", "--prefix", prefix, "--duration", f"{seconds}s"]
            results.append(cluster.bench(*load, *own))
        costs = [statistics.median(values) for values in zip(*(cost(it, unit) for it in results))]
        figures = [statistics.median(it[key] for it in results)
                   for key in ("requests_per_s", "megabytes_per_s", "p50_ms", "p99_ms")]
        goal = f"≤ {most:g}" if most else ""
        verdict = "" if most is None else "reached" if costs[0] <= most else "MISSED"
        cells = [str(Figure(value)) for value in (*costs, *figures)]
        rows.append([name, f"CPU {unit}", *cells, goal, verdict])
    return rows


def failover(cluster, seconds):
    """What a mixed load meets before a node is killed, while it is dead, and once it is back."""
    status = cluster.status()
    load = ["--endpoint", status["endpoints"][0], "--op", "mixed", *SMALL, "--objects", "256",
            "--bucket", "martlet-failover"]
    bench(*load, "--keep", "--duration", "100ms")
    command = [binary(), "bench", "--json", *load, "--prepared", "--every", f"{seconds}s",
               "--duration", f"{3 * seconds}s"]
    keys = {"MARTLET_ROOT_ACCESS_KEY": ACCESS_KEY, "MARTLET_ROOT_SECRET_KEY": SECRET_KEY}
    print("one node killed under load …", file=sys.stderr, flush=True)
    running = subprocess.Popen(command, env={**os.environ, **keys}, stdout=subprocess.PIPE, text=True)
    time.sleep(seconds)
    cluster.tell("kill", "2")
    time.sleep(seconds)
    cluster.tell("start", "2")
    result = json.loads(running.communicate()[0])
    rows = []
    for name, part in zip(["before", "while it is dead", "once it is back"], result["slices"]):
        figures = [str(Figure(part[key])) for key in ("p50_ms", "p99_ms", "max_ms")]
        rows.append([name, str(part["answered"]), str(part["failed"]), *figures])
    return rows, result["errors"]


def show(rows):
    """Prints rows as columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) if at < 2 else cell.rjust(width)
                 for at, (cell, width) in enumerate(zip(row, widths))]
        print(" │ ".join(cells).rstrip())
        if number == 0:
            print("─┼─".join("─" * width for width in widths))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each figure is taken")
    parser.add_argument("--seconds", type=int, default=4, help="how long each run is")
    parser.add_argument("--skip-failover", action="store_true", help="kill no node")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="where to write, on the disk to be measured [%(default)s]")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-bench-cluster-", dir=arguments.dir))
    parts = []
    try:
        with Cluster(folder / "c") as cluster:
            rows = measure(cluster, arguments.rounds, arguments.seconds)
            if not arguments.skip_failover:
                parts, errors = failover(cluster, max(arguments.seconds, 8))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show([["4 nodes, 3 copies", "", "all", *ROLES, "requests/s", "MB/s", "p50 ms", "p99 ms", "goal",
           ""], *rows])
    if parts:
        print()
        show([["mixed 4 KiB, a node killed", "answered", "failed", "p50 ms", "p99 ms", "max ms"],
              *parts])
        for code, count in errors.items():
            print(f"failed: {count} × {code}")
    missed = sum(row[-1] == "MISSED" for row in rows)
    print(f"bench-cluster: {len(rows)} workloads, {missed} goals missed")


if __name__ == "__main__":
    main()
