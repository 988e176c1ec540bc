"""Three copies on a cluster beside one copy, and beside the embedded server: CPU of all processes."""

from cluster import Cluster
from limits import baseline
from martlet import Martlet
from rows import Row
from runs import KIB, PER_GIB, PER_REQUEST, measure

SHAPE = ["--nodes", "4", "--replicas"]
PUT = ["--op", "put", "--size", "64MiB", "--concurrency", "4"]
GET = ["--op", "get", "--size", "4KiB", "--objects", "256", "--concurrency", "16", "--prefix", "copies"]


@measure("copies-put")
def puts(bench):
    """PUT 64 MiB with three copies beside one copy, on clusters of four nodes"""
    folder, put = bench.folder / "copies-put", [*PUT, *bench.duration]
    with Cluster(folder / "three", [*SHAPE, "3"]) as three, Cluster(folder / "one", [*SHAPE, "1"]) as one, \
            Martlet(folder / "martlet") as martlet:
        f = bench.in_turns(three=lambda: three.bench(*put), one=lambda: one.bench(*put),
                           embedded=lambda: martlet.bench(*put)).figure
    return [
        Row("PUT 64 MiB with 3 copies, CPU s/GiB", f("three", *PER_GIB), f("one", *PER_GIB), "1 copy",
            most_of_limit=1.9),
        Row("PUT 64 MiB with 3 copies, CPU s/GiB", f("three", *PER_GIB), f("embedded", *PER_GIB), "embedded"),
    ]


@measure("copies-get")
def gets(bench):
    """GET 4 KiB from a cluster with three copies beside the embedded server"""
    folder = bench.folder / "copies-get"
    get = [*GET, "--prepared", "--presigned", *bench.duration]
    with Cluster(folder / "three", [*SHAPE, "3"]) as three, Martlet(folder / "martlet") as martlet:
        three.bench(*GET, "--keep", "--duration", "100ms")
        martlet.prepare("copies", 4 * KIB, 256)
        alone = ["--size", "4KiB", "--concurrency", "16", *bench.duration]
        f = bench.in_turns(three=lambda: three.bench(*get), embedded=lambda: martlet.bench(*get),
                           relay=lambda: baseline("relay", *alone), answer=lambda: baseline("answer", *alone)).figure
    relay = f("relay", *PER_REQUEST)
    return [
        Row("GET 4 KiB with 3 copies, CPU ms", f("three", *PER_REQUEST), f("embedded", *PER_REQUEST),
            "embedded", most_of_limit=2.0),
        Row("GET 4 KiB with 3 copies, CPU ms", f("three", *PER_REQUEST), relay,
            "hyper, and frames to two nodes and back alone"),
        Row("frames to two nodes and back, CPU ms", relay, f("answer", *PER_REQUEST), "hyper alone, from memory"),
    ]
