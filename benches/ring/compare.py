"""Martlet's ring builder beside Swift's, on the same topologies and histories, in one run.

Each topology is placed and then lives through a history. After every change both builders rebalance
until they get no better: Martlet as often as it says, Swift until `swift-ring-builder` refuses to save
a result that hardly differs. Whatever came of it is judged by Swift's own code: Martlet's ring file is
read here, byte by byte, and put into a Swift builder that then says its balance and dispersion.
Replicas moved are counted by comparing assignments. Seconds are CPU seconds of the commands, reading
and writing builder and ring files included.
"""

import argparse
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from array import array

import numpy
import swift.common.utils as swift_utils
from swift.common.ring import Ring, RingBuilder
from swift.common.ring.utils import tiers_for_dev

SEED = 1
REPLICAS = 3
RUNS_MAX = 12
REPEATS = 5
LOOKUPS = 300_000


class Device:
    """A device, with the id that both builders know it by."""

    def __init__(self, ident, region, zone, node, weight):
        self.id, self.region, self.zone, self.node, self.weight = ident, region, zone, node, weight

    @property
    def address(self):
        return f"10.{self.region}.{self.zone}.{self.node}"

    def place(self):
        return (f"r{self.region}z{self.zone}-n{self.region}-{self.zone}-{self.node}"
                f"@{self.address}:6200/d{self.id}")

    def swift(self):
        return {"id": self.id, "region": self.region, "zone": self.zone, "ip": self.address,
                "port": 6200, "device": f"d{self.id}", "weight": self.weight}


class Cluster:
    """What both builders are told."""

    def __init__(self, name, part_power):
        self.name, self.part_power = name, part_power
        self.devices, self.next_id = {}, 0

    def node(self, region, zone, node, weights):
        """Adds a node with a device of each weight."""
        for weight in weights:
            self.devices[self.next_id] = Device(self.next_id, region, zone, node, weight)
            self.next_id += 1

    def at(self, region, zone, node):
        return [d.id for d in self.devices.values()
                if (d.region, d.zone, d.node) == (region, zone, node)]

    def node_paths(self):
        return sorted({(d.region, d.zone, d.node) for d in self.devices.values()})


def run(*words):
    """Runs a command; says what it printed and the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done, took


class Swift:
    """Swift's builder: changed in process, rebalanced by its command."""

    def __init__(self, part_power, folder):
        self.tool = os.path.join(os.path.dirname(sys.executable), "swift-ring-builder")
        self.file = os.path.join(folder, f"swift-{time.monotonic_ns()}.builder")
        self.builder = RingBuilder(part_power, REPLICAS, 0)

    def add(self, devices):
        for device in devices:
            self.builder.add_dev(device.swift())

    def remove(self, ids):
        for ident in ids:
            self.builder.remove_dev(ident)

    def empty(self, ids):
        for ident in ids:
            self.builder.set_dev_weight(ident, 0.0)

    def rebalance(self):
        """Rebalances until the tool finds a result not worth saving; that one isn't counted."""
        runs, seconds = 0, 0.0
        while runs < RUNS_MAX:
            self.builder.pretend_min_part_hours_passed()
            self.builder.save(self.file)
            done, took = run(sys.executable, self.tool, self.file, "rebalance", "--seed", str(SEED))
            if "Cowardly" in done.stdout or "No partitions could" in done.stdout:
                break
            if "Reassigned" not in done.stdout:
                sys.exit(f"swift-ring-builder: {done.stdout}{done.stderr}")
            self.builder = RingBuilder.load(self.file)
            runs, seconds = runs + 1, seconds + took
        return runs, seconds

    def table(self):
        return numpy.array([numpy.array(row, dtype=numpy.int64)
                            for row in self.builder._replica2part2dev])

    def figures(self):
        return self.builder.get_balance(), self.builder.dispersion


