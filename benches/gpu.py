"""GiB/s into the memory of a GPU from a server on this machine, by each way, beside the limits of its parts.

A turn is a process of its own: it fills one tensor once to warm up, three times from the page cache, and once after all
caches were dropped, and compares the tensor each time. The share is that of the limit: the slower one of the copy from
pinned memory and the best read of the files alone. Root is needed to drop caches. `clients/gpu.sh` runs it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# `martlet.py` of this folder would hide the package.
sys.path[:] = [path for path in sys.path if path != str(HERE)]
sys.path += [str(ROOT / "tests/s3"), str(ROOT / "clients/python/tests")]
MIB, GIB = 1 << 20, 1 << 30
BUCKET, URL = "bench", "martlet://bench/large"
PART_BYTES = 8 * MIB
SEED, ROUNDS = 29, 3
TURN_S = 45


class Turn:
    """The object, the tensor that receives it, and clients of the server."""

    def __init__(self, options):
        import torch

        self.torch, self.options, self.size, self.held = torch, options, options.mib * MIB, ExitStack()
        chance = torch.Generator(device="cuda").manual_seed(SEED)
        self.expected = torch.randint(256, (self.size,), dtype=torch.uint8, device="cuda", generator=chance)
        self.target = torch.zeros_like(self.expected)

    def reader(self, **settings):
        """Reader of the object by a client with these settings."""
        import martlet

        client = self.held.enter_context(martlet.Client(endpoint=self.options.endpoint, **settings))
        return client.reader(URL)

    def files(self):
        """Pieces of the object with leases of their files."""
        reader = self.reader(direct_socket=self.options.socket)
        pieces = reader.pieces(0, self.size)
        leases = [self.held.enter_context(reader.lent(piece)) for piece in pieces]
        if not leases or not all(leases):
            raise SystemExit("the node doesn't lend all extents")
        return list(zip(pieces, leases))

    def each(self, work):
        """Calls work for each piece and its lease, a thread for each."""
        files = self.files()
        # Calls of cuFile need the device of their thread.
        device = self.torch.cuda.set_device
        threads = self.held.enter_context(ThreadPoolExecutor(len(files), initializer=device, initargs=(0,)))
        return lambda: list(threads.map(lambda one: work(*one), files))

    def part(self, piece):
        """The target's bytes of a piece."""
        return self.target[piece.start:piece.end]

    def pinned(self):
        """Pinned memory for the whole object."""
        return self.torch.empty(self.size, dtype=self.torch.uint8, pin_memory=True)


def copy_alone(turn):
    """Limit: the copy from pinned memory, and nothing else."""
    memory = turn.pinned()
    memory.copy_(turn.expected)
    return lambda: turn.target.copy_(memory, non_blocking=True)


def read_alone(turn, uncached):
    """Limit: the files into pinned memory, a thread for each, without a check or a copy to the GPU."""
    memory = memoryview(turn.pinned().numpy())

    def extent(piece, lease):
        descriptor = lease.uncached if uncached else lease.plain
        for at in range(0, piece.length, PART_BYTES):
            view = memory[piece.start + at:piece.start + min(piece.length, at + PART_BYTES)]
            if os.preadv(descriptor, [view], at) != view.nbytes:
                raise SystemExit(f"the file of piece {piece.id} was cut")

    turn.target.copy_(turn.expected)
    return turn.each(extent)


def by_pinned(turn, **settings):
    """The package: from a GET, the data port or files, every block compared, by four pinned buffers."""
    from martlet import gpu

    if settings.pop("files", False):
        settings["direct_socket"] = turn.options.socket
    reader = turn.reader(**settings)
    return lambda: gpu.read(reader, 0, turn.target)


