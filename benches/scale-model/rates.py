"""Rates of reclaim, sweep and sync on a small cluster: figures for the constants of the model.

Nodes with a device each hold objects of 16 KiB in three copies. Objects are written and deleted on a cluster that is
then stopped. Its nodes and replicators start again without a proxy, under a clock that runs ahead: superseded extents
are past their grace time, and later all others past their commit window, so no worker waits and none meets clients.

All roles share this machine with whatever else it does, and what they read lies in memory. CPU is that of all these
processes, whatever their work; of a replicator it includes the first passes of all other workers.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from watch import Look, Window, fastest, look_until

from cluster import STOP_S, Cluster, show
from martlet import bench, binary
from rows import Figure
from runs import end_in_order

CLOCK = "MARTLET_TEST_CLOCK_OFFSET_MS"
GRACE_S, MARGIN_S, COMMIT_WINDOW_S = 5 * 60, 3, 24 * 60 * 60
COPIES = 3
READY_S, SETTLED_S, PHASE_S = 60, 5, 90


class Members:
    """Nodes and replicators of a stopped cluster, started by name. All end with the `with`."""

    def __init__(self, folder, processes):
        self.folder, self.processes, self.running = folder, {it["name"]: it for it in processes}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop(*self.running)

    def names(self, role):
        """The names of all members of a role."""
        return [name for name, it in self.processes.items() if it["role"] == role]

    def started(self, names):
        """Some running members, for a look."""
        return [{**self.processes[name], "pid": self.running[name].pid} for name in names]

    def start(self, names, ahead_s):
        """Starts members whose clock is ahead, and waits until they serve."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MARTLET_")}
        environment[CLOCK] = str(int(ahead_s * 1000))
        for name in names:
            role = self.processes[name]["role"]
            settings = self.folder / name / f"{role}.toml"
            with open(self.folder / name / "log", "a") as log:
                self.running[name] = subprocess.Popen(
                    [binary(), role, "--config", str(settings)], env=environment, stdout=log, stderr=log)
        end = time.monotonic() + READY_S
        for process in self.started(names):
            while not self._serves(process):
                if time.monotonic() > end or self.running[process["name"]].poll() is not None:
                    raise SystemExit((self.folder / process["name"] / "log").read_text()[-2000:])
                time.sleep(0.1)

    def stop(self, *names):
        """Ends members in order."""
        ending = [self.running.pop(name) for name in names]
        for one in ending:
            one.send_signal(signal.SIGTERM)
        for one in ending:
            try:
                one.wait(STOP_S)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()

    @staticmethod
    def _serves(process):
        try:
            return bool(Look([process]).counters)
        except OSError:
            return False


class Phases:
    """Work of one phase after the other, and a row for each."""

    def __init__(self, members):
        self.members, self.rows = members, []
        self.nodes, self.replicators = members.names("storage-node"), members.names("replicator")

    def restart(self, ahead_s):
        """Starts all nodes anew, under another clock and without replicators."""
        self.members.stop(*self.members.running)
        self.members.start(self.nodes, ahead_s)
        self.ahead_s = ahead_s
        # Replicators that meet strange nodes keep what they find for a later pass.
        time.sleep(SETTLED_S)

    def watch(self, name, worker, replicators, count):
        """Starts replicators, and watches them until their worker has examined items and none waits."""
        print(f"{name} …", file=sys.stderr, flush=True)
        before = Look(self.members.started(self.members.running))
        self.members.start(replicators, self.ahead_s)

        def is_over(look):
            examined, idle, waits = (
                [look.count(metric, worker, [it]) for it in replicators]
                for metric in ("worker_items_total", "worker_idle", "worker_backlog"))
            # Suspects of a sweep wait for a grace time.
            return all(examined) and all(idle) and (worker == "sweep" or not any(waits))

        looks = [before, *look_until(self.members.started(self.members.running), is_over, PHASE_S)]
        if not is_over(looks[-1]):
            raise SystemExit(f"{name}: not over after {PHASE_S} s")
        waits = looks[-1].count("worker_backlog", worker)
        if waits:
            print(f"{waits} items wait at the end of {name}", file=sys.stderr)
        self.tell(name, looks, count)
        return looks[-1]

    def tell(self, name, looks, count):
        """Adds a row. Work that was over within a window of the least length has the rate of the whole phase."""
        whole = Window.between(looks[0], looks[-1], count)
        window = fastest(looks, count) or whole
        syncs = looks[-1].count("device_index_syncs_total") - looks[0].count("device_index_syncs_total")
        self.rows.append([
            name, f"{whole.items:,}", f"{whole.seconds:.1f}", f"{window.items / window.seconds:,.0f}",
            *(str(Figure(1000 * it / window.items)) for it in (window.cpu_s, window.replicators_s)),
            f"{(window.busy_s - window.cpu_s) / window.seconds:.1f}", f"{whole.items / max(syncs, 1):,.0f}"])


