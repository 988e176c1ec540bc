"""Turns of readers and writers of one large object: the package martlet, boto3, obstore, s3torchconnector, and limits.

A turn is a process of its own. It reads the object once to warm up, or stores it, then several times more, in memory
that it has. Its processor seconds and those of the servers, by role, are those of the second part.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30
BUCKET, KEY = "bench", "large.bin"
PART_BYTES, PAGE = 8 * MIB, 4096
# Files of nginx are as long as extents: the page cache has smaller pages at the beginning of each file.
FILE_BYTES = 16 * MIB
TICKS = os.sysconf("SC_CLK_TCK")


def with_martlet(endpoint, size, options):
    """Reads into one buffer that is there; every block is verified where it comes from a node."""
    import martlet

    client = martlet.Client(endpoint=endpoint, direct="auto" if options.direct else "never", verify=options.verify,
                            direct_socket=options.socket, direct_io=options.direct_io)
    memory = martlet.Memory(size)
    url = f"martlet://{BUCKET}/{KEY}"

    def read():
        stats = client.read_into(url, [(0, memory.view)]).stats
        if options.direct and stats.direct_bytes != size:
            raise SystemExit(f"only {stats.direct_bytes} bytes came from nodes")
        if options.socket and stats.local_bytes != size:
            raise SystemExit(f"only {stats.local_bytes} bytes came from files")
        return memory.view

    return read, lambda data: client.write(f"{url}.saved", data)


def with_nginx(endpoint, size, _):
    """The same number of ranges from nginx by the package's own connections: the last ones are shorter.

    It sends no checksums, so those of the bytes are computed and compared with none: a reader that doesn't compute
    empties its sockets sooner, and costs the sender less.
    """
    import martlet
    from crc32c import crc32c
    from martlet.blocks import RELEASE_LOCK
    from martlet.plan import fetch_bytes_of
    from martlet.settings import default_threads
    from martlet.transport import CHUNK_BYTES, Pool, Timeouts, place_of

    pool, place, memory = Pool(Timeouts(5, 30)), place_of(endpoint), martlet.Memory(size)
    threads, parts = ThreadPoolExecutor(default_threads()), []
    for start in range(0, size, PART_BYTES):
        end, longest = min(size, start + PART_BYTES), fetch_bytes_of(size - start, default_threads(), PART_BYTES)
        parts.extend((at, min(end, at + longest)) for at in range(start, end, longest))

    def part(bounds):
        start, end = bounds
        connection = pool.take(place)
        file, first = divmod(start, FILE_BYTES)
        named = f"bytes={first}-{first + end - start - 1}"
        head = connection.send("GET", f"/{KEY}/{file}", {"Host": place.authority, "Range": named})
        if head.status != 206:
            raise SystemExit(f"nginx answers {head.status}")
        for first in range(start, end, CHUNK_BYTES):
            chunk = memory.view[first:min(end, first + CHUNK_BYTES)]
            connection.read_into(chunk)
            crc32c(chunk, 0, RELEASE_LOCK)
        pool.give(connection)

    def read():
        list(threads.map(part, parts))
        return memory.view

    return read, None


def with_descriptors(endpoint, size, options):
    """Each extent's file by its O_DIRECT descriptor, a thread for each, in calls of 1 MiB as fio's, without a check."""
    import martlet

    client = martlet.Client(endpoint=endpoint, direct_socket=options.socket)
    reader, memory, held = client.reader(f"martlet://{BUCKET}/{KEY}"), martlet.Memory(size), ExitStack()
    pieces = reader.pieces(0, size)
    leases = [held.enter_context(reader.lent(piece)) for piece in pieces]
    if not leases or not all(lease and lease.has_uncached and lease.offset == 0 for lease in leases):
        raise SystemExit("the node doesn't lend O_DIRECT descriptors of all extents, each of a file of its own")
    if any(piece.start % PAGE or piece.length % PAGE for piece in pieces):
        raise SystemExit(f"extents don't begin and end at multiples of {PAGE} bytes, as O_DIRECT needs")
    threads = ThreadPoolExecutor(len(pieces))

    def extent(number):
        piece, done = pieces[number], 0
        while done < piece.length:
            view = memory.view[piece.start + done:piece.start + min(piece.length, done + MIB)]
            count = os.preadv(leases[number].uncached, [view], done)
            if not count:
                raise SystemExit(f"the file of piece {piece.id} ends at byte {done} of {piece.length}")
            done += count

    def read():
        list(threads.map(extent, range(len(pieces))))
        return memory.view

    return read, None


def with_boto3(endpoint, size, _):
    """Its transfer manager with its defaults."""
    import io

    import boto3

    s3 = boto3.client("s3", endpoint_url=endpoint)

    def read():
        memory = io.BytesIO()
        s3.download_fileobj(BUCKET, KEY, memory)
        return memory.getbuffer()

    return read, lambda data: s3.upload_fileobj(io.BytesIO(data), BUCKET, f"{KEY}.saved")


def with_obstore(endpoint, size, _):
    """Ranges of 8 MiB by eight threads."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(BUCKET, endpoint=endpoint, region=os.environ["AWS_REGION"], virtual_hosted_style_request=False,
                    client_options={"allow_http": True})
    pool = ThreadPoolExecutor(8)

    def part(start):
        return obstore.get_range(store, KEY, start=start, end=min(size, start + PART_BYTES))

    def read():
        return list(pool.map(part, range(0, size, PART_BYTES)))

    return read, lambda data: obstore.put(store, f"{KEY}.saved", data, use_multipart=True, chunk_size=16 * MIB)


