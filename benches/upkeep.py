"""What keeping a cluster whole costs its clients: a rebalance under load, and the repair of a wiped disk.

A node joins a filled cluster while clients read, write, delete and list; then a device is wiped, once
under that load and once without. A part is over when `martlet admin census` finds every copy where the
rings want it. All roles, the load and the disk share this machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import SMALL, Cluster, show
from martlet import ACCESS_KEY, SECRET_KEY, bench, binary
from rows import Figure

GIB = 1 << 30
OBJECT_MIB = 8
PATIENCE_S = 1800


class Load:
    """A mixed load in the background, told of in slices of some seconds."""

    def __init__(self, cluster, seconds):
        self.seconds = seconds
        command = [binary(), "bench", "--json", "--endpoint", cluster.status()["endpoints"][0],
                   "--op", "mixed", *SMALL, "--objects", "256", "--bucket", "martlet-upkeep"]
        keys = {"MARTLET_ROOT_ACCESS_KEY": ACCESS_KEY, "MARTLET_ROOT_SECRET_KEY": SECRET_KEY}
        bench(*command[3:], "--keep", "--duration", "100ms")
        self.command = [*command, "--prepared", "--every", f"{seconds}s"]
        self.environment = {**os.environ, **keys}

    def slices(self, work):
        """What clients met while `work` went on, slice by slice."""
        slices = []
        while True:
            running = subprocess.Popen([*self.command, "--duration", f"{self.seconds}s"],
                                       env=self.environment, stdout=subprocess.PIPE, text=True)
            is_over = work()
            result = json.loads(running.communicate()[0])
            slices += result["slices"]
            for code, count in result["errors"].items():
                print(f"{count} requests failed: {code}")
            if is_over:
                return slices


class Upkeep(Cluster):
    """A cluster, and what its operators ask it."""

    def admin(self, *arguments):
        """The answer of a node to an operator."""
        member = next(it for it in self.status()["processes"]
                      if it["role"] == "storage-node" and it["pid"])
        command = [binary(), "admin", "--json", "--admin-address", member["admin_address"],
                   "--cluster-key-file", str(self.data / "cluster.key"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        return json.loads(done.stdout) if done.stdout else {"error": done.stderr}

    def is_whole(self):
        """Whether a census finds every copy where it should be."""
        return self.admin("census").get("clean", False)

    def extent_bytes(self):
        """Bytes of extents on each device, by its folder."""
        devices = [device for node in self.admin("status")["nodes"]
                   for device in (node.get("report") or {}).get("devices", [])]
        return {device["path"]: device["extent_bytes"] for device in devices}

    def copied_bytes(self):
        """Bytes that the replicators have copied so far."""
        return sum(worker.get("copied_bytes", 0) for process in self.admin("workers")
                   for worker in process["workers"])


def wait_until_whole(cluster, patience_s):
    """Waits for a clean census; the seconds that it took."""
    begun = time.monotonic()
    while not cluster.is_whole():
        if time.monotonic() - begun > patience_s:
            raise SystemExit(f"the cluster does not become whole: {cluster.admin('census')}")
        time.sleep(1)
    return time.monotonic() - begun


def told(name, slices, note):
    """A row about some slices of load."""
    worst = max(part["p99_ms"] for part in slices)
    middle = sorted(part["p99_ms"] for part in slices)[len(slices) // 2]
    failed = sum(part["failed"] for part in slices)
    answered = sum(part["answered"] for part in slices)
    return [name, note, str(answered), str(failed), str(Figure(middle)), str(Figure(worst))]


def rebalance(cluster, load):
    """A node joins under load."""
    print("quiet …", file=sys.stderr, flush=True)
    looks = iter([False, False, True])
    quiet = load.slices(lambda: next(looks))
    copied, begun = cluster.copied_bytes(), time.monotonic()
    before = set(cluster.extent_bytes())
    cluster.tell("add-node")
    print("rebalance …", file=sys.stderr, flush=True)

    def is_over():
        if time.monotonic() - begun > PATIENCE_S:
            raise SystemExit(f"the rebalance does not end: {cluster.admin('census')}")
        return cluster.is_whole()

    during = load.slices(is_over)
    seconds = time.monotonic() - begun
    copied = cluster.copied_bytes() - copied
    arrived = sum(held for path, held in cluster.extent_bytes().items() if path not in before)
    rows = [told("before", quiet, ""),
            told("a node joins", during, f"{arrived / GIB:.2f} GiB in {seconds:.0f} s")]
    middle = [sorted(part["p99_ms"] for part in part)[len(part) // 2] for part in (quiet, during)]
    print(f"rebalance: p99 {middle[1] / middle[0]:.2f} times the quiet one; copied "
          f"{copied / GIB:.3f} GiB for {arrived / GIB:.3f} GiB on the new devices "
          f"({100 * (copied / max(arrived, 1) - 1):+.1f} %)")
    return rows


def repair(cluster, load):
    """A device is wiped and filled again by the others."""
    rows = []
    for name, is_loaded in (("a wiped device, no load", False), ("a wiped device, under load", True)):
        print(f"{name} …", file=sys.stderr, flush=True)
        path, held = max(cluster.extent_bytes().items(), key=lambda item: item[1])
        number = next(str(at) for at in range(1, 9) if f"/n{at}/" in path)
        cluster.tell("kill", number)
        for entry in Path(path).iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        cluster.tell("start", number)
        begun = time.monotonic()
        slices = load.slices(cluster.is_whole) if is_loaded else []
        wait_until_whole(cluster, PATIENCE_S)
        seconds = time.monotonic() - begun
        note = f"{held / GIB:.2f} GiB in {seconds:.0f} s: {3600 * held / GIB / seconds:,.0f} GiB/h"
        rows.append(told(name, slices, note) if slices else [name, note, "", "", "", ""])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=10, help="what clients have stored [%(default)s]")
    parser.add_argument("--seconds", type=int, default=8, help="length of a slice of load")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="where to write, on the disk to be measured [%(default)s]")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-bench-upkeep-", dir=arguments.dir))
    try:
        with Upkeep(folder / "c") as cluster:
            objects = str(int(arguments.gib * 1024 / OBJECT_MIB))
            print(f"{objects} objects of {OBJECT_MIB} MiB …", file=sys.stderr, flush=True)
            cluster.bench("--op", "get", "--size", f"{OBJECT_MIB}MiB", "--objects", objects, "--keep",
                          "--prefix", "fill", "--concurrency", "4", "--duration", "100ms")
            load = Load(cluster, arguments.seconds)
            rows = [*rebalance(cluster, load), *repair(cluster, load)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show([["mixed 4 KiB, 16 at a time", "upkeep", "answered", "failed", "p99 ms", "worst p99"], *rows])
    print(f"bench-upkeep: {len(rows)} rows")


if __name__ == "__main__":
    main()
