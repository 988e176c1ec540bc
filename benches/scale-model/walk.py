"""Pages that workers of a small cluster walk in a second: figures for the constants of the model.

Three nodes with a device each hold objects of 16 KiB in three copies. Nothing is to be done, so a worker's pass is
its walk alone. A figure is the fastest window of two seconds and ten pages or more, for other work may share the
machine. It holds the pause of 20 ms after each step. All roles share this machine, and what they read lies in memory.
"""

import argparse
import re
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from cluster import Cluster
from martlet import bench

PAGES = {"replicate-data": 500, "sweep": 1024, "collect": 8192}
WINDOW_PAGES, WINDOW_S = 10, 2


class Walks(Cluster):
    """A cluster, and its workers' counters."""

    def items(self, processes):
        """Items that each worker of each replicator has examined, by (process, worker): when asked, when known."""
        counts = {}
        for process in processes:
            asked = time.monotonic()
            with urllib.request.urlopen(f"http://{process['admin_address']}/metrics") as reply:
                text = reply.read().decode()
            known = time.monotonic()
            for worker, items in re.findall(r'^martlet_worker_items_total\{worker="([^"]+)"\} (\d+)', text, re.M):
                counts[process["name"], worker] = asked, known, int(items)
        return counts


def fastest(samples, worker, page):
    """The highest rate of a worker between two samples of a process; at least so much, however late replies were."""
    rates = []
    for at, before in enumerate(samples):
        for after in samples[at + 1:]:
            for key in filter(lambda it: it[1] == worker, after.keys() & before.keys()):
                seconds, items = after[key][1] - before[key][0], after[key][2] - before[key][2]
                if seconds >= WINDOW_S and items >= WINDOW_PAGES * page:
                    rates.append(items / seconds)
    return max(rates, default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load-seconds", type=int, default=60, help="seconds in which objects are written")
    parser.add_argument("--seconds", type=int, default=60, help="seconds in which workers are watched")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="martlet-walk-") as folder:
        shape = ["--nodes", "3", "--devices-per-node", "1", "--replicas", "3"]
        with Walks(Path(folder) / "walk", shape) as cluster:
            print("writing …", file=sys.stderr, flush=True)
            written = bench("--endpoint", cluster.status()["endpoints"][0], "--op", "put", "--size", "16KiB",
                            "--keep", "--duration", f"{arguments.load_seconds}s")
            time.sleep(30)
            print("watching …", file=sys.stderr, flush=True)
            replicators = [it for it in cluster.status()["processes"] if it["role"] == "replicator" and it["pid"]]
            samples, end = [], time.monotonic() + arguments.seconds
            while time.monotonic() < end:
                samples.append(cluster.items(replicators))
                time.sleep(0.2)
    print(f"{written['requests_per_s'] * arguments.load_seconds:,.0f} objects")
    for worker, page in PAGES.items():
        rate = fastest(samples, worker, page)
        if rate is None:
            print(f"{worker}: no window of {WINDOW_PAGES} pages and {WINDOW_S} s; write more objects")
        else:
            print(f"{worker}: {rate:,.0f} items/s, {page / rate * 1000:.1f} ms a page with its pause")


if __name__ == "__main__":
    main()
