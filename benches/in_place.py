"""Reads in place beside other ways and other readers: CPU by role, pace, and bytes over each kind of link.

Three parts, each in turns:

* one server on this machine: readers and writers of one large object, CPU of both sides;
* one node without a limit on its link: what nodes pay for bytes that they verify, or not, beside nginx and the necessary
  work alone (`benches/port-floor`), and reads of files by descriptors beside fio;
* 1, 2 and 4 nodes and a proxy in network namespaces, each behind a link of a limited rate.

All of it runs on this machine, and so do the clients: ratios within one part count. The paces of the third part are
those of the links. Processor seconds come in ticks of 10 ms. Processes, namespaces and the folder end with the run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]

import environments  # noqa: E402
import record  # noqa: E402
from cluster import show  # noqa: E402
from in_place_readers import BUCKET, FILE_BYTES, KEY, MIB, Turns  # noqa: E402
from limits import Nginx, PortFloor, parallel_reads  # noqa: E402
from linked_cluster import LinkedCluster  # noqa: E402
from martlet import ACCESS_KEY, SECRET_KEY, Martlet, free_port  # noqa: E402
from rows import Figure, Row, print_table  # noqa: E402
from runs import end_in_order, progress  # noqa: E402

PARTS = ["readers", "node", "links"]
OTHERS = ["boto3", "obstore", "s3torchconnector"]
GET, NODES, CLIENT = "martlet, GET", "martlet, nodes verify", "martlet, client verifies"
NGINX = "nginx, unverified"
# Limits: the work, and the threads that wait for all sockets at once; with none, each connection has a thread.
FLOORS = {
    "floor, verified, a thread each": ("verified", 0), "floor, verified, one thread": ("verified", 1),
    "floor, sendfile, a thread each": ("sent", 0), "floor, sendfile, one thread": ("sent", 1),
    "floor, sendfile, two threads": ("sent", 2),
}
FILES, UNCACHED, BARE = "martlet, descriptors", "martlet, O_DIRECT", "bare descriptors, O_DIRECT"
ROWS = {"reads": {GET: "reads by GET", CLIENT: "reads at the data port"}, "stores": {GET: "stores"}}
NODE_COUNTS = (1, 2, 4)
# Reads of a turn at one node: its processor seconds are few, and the kernel counts them in ticks.
NODE_READS = 16


def environment(endpoint):
    """The environment of a turn."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
        "PYTHONPATH": str(HERE.parent / "clients/python/src"), "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": endpoint, "NO_PROXY": "*", "no_proxy": "*",
    }


FILL = """
import martlet, os, sys, time
url, mib, holders, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), time.time() + 60
client = martlet.client()
client.store.request("PUT", martlet.Address(url.split("/")[2]))
client.write(url, os.urandom(1 << 20) * mib)
while True:
    pieces = client.reader(url).pieces(0, mib << 20)
    if pieces and all(len(piece.holders) == holders for piece in pieces):
        break
    if time.time() > end:
        sys.exit("pieces have fewer holders than copies")
    time.sleep(0.5)
"""


def fill(python, endpoint, mib, holders):
    """Stores the object that is read, and waits until each piece has its holders."""
    command = [python, "-c", FILL, f"martlet://{BUCKET}/{KEY}", str(mib), str(holders)]
    subprocess.run(command, env=environment(endpoint), check=True)


def of_readers(options, python, folder):
    """Readers and writers on one server."""
    settings = {"MARTLET_DATA_ADDRESS": f"127.0.0.1:{free_port()}"}
    with Martlet(folder / "server", settings=settings) as server:
        fill(python, server.endpoint(), options.mib, 1)
        tables = []
        for saves in [False] if options.no_saves else [False, True]:
            turns = Turns(python, environment(server.endpoint()), lambda: {"server": [server.process.pid]},
                          options.mib, options.reads)
            for number in range(options.rounds):
                progress(f"{'stores' if saves else 'reads'} on one server ({number + 1}/{options.rounds})")
                more = ["--saves"] if saves else []
                turns.take(GET, "martlet", *more)
                if not saves:
                    turns.take(CLIENT, "martlet", "--direct")
                for name in OTHERS:
                    turns.take(name, name, *more)
            tables.append(turns.medians())
    rows = []
    for what, table in zip(("reads", "stores"), tables):
        print_turns(f"one server, {what} of {options.mib} MiB", table, ["client", "server"])
        both = {title: one["client"] + one["server"] for title, one in table.items()}
        best = min(OTHERS, key=both.get)
        for title, name in ROWS[what].items():
            rows.append(Row(f"{name}, CPU s/GiB of both sides", Figure(both[title]), Figure(both[best]), best,
                            most_of_limit=0.7 if what == "reads" else None))
        if what == "stores":
            fastest = max(OTHERS, key=lambda name: table[name]["pace"])
            rows.append(Row("stores, MB/s", Figure(table[GET]["pace"]), Figure(table[fastest]["pace"]), fastest,
                            least_of_limit=1.0))
    return rows


