"""Readers and writers of one large object, in turns: the package martlet beside boto3, obstore and s3torchconnector.

Each turn is a process of its own, which reads the object once to warm up and then several times into memory, or stores
it. Shown are the processor's seconds a GiB of the client and of the server, their sum beside the best of the others, and
the pace. All run on this machine, the server too, so ratios within one run count, and the pace hardly does.

Arguments: --mib N, --rounds N, --reads N, --only NAME …, --data-port (martlet reads from a data port as well).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30
BUCKET, KEY = "bench", "large.bin"
PART_BYTES = 8 * MIB
READERS = ["martlet", "boto3", "obstore", "s3torchconnector"]
TICKS = os.sysconf("SC_CLK_TCK")


def with_martlet(endpoint, size, direct):
    """Reads into one buffer that is there; every block is verified where it comes from a data port."""
    import martlet

    client = martlet.Client(endpoint=endpoint, direct="auto" if direct else "never")
    memory = martlet.Memory(size)
    url = f"martlet://{BUCKET}/{KEY}"

    def read():
        stats = client.read_into(url, [(0, memory.view)]).stats
        if direct and stats.direct_bytes != size:
            raise SystemExit(f"only {stats.direct_bytes} bytes came from the data port")
        return memory.view

    return read, lambda data: client.write(f"{url}.saved", data)


def with_boto3(endpoint, size, _):
    """Its transfer manager with its defaults."""
    import io

    import boto3

    s3 = boto3.client("s3", endpoint_url=endpoint)

    def read():
        memory = io.BytesIO()
        s3.download_fileobj(BUCKET, KEY, memory)
        return memory.getbuffer()

    return read, lambda data: s3.upload_fileobj(io.BytesIO(data), BUCKET, f"{KEY}.saved")


def with_obstore(endpoint, size, _):
    """Ranges of 8 MiB by eight threads."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(BUCKET, endpoint=endpoint, region=os.environ["AWS_REGION"], virtual_hosted_style_request=False,
                    client_options={"allow_http": True})
    pool = ThreadPoolExecutor(8)

    def part(start):
        return obstore.get_range(store, KEY, start=start, end=min(size, start + PART_BYTES))

    def read():
        return list(pool.map(part, range(0, size, PART_BYTES)))

    return read, lambda data: obstore.put(store, f"{KEY}.saved", data, use_multipart=True, chunk_size=16 * MIB)


def with_s3torchconnector(endpoint, size, _):
    """The CRT client as data sets and checkpoints use it."""
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client

    config = S3ClientConfig(force_path_style=True, part_size=PART_BYTES)
    s3 = S3Client(os.environ["AWS_REGION"], endpoint=endpoint, s3client_config=config)

    def write(data):
        with s3.put_object(BUCKET, f"{KEY}.saved") as writer:
            writer.write(data)

    return lambda: s3.get_object(BUCKET, KEY).read(), write


def turn(name, endpoint, size, reads, direct, saves):
    """Takes one turn in this process and prints its figures."""
    make = {"martlet": with_martlet, "boto3": with_boto3, "obstore": with_obstore,
            "s3torchconnector": with_s3torchconnector}[name]
    read, write = make(endpoint, size, direct)
    data = os.urandom(MIB) * (size // MIB) if saves else b""
    work = (lambda: write(data)) if saves else read
    found = work()
    if not saves and sum(len(one) for one in (found if isinstance(found, list) else [found])) != size:
        raise SystemExit(f"{name} read another size")
    del found
    print("ready", flush=True)
    sys.stdin.readline()
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    for _ in range(reads):
        work()
    took_s, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu_s": cpu_s, "took_s": took_s, "peak_mib": after.ru_maxrss / 1024}), flush=True)


def cpu_of(pid):
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def take(python, environment, pid, name, options):
    """Runs one turn; its figures for a GiB, of both sides."""
    command = [python, "-B", __file__, "--turn", name, *options.arguments]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout.readline().strip() != "ready":
            raise SystemExit(f"{name} failed")
        before = cpu_of(pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        line = process.stdout.readline()
        server_s = cpu_of(pid) - before
    if not line:
        raise SystemExit(f"{name} failed")
    figures, gib = json.loads(line), options.mib * MIB * options.reads / GIB
    return {"client": figures["cpu_s"] / gib, "server": server_s / gib, "pace": gib * GIB / 1e9 / figures["took_s"],
            "peak_mib": figures["peak_mib"]}


def show(title, taken):
    """Prints the medians of a kind of turn."""
    middle = {name: {key: statistics.median(one[key] for one in turns) for key in turns[0]}
              for name, turns in taken.items()}
    total = {name: one["client"] + one["server"] for name, one in middle.items()}
    others = [value for name, value in total.items() if not name.startswith("martlet")]
    print(f"\n{title}\n{'':<22}{'client':>9}{'server':>9}{'both':>9}{'beside best':>13}{'GB/s':>8}{'peak MiB':>10}")
    for name, one in middle.items():
        ratio = f"{total[name] / min(others):.2f}" if others else "-"
        print(f"{name:<22}{one['client']:>9.2f}{one['server']:>9.2f}{total[name]:>9.2f}{ratio:>13}"
              f"{one['pace']:>8.2f}{one['peak_mib']:>10.0f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reads", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=READERS, default=READERS)
    parser.add_argument("--data-port", action="store_true")
    parser.add_argument("--no-saves", action="store_true")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    parser.add_argument("--direct", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--saves", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(options, folder):
    """Starts a server, takes all turns, and prints the tables."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]
    import environments
    from martlet import ACCESS_KEY, SECRET_KEY, Martlet, free_port

    python = environments.prepare("martlet")[0]
    port = free_port()
    settings = {"MARTLET_DATA_ADDRESS": f"127.0.0.1:{port}"} if options.data_port else {}
    with Martlet(folder / "server", settings=settings) as server:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
            "PYTHONPATH": str(HERE.parent / "clients/python/src"), "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        }
        fill = ("import martlet, os; c = martlet.client(); c.store.request('PUT', martlet.Address('bench')); "
                f"c.write('martlet://{BUCKET}/{KEY}', os.urandom(1 << 20) * {options.mib})")
        subprocess.run([python, "-c", fill], env=environment, check=True)
        time.sleep(5 if options.data_port else 0)
        for saves in [False] if options.no_saves else [False, True]:
            turns = [(name, name, []) for name in options.only]
            if options.data_port and not saves and "martlet" in options.only:
                turns.insert(0, ("martlet, data port", "martlet", ["--direct"]))
            taken = {}
            for _ in range(options.rounds):
                for title, name, flags in turns:
                    options.arguments = ["--mib", str(options.mib), "--reads", str(options.reads), *flags]
                    options.arguments += ["--saves"] if saves else []
                    taken.setdefault(title, []).append(take(python, environment, server.process.pid, name, options))
            kind = "stores" if saves else "reads"
            show(f"{kind} of {options.mib} MiB, CPU seconds a GiB, medians of {options.rounds} turns", taken)


def main():
    options = parse()
    if options.turn:
        # `martlet.py` of this folder would hide the package.
        sys.path.remove(str(HERE))
        endpoint = os.environ["AWS_ENDPOINT_URL"]
        turn(options.turn, endpoint, options.mib * MIB, options.reads, options.direct, options.saves)
        return
    with tempfile.TemporaryDirectory(prefix="martlet-readers-") as folder:
        measure(options, Path(folder))


if __name__ == "__main__":
    main()
