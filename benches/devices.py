"""Several devices beside one, and what overwrites cost the disk."""

import time

from martlet import Martlet
from rows import Figure, Row
from runs import MIB, PER_GIB, measure, progress

DEVICES = 4
OVERWRITE_S, OVERWRITE_FULL_S = 20, 300
OVERWRITTEN = ["--op", "overwrite", "--size", "1MiB", "--objects", "512", "--concurrency", "16"]
SETTLED_S, SETTLING_MAX_S = 3, 60


@measure("devices")
def several_devices(bench):
    """PUT 1 MiB to four devices beside one, all on one disk"""
    folder = bench.folder / "devices"
    names = ",".join(str(folder / f"device-{number}") for number in range(DEVICES))
    put = ["--op", "put", "--size", "1MiB", "--concurrency", "16", *bench.duration]
    with Martlet(folder / "one") as one, Martlet(folder / "four", settings={"MARTLET_DEVICES": names}) as four:
        f = bench.in_turns(four=lambda: four.bench(*put), one=lambda: one.bench(*put)).figure
    return [
        Row("PUT 1 MiB to 4 devices, CPU s/GiB", f("four", *PER_GIB), f("one", *PER_GIB), "1 device"),
        Row("PUT 1 MiB to 4 devices, MB/s", f("four", "megabytes_per_s"), f("one", "megabytes_per_s"), "1 device"),
    ]


@measure("overwrites")
def overwrites(bench):
    """Random overwrites of 8 KiB–1 MiB for 20 s, for minutes with --full"""
    seconds = OVERWRITE_FULL_S if bench.is_full else max(OVERWRITE_S, bench.seconds)
    # The space of overwritten objects is freed while the load goes on.
    settings = {"MARTLET_RECLAIM_GRACE": "2s"}
    with Martlet(bench.folder / "overwrites", settings=settings) as martlet:
        martlet.bench(*OVERWRITTEN, "--keep", "--duration", "100ms")
        before = settled(martlet)
        progress(f"  {seconds} s of overwrites")
        result = martlet.bench(*OVERWRITTEN, "--prepared", "--duration", f"{seconds}s", "--every", f"{seconds * 250}ms")
        written = settled(martlet) - before
    stored = result["megabytes_per_s"] * 1e6 * result["elapsed_s"]
    first, last = (Figure(result["slices"][at]["answered"] / (seconds / 4)) for at in (0, 3))
    name = f"8 KiB–1 MiB overwritten for {seconds} s"
    return [
        Row(f"{name}, MiB to disk", Figure(written / MIB), Figure(stored / MIB), "MiB stored"),
        Row(f"{name}, requests/s in the last quarter", last, first, "in the first"),
        Row(f"{name}, MB/s", Figure(result["megabytes_per_s"])),
    ]


def settled(martlet):
    """Bytes that the server has written, once it writes no more."""
    deadline = time.monotonic() + SETTLING_MAX_S
    written, before = martlet.io("write_bytes"), -1
    while written - before > MIB and time.monotonic() < deadline:
        time.sleep(SETTLED_S)
        written, before = martlet.io("write_bytes"), written
    return written