class Martlet:
    """Martlet's builder, through its command line."""

    def __init__(self, part_power, binary, folder):
        self.binary, self.part_power = binary, part_power
        self.file = os.path.join(folder, "bench.builder")
        self.ring = os.path.join(folder, "bench.ring")
        for file in (self.file, self.ring):
            if os.path.exists(file):
                os.remove(file)
        self.run("create", "--part-power", str(part_power), "--replicas", str(REPLICAS),
                 "--min-part-hours", "0")

    def run(self, *words):
        done, took = run(self.binary, "ring", self.file, "--json", *words)
        if done.returncode != 0:
            sys.exit(f"martlet ring {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout), took

    def add(self, devices):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as lines:
            lines.writelines(f"{d.place()} {d.weight}\n" for d in devices)
            lines.flush()
            ids = self.run("add", "--from", lines.name)[0]["ids"]
        if ids != [d.id for d in devices]:
            sys.exit(f"devices got the ids {ids}")

    def remove(self, ids):
        self.run("remove", "--force", *(f"d{ident}" for ident in ids))

    def empty(self, ids):
        for ident in ids:
            self.run("set-weight", f"d{ident}", "0")

    def rebalance(self):
        """Rebalances as often as the first one says it takes, and writes the ring each time, as
        Swift's command does. Each takes so little that the median of some runs is told.
        """
        runs, seconds = 0, 0.0
        while True:
            self.run("settle")
            before = open(self.file, "rb").read()
            times = []
            for _ in range(REPEATS):
                with open(self.file, "wb") as file:
                    file.write(before)
                answer, took = self.run("rebalance", "--seed", str(SEED))
                _, more = self.run("write-ring", self.ring + ".timed")
                os.remove(self.ring + ".timed")
                times.append(took + more)
            runs, seconds = runs + 1, seconds + sorted(times)[REPEATS // 2]
            if answer["report"]["rebalances_to_go"] == 0:
                break
        self.run("write-ring")
        self.devices, self.slots = read_ring(self.ring)
        return runs, seconds

    def table(self):
        return self.slots

    def figures(self):
        """Balance and dispersion of the ring file, by Swift's code."""
        judge = RingBuilder(self.part_power, REPLICAS, 0)
        for device in self.devices:
            judge.add_dev(device.swift())
        judge._replica2part2dev = [array("H", row.astype(numpy.uint16).tobytes())
                                   for row in self.slots]
        held = numpy.bincount(self.slots.ravel(), minlength=len(judge.devs))
        for device in judge._iter_devs():
            device["parts"] = int(held[device["id"]])
            device["tiers"] = tiers_for_dev(device)
        judge._build_dispersion_graph()
        return judge.get_balance(), judge.dispersion


def read_ring(file):
    """Devices and assignment of a ring file, read as docs/RING.md draws it."""
    with open(file, "rb") as opened:
        data = opened.read()
    assert data[:8] == b"MRTLRING" and struct.unpack_from("<HQ", data, 8) == (2, len(data))
    part_power, width = data[88], data[89]
    extra, count, moves = struct.unpack_from("<IHI", data, 90)
    assert extra == 1 << part_power, "fractional replicas aren't compared"
    at = 110

    def text():
        nonlocal at
        (length,) = struct.unpack_from("<H", data, at)
        at += 2 + length
        return data[at - length:at].decode()

    text()
    devices = []
    for _ in range(count):
        ident, region, zone, weight = struct.unpack_from("<IIId", data, at)
        at += 20
        _, address, _, _ = text(), text(), text(), text()
        node = int(address.split(":")[0].rsplit(".", 1)[1])
        devices.append(Device(ident, region, zone, node, weight))
    at += 17 * moves
    bits = (count - 1).bit_length()
    packed = numpy.frombuffer(data, numpy.uint8, len(data) - 32 - at, at)
    flags = numpy.unpackbits(packed, bitorder="little")[:bits * width << part_power]
    slots = flags.reshape(-1, bits) @ (1 << numpy.arange(bits))
    ids = numpy.array([d.id for d in devices])
    return devices, ids[slots].reshape(-1, width).T


def moved(before, after):
    """Replicas whose partition had none on that device before."""
    return int(sum((~(after[column] == before).any(axis=0)).sum() for column in range(len(after))))


# Topologies, and what happens to them.

def zones(part_power):
    cluster = Cluster("3 zones × 4 nodes × 12", part_power)
    for zone in (1, 2, 3):
        for node in range(1, 5):
            cluster.node(1, zone, node, [100.0] * 12)
    return cluster


def uneven(part_power):
    cluster = Cluster("zones of 6, 4 and 2 nodes × 12", part_power)
    for zone, nodes in ((1, 6), (2, 4), (3, 2)):
        for node in range(1, nodes + 1):
            cluster.node(1, zone, node, [100.0] * 12)
    return cluster


def mixed(part_power):
    cluster = Cluster("3 zones × 4 nodes, weights 1:2:8", part_power)
    for zone in (1, 2, 3):
        for node in range(1, 5):
            cluster.node(1, zone, node, [100.0, 200.0, 800.0] * 4)
    return cluster


def regions(part_power):
    cluster = Cluster("2 regions × 2 zones × 4 nodes × 6", part_power)
    for region in (1, 2):
        for zone in (1, 2):
            for node in range(1, 5):
                cluster.node(region, zone, node, [100.0] * 6)
    return cluster


def thousand(part_power):
    cluster = Cluster("1,000 devices in 4 zones", part_power)
    for zone in (1, 2, 3, 4):
        for node in range(1, 11):
            cluster.node(1, zone, node, [100.0] * 25)
    return cluster


def place(cluster, builders):
    for builder in builders:
        builder.add(list(cluster.devices.values()))


def grow(cluster, nodes, builders):
    first = cluster.next_id
    for path, weights in nodes:
        cluster.node(*path, weights)
    for builder in builders:
        builder.add([cluster.devices[ident] for ident in range(first, cluster.next_id)])


def weights_of(cluster, path):
    return [cluster.devices[ident].weight for ident in cluster.at(*path)]


def five_percent(cluster, builders):
    paths = cluster.node_paths()
    count = len(cluster.devices) // 20
    grow(cluster, [(paths[at % len(paths)], [100.0]) for at in range(count)], builders)


def add_zone(cluster, builders):
    """A zone as large as the first."""
    region, zone, _ = cluster.node_paths()[0]
    nodes = [path for path in cluster.node_paths() if path[:2] == (region, zone)]
    grow(cluster, [((region, 9, node), weights_of(cluster, (region, zone, node)))
                   for _, _, node in nodes], builders)


def drain_node(cluster, builders):
    ids = cluster.at(*cluster.node_paths()[1])
    for builder in builders:
        builder.empty(ids)


def lose_five(cluster, builders):
    alive = sorted(cluster.devices)
    ids = alive[3::max(1, len(alive) // 5)][:5]
    for ident in ids:
        del cluster.devices[ident]
    for builder in builders:
        builder.remove(ids)


def double(cluster, builders):
    nodes = [((region, zone, node + 100), weights_of(cluster, (region, zone, node)))
             for region, zone, node in cluster.node_paths()]
    grow(cluster, nodes, builders)


HISTORY = [("place", place), ("5 % more devices", five_percent), ("add a zone", add_zone),
           ("drain a node", drain_node), ("lose 5 devices", lose_five), ("double", double)]


def compare(cluster, binary, folder, rows):
    martlet, swift = Martlet(cluster.part_power, binary, folder), Swift(cluster.part_power, folder)
    before = None
    for name, change in HISTORY:
        change(cluster, (martlet, swift))
        line = [f"{cluster.name}, 2^{cluster.part_power}" if change is place else "", name]
        tables, results = [], []
        for at, builder in enumerate((martlet, swift)):
            runs, seconds = builder.rebalance()
            table = builder.table()
            balance, dispersion = builder.figures()
            count = 0 if before is None else moved(before[at], table)
            results.append((balance, dispersion, count, runs, seconds))
            tables.append(table)
        before = tables
        rows.append((line, *results))
        show(rows[-1])
    return swift


def ask_swift(swift):
    """How fast Swift loads and asks the ring that its last rebalance wrote."""
    swift_utils.HASH_PATH_SUFFIX = b"bench"  # In the place of /etc/swift/swift.conf.
    start = time.process_time()
    ring = Ring(swift.file.replace(".builder", ".ring.gz"))
    ring.get_part_nodes(0)
    loaded = time.process_time() - start
    start = time.process_time()
    for step in range(LOOKUPS):
        ring.get_part_nodes(step * 7919 % ring.partition_count)
    rate = LOOKUPS / (time.process_time() - start) / 1e6
    print(f"Swift loads its ring in {loaded:.3f} s and answers {rate:.2f} million lookups a second")


def shortfalls(ours, theirs):
    """In what Martlet is not as good as Swift, to the digits shown: nothing, where all is well."""
    names = (("balance", 2), ("dispersion", 2), ("moved", 0))
    return [f"{name} {round(a, digits)} > {round(b, digits)}"
            for (name, digits), a, b in zip(names, ours, theirs)
            if round(a, digits) > round(b, digits)]


def show(row):
    (topology, step), ours, theirs = row
    cells = [topology, step]
    for balance, dispersion, count, runs, seconds in (ours, theirs):
        cells += [f"{balance:.2f}", f"{dispersion:.2f}", f"{count:,}", str(runs), f"{seconds:.2f}"]
    cells += [f"{theirs[4] / ours[4]:.0f}×", ", ".join(shortfalls(ours, theirs)) or "yes"]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--martlet", required=True, help="the martlet binary")
    parser.add_argument("--part-power", type=int, default=16, help="of all but the largest")
    parser.add_argument("--quick", action="store_true", help="leave the largest out")
    parser.add_argument("--only", default="", help="topologies that have this in their name")
    args = parser.parse_args()
    print("| topology | step | balance % | dispersion % | moved | runs | s "
          "| Swift: balance % | dispersion % | moved | runs | s | faster | as good |")
    print("|" + "---|" * 14)
    clusters = [make(args.part_power) for make in (zones, uneven, mixed, regions)]
    if not args.quick:
        clusters.append(thousand(18))
    clusters = [cluster for cluster in clusters if args.only in cluster.name]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for cluster in clusters:
            swift = compare(cluster, args.martlet, folder, rows)
        print()
        ask_swift(swift)
    worse = sum(bool(shortfalls(ours, theirs)) for _, ours, theirs in rows)
    slow = sum(theirs[4] < 20 * ours[4] for _, ours, theirs in rows)
    print(f"{len(rows)} rows; some figure not as good in {worse}, less than 20 times faster in {slow}")


if __name__ == "__main__":
    main()
