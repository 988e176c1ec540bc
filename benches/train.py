"""Requests that an instrumented binary learns from: those of trainers and SDKs, on a server and on a cluster.

Usage: train.py [--seconds S]. MARTLET_BIN names the binary, built with -Cprofile-generate. Each process writes
its profile when it ends. dist/profile.sh merges the profiles for the build of the packages.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from buckets import LOAD as RULED_LOAD, rule
from cluster import Cluster
from martlet import Martlet
from runs import KIB, MIB, end_in_order, progress
from s3 import Client

READS = {
    "small": (4 * KIB, 1024, ["--op", "get", "--size", "4KiB", "--concurrency", "16", "--objects", "1024"]),
    "large": (64 * MIB, 2, ["--op", "get", "--size", "64MiB", "--concurrency", "4", "--objects", "2"]),
    "range": (64 * MIB, 2, ["--op", "range", "--size", "1MiB", "--object-size", "64MiB", "--concurrency", "8",
                            "--objects", "2"]),
    "list": (KIB, 2048, ["--op", "list", "--size", "1KiB", "--concurrency", "4", "--objects", "2048"]),
}
WRITES = {
    "put-small": ["--op", "put", "--size", "4KiB", "--concurrency", "16"],
    "put-medium": ["--op", "put", "--size", "1MiB", "--concurrency", "8"],
    "put-large": ["--op", "put", "--size", "64MiB", "--concurrency", "4"],
    "delete": ["--op", "delete", "--size", "1KiB", "--concurrency", "16", "--objects", "4000"],
}


def on_server(folder, duration):
    """Reads of stored objects, presigned and with signed headers, writes, and reads by a policy, on a server."""
    with Martlet(folder) as server:
        for name, (size, count, load) in READS.items():
            progress(f"  server: {name}")
            server.prepare(name, size, count)
            stored = [*load, "--prepared", "--prefix", name, *duration]
            server.bench("--presigned", *stored)
            server.bench(*stored)
        # What lay in memtables is read from files afterwards.
        server.restart()
        for name, (_, _, load) in READS.items():
            server.bench("--presigned", *load, "--prepared", "--prefix", name, *duration)
        for name, load in WRITES.items():
            progress(f"  server: {name}")
            # The bucket keeps what was read before.
            server.bench(*load, "--keep", "--prefix", name, *duration)
        progress("  server: policy, list and logs")
        server.bench(*RULED_LOAD, "--bucket", "ruled", "--keep", "--duration", "100ms")
        rule(Client(server.endpoint()), "ruled")
        server.bench(*RULED_LOAD, "--bucket", "ruled", "--prepared", "--presigned", *duration)


def on_cluster(folder, duration):
    """The same kinds of requests on three copies."""
    with Cluster(folder, ["--nodes", "3", "--replicas", "3"]) as cluster:
        for name, load in {**{name: read[2] for name, read in READS.items()}, **WRITES}.items():
            progress(f"  cluster: {name}")
            cluster.bench(*load, "--keep", "--prefix", name, *duration)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3, help="length of each run [%(default)s]")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="folder to write to [%(default)s]")
    arguments = parser.parse_args()
    end_in_order()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-train-", dir=arguments.dir))
    duration = ["--duration", f"{arguments.seconds}s"]
    try:
        on_server(folder / "server", duration)
        on_cluster(folder / "cluster", duration)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
