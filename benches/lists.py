"""LISTs of large buckets beside those of a small one."""

from martlet import Martlet
from rows import Row
from runs import PER_REQUEST, measure

FEW, MANY, FULL = 10_000, 1_000_000, 10_000_000
NAMES = {MANY: "10⁶", FULL: "10⁷"}


@measure("list")
def lists(bench):
    """LIST 1,000 of 10⁶ keys beside 10⁴; of 10⁷ with --full"""
    many = FULL if bench.is_full else MANY
    with Martlet(bench.folder / "list") as martlet:
        for count in FEW, many:
            martlet.bench(*load(count), "--size", "0", "--keep", "--concurrency", "64", "--duration", "100ms")
        # A start writes all that lies in memtables to files.
        martlet.restart()
        prepared = ["--prepared", *bench.duration]
        f = bench.in_turns(many=lambda: martlet.bench(*load(many), *prepared),
                           few=lambda: martlet.bench(*load(FEW), *prepared)).figure
    return [
        Row(f"LIST 1,000 of {NAMES[many]} keys, CPU ms", f("many", *PER_REQUEST), f("few", *PER_REQUEST),
            "of 10⁴ keys", most_of_limit=1.5),
        Row(f"LIST 1,000 of {NAMES[many]} keys, p50 ms at 16", f("many", "p50_ms"), f("few", "p50_ms"),
            "of 10⁴ keys"),
        Row("LIST 1,000 of 10⁴ keys, CPU ms", f("few", *PER_REQUEST), most=5.0),
    ]


def load(count):
    """Lists of a bucket of its own, from random keys on."""
    return ["--op", "list", "--bucket", f"list-{count}", "--objects", str(count)]