def cached_anew(path):
    """Reads a file into the page cache by one reader in order.

    The kernel keeps such bytes in large pages. Several readers bring small ones, which cost more to send: so the files
    of all that is compared are read alike. Extents are written past the page cache.
    """
    with open(path, "rb", buffering=0) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(MIB):
            pass


def of_node(options, python, folder):
    """One node without a limit: its CPU beside nginx and the necessary work, and its files beside fio."""
    reads, www = max(NODE_READS, options.reads), folder / "nginx/www" / KEY
    with ExitStack() as held:
        cluster = held.enter_context(LinkedCluster(folder / "node", 1))
        host = cluster.network.hosts["n1"]
        nginx = held.enter_context(Nginx(folder / "nginx", host.address, host.within()))
        fill(python, cluster.endpoint(), options.mib, 1)
        www.mkdir()
        for number in range(-(-options.mib * MIB // FILE_BYTES)):
            length = min(FILE_BYTES, options.mib * MIB - number * FILE_BYTES)
            (www / str(number)).write_bytes(os.urandom(MIB) * (length // MIB))
        files = [path for path in (cluster.folder / "n1/d1/extents").rglob("*") if path.is_file()]
        for path in [*www.iterdir(), *files]:
            cached_anew(path)
        floors = {title: held.enter_context(PortFloor(www, work, host.address, host.within(), threads))
                  for title, (work, threads) in FLOORS.items()}
        roles = {**cluster.pids(), "nginx": nginx.pids(), **{title: floor.pids() for title, floor in floors.items()}}
        turns = Turns(python, environment(cluster.endpoint()), lambda: roles, options.mib, reads)
        socket, disk = ["--direct", "--socket", str(cluster.socket("n1"))], []
        for number in range(options.rounds):
            progress(f"one node beside nginx, the floor and fio ({number + 1}/{options.rounds})")
            turns.take(NODES, "martlet", "--direct", "--verify", "node")
            turns.take(CLIENT, "martlet", "--direct")
            turns.take(NGINX, "nginx", endpoint=f"http://{host.address}:{nginx.port}")
            for title, floor in floors.items():
                turns.take(title, "nginx", endpoint=floor.endpoint())
            turns.take(FILES, "martlet", *socket)
            turns.take(UNCACHED, "martlet", *socket, "--direct-io")
            turns.take(BARE, "descriptors", "--socket", str(cluster.socket("n1")))
            disk.append({"pace": parallel_reads(files) / 1e6})
    table = turns.medians()
    print_turns("one node, no limit on its link", table, ["client", "nodes", "nginx", *FLOORS])
    of_nginx = Figure(table[NGINX]["nginx"])
    cost = {title: table[title][title] for title in FLOORS}
    of_floor = Figure(min(cost[title] for title, (work, _) in FLOORS.items() if work == "verified"))
    rows = [
        Row("node, verified by it, CPU s/GiB", Figure(table[NODES]["nodes"]), of_floor, "floor",
            most_of_limit=1.0),
        Row("node, verified by the client, CPU s/GiB", Figure(table[CLIENT]["nodes"]), of_nginx, "nginx",
            most_of_limit=1.35),
        *(Row(f"{title}, CPU s/GiB", Figure(cost[title]), of_nginx, "nginx") for title in FLOORS),
    ]
    fio = Figure.median(disk, ["pace"])
    rows.append(Row("descriptor, O_DIRECT, MB/s", Figure(table[BARE]["pace"]), fio, "fio", least_of_limit=0.95))
    rows.append(Row("the same, every block compared, MB/s", Figure(table[UNCACHED]["pace"]), fio, "fio"))
    return rows


def of_links(options, python, folder):
    """Nodes and a proxy behind links of a limited rate."""
    pace, rows = {}, []
    for count in NODE_COUNTS:
        with LinkedCluster(folder / f"links-{count}", count) as cluster:
            fill(python, cluster.endpoint(), options.mib, min(3, count))
            cluster.limit(options.mbit)
            turns = Turns(python, environment(cluster.endpoint()), cluster.pids, options.mib, options.reads,
                          cluster.sent)
            for number in range(options.rounds):
                progress(f"{count} nodes behind links of {options.mbit} Mbit/s ({number + 1}/{options.rounds})")
                turns.take(GET, "martlet")
                turns.take(NODES, "martlet", "--direct", "--verify", "node")
                turns.take(CLIENT, "martlet", "--direct")
                for name in OTHERS if count == max(NODE_COUNTS) else []:
                    turns.take(name, name)
        table = turns.medians()
        print_turns(f"{count} nodes, links of {options.mbit} Mbit/s", table,
                    ["client", "proxy", "nodes", "proxy sent", "nodes sent"])
        pace[count] = {title: one["pace"] for title, one in table.items()}
    for title in (NODES, CLIENT):
        for count in NODE_COUNTS[1:]:
            rows.append(Row(f"{count} nodes, {title.removeprefix('martlet, ')}, MB/s", Figure(pace[count][title]),
                            Figure(count * pace[1][title]), f"{count} × one", least_of_limit=0.9))
        rows.append(Row(f"proxy's share of the payload, {title.removeprefix('martlet, ')}, %",
                        Figure(100 * table[title]["proxy sent"]), most=1))
    return rows


def print_turns(title, table, columns):
    """Prints the medians of a part. CPU is in seconds a GiB; bytes sent are in GiB for a GiB of payload."""
    heads = [title, "", *(name if "sent" in name else f"{name} s/GiB" for name in columns), "MB/s", "peak MiB"]
    rows = [[name, "", *(str(Figure(one[column])) for column in columns), str(Figure(one["pace"])),
             str(Figure(one["peak"]))] for name, one in table.items()]
    print()
    show([heads, *rows])
    sys.stdout.flush()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="size of the object [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each [%(default)s]")
    parser.add_argument("--reads", type=int, default=2,
                        help=f"reads or stores of a turn, after one; of a node at least {NODE_READS} [%(default)s]")
    parser.add_argument("--mbit", type=int, default=400, help="rate of each link, in Mbit/s [%(default)s]")
    parser.add_argument("--only", action="append", choices=PARTS, default=[], help="take this part alone; repeatable")
    parser.add_argument("--no-saves", action="store_true", help="leave out stores")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="folder to write to, on the disk to be measured [%(default)s]")
    record.add_argument(parser)
    options = parser.parse_args()
    if options.mib < 64 or options.rounds < 1 or options.reads < 1 or options.mbit < 8:
        parser.error("--mib is at least 64, --mbit at least 8, --rounds and --reads at least 1")
    check(parser, options.only or PARTS)
    return options


def check(parser, parts):
    """Refuses parts that would fail after minutes of others, for lack of root or a program."""
    if set(parts) == {"readers"}:
        return
    if os.geteuid() != 0:
        parser.error("network namespaces need root: run it as root, or with --only readers")
    programs = ["ip", "tc", *(["nginx", "fio"] if "node" in parts else [])]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in programs if not shutil.which(name, path=path)]
    if absent:
        parser.error(f"there is no {absent[0]}: benches/in_place.sh installs all that is needed")


def main():
    options = parse()
    end_in_order()
    options.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="mb-", dir=options.dir))
    begun, rows = time.monotonic(), []
    try:
        python = environments.prepare("martlet")[0]
        for part, measure in zip(PARTS, (of_readers, of_node, of_links)):
            if not options.only or part in options.only:
                rows += measure(options, python, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print()
    print_table(rows, options.record)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
