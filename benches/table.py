"""One table of measurements, each beside its limit, taken in turns in one run.

Every figure is the median of a few rounds; in each round Martlet and its limit are measured one after
the other, so that a noisy neighbour meets both. CPU is the server's alone, user and kernel together.
Every write is synced, and Martlet verifies every byte that it sends; nginx and fio verify nothing.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

# Each of these modules lists its measures when it is imported; the table has their order.
import reads  # noqa: F401
import writes  # noqa: F401
import lists  # noqa: F401
import buckets  # noqa: F401
import devices  # noqa: F401
import transport  # noqa: F401
import copies  # noqa: F401
import memory  # noqa: F401
import record
from rows import print_table
from runs import MEASURES, Bench, progress


def parsed():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each figure is taken [%(default)s]")
    parser.add_argument("--seconds", type=int, default=4, help="length of each run [%(default)s]")
    parser.add_argument("--only", action="append", metavar="NAME", choices=MEASURES, default=[],
                        help="take this measure alone; repeatable")
    parser.add_argument("--list", action="store_true", help="print the names of all measures")
    parser.add_argument("--full", action="store_true",
                        help="lists of 10⁷ keys instead of 10⁶, and minutes of overwrites")
    parser.add_argument("--quick", action="store_true", help="no objects of several GiB")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="folder to write to, on the disk to be measured [%(default)s]")
    record.add_argument(parser)
    return parser.parse_args()


def taken(bench, names):
    """The rows of measures, and the names of those that failed."""
    rows, failed = [], []
    for name in names:
        progress(name)
        folder = bench.folder / name
        try:
            rows += MEASURES[name](bench)
        except (Exception, SystemExit) as error:
            # One figure that can't be taken must not cost the others.
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed.append(name)
        shutil.rmtree(folder, ignore_errors=True)
    return rows, failed


def main():
    arguments = parsed()
    if arguments.list:
        for name, function in MEASURES.items():
            print(f"{name:12} {function.__doc__.splitlines()[0]}")
        return
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-bench-", dir=arguments.dir))
    try:
        rows, failed = taken(Bench(arguments, folder), arguments.only or MEASURES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_table(rows, arguments.record)
    if failed:
        raise SystemExit(f"bench: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
