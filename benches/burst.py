"""Ranks that save one object each and read it back, all at once: more connections than a proxy has turns.

Ranks are threads here with bare connections, or processes with a library of the clients' environment, each
with that library's defaults. A library's ranks report in JSON (`ranks.py`).
"""

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from martlet import ACCESS_KEY, SECRET_KEY
from rows import Figure
from s3 import REGION, Client

MIB = 1 << 20
PART_BYTES = 8 * MIB
CONNECTIONS = 25
RETRIES_MAX, PATIENCE_S = 5, 900
SLOWEST_TO_MEDIAN = 1.25
"""Ratio of the slowest rank's time to the median."""
BARE, LIBRARIES = "bare", ("s3torchconnector", "boto3")
CLIENTS = Path(__file__).resolve().parent.parent / "clients"


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


class BareRanks:
    """Ranks as threads, each with 25 connections of `http.client`."""

    def __init__(self, endpoint, bucket, count, length, part_bytes):
        self.endpoint, self.bucket, self.count = endpoint, bucket, count
        self.length, self.part_bytes = length, part_bytes

    def save(self):
        """Seconds and SlowDowns of each rank."""
        def save(rank):
            begun = time.monotonic()
            slowed = upload(self.endpoint, f"/{self.bucket}/rank-{rank}", self.length, CONNECTIONS, self.part_bytes)
            return time.monotonic() - begun, slowed

        return each(self.count, save)

    def restore(self):
        """Seconds and SlowDowns of each rank."""
        return each(self.count, self._restore)

    def _restore(self, rank):
        parts = -(-self.length // self.part_bytes)
        begun, numbers, lock = time.monotonic(), iter(range(parts)), threading.Lock()

        def read(_):
            connection = Retrying(self.endpoint)
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return connection.slowed
                start, end = number * self.part_bytes, min((number + 1) * self.part_bytes, self.length)
                headers = {"range": f"bytes={start}-{end - 1}"}
                _, data = connection.send("GET", f"/{self.bucket}/rank-{rank}", headers)
                if data != pattern(number, end - start):
                    raise SystemExit(f"rank {rank} read other bytes in part {number}")

        slowed = sum(each(min(CONNECTIONS, parts), read))
        return time.monotonic() - begun, slowed

    def end(self):
        """Nothing is left running."""


class LibraryRanks:
    """Ranks as processes with a library of the clients' environment, and its defaults."""

    def __init__(self, library, endpoint, bucket, count, length):
        command = [interpreter(), "-B", str(Path(__file__).with_name("ranks.py")), library, bucket, str(length)]
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                       "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
                       "AWS_ENDPOINT_URL": endpoint, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        self.processes = [subprocess.Popen([*command, str(rank)], env=environment, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, text=True) for rank in range(count)]
        for process in self.processes:
            self._line(process)

    def _line(self, process):
        line = process.stdout.readline()
        if not line:
            self.end()
            raise SystemExit(f"a rank ended with {process.returncode}; what it printed is above")
        return json.loads(line)

    def _all(self, step):
        for process in self.processes:
            process.stdin.write(f"{step}\n")
            process.stdin.flush()
        # A library keeps to itself how often it tried again.
        return [(self._line(process), None) for process in self.processes]

    def save(self):
        """Seconds of each rank."""
        return self._all("save")

    def restore(self):
        """Seconds of each rank."""
        return self._all("restore")

    def end(self):
        """Ends all ranks."""
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def interpreter():
    """Python with the libraries; installs them at the first use."""
    sys.path.insert(0, str(CLIENTS))
    import environments
    return environments.prepare("s3torchconnector")[0]


def rank_row(name, ranks):
    """A row about the seconds of ranks."""
    seconds = [it for it, _ in ranks]
    median = statistics.median(seconds)
    ratio = max(seconds) / median
    verdict = "reached" if ratio <= SLOWEST_TO_MEDIAN else "MISSED"
    slowed = "-" if None in (it for _, it in ranks) else str(sum(it for _, it in ranks))
    return [name, str(len(ranks)), *(str(Figure(it)) for it in (median, max(seconds), ratio)), slowed,
            f"≤ {SLOWEST_TO_MEDIAN}", verdict]