def extents(look):
    """Copies of extents on all nodes."""
    return look.count("device_extents")


def of(worker, replicators):
    """A function that reads the items that a worker of some replicators has examined."""
    return lambda look: look.count("worker_items_total", worker, replicators)


def load(endpoint, prefix, objects, is_kept):
    """Writes objects, and deletes them again unless they are kept; the time at the end."""
    print(f"{objects} objects that {'stay' if is_kept else 'go'} …", file=sys.stderr, flush=True)
    bench("--endpoint", endpoint, "--op", "get", "--size", "16KiB", "--prefix", prefix, "--objects", str(objects),
          "--duration", "100ms", *(["--keep"] if is_kept else []))
    return time.time()


def reclaim(phases, deleted_at, young):
    """One node reclaims, then the others what it left, then all of them. Until then `young` objects have extents."""
    one, *others = phases.replicators
    phases.restart(GRACE_S + MARGIN_S + deleted_at - time.time())
    phases.watch("reclaim, one node: copies", "reclaim", [one], extents)
    last = phases.watch("reclaim, the others: its records", "reclaim", others, of("reclaim", others))
    if extents(last) < COPIES * young:
        print("objects that were deleted later came of age too: take more objects", file=sys.stderr)
    # Tombstones that a node missed came to it in the meantime, and are of age too.
    phases.restart(3 * GRACE_S)
    phases.watch("reclaim, all nodes: copies", "reclaim", phases.replicators, extents)


def sweep(phases):
    """One node sweeps, then all of them."""
    for name, replicators in ("one node", phases.replicators[:1]), ("all nodes", phases.replicators):
        phases.restart(COMMIT_WINDOW_S + 3 * GRACE_S)
        phases.watch(f"sweep, {name}: extents", "sweep", replicators, of("sweep", replicators))


def sync(phases):
    """A wiped device gets its registers back. Its own replicator copies no extents to it."""
    node, replicator = phases.nodes[-1], phases.replicators[-1]
    phases.members.stop(*phases.members.running)
    device = phases.members.folder / node / "d1"
    shutil.rmtree(device)
    device.mkdir()
    phases.restart(phases.ahead_s)
    phases.watch("sync, an empty device: registers", "sync", [replicator], of("sync", [replicator]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3, help="nodes of the cluster [%(default)s]")
    parser.add_argument("--objects", type=int, default=20_000, help="objects of each lot [%(default)s]")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="where to write, on the disk to be measured [%(default)s]")
    arguments = parser.parse_args()
    end_in_order()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    begun = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="martlet-rates-", dir=arguments.dir) as folder:
        shape = ["--nodes", str(arguments.nodes), "--devices-per-node", "1", "--replicas", str(COPIES)]
        with Cluster(Path(folder) / "rates", shape) as cluster:
            status = cluster.status()
            endpoint = status["endpoints"][0]
            # An object that stays keeps the bucket.
            load(endpoint, "first", 1, True)
            deleted_at = load(endpoint, "old", arguments.objects, False)
            load(endpoint, "stays", arguments.objects, True)
            load(endpoint, "young", arguments.objects, False)
        with Members(cluster.data, status["processes"]) as members:
            phases = Phases(members)
            reclaim(phases, deleted_at, 2 * arguments.objects)
            sweep(phases)
            sync(phases)
    head = ["items", "seconds", "a second, fastest", "CPU s a 1,000", "of replicators", "cores of others", "a sync"]
    show([["", *head], *phases.rows])
    ended = os.getloadavg()
    print(f"load of this machine: {begun[0]:.1f} before, {ended[0]:.1f} at the end, of {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
