"""Pages that workers of a small cluster walk in a second: figures for the constants of the model.

Three nodes with a device each hold objects of 16 KiB in three copies. Nothing is to be done, so a worker's pass is
its walk alone. A figure is the fastest window of two seconds and ten pages or more, for other work may share the
machine. It holds the pause of 20 ms after each step. All roles share this machine, and what they read lies in memory.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from watch import WINDOW_S, Look, fastest, look_until

from cluster import Cluster
from martlet import bench

PAGES = {"replicate-data": 500, "sweep": 1024, "collect": 8192}
WINDOW_PAGES = 10


def rate(looks, worker, page, replicators):
    """The highest rate of a worker of one replicator; none if no window is long enough."""
    windows = [fastest(looks, lambda look, of=it["name"]: look.count("worker_items_total", worker, [of]),
                       WINDOW_PAGES * page) for it in replicators]
    return max((it.items / it.seconds for it in windows if it), default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load-seconds", type=int, default=60, help="seconds in which objects are written")
    parser.add_argument("--seconds", type=int, default=60, help="seconds in which workers are watched")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="martlet-walk-") as folder:
        shape = ["--nodes", "3", "--devices-per-node", "1", "--replicas", "3"]
        with Cluster(Path(folder) / "walk", shape) as cluster:
            print("writing …", file=sys.stderr, flush=True)
            written = bench("--endpoint", cluster.status()["endpoints"][0], "--op", "put", "--size", "16KiB",
                            "--keep", "--duration", f"{arguments.load_seconds}s")
            time.sleep(30)
            print("watching …", file=sys.stderr, flush=True)
            replicators = [it for it in cluster.status()["processes"] if it["role"] == "replicator" and it["pid"]]
            looks = look_until(replicators, lambda _: False, arguments.seconds)
    print(f"{written['requests_per_s'] * arguments.load_seconds:,.0f} objects")
    for worker, page in PAGES.items():
        highest = rate(looks, worker, page, replicators)
        if highest is None:
            print(f"{worker}: no window of {WINDOW_PAGES} pages and {WINDOW_S} s; write more objects")
        else:
            print(f"{worker}: {highest:,.0f} items/s, {page / highest * 1000:.1f} ms a page with its pause")


if __name__ == "__main__":
    main()
