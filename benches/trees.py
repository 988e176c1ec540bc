"""Two binaries of the server in turns: CPU of each kind of request, and the ratio of the two.

Usage: trees.py BEFORE AFTER [--rounds N] [--seconds S] [--only NAME]. AFTER sends the requests to both, so
that a change of the load generator meets both. Exits with 1 if a row costs more than 1.03 times as much.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from martlet import Martlet
from runs import KIB, MIB, PER_GIB, PER_REQUEST, progress

WORST = 1.03
"""Largest ratio of a row that counts as no loss: the noise of these figures."""

ROWS = {
    "get-4k": ("GET 4 KiB, CPU ms", PER_REQUEST, (4 * KIB, 4096),
               ["--op", "get", "--size", "4KiB", "--concurrency", "16", "--objects", "4096", "--presigned"]),
    "get-4k-signed": ("GET 4 KiB, headers signed, CPU ms", PER_REQUEST, (4 * KIB, 4096),
                      ["--op", "get", "--size", "4KiB", "--concurrency", "16", "--objects", "4096"]),
    "get-64m": ("GET 64 MiB, CPU s/GiB", PER_GIB, (64 * MIB, 4),
                ["--op", "get", "--size", "64MiB", "--concurrency", "4", "--objects", "4", "--presigned"]),
    "range-1m": ("GET 1 MiB ranges, CPU s/GiB", PER_GIB, (64 * MIB, 4),
                 ["--op", "range", "--size", "1MiB", "--object-size", "64MiB", "--concurrency", "16",
                  "--objects", "4", "--presigned"]),
    "put-4k": ("PUT 4 KiB, CPU ms", PER_REQUEST, None, ["--op", "put", "--size", "4KiB", "--concurrency", "16"]),
    "put-1m": ("PUT 1 MiB, CPU s/GiB", PER_GIB, None, ["--op", "put", "--size", "1MiB", "--concurrency", "16"]),
    "put-64m": ("PUT 64 MiB, one at a time, CPU s/GiB", PER_GIB, None,
                ["--op", "put", "--size", "64MiB", "--concurrency", "1"]),
    "put-64m-8": ("PUT 64 MiB, 8 at a time, CPU s/GiB", PER_GIB, None,
                  ["--op", "put", "--size", "64MiB", "--concurrency", "8"]),
    "list": ("LIST 1,000, CPU ms", PER_REQUEST, (1 * KIB, 4096),
             ["--op", "list", "--size", "1KiB", "--concurrency", "4", "--objects", "4096"]),
    "delete": ("DELETE, CPU ms", PER_REQUEST, None,
               ["--op", "delete", "--size", "1KiB", "--concurrency", "16", "--objects", "30000"]),
}


class OfBinary(Martlet):
    """A server of a given binary; `bench` uses the one of the environment."""

    def __init__(self, folder, program):
        super().__init__(folder)
        self.program = program

    def _start(self):
        generator = os.environ["MARTLET_BIN"]
        os.environ["MARTLET_BIN"] = str(self.program)
        try:
            super()._start()
        finally:
            os.environ["MARTLET_BIN"] = generator


def measured(folder, arguments, name):
    """Costs of one kind of request on both servers: a list for each of them, one figure a round."""
    _, path, prepared, load = ROWS[name]
    costs = ([], [])
    with OfBinary(folder / "before", arguments.before) as before, OfBinary(folder / "after", arguments.after) as after:
        servers = (before, after)
        load = [*load, "--duration", f"{arguments.seconds}s"]
        if prepared:
            load += ["--prepared", "--prefix", name]
            for server in servers:
                server.prepare(name, *prepared)
                server.restart()
        for number in range(arguments.rounds):
            progress(f"  {name} ({number + 1}/{arguments.rounds})")
            # The order changes, so that what grows in a round meets both alike.
            for index in (0, 1) if number % 2 == 0 else (1, 0):
                value = servers[index].bench(*load)
                for key in path:
                    value = value[key]
                costs[index].append(value)
    return costs


def parsed():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="binary to compare with")
    parser.add_argument("after", type=Path, help="binary to judge; its `bench` sends the requests")
    parser.add_argument("--rounds", type=int, default=5, help="times that each figure is taken [%(default)s]")
    parser.add_argument("--seconds", type=int, default=4, help="length of each run [%(default)s]")
    parser.add_argument("--only", action="append", metavar="NAME", choices=ROWS, default=[],
                        help="take this row alone; repeatable")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="folder to write to [%(default)s]")
    return parser.parse_args()


def main():
    arguments = parsed()
    os.environ["MARTLET_BIN"] = str(arguments.after)
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-trees-", dir=arguments.dir))
    worse = 0
    lines = ["| | before | after | ratio | rounds |", "|---|---|---|---|---|"]
    try:
        for name in arguments.only or ROWS:
            before, after = measured(folder / name, arguments, name)
            shutil.rmtree(folder / name, ignore_errors=True)
            # Ratios within a round: what disturbed a round disturbed both of its runs.
            ratios = sorted(b / a for a, b in zip(before, after))
            ratio = statistics.median(ratios)
            worse += ratio > WORST
            lines.append(f"| {ROWS[name][0]} | {statistics.median(before):.4g} | {statistics.median(after):.4g} "
                         f"| {ratio:.2f} | {ratios[0]:.2f}–{ratios[-1]:.2f} |")
            print(lines[-1], file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(lines))
    print(f"\ntrees: {len(lines) - 2} rows, {worse} worse by more than {WORST - 1:.0%}")
    raise SystemExit(1 if worse else 0)


if __name__ == "__main__":
    main()
