"""One table of measurements, each beside its limit, taken in turns in one run.

Every figure is the median of a few rounds; in each round Martlet and its limit are measured one after
the other, so that a noisy neighbour meets both. CPU is the server's alone, user and kernel together.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from limits import Nginx, bare_files
from martlet import Martlet, bench, large_objects
from rows import Figure, Row, print_table

KIB, MIB = 1 << 10, 1 << 20
SMALL = ["--size", "4KiB", "--concurrency", "16", "--objects", "256"]
LARGE = ["--size", "64MiB", "--concurrency", "4", "--objects", "4"]
RANGE = ["--size", "1MiB", "--object-size", "64MiB", "--concurrency", "16", "--objects", "4"]


class Runs:
    """Measures by name, round after round."""

    def __init__(self, rounds, seconds):
        self.rounds, self.duration, self.results = rounds, ["--duration", f"{seconds}s"], {}

    def take(self, *measures):
        """Runs each `(name, function)` once a round, in turns."""
        for number in range(self.rounds):
            for name, measure in measures:
                print(f"{name} ({number + 1}/{self.rounds}) …", file=sys.stderr, flush=True)
                self.results.setdefault(name, []).append(measure())

    def figure(self, name, *path):
        """The median of one value over the rounds of a measure."""
        return Figure.median(self.results[name], path)


def reads(runs, martlet, nginx):
    """GETs of both sizes and ranges, of the same objects from both servers."""
    for name, op, size, arguments in [
        ("get 4 KiB", "get", 4 * KIB, SMALL),
        ("get 64 MiB", "get", 64 * MIB, LARGE),
        ("range 1 MiB", "range", 64 * MIB, RANGE),
    ]:
        prefix, count = name.replace(" ", "-"), int(arguments[arguments.index("--objects") + 1])
        martlet.prepare(prefix, size, count)
        nginx.prepare(prefix, size, count)
        load = ["--op", op, "--prepared", "--prefix", prefix, *arguments, *runs.duration]
        runs.take(
            (name, lambda load=load: martlet.bench("--presigned", *load)),
            (f"{name}, nginx", lambda load=load: nginx.bench(*load)),
        )


def writes(runs, martlet, files):
    """PUTs, beside what files without a server cost."""
    put = ["--op", "put", *runs.duration]
    runs.take(
        ("put 64 MiB", lambda: martlet.bench(*put, "--size", "64MiB", "--concurrency", "4")),
        ("write 64 MiB", lambda: bare_files(files, runs.duration, "64MiB", 4, "--md5")),
        (
            "put 64 MiB, payload signed",
            lambda: martlet.bench(*put, "--size", "64MiB", "--concurrency", "4", "--signed-payload"),
        ),
        ("put 1 MiB", lambda: martlet.bench(*put, "--size", "1MiB", "--concurrency", "16")),
    )
    runs.take(
        ("put 4 KiB", lambda: martlet.bench_counting_syncs(*put, "--size", "4KiB")),
        ("write 4 KiB", lambda: bare_files(files, runs.duration, "4KiB", 16)),
        ("overwrite 4 KiB", lambda: bare_files(files, runs.duration, "4KiB", 16, "--in-place")),
    )
    runs.take(("list 1,000", lambda: martlet.bench("--op", "list", *runs.duration)))


def rows(runs, idle, after):
    """The table's rows: name, figure, its limit, and what is to be reached."""
    f = runs.figure
    per_gib, per_request = ("cpu", "s_per_gib"), ("cpu", "ms_per_request")
    return [
        Row("GET 64 MiB, CPU s/GiB", f("get 64 MiB", *per_gib),
            f("get 64 MiB, nginx", *per_gib), "nginx", most=0.55),
        Row("GET 64 MiB, MB/s", f("get 64 MiB", "megabytes_per_s"),
            f("get 64 MiB, nginx", "megabytes_per_s"), "nginx", least_of_limit=0.75),
        Row("GET 1 MiB ranges, CPU s/GiB", f("range 1 MiB", *per_gib),
            f("range 1 MiB, nginx", *per_gib), "nginx", most=0.65),
        Row("GET 4 KiB, CPU ms", f("get 4 KiB", *per_request),
            f("get 4 KiB, nginx", *per_request), "nginx", most=0.07),
        Row("GET 4 KiB, p50 ms at 16", f("get 4 KiB", "p50_ms"),
            f("get 4 KiB, nginx", "p50_ms"), "nginx", most=1.0),
        Row("GET 4 KiB, requests/s", f("get 4 KiB", "requests_per_s"),
            f("get 4 KiB, nginx", "requests_per_s"), "nginx"),
        Row("PUT 64 MiB, CPU s/GiB", f("put 64 MiB", *per_gib),
            f("write 64 MiB", *per_gib), "write, fsync, MD5", most=3.0),
        Row("PUT 64 MiB, MB/s", f("put 64 MiB", "megabytes_per_s"),
            f("write 64 MiB", "megabytes_per_s"), "write, fsync, MD5"),
        Row("PUT 64 MiB, payload signed, CPU s/GiB", f("put 64 MiB, payload signed", *per_gib),
            f("write 64 MiB", *per_gib), "write, fsync, MD5"),
        Row("PUT 1 MiB, CPU s/GiB", f("put 1 MiB", *per_gib), most=3.5),
        Row("PUT 4 KiB, CPU ms", f("put 4 KiB", *per_request),
            f("write 4 KiB", *per_request), "create … sync folder", most=0.15),
        Row("PUT 4 KiB, requests/s at 16", f("put 4 KiB", "requests_per_s"),
            f("write 4 KiB", "requests_per_s"), "create … sync folder", least_of_limit=1.0),
        Row("PUT 4 KiB, requests/s at 16", f("put 4 KiB", "requests_per_s"),
            f("overwrite 4 KiB", "requests_per_s"), "overwrite, fsync"),
        Row("PUT 4 KiB, syncs for each", f("put 4 KiB", "syncs_per_request"), most=0.5),
        Row("LIST 1,000 keys, CPU ms", f("list 1,000", *per_request), most=5.0),
        Row("resident at rest, MiB", Figure(idle / MIB), most=80),
        Row("resident after the load, MiB", Figure(after / MIB), most=250),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each figure is taken")
    parser.add_argument("--seconds", type=int, default=4, help="how long each run is")
    parser.add_argument("--quick", action="store_true", help="no objects of several GiB")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="where to write, on the disk to be measured [%(default)s]")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-bench-", dir=arguments.dir))
    try:
        runs = Runs(arguments.rounds, arguments.seconds)
        with Martlet(folder / "martlet") as martlet, Nginx(folder / "nginx") as nginx:
            idle = martlet.resident_bytes()
            writes(runs, martlet, folder)
            reads(runs, martlet, nginx)
            after = martlet.resident_bytes()
        table = rows(runs, idle, after)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not arguments.quick:
        table += [Row(f"{what}, MiB more", Figure(mib), most=256) for what, mib in large_objects()]
    print_table(table)


if __name__ == "__main__":
    main()
