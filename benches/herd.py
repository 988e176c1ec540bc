"""Herds and bursts on a cluster of three nodes and three proxies, all on this machine.

The herd: many readers of one object at once, from a cold page cache, with shared windows and without them
(`window_cache = 0`). Shown are what the nodes' disks read beside what they hold, what nodes sent to proxies
beside what the proxies would need once, and the proxies' peak memory.

The burst: ranks with 25 connections each upload one object by parts and read it back by ranges, more
connections than `max_requests`. Each request must succeed, after SlowDown as often as clients retry. Ranks are
bare connections, or processes with s3torchconnector's client or boto3 at their defaults.
"""

import argparse
import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from burst import (BARE, LIBRARIES, MIB, PART_BYTES, PATIENCE_S, BareRanks, LibraryRanks, each, pattern, rank_row,
                   upload)
from cluster import Cluster, show
from rows import Figure
from s3 import Client

SHAPE, PROXIES = ["--nodes", "3", "--replicas", "3"], 3
SHORT_PART_BYTES = 5 * MIB
NODES_TO_PROXY, DISK_TO_HELD = 1.2, 1.05
WINDOW_CACHE_MIB, READER_MIB, SLACK_MIB = 256, 0.5, 64
"""Most that a herd may add to a proxy's memory: the cache of windows, buffers of each reader, and some more."""


class Measured(Cluster):
    """A cluster whose processes are watched."""

    def of_role(self, role):
        """Its running processes of a role."""
        return [it for it in self.status()["processes"] if it["role"] == role and it["pid"]]

    def disk_bytes(self):
        """Bytes that each storage node had from its disk, and by calls."""
        counters = {}
        for process in self.of_role("storage-node"):
            text = Path(f"/proc/{process['pid']}/io").read_text()
            counters[process["name"]] = [
                int(re.search(rf"^{name}: (\d+)$", text, re.MULTILINE)[1]) for name in ("read_bytes", "rchar")]
        return counters

    def metric(self, name):
        """A metric, added up over the proxies."""
        total = 0
        for process in self.of_role("proxy"):
            with urllib.request.urlopen(f"http://{process['admin_address']}/metrics", timeout=10) as reply:
                found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", reply.read().decode(), re.MULTILINE)
            if not found:
                raise SystemExit(f"{process['name']} has no metric {name}")
            total += sum(map(float, found))
        return total

    def peak_bytes(self):
        """Peak resident memory of the largest proxy."""
        peaks = []
        for process in self.of_role("proxy"):
            text = Path(f"/proc/{process['pid']}/status").read_text()
            peaks.append(int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) * 1024)
        return max(peaks)

    def cool(self):
        """Drops the files of the nodes from the page cache; all of them are synced."""
        os.sync()
        for folder, _, files in os.walk(self.data):
            for name in files:
                try:
                    descriptor = os.open(Path(folder) / name, os.O_RDONLY)
                except OSError:
                    continue
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)


def read_whole(endpoint, path, length, whole_hash):
    """Reads an object whole, and compares its bytes if a hash is given. Goes on after 503 and after a body that
    was cut, as clients do; returns how often either happened."""
    digest, buffer, count = hashlib.sha256(), memoryview(bytearray(MIB)), 0
    refused, cut, deadline = 0, -1, time.monotonic() + PATIENCE_S
    while count < length and time.monotonic() < deadline:
        reply = Client(endpoint).begin("GET", path, {"range": f"bytes={count}-{length - 1}"})
        if reply.status == 503:
            reply.read()
            refused += 1
            time.sleep(int(reply.headers.get("x-amz-retry-after", 1000)) / 1000)
            continue
        if reply.status != 206:
            raise SystemExit(f"GET {path}: {reply.status} {reply.read()[:300]}")
        cut += 1
        try:
            while took := reply.readinto(buffer):
                count += took
                if whole_hash:
                    digest.update(buffer[:took])
        except OSError:
            continue
    if count != length or (whole_hash and digest.hexdigest() != whole_hash):
        raise SystemExit(f"GET {path}: {count} of {length} bytes, or other bytes")
    return refused, cut