def by_kvikio(turn, mode):
    """The package by KvikIO; without checks."""
    import kvikio.defaults

    from martlet import gpu

    kvikio.defaults.set({"compat_mode": getattr(kvikio.CompatMode, mode)})
    reader = turn.reader(direct_socket=turn.options.socket)

    def read():
        report = gpu.read_by_cufile(reader, 0, turn.target)
        if report.pinned_bytes:
            raise SystemExit(f"KvikIO left {report.pinned_bytes} bytes to pinned memory")

    return read


def by_cufile(turn):
    """cuFile alone, a thread for each file; without checks."""
    opened, handles = turn.counting, {}
    if opened is None:
        raise SystemExit("cuFile doesn't open")

    def extent(piece, lease):
        if lease.number not in handles:
            handles[lease.number] = opened.register(lease.plain)
        if opened.read(handles[lease.number], turn.part(piece), 0) != piece.length:
            raise SystemExit(f"cuFile left bytes of piece {piece.id} out")

    return turn.each(extent)


def by_nixl(turn, backend):
    """NIXL, one request for each file, one after another; without checks."""
    from nixl_files import Agent

    agent, files = Agent(backend), turn.files()

    def read():
        for piece, lease in files:
            agent.read(lease.plain, 0, turn.part(piece))

    return read


LIMITS = {
    "pinned memory → GPU": copy_alone,
    "files → pinned memory": lambda turn: read_alone(turn, False),
    "files → pinned memory, O_DIRECT": lambda turn: read_alone(turn, True),
}
# Those that are new to a machine come first, in case time runs out.
COUNTED = {
    "descriptor → KvikIO → cuFile": lambda turn: by_kvikio(turn, "OFF"),
    "descriptor → cuFile": by_cufile,
    "descriptor → NIXL GDS_MT": lambda turn: by_nixl(turn, "GDS_MT"),
}
WAYS = {
    **COUNTED,
    "descriptor → KvikIO by itself": lambda turn: by_kvikio(turn, "ON"),
    "descriptor → pinned memory → GPU": lambda turn: by_pinned(turn, files=True),
    "data port → pinned memory → GPU": by_pinned,
    "GET → pinned memory → GPU": lambda turn: by_pinned(turn, direct="never"),
    "descriptor, O_DIRECT → pinned memory → GPU": lambda turn: by_pinned(turn, files=True, direct_io=True),
}


def counter(name):
    """cuFile, which counts its reads by mode; None for ways without it, and where it doesn't open."""
    from cufile import CuFile

    try:
        return CuFile() if name in COUNTED else None
    except Exception as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def mode_of(name, counts):
    """Text of the mode that was seen."""
    seen = [f"{key} {counts[key]}" for key in ("p2pdma", "nvidia_fs", "posix") if counts.get(key)]
    return f"reads by cuFile: {', '.join(seen) or 'not counted'}" if name in COUNTED else ""


def take(turn):
    """Takes one turn in this process, and prints its figures."""
    name = turn.options.turn
    turn.counting = counter(name)
    before = turn.counting.counts() if turn.counting else {}
    read = {**LIMITS, **WAYS}[name](turn)
    timed(turn, read)
    figures = {"cached": statistics.median(timed(turn, read) for _ in range(ROUNDS)), "cold": 0.0}
    if drop_caches():
        figures["cold"] = timed(turn, read)
    after = turn.counting.counts() if turn.counting else {}
    figures["mode"] = mode_of(name, {key: count - before[key] for key, count in after.items()})
    print(json.dumps(figures), flush=True)


def timed(turn, read):
    """GiB/s of one read, whose bytes are right."""
    if turn.options.turn in WAYS:
        turn.target.zero_()
    turn.torch.cuda.synchronize()
    begun = time.monotonic()
    read()
    turn.torch.cuda.synchronize()
    took_s = time.monotonic() - begun
    if not turn.torch.equal(turn.target, turn.expected):
        raise SystemExit(f"{turn.options.turn}: wrong bytes")
    return turn.size / GIB / took_s


