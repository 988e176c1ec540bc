"""GETs beside nginx with sendfile, which verifies nothing, and cold GETs beside the disk."""

import os

from limits import Nginx, baseline, direct_reads
from martlet import Martlet
from rows import Row
from runs import KIB, MIB, PER_GIB, PER_REQUEST, measure

SMALL_OBJECTS = 4096
"""Small objects, too many for the caches of connections, and in files of the index, not in memtables."""
LARGE_OBJECTS = 32
"""Large objects, eight times as many bytes as the windows that readers share: hardly a GET finds verified bytes."""
COLD_OBJECTS = 8


def beside_nginx(bench, name, object_bytes, load, **more):
    """Reads of the same objects from a restarted Martlet and from nginx, in turns with more measures."""
    count = int(load[load.index("--objects") + 1])
    folder = bench.folder / name
    arguments = ["--prepared", "--prefix", name, *load, *bench.duration]
    with Martlet(folder / "martlet") as martlet, Nginx(folder / "nginx") as nginx:
        martlet.prepare(name, object_bytes, count)
        nginx.prepare(name, object_bytes, count)
        # A start writes all that lies in memtables to files.
        martlet.restart()
        return bench.in_turns(martlet=lambda: martlet.bench("--presigned", *arguments),
                              nginx=lambda: nginx.bench(*arguments), **more)


@measure("get-4k")
def small_gets(bench):
    """GET 4 KiB beside nginx"""
    load = ["--op", "get", "--size", "4KiB", "--concurrency", "16", "--objects", str(SMALL_OBJECTS)]
    answer = ["--size", "4KiB", "--concurrency", "16", *bench.duration]
    f = beside_nginx(bench, "get-4k", 4 * KIB, load, hyper=lambda: baseline("answer", *answer)).figure
    return [
        Row("GET 4 KiB, CPU ms", f("martlet", *PER_REQUEST), f("nginx", *PER_REQUEST), "nginx",
            most_of_limit=2.5),
        Row("GET 4 KiB, CPU ms", f("martlet", *PER_REQUEST), f("hyper", *PER_REQUEST), "hyper alone, from memory"),
        Row("GET 4 KiB, p50 ms at 16", f("martlet", "p50_ms"), f("nginx", "p50_ms"), "nginx", most=1.0),
        Row("GET 4 KiB, requests/s", f("martlet", "requests_per_s"), f("nginx", "requests_per_s"), "nginx"),
    ]


@measure("get-64m")
def large_gets(bench):
    """GET 64 MiB from memory beside nginx"""
    load = ["--op", "get", "--size", "64MiB", "--concurrency", "4", "--objects", str(LARGE_OBJECTS)]
    f = beside_nginx(bench, "get-64m", 64 * MIB, load).figure
    return [
        Row("GET 64 MiB, CPU s/GiB", f("martlet", *PER_GIB), f("nginx", *PER_GIB), "nginx",
            most_of_limit=2.5),
        Row("GET 64 MiB, MB/s", f("martlet", "megabytes_per_s"), f("nginx", "megabytes_per_s"), "nginx",
            least_of_limit=0.75),
    ]


@measure("range-1m")
def ranges(bench):
    """GET 1 MiB ranges beside nginx"""
    load = ["--op", "range", "--size", "1MiB", "--object-size", "64MiB", "--concurrency", "16",
            "--objects", str(LARGE_OBJECTS)]
    f = beside_nginx(bench, "range-1m", 64 * MIB, load).figure
    return [Row("GET 1 MiB ranges, CPU s/GiB", f("martlet", *PER_GIB), f("nginx", *PER_GIB), "nginx",
                most_of_limit=2.5)]


@measure("cold-get")
def cold_gets(bench):
    """GET 64 MiB from the disk beside fio, one stream"""
    folder = bench.folder / "cold-get"
    with Martlet(folder / "martlet") as martlet:
        for number in range(COLD_OBJECTS):
            martlet.prepare(f"cold-{number}", 64 * MIB, 1)
        martlet.restart()
        read = bench.in_turns(martlet=lambda: cold_reads(martlet),
                              fio=lambda: direct_reads(folder, COLD_OBJECTS * 64 * MIB))
    return [Row("cold GET 64 MiB, MB/s, one stream", read.figure("martlet", "megabytes_per_s"),
                read.figure("fio", "megabytes_per_s"), "fio, O_DIRECT", least_of_limit=0.9)]


def cold_reads(martlet):
    """Reads each object once, after the page cache lost its bytes."""
    drop_cached(martlet.folder / "data")
    before, seconds = martlet.io("read_bytes"), 0.0
    for number in range(COLD_OBJECTS):
        # The duration ends with the first request.
        seconds += martlet.bench("--op", "get", "--size", "64MiB", "--prepared", "--prefix", f"cold-{number}",
                                 "--objects", "1", "--concurrency", "1", "--presigned",
                                 "--duration", "1ms")["elapsed_s"]
    expected, read = COLD_OBJECTS * 64 * MIB, martlet.io("read_bytes") - before
    if read < 0.9 * expected:
        raise SystemExit(f"only {read} of {expected} bytes came from the disk: the page cache kept the others")
    return {"megabytes_per_s": expected / 1e6 / seconds}


def drop_cached(folder):
    """Drops the bytes of all files below a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
