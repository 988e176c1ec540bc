"""TLS beside clear connections and AES-GCM in memory, and HTTP/2 beside HTTP/1."""

import sys
from pathlib import Path

from limits import baseline
from martlet import Martlet
from rows import Figure, Row
from runs import KIB, MIB, PER_GIB, PER_REQUEST, measure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))
from certificates import issue  # noqa: E402


def certificates(folder):
    """Files of certificates in a new folder."""
    folder.mkdir(parents=True)
    return issue(folder)


@measure("tls")
def tls(bench):
    """GET 64 MiB by TLS beside a clear one and AES-256-GCM in memory"""
    folder = bench.folder / "tls"
    get = ["--op", "get", "--size", "64MiB", "--objects", "4", "--concurrency", "4", "--prepared", "--presigned",
           "--prefix", "tls", *bench.duration]
    seal = ["seal", "--size", "1MiB", "--concurrency", "1", *bench.duration]
    with Martlet(folder / "clear") as clear, Martlet(folder / "tls", certificates(folder / "files")) as sealed:
        for server in clear, sealed:
            server.prepare("tls", 64 * MIB, 4)
        f = bench.in_turns(tls=lambda: sealed.bench(*get, is_http2=False), clear=lambda: clear.bench(*get),
                           aes=lambda: baseline(*seal)).figure
    more = Figure(f("tls", *PER_GIB).value - f("clear", *PER_GIB).value)
    return [
        Row("GET 64 MiB by TLS, CPU s/GiB", f("tls", *PER_GIB), f("clear", *PER_GIB), "clear"),
        Row("GET 64 MiB by TLS, CPU s/GiB more than clear", more, f("aes", *PER_GIB), "AES-256-GCM",
            most_over_limit=1.0),
    ]


@measure("http2")
def http2(bench):
    """GET 4 KiB by HTTP/2 beside HTTP/1, both over TLS"""
    folder = bench.folder / "http2"
    get = ["--op", "get", "--size", "4KiB", "--objects", "256", "--concurrency", "16", "--prepared", "--presigned",
           "--prefix", "http2", *bench.duration]
    with Martlet(folder / "martlet", certificates(folder / "files")) as martlet:
        martlet.prepare("http2", 4 * KIB, 256)
        f = bench.in_turns(http2=lambda: martlet.bench(*get),
                           http1=lambda: martlet.bench(*get, is_http2=False)).figure
    return [Row("GET 4 KiB by HTTP/2, CPU ms", f("http2", *PER_REQUEST), f("http1", *PER_REQUEST),
                "HTTP/1, over TLS too")]
