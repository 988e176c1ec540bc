"""Memory of a server: at rest, after a load, and with objects of several GiB."""

import time

from martlet import Martlet, large_objects
from rows import Figure, Row
from runs import MIB, measure

LOADS = [
    ["--op", "put", "--size", "64MiB", "--concurrency", "8"],
    ["--op", "put", "--size", "1MiB", "--concurrency", "16"],
    ["--op", "put", "--size", "4KiB", "--concurrency", "16"],
    ["--op", "get", "--size", "4KiB", "--concurrency", "16", "--objects", "256"],
    ["--op", "get", "--size", "64MiB", "--concurrency", "4", "--objects", "4"],
    ["--op", "list"],
]


# Windows that readers shared are dropped after 60 s without use, at the next look of a timer.
WINDOWS_S = 75


@measure("memory")
def resident(bench):
    """Resident memory at rest, and once the windows of a load are dropped"""
    with Martlet(bench.folder / "memory") as martlet:
        idle = martlet.resident_bytes()
        for load in LOADS:
            martlet.bench(*load, *bench.duration)
        time.sleep(WINDOWS_S)
        after = martlet.resident_bytes()
    return [Row("resident at rest, MiB", Figure(idle / MIB), most=80),
            Row("resident after the load, MiB", Figure(after / MIB), most=250)]


@measure("large-memory")
def large(bench):
    """Memory that objects of several GiB add; --quick leaves it out"""
    if bench.is_quick:
        return []
    return [Row(f"{what}, MiB more", Figure(mib), most=256) for what, mib in large_objects()]