def drop_caches():
    """Drops the page cache. Returns false where that isn't permitted."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def store(turn):
    """Stores the object."""
    import martlet

    with martlet.Client(endpoint=turn.options.endpoint, part_bytes=64 * MIB) as client:
        client.store.request("PUT", martlet.Address(BUCKET))
        client.write(URL, memoryview(turn.expected.cpu().numpy()))
        until = time.monotonic() + 20
        while not all(piece.holders for piece in client.reader(URL).pieces(0, turn.size) or [None]):
            if time.monotonic() > until:
                raise SystemExit("the pieces have no holders")
            time.sleep(0.2)


def run(options, server, harness, ends_s, taken):
    """Takes the figures of all turns by name; a text where a turn failed."""
    keys = {"AWS_ACCESS_KEY_ID": harness.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": harness.SECRET_KEY}
    environment = {**os.environ, **keys, "AWS_REGION": harness.REGION, "AWS_EC2_METADATA_DISABLED": "true"}
    for name in ("store", *LIMITS, *WAYS):
        left_s = ends_s - time.monotonic()
        if left_s < 5:
            taken[name] = "no time was left"
            continue
        command = [sys.executable, "-B", __file__, "--turn", name, "--mib", str(options.mib),
                   "--endpoint", server.endpoint, "--socket", str(server.folder / "direct.sock")]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=min(TURN_S, left_s))
        except subprocess.TimeoutExpired:
            taken[name] = "took too long"
            continue
        taken[name] = outcome(done)
        if done.returncode and name == "store":
            raise SystemExit(f"the object wasn't stored: {done.stderr[-2000:]}")


def outcome(done):
    """The figures that a turn printed, even if its end failed; else the last line of its errors."""
    lines = done.stdout.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        figures = json.loads(lines[-1])
        return {**figures, "mode": figures["mode"] + (f"; ended with {done.returncode}" if done.returncode else "")}
    words = done.stderr.strip().splitlines()
    return words[-1][:200] if words else f"ended with {done.returncode}"


def table(options, taken):
    """The table, as text."""
    def figure(name, state):
        return taken[name][state] if isinstance(taken.get(name), dict) else 0.0

    copy, *reads = LIMITS
    limits = {state: min(figure(copy, state), max(figure(name, state) for name in reads)) for state in ("cached", "cold")}
    lines = [f"One object of {options.mib} MiB, GiB/s; seed {SEED}", "",
             "| | page cache | of the limit | cold | of the limit | |", "|---|---|---|---|---|---|"]
    for name in (*LIMITS, *WAYS):
        if not isinstance(taken.get(name), dict):
            lines.append(f"| {name} | – | | – | | {taken.get(name, 'wasn’t taken')} |")
            continue
        cells = []
        for state in ("cached", "cold"):
            value = figure(name, state)
            share = f"{value / limits[state]:.2f}" if name in WAYS and limits[state] else ""
            cells.append(f"{value:.2f} | {share}" if value else "– | ")
        lines.append(f"| {name} | {' | '.join(cells)} | {taken[name]['mode']} |")
    return "\n".join(lines)


def parsed():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of the object [%(default)s]")
    parser.add_argument("--seconds", type=int, default=150, help="bound of the whole run [%(default)s]")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="folder on the disk to be measured")
    for name in ("--turn", "--endpoint", "--socket"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parsed()
    if options.turn:
        turn = Turn(options)
        with turn.held:
            store(turn) if options.turn == "store" else take(turn)
        return
    from harness import server as harness

    ends_s = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="m", dir=options.dir) as folder:
        port, = harness.free_ports(1)
        server = harness.Server(folder, None, ["--data-address", f"127.0.0.1:{port}",
                                               "--direct-socket", f"{folder}/direct.sock"])
        taken = {}
        try:
            run(options, server.start(), harness, ends_s, taken)
        finally:
            # Also the figures before an interrupt.
            server.kill()
            print(table(options, taken))


if __name__ == "__main__":
    main()
