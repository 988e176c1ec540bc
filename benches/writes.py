"""PUTs beside the same work without a server, and PUTs as SDKs send them beside plain ones."""

from limits import baseline
from martlet import Martlet
from rows import Row
from runs import PER_GIB, PER_REQUEST, measure
from s3 import Client

LARGE = ["--size", "64MiB", "--concurrency", "8"]
SMALL = ["--size", "4KiB", "--concurrency", "16"]


@measure("put-64m")
def large_puts(bench):
    """PUT 64 MiB, 8 at a time, beside receiving, hashing and writing alone"""
    folder = bench.folder / "put-64m"
    put = ["--op", "put", *bench.duration]
    alone = ["receive", *LARGE, *bench.duration, "--dir", str(folder)]
    with Martlet(folder / "martlet") as martlet:
        Client(martlet.endpoint()).send("PUT", "/opaque", {"x-martlet-etags": "opaque"})
        f = bench.in_turns(
            put=lambda: martlet.bench(*put, *LARGE),
            # A run keeps a bucket that was there before.
            opaque=lambda: martlet.bench(*put, *LARGE, "--bucket", "opaque"),
            with_md5=lambda: baseline(*alone, "--md5"),
            without_md5=lambda: baseline(*alone),
            signed=lambda: martlet.bench(*put, *LARGE, "--signed-payload"),
            put_1m=lambda: martlet.bench(*put, "--size", "1MiB", "--concurrency", "16"),
        ).figure
    md5, no_md5 = "the same, and MD5 of one body at a time", "receive, BLAKE3, CRC32C, write, fsync"
    return [
        Row("PUT 64 MiB, CPU s/GiB", f("put", *PER_GIB), f("without_md5", *PER_GIB), no_md5, most_of_limit=1.4),
        Row("PUT 64 MiB, opaque ETags, CPU s/GiB", f("opaque", *PER_GIB), f("without_md5", *PER_GIB), no_md5,
            most_of_limit=1.15),
        Row("PUT 64 MiB, CPU s/GiB", f("put", *PER_GIB), f("with_md5", *PER_GIB), md5),
        Row("PUT 64 MiB, MB/s", f("put", "megabytes_per_s"), f("with_md5", "megabytes_per_s"), md5),
        Row("PUT 64 MiB, payload signed, CPU s/GiB", f("signed", *PER_GIB), f("with_md5", *PER_GIB), md5),
        Row("PUT 1 MiB, CPU s/GiB", f("put_1m", *PER_GIB), most=3.5),
    ]


@measure("put-4k")
def small_puts(bench):
    """PUT 4 KiB beside one committer on RocksDB alone, and beside bare files"""
    folder = bench.folder / "put-4k"
    alone = [*SMALL, *bench.duration, "--dir", str(folder)]
    with Martlet(folder / "martlet") as martlet:
        f = bench.in_turns(
            put=lambda: martlet.bench_counting_syncs("--op", "put", *SMALL, *bench.duration),
            commit=lambda: baseline("commit", *alone),
            files=lambda: baseline("files", *alone),
            in_place=lambda: baseline("files", *alone, "--in-place"),
        ).figure
    rate = "requests_per_s"
    return [
        Row("PUT 4 KiB, CPU ms", f("put", *PER_REQUEST), f("commit", *PER_REQUEST),
            "one committer on RocksDB", most_of_limit=2.5),
        Row("PUT 4 KiB, requests/s at 16", f("put", rate), f("commit", rate), "one committer on RocksDB",
            least_of_limit=0.6),
        Row("PUT 4 KiB, requests/s at 16", f("put", rate), f("files", rate), "create … sync folder",
            least_of_limit=1.0),
        Row("PUT 4 KiB, requests/s at 16", f("put", rate), f("in_place", rate), "overwrite, fsync"),
        Row("PUT 4 KiB, syncs for each", f("put", "syncs_per_request"), most=0.5),
    ]


@measure("chunked")
def chunked_puts(bench):
    """PUT 4 KiB as SDKs send it, aws-chunked with a trailer, beside a plain one"""
    put = ["--op", "put", *SMALL, *bench.duration]
    with Martlet(bench.folder / "chunked") as martlet:
        f = bench.in_turns(chunked=lambda: martlet.bench(*put, "--chunked"),
                           plain=lambda: martlet.bench(*put)).figure
    return [Row("PUT 4 KiB, aws-chunked, CPU ms", f("chunked", *PER_REQUEST), f("plain", *PER_REQUEST),
                "plain", most_of_limit=1.15)]
