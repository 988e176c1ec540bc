"""Herds and bursts on a cluster of three nodes and three proxies, all on this machine.

The herd: many readers of one object at once, from a cold page cache, with shared windows and without them
(`window_cache = 0`). Shown are what the nodes' disks read beside what they hold, what nodes sent to proxies
beside what the proxies would need once, and the proxies' peak memory.

The burst: ranks with 25 connections each upload one object by parts and read it back by ranges, more
connections than `max_requests`. Each request must succeed, after SlowDown as often as clients retry.
"""

import argparse
import hashlib
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from cluster import Cluster, show
from rows import Figure
from s3 import Client

MIB = 1 << 20
SHAPE, PROXIES = ["--nodes", "3", "--replicas", "3"], 3
PART_BYTES, SHORT_PART_BYTES = 8 * MIB, 5 * MIB
CONNECTIONS = 25
RETRIES_MAX, PATIENCE_S = 5, 900
SLOWEST_TO_MEDIAN = 1.25
"""Ratio of the slowest rank's time to the median."""
NODES_TO_PROXY, DISK_TO_HELD = 1.2, 1.05


def pattern(number, length):
    """Bytes of a part, which no two parts share."""
    block = hashlib.sha512(str(number).encode()).digest() * 1024
    return (block * (length // len(block) + 1))[:length]


def each(count, work):
    """Runs `work(number)` in a thread for each number; the results in order, or the first failure."""
    results, failures = [None] * count, []

    def run(number):
        try:
            results[number] = work(number)
        except BaseException as error:  # Threads print what they raise, and nobody would notice.
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    if any(thread.is_alive() for thread in threads):
        raise SystemExit(f"some of {count} clients were not served in {PATIENCE_S} s")
    if failures:
        raise SystemExit(f"{len(failures)} of {count} clients failed, the first with: {failures[0]!r}")
    return results


class Retrying:
    """A connection that tries again after SlowDown, as clients do, and counts how often."""

    def __init__(self, endpoint):
        self.client, self.slowed = Client(endpoint), 0
        self.client.connection.timeout = 120

    def send(self, method, path, headers=None, body=b""):
        """Headers and bytes of a successful answer."""
        for attempt in range(RETRIES_MAX):
            reply = self.client.begin(method, path, headers, body)
            data = reply.read()
            if reply.status in (200, 204, 206):
                return reply.headers, data
            if reply.status != 503:
                break
            self.slowed += 1
            time.sleep(int(reply.headers["x-amz-retry-after"]) / 1000 * (attempt + 1))
        raise SystemExit(f"{method} {path}: {reply.status} {data[:300]}")


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
                found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\d+)$", reply.read().decode(), re.MULTILINE)
            if not found:
                raise SystemExit(f"{process['name']} has no metric {name}")
            total += sum(map(int, found))
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


def upload(endpoint, path, length, connections, part_bytes=PART_BYTES):
    """Uploads an object by parts over some connections; the number of SlowDowns."""
    first = Retrying(endpoint)
    _, document = first.send("POST", f"{path}?uploads=")
    upload_id = re.search(rb"<UploadId>([^<]+)", document)[1].decode()
    parts = -(-length // part_bytes)
    tags, numbers, lock = {}, iter(range(parts)), threading.Lock()

    def send(_):
        connection = Retrying(endpoint)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return connection.slowed
            body = pattern(number, min(part_bytes, length - number * part_bytes))
            headers, _ = connection.send(
                "PUT", f"{path}?partNumber={number + 1}&uploadId={upload_id}", body=body)
            tags[number + 1] = headers["ETag"]

    slowed = sum(each(min(connections, parts), send))
    listed = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{tags[number]}</ETag></Part>"
                     for number in sorted(tags))
    document = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    first.send("POST", f"{path}?uploadId={upload_id}", body=document)
    return slowed + first.slowed


def read_whole(endpoint, path, length, whole_hash):
    """Reads an object whole, and compares its bytes if a hash is given."""
    reply = Client(endpoint).begin("GET", path)
    if reply.status != 200:
        raise SystemExit(f"GET {path}: {reply.status} {reply.read()[:300]}")
    digest, buffer, count = hashlib.sha256(), memoryview(bytearray(MIB)), 0
    while took := reply.readinto(buffer):
        count += took
        if whole_hash:
            digest.update(buffer[:took])
    if count != length or (whole_hash and digest.hexdigest() != whole_hash):
        raise SystemExit(f"GET {path}: {count} of {length} bytes, or other bytes")


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
        disk, sent = cluster.disk_bytes(), cluster.metric("martlet_extent_read_bytes_total")
        begun = time.monotonic()
        # One reader of sixteen compares the bytes: the clients share the processors with the servers.
        each(readers, lambda number: read_whole(
            endpoints[number % len(endpoints)], "/herd/object", length,
            None if number % 16 else whole_hash))
        seconds = time.monotonic() - begun
        after = cluster.disk_bytes()
        read = [[now - before for now, before in zip(after[name], disk[name])] for name in disk]
        return {
            "seconds": seconds,
            "pace": readers * arguments.object_mib / seconds,
            "disk": max(by_disk for by_disk, _ in read) / length,
            "calls": max(by_call for _, by_call in read) / length,
            "sent": (cluster.metric("martlet_extent_read_bytes_total") - sent) / (PROXIES * length),
            "peak": cluster.peak_bytes() / MIB,
            "windows": cluster.metric("martlet_windows_served_total"),
        }


def burst(folder, arguments):
    """Seconds of each rank for its save and its restore, and the SlowDowns of all."""
    settings = {"MARTLET_MAX_REQUESTS": str(arguments.max_requests)}
    length, part_bytes = arguments.rank_mib * MIB, PART_BYTES if arguments.full else SHORT_PART_BYTES
    with Measured(folder, SHAPE, PROXIES, settings) as cluster:
        # All ranks use one proxy: its turns are what they compete for.
        endpoint = cluster.status()["endpoints"][0]
        Client(endpoint).send("PUT", "/burst")
        part_count = -(-length // part_bytes)

        def save(rank):
            begun = time.monotonic()
            slowed = upload(endpoint, f"/burst/rank-{rank}", length, CONNECTIONS, part_bytes)
            return time.monotonic() - begun, slowed

        def restore(rank):
            begun, numbers, lock = time.monotonic(), iter(range(part_count)), threading.Lock()

            def read(_):
                connection = Retrying(endpoint)
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return connection.slowed
                    start, end = number * part_bytes, min((number + 1) * part_bytes, length)
                    headers = {"range": f"bytes={start}-{end - 1}"}
                    _, data = connection.send("GET", f"/burst/rank-{rank}", headers)
                    if data != pattern(number, end - start):
                        raise SystemExit(f"rank {rank} read other bytes in part {number}")

            slowed = sum(each(min(CONNECTIONS, part_count), read))
            return time.monotonic() - begun, slowed

        saves, restores = each(arguments.ranks, save), each(arguments.ranks, restore)
        waits = cluster.metric("martlet_queue_waits_total")
        waited_s = cluster.metric("martlet_queue_wait_us_total") / 1e6
        return saves, restores, waits, waited_s


def burst_row(name, ranks):
    """A row about the seconds of ranks."""
    seconds = [it for it, _ in ranks]
    median = statistics.median(seconds)
    ratio = max(seconds) / median
    verdict = "reached" if ratio <= SLOWEST_TO_MEDIAN else "MISSED"
    slowed = sum(it for _, it in ranks)
    return [name, str(len(ranks)), *(str(Figure(it)) for it in (median, max(seconds), ratio)), str(slowed),
            f"≤ {SLOWEST_TO_MEDIAN}", verdict]


def herd_rows(shared, alone):
    """Rows of the herd: a figure, the same without shared windows, and its goal."""
    rows = []
    for name, key, goal in [
        ("a node's disk reads / bytes it holds", "disk", DISK_TO_HELD),
        ("nodes → proxy / object, by proxy", "sent", NODES_TO_PROXY),
        ("a node's reads by calls / object", "calls", None),
        ("peak memory of a proxy, MiB", "peak", None),
        ("windows taken by readers", "windows", None),
        ("MiB/s of all readers", "pace", None),
        ("seconds", "seconds", None),
    ]:
        verdict = "" if goal is None else "reached" if shared[key] <= goal else "MISSED"
        rows.append([name, str(Figure(shared[key])), str(Figure(alone[key])), f"≤ {goal}" if goal else "", verdict])
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
            rows = herd_rows(results["shared"], results["alone"])
            show([[f"{arguments.readers} readers of {arguments.object_mib} MiB", "shared", "alone", "goal", ""],
                  *rows])
        if not arguments.skip_burst:
            print(f"{arguments.ranks} ranks with {CONNECTIONS} connections …", file=sys.stderr, flush=True)
            saves, restores, waits, waited_s = burst(folder / "burst", arguments)
            ranks = [burst_row("save", saves), burst_row("restore", restores)]
            rows += ranks
            print()
            show([[f"{arguments.rank_mib} MiB a rank, {arguments.max_requests} turns", "ranks", "median s",
                   "slowest s", "slowest : median", "SlowDowns", "goal", ""], *ranks])
            print(f"{waits} requests waited, {Figure(waited_s / max(waits, 1))} s each; all succeeded")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    missed = sum(row[-1] == "MISSED" for row in rows)
    print(f"bench-herd: {missed} goals missed")


if __name__ == "__main__":
    main()
