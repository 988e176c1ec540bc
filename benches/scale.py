"""Costs of storage devices by the number of their objects: opening, memory, look-ups, LIST, PUT and churn.

Devices are loaded through the bulk path of the index: rows, sums and places are those of real writes, and the
objects have no bytes. So a device of 10⁷ objects takes 1.4 GB, and only the objects of PUT and churn have bytes.
Each step runs in a process of its own (MARTLET_SCALE_BIN). The page cache drops the files of the index before the
cold look-ups and the LISTs. The cache of the index has 256 MiB, and CACHED_MIB for the cached LISTs, which holds the
whole index of 10⁷ objects. One column for each size, then the growth from the first to the last.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record

MIB = 1 << 20
CACHED_MIB = 4096
# Seconds of churn at the sizes of one device but the largest.
SHORT_CHURN = 60

COLUMNS = [
    ("objects", "{:,.0f}"), ("devices", "{:.0f}"), ("load, s", "{:.0f}"), ("index, B/object", "{:.0f}"),
    ("open by places, s", "{:.2f}"), ("open clean, s", "{:.2f}"), ("open after a crash, s", "{:.2f}"),
    ("counted after a crash, s", "{:.1f}"),
    ("resident, MiB", "{:.0f}"), ("peak, MiB", "{:.0f}"), ("after work, MiB", "{:.0f}"),
    ("cold look-up, reads", "{:.2f}"), ("cold look-up, ms", "{:.3f}"), ("warm look-up, CPU ms", "{:.4f}"),
    ("first LISTs of 1,000, reads", "{:.1f}"), ("first LISTs of 1,000, CPU ms", "{:.2f}"),
    ("LIST 1,000, reads", "{:.1f}"), ("LIST 1,000, ms", "{:.2f}"), ("LIST 1,000, CPU ms", "{:.2f}"),
    ("LIST 1,000, CPU ms in the kernel", "{:.2f}"), ("LIST of the next 1,000, reads", "{:.1f}"),
    ("LIST of the next 1,000, ms", "{:.2f}"), ("LIST of the next 1,000, CPU ms", "{:.2f}"),
    ("LIST of all names, CPU ms for 1,000", "{:.2f}"), ("cached LIST 1,000, reads", "{:.1f}"),
    ("cached LIST 1,000, ms", "{:.2f}"), ("cached LIST 1,000, CPU ms", "{:.2f}"),
    ("PUT 16 KiB/s", "{:.0f}"), ("PUT, CPU ms", "{:.3f}"), ("churn start/s", "{:.0f}"), ("churn end/s", "{:.0f}"),
    ("space amplification", "{:.2f}"), ("churn end : start", "{:.2f}"),
    ("first page behind tombstones, cold, s", "{:.2f}"), ("first page behind tombstones, s", "{:.2f}"),
    ("tombstones passed over", "{:,.0f}"),
]
# Figures whose growth from the smallest size to the largest is bounded: at most this many times.
GROWTH_GOALS = [
    ("cached LIST 1,000, CPU ms", 1.5), ("cached LIST 1,000, ms", 1.5), ("LIST 1,000, CPU ms", 1.5),
    ("LIST of the next 1,000, CPU ms", 1.5), ("PUT, CPU ms", 1.5), ("PUT, ms", 1.5),
]
# Figures that are bounded at each size, from below or from above.
SIZE_GOALS = [
    ("open clean, s", "at most", 10), ("resident a device, MiB", "at most", 200), ("churn end : start", "at least", 0.8),
    ("space amplification", "at most", 1.25), ("first page behind tombstones, cold, s", "at most", 1),
]


def parsed():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also 10⁷ objects on one device and 2×10⁶ on each of twelve")
    parser.add_argument("--objects", type=int, action="append", help="sizes of one device; 0 leaves them out [10⁴ 10⁵ 10⁶]")
    parser.add_argument("--devices", type=int, default=0, help="devices of the last row; 0 leaves it out [%(default)s]")
    parser.add_argument("--objects-a-device", type=int, default=2_000_000, help="their objects [%(default)s]")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of PUTs, after half as many that aren't counted [%(default)s]")
    parser.add_argument("--churn-seconds", type=int, default=60,
                        help=f"seconds of churn, {SHORT_CHURN} at most but at the largest sizes; 0 leaves it out [%(default)s]")
    parser.add_argument("--working-set", type=int, default=8000,
                        help="objects of the churn on each device, with bytes [%(default)s]")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="folder to write to, on the disk to be measured [%(default)s]")
    record.add_argument(parser)
    arguments = parser.parse_args()
    if arguments.full:
        arguments.objects = arguments.objects or [10**4, 10**5, 10**6, 10**7]
        arguments.devices = arguments.devices or 12
        arguments.churn_seconds = max(arguments.churn_seconds, 600)
        # Parts of the filters of extents are read by the first PUTs: 20 s of them aren't counted.
        arguments.seconds = max(arguments.seconds, 40)
    arguments.objects = arguments.objects or [10**4, 10**5, 10**6]
    return arguments


class Site:
    """Devices of one size, in a folder."""

    def __init__(self, folder, objects, devices):
        self.folder, self.objects, self.devices = folder, objects, devices

    def step(self, name, *arguments):
        """Runs a step and returns its figures."""
        print(f"{time.strftime('%H:%M:%S')} {self.devices} × {self.objects:,}: {name} {' '.join(arguments)}",
              file=sys.stderr, flush=True)
        command = [os.environ["MARTLET_SCALE_BIN"], name, "--dir", str(self.folder), "--objects", str(self.objects),
                   "--devices", str(self.devices), *arguments]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    def load(self):
        """Loads the first device, and copies it to the others."""
        first = Site(self.folder, self.objects, 1).step("generate")
        for device in range(1, self.devices):
            shutil.copytree(self.folder / "0", self.folder / str(device), copy_function=copy_sparse)
        return first


def copy_sparse(source, target):
    """Copies a file without its holes."""
    subprocess.run(["cp", "--sparse=always", "--preserve=mode", source, target], check=True)
    return target


def row(site, arguments, churn_seconds):
    """The figures of one size, by column."""
    loaded = site.load()
    by_places = site.step("measure", "--only", "open")
    worked = site.step("measure", "--crash", "--seconds", str(arguments.seconds))
    crashed = site.step("measure", "--only", "open")
    listed = site.step("measure", "--only", "lists", "--cache-mib", str(CACHED_MIB))
    figures = {
        "objects": site.objects, "devices": site.devices, "load, s": loaded["seconds"],
        "index, B/object": loaded["index_bytes"] / site.objects,
        "open by places, s": by_places["opened_s"], "open clean, s": worked["opened_s"],
        "open after a crash, s": crashed["opened_s"], "counted after a crash, s": crashed["counted_s"],
        "resident, MiB": worked["resident_bytes"] / MIB,
        "resident a device, MiB": worked["resident_bytes"] / MIB / site.devices, "peak, MiB": crashed["peak_bytes"] / MIB,
        "after work, MiB": worked["worked_bytes"] / MIB,
        "cold look-up, reads": worked["cold"]["reads"], "cold look-up, ms": worked["cold"]["ms"],
        "warm look-up, CPU ms": worked["warm"]["cpu_ms"],
        "first LISTs of 1,000, reads": worked["list_first"]["reads"],
        "first LISTs of 1,000, CPU ms": worked["list_first"]["cpu_ms"],
        "LIST 1,000, reads": worked["list"]["reads"], "LIST 1,000, ms": worked["list"]["ms"],
        "LIST 1,000, CPU ms": worked["list"]["cpu_ms"],
        "LIST 1,000, CPU ms in the kernel": worked["list"]["system_ms"],
        "LIST of the next 1,000, reads": worked["list_on"]["reads"],
        "LIST of the next 1,000, ms": worked["list_on"]["ms"],
        "LIST of the next 1,000, CPU ms": worked["list_on"]["cpu_ms"],
        "LIST of all names, CPU ms for 1,000": listed["list_all"]["cpu_ms"],
        "cached LIST 1,000, reads": listed["list_cached"]["reads"],
        "cached LIST 1,000, ms": listed["list_cached"]["ms"],
        "cached LIST 1,000, CPU ms": listed["list_cached"]["cpu_ms"], "PUT 16 KiB/s": worked["put"]["per_s"],
        "PUT, CPU ms": worked["put"]["cpu_ms"],
    }
    figures["PUT, ms"] = 1000 / figures["PUT 16 KiB/s"]
    if churn_seconds:
        churned = site.step("churn", "--seconds", str(churn_seconds),
                            "--working-set", str(arguments.working_set * site.devices))
        figures |= {"churn start/s": churned["rate_start"], "churn end/s": churned["rate_end"],
                    "churn end : start": churned["rate_end"] / churned["rate_start"],
                    "space amplification": churned["allocated_bytes"] / churned["live_bytes"]}
    return figures | behind_tombstones(site)


def behind_tombstones(site):
    """Costs of the first page of a LIST of one device on which all these objects were deleted."""
    deleted = Site(site.folder / "deleted", site.objects, 1)
    deleted.step("generate", "--tombstones")
    listed = deleted.step("measure", "--only", "tombstones")
    shutil.rmtree(deleted.folder, ignore_errors=True)
    return {"first page behind tombstones, cold, s": listed["cold_page"]["ms"] / 1000,
            "first page behind tombstones, s": listed["page"]["ms"] / 1000,
            "tombstones passed over": listed["page"]["rows"]}


def print_table(rows):
    """Prints a Markdown table: a line for each figure, a column for each size; then the goals."""
    print("| | " + " | ".join(f"{it['devices']} × {it['objects']:,}" for it in rows) + " | growth |")
    print("|---|" + "---:|" * (len(rows) + 1))
    single = [it for it in rows if it["devices"] == 1]
    for name, form in COLUMNS[2:]:
        cells = [form.format(it[name]) if name in it else "" for it in rows]
        first, last = (single[at].get(name) for at in (0, -1)) if single else (None, None)
        growth = f"{last / first:.2f}" if first and last is not None else ""
        print(f"| {name} | {' | '.join(cells)} | {growth} |")
    print()
    for name, most in GROWTH_GOALS if len(single) > 1 else []:
        judge(f"{name}, {single[-1]['objects']:,} : {single[0]['objects']:,}", single[-1][name] / single[0][name],
              "at most", most)
    for name, bound, limit in SIZE_GOALS:
        for it in (it for it in rows if name in it):
            judge(f"{name}, {it['devices']} × {it['objects']:,}", it[name], bound, limit)


def judge(name, value, bound, limit):
    """Prints a figure beside its goal."""
    is_reached = value <= limit if bound == "at most" else value >= limit
    print(f"* {name}: {value:.2f}, {bound} {limit}: {'reached' if is_reached else 'MISSED'}")


def main():
    arguments = parsed()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-scale-", dir=arguments.dir))
    sizes = [(objects, 1) for objects in arguments.objects if objects]
    if arguments.devices:
        sizes.append((arguments.objects_a_device, arguments.devices))
    rows = []
    try:
        for objects, devices in sizes:
            site = Site(folder / f"{devices}x{objects}", objects, devices)
            is_short = devices == 1 and objects < max(arguments.objects)
            churn_seconds = min(arguments.churn_seconds, SHORT_CHURN) if is_short else arguments.churn_seconds
            rows.append(row(site, arguments, churn_seconds))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            shutil.rmtree(site.folder, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if rows:
            record.save(arguments.record, rows)
            print_table(rows)


if __name__ == "__main__":
    main()