def with_s3torchconnector(endpoint, size, _):
    """The CRT client as data sets and checkpoints use it."""
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client

    config = S3ClientConfig(force_path_style=True, part_size=PART_BYTES)
    s3 = S3Client(os.environ["AWS_REGION"], endpoint=endpoint, s3client_config=config)

    def write(data):
        with s3.put_object(BUCKET, f"{KEY}.saved") as writer:
            writer.write(data)

    return lambda: s3.get_object(BUCKET, KEY).read(), write


MAKERS = {"martlet": with_martlet, "boto3": with_boto3, "obstore": with_obstore,
          "s3torchconnector": with_s3torchconnector, "nginx": with_nginx, "descriptors": with_descriptors}


def turn(options):
    """Takes one turn in this process and prints its figures."""
    size = options.mib * MIB
    read, write = MAKERS[options.name](os.environ["AWS_ENDPOINT_URL"], size, options)
    data = os.urandom(MIB) * options.mib if options.saves else b""
    work = (lambda: write(data)) if options.saves else read
    found = work()
    if not options.saves and sum(len(one) for one in (found if isinstance(found, list) else [found])) != size:
        raise SystemExit(f"{options.name} read another size")
    del found
    print("ready", flush=True)
    sys.stdin.readline()
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    for _ in range(options.reads):
        work()
    took_s, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu_s": cpu_s, "took_s": took_s, "peak_mib": after.ru_maxrss / 1024}), flush=True)


def cpu_of(pids):
    """Processor seconds of processes so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


class Turns:
    """Turns against one endpoint. `roles` returns the servers' processes by role, `links` bytes sent by role so far."""

    def __init__(self, python, environment, roles, mib, reads, links=dict):
        self.python, self.environment, self.roles, self.links = python, environment, roles, links
        self.mib, self.reads, self.taken = mib, reads, {}

    def take(self, title, name, *flags, endpoint=None):
        """Takes one turn; its figures are those of a GiB."""
        command = [self.python, "-B", __file__, name, "--mib", str(self.mib), "--reads", str(self.reads), *flags]
        environment = {**self.environment, **({"AWS_ENDPOINT_URL": endpoint} if endpoint else {})}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, env=environment, text=True, **pipes) as one:
            if one.stdout.readline().strip() != "ready":
                raise SystemExit(f"{title} failed")
            roles, links = self.roles(), self.links()
            before = {role: cpu_of(pids) for role, pids in roles.items()}
            one.stdin.write("go\n")
            one.stdin.flush()
            line = one.stdout.readline()
            cpu = {role: cpu_of(pids) - before[role] for role, pids in roles.items()}
            sent = {role: value - links[role] for role, value in self.links().items()}
        if not line:
            raise SystemExit(f"{title} failed")
        figures, gib = json.loads(line), self.mib * self.reads * MIB / GIB
        result = {"client": figures["cpu_s"] / gib, **{role: value / gib for role, value in cpu.items()},
                  **{f"{role} sent": value / gib / GIB for role, value in sent.items()},
                  "pace": gib * GIB / 1e6 / figures["took_s"], "peak": figures["peak_mib"]}
        self.taken.setdefault(title, []).append(result)

    def medians(self):
        """The medians of all turns, by title."""
        return {title: {key: statistics.median(one[key] for one in turns) for key in turns[0]}
                for title, turns in self.taken.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MAKERS)
    parser.add_argument("--mib", type=int, required=True)
    parser.add_argument("--reads", type=int, required=True)
    parser.add_argument("--saves", action="store_true")
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--verify", default="client")
    parser.add_argument("--socket")
    parser.add_argument("--direct-io", action="store_true")
    # `martlet.py` of this folder would hide the package.
    sys.path.remove(str(HERE))
    turn(parser.parse_args())


if __name__ == "__main__":
    main()
