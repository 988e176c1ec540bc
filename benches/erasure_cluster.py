"""Coded fragments beside copies, on one cluster: the CPU and the pace of large objects, the bytes that
devices read for ranges, and the space that objects take.

Both policies lie on the same six devices and are measured in turns in one run. CPU is user and kernel
time of all processes of a role. What devices read is what their nodes asked the kernel for, from its page
cache or not. All roles, the load and the disk share this machine.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from cluster import LARGE, ROLES, Cluster, cost, show
from rows import Figure
from s3 import Client

KIB, MIB = 1 << 10, 1 << 20
CODE, K, M = "4+2", 4, 2
SHAPE = ["--nodes", str(K + M), "--devices-per-node", "1", "--zones", str(K + M), "--replicas", "3",
         "--policy", f"coded={CODE}"]
BUCKETS = {"copies": "default", "coded": "coded"}
NAMES = {"copies": "3 copies", "coded": CODE}
OBJECT_BYTES, OBJECTS = 64 * MIB, 4
RANGE_BYTES, STEP_BYTES = MIB, 64 * KIB
SETTLED_S = 5


def nodes(cluster):
    """The process ids of the storage nodes."""
    processes = cluster.status()["processes"]
    return [it["pid"] for it in processes if it["role"] == "storage-node" and it["pid"]]


def read_bytes(pids):
    """What processes have asked the kernel to read so far; sockets don't count."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/io").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("rchar:"))


def disk_bytes(folder):
    """Bytes of the blocks that extents take on all devices below a folder."""
    files = [path for kind in ("extents", "volumes") for path in folder.glob(f"n*/d*/{kind}/**/*")
             if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files)


def extent_bytes(folder, client, bucket):
    """Writes objects; the bytes that they take, over theirs."""
    before, body = disk_bytes(folder), os.urandom(OBJECT_BYTES)
    for number in range(OBJECTS):
        client.send("PUT", f"/{bucket}/space-{number}", body=body)
    taken = 0
    # The last copies and fragments may still be on their way when a write has its answer.
    while taken != (now := disk_bytes(folder) - before):
        taken = now
        time.sleep(SETTLED_S)
    return taken / (OBJECTS * OBJECT_BYTES)


def amplification(pids, client, bucket, count):
    """Bytes that nodes read for a range of 1 MiB on a 64 KiB boundary, over the bytes served: the
    median, and the mean, in which hedged reads show.
    """
    chance, steps = random.Random(1), (OBJECT_BYTES - RANGE_BYTES) // STEP_BYTES
    read = []
    for _ in range(count):
        before = read_bytes(pids)
        begin = chance.randint(0, steps) * STEP_BYTES
        wanted = {"range": f"bytes={begin}-{begin + RANGE_BYTES - 1}"}
        served = client.send("GET", f"/{bucket}/space-{chance.randrange(OBJECTS)}", wanted)
        if len(served) != RANGE_BYTES:
            raise SystemExit(f"{len(served)} bytes came for a range of {RANGE_BYTES}")
        read.append((read_bytes(pids) - before) / RANGE_BYTES)
    return statistics.median(read), statistics.mean(read)


def without_replicators(cluster, measure):
    """What is measured while nobody but clients makes devices read."""
    names = [it["name"] for it in cluster.status()["processes"] if it["role"] == "replicator"]
    for name in names:
        cluster.tell("stop", name)
    measured = measure()
    for name in names:
        cluster.tell("start", name)
    return measured


def loads(cluster, rounds, seconds):
    """Results of PUT and GET by bucket, round after round in turns."""
    results = {}
    for number in range(rounds):
        for op in ("put", "get"):
            for bucket in BUCKETS:
                print(f"{op} {NAMES[bucket]} ({number + 1}/{rounds}) …", file=sys.stderr, flush=True)
                objects = ["--objects", "4"] if op == "get" else []
                own = ["--keep", "--bucket", bucket, "--prefix", f"{op}-{number}",
                       "--duration", f"{seconds}s"]
                result = cluster.bench("--op", op, *LARGE, *objects, *own)
                results.setdefault((op, bucket), []).append(result)
    return results


def told(results):
    """A row for each load, and how much faster fragments are than copies."""
    rows = []
    for op in ("put", "get"):
        pace = {bucket: statistics.median(it["megabytes_per_s"] for it in results[op, bucket])
                for bucket in BUCKETS}
        for bucket in BUCKETS:
            every = [cost(it, "s/GiB") for it in results[op, bucket]]
            costs = [str(Figure(statistics.median(values))) for values in zip(*every)]
            ratio = f"{pace[bucket] / pace['copies']:.2f}" if bucket == "coded" else ""
            name = f"{op.upper()} 64 MiB"
            rows.append([name, NAMES[bucket], *costs, str(Figure(pace[bucket])), ratio])
    return rows


def make_buckets(client):
    """A bucket under each policy."""
    for bucket, policy in BUCKETS.items():
        client.send("PUT", f"/{bucket}", {"x-martlet-storage-policy": policy})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each figure is taken")
    parser.add_argument("--seconds", type=int, default=4, help="how long each run is")
    parser.add_argument("--ranges", type=int, default=200, help="ranges that are read")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="where to write, on the disk to be measured [%(default)s]")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-bench-erasure-", dir=arguments.dir))
    try:
        with Cluster(folder / "c", SHAPE) as cluster:
            client = Client(cluster.status()["endpoints"][0])
            make_buckets(client)
            space = {bucket: extent_bytes(cluster.data, client, bucket) for bucket in BUCKETS}
            pids = nodes(cluster)
            read = without_replicators(cluster, lambda: {
                bucket: amplification(pids, client, bucket, arguments.ranges)
                for bucket in BUCKETS})
            rows = told(loads(cluster, arguments.rounds, arguments.seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show([["six devices", "", "CPU s/GiB", *ROLES, "MB/s", "× copies"], *rows])
    print()
    show([["over the bytes of objects", "", *NAMES.values()],
          ["read from devices, median", "1 MiB on 64 KiB", *(f"{read[it][0]:.4f}" for it in BUCKETS)],
          ["read from devices, mean", "1 MiB on 64 KiB", *(f"{read[it][1]:.4f}" for it in BUCKETS)],
          ["taken on devices", "64 MiB", *(f"{space[it]:.4f}" for it in BUCKETS)]])
    print(f"bench-erasure: {len(rows)} loads")


if __name__ == "__main__":
    main()