def expected_hash(length):
    """Hash of an object that `upload` made."""
    digest = hashlib.sha256()
    for number in range(-(-length // PART_BYTES)):
        digest.update(pattern(number, min(PART_BYTES, length - number * PART_BYTES)))
    return digest.hexdigest()


def herd(folder, arguments, settings):
    """Figures of a herd of readers, which share the proxies evenly."""
    length, readers = arguments.object_mib * MIB, arguments.readers
    with Measured(folder, SHAPE, PROXIES, settings) as cluster:
        endpoints = cluster.status()["endpoints"]
        Client(endpoints[0]).send("PUT", "/herd")
        upload(endpoints[0], "/herd/object", length, 4)
        whole_hash = expected_hash(length)
        cluster.cool()
        idle = cluster.peak_bytes() / MIB
        disk, sent = cluster.disk_bytes(), cluster.metric("martlet_extent_read_bytes_total")
        start, begun = threading.Barrier(readers), []

        def read(number):
            # All ranks of a job begin at once.
            start.wait(PATIENCE_S)
            begun.append(time.monotonic())
            # One reader of sixteen compares the bytes: the clients share the processors with the servers.
            return read_whole(endpoints[number % len(endpoints)], "/herd/object", length,
                              None if number % 16 else whole_hash)

        troubles = each(readers, read)
        seconds = time.monotonic() - min(begun)
        after = cluster.disk_bytes()
        read = [[now - before for now, before in zip(after[name], disk[name])] for name in disk]
        return {
            "seconds": seconds,
            "refused": sum(count for count, _ in troubles),
            "cut": sum(count for _, count in troubles),
            "pace": readers * arguments.object_mib / seconds,
            "disk": max(by_disk for by_disk, _ in read) / length,
            "calls": max(by_call for _, by_call in read) / length,
            "sent": (cluster.metric("martlet_extent_read_bytes_total") - sent) / (PROXIES * length),
            "peak": cluster.peak_bytes() / MIB,
            "grown": cluster.peak_bytes() / MIB - idle,
            "windows": cluster.metric("martlet_windows_served_total"),
            "fetched": cluster.metric("martlet_windows_fetched_total") * MIB / (PROXIES * length),
        }


def burst(folder, arguments):
    """Rows of ranks, those of each client in turn, and the waits of all."""
    settings = {"MARTLET_MAX_REQUESTS": str(arguments.max_requests)}
    length, part_bytes = arguments.rank_mib * MIB, PART_BYTES if arguments.full else SHORT_PART_BYTES
    with Measured(folder, SHAPE, PROXIES, settings) as cluster:
        # All ranks use one proxy: its turns are what they compete for.
        endpoint, rows = cluster.status()["endpoints"][0], []
        Client(endpoint).send("PUT", "/burst")
        for name in arguments.clients:
            print(f"{arguments.ranks} ranks of {name} …", file=sys.stderr, flush=True)
            if name == BARE:
                ranks = BareRanks(endpoint, "burst", arguments.ranks, length, part_bytes)
            else:
                ranks = LibraryRanks(name, endpoint, "burst", arguments.ranks, length)
            try:
                rows += [rank_row(f"{name}: save", ranks.save()), rank_row(f"{name}: restore", ranks.restore())]
            finally:
                ranks.end()
        waits = cluster.metric("martlet_queue_waits_total")
        waited_s = cluster.metric("martlet_queue_wait_seconds_total")
        expired = cluster.metric("martlet_queue_expired_total")
        return rows, waits, waited_s, expired


def herd_rows(shared, alone, readers):
    """Rows of the herd: a figure, the same without shared windows, and its goal."""
    rows = []
    grown_max = WINDOW_CACHE_MIB + SLACK_MIB + READER_MIB * readers / PROXIES
    for name, key, goal in [
        ("a node's disk reads / bytes it holds", "disk", DISK_TO_HELD),
        ("nodes → proxy / object, by proxy", "sent", NODES_TO_PROXY),
        ("of that for windows", "fetched", None),
        ("a node's reads by calls / object", "calls", None),
        ("peak memory of a proxy, MiB", "peak", None),
        ("of that by the herd, MiB", "grown", round(grown_max)),
        ("windows taken by readers", "windows", None),
        ("503 that readers got", "refused", 0),
        ("bodies that were cut", "cut", 0),
        ("MiB/s of all readers", "pace", None),
        ("seconds", "seconds", None),
    ]:
        verdict = "" if goal is None else "reached" if shared[key] <= goal else "MISSED"
        rows.append([name, str(Figure(shared[key])), str(Figure(alone[key])), "" if goal is None else f"≤ {goal}", verdict])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true",
                        help="512 readers of 1 GiB, and 64 ranks against 1,024 requests")
    parser.add_argument("--readers", type=int, help="readers of the herd [64; 512 with --full]")
    parser.add_argument("--object-mib", type=int, help="size of the object [64; 1024 with --full]")
    parser.add_argument("--ranks", type=int, help="ranks of the burst [8; 64 with --full]")
    parser.add_argument("--rank-mib", type=int, help="size of a rank's object [125; 1024 with --full]")
    parser.add_argument("--max-requests", type=int, help="turns of a proxy in the burst [64; 1024 with --full]")
    parser.add_argument("--clients", nargs="+", choices=(BARE, *LIBRARIES), default=[BARE],
                        help="what ranks are; libraries are installed at the first use, some 3 GB [%(default)s]")
    parser.add_argument("--skip-burst", action="store_true", help="only the herd")
    parser.add_argument("--skip-herd", action="store_true", help="only the burst")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="where to write, on the disk to be measured [%(default)s]")
    arguments = parser.parse_args()
    quick, full = (64, 64, 8, 125, 64), (512, 1024, 64, 1024, 1024)
    for name, value in zip(("readers", "object_mib", "ranks", "rank_mib", "max_requests"),
                           full if arguments.full else quick):
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    threading.stack_size(256 * 1024)
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-bench-herd-", dir=arguments.dir))
    rows = []
    try:
        if not arguments.skip_herd:
            results = {}
            for name, settings in ("shared", {}), ("alone", {"MARTLET_WINDOW_CACHE": "0"}):
                print(f"{arguments.readers} readers of {arguments.object_mib} MiB, windows {name} …",
                      file=sys.stderr, flush=True)
                results[name] = herd(folder / name, arguments, settings)
                shutil.rmtree(folder / name, ignore_errors=True)
            rows = herd_rows(results["shared"], results["alone"], arguments.readers)
            show([[f"{arguments.readers} readers of {arguments.object_mib} MiB", "shared", "alone", "goal", ""],
                  *rows])
        if not arguments.skip_burst:
            ranks, waits, waited_s, expired = burst(folder / "burst", arguments)
            rows += ranks
            print()
            show([[f"{arguments.rank_mib} MiB a rank, {arguments.max_requests} turns", "ranks", "median s",
                   "slowest s", "slowest : median", "SlowDowns", "goal", ""], *ranks])
            print(f"{waits:.0f} requests got a turn after waiting {Figure(waited_s / max(waits, 1))} s each, "
                  f"{expired:.0f} got none; all ranks succeeded")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    missed = sum(row[-1] == "MISSED" for row in rows)
    print(f"bench-herd: {missed} goals missed")


if __name__ == "__main__":
    main()
