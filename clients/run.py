"""Runs the round trips of the clients named, one after the other, against a fresh server.

With `--cluster` among the names it is a cluster of three nodes and two proxies, but for clients that need
TLS. One line for each client, and a closing line; the exit code is 0 only if every client passed. What a
client printed is shown when it failed. Clients live in environments of their own, kept between runs.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/s3"))

import environments  # noqa: E402
import tls  # noqa: E402
from harness import server as harness  # noqa: E402
from harness.cluster import Cluster  # noqa: E402

CLIENT_S = 600
# Clients that can't be told to speak plain HTTP.
OVER_TLS = {"litdata"}


def main(names):
    if names == ["--list"]:
        print("\n".join(environments.CLIENTS))
        return 0
    plain = Cluster if "--cluster" in names else harness.Server
    only_prepare = "--prepare" in names
    names = [name for name in names if name not in ("--cluster", "--prepare")]
    unknown = sorted(set(names) - set(environments.CLIENTS))
    if unknown:
        known = " ".join(environments.CLIENTS)
        print(f"there is no client {unknown[0]!r}; there are: {known}", file=sys.stderr)
        return 2
    names = names or list(environments.CLIENTS)
    if only_prepare:
        return prepare(names)
    folder = Path(tempfile.mkdtemp(prefix="martlet-clients-"))
    passed = 0
    # Ended from outside, the servers and the folder still have to go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        server = cluster(folder / "plain") if plain is Cluster else plain(folder / "plain", data_port())
        passed += with_server([name for name in names if name not in OVER_TLS], server, folder)
        secure = [name for name in names if name in OVER_TLS]
        # The certificates of its server are made by a command, which has to be there before.
        for name in secure:
            environments.prepare_system(name)
        passed += with_server(secure, tls.Server(folder / "tls"), folder) if secure else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"clients: {passed} passed, {len(names) - passed} failed")
    return 0 if passed == len(names) else 1


def prepare(names):
    """Installs clients, and runs none."""
    for name in names:
        try:
            environments.prepare(name)
        except environments.Unprepared as error:
            print(f"{name} could not be installed: {error}", file=sys.stderr)
            return 1
    return 0


def cluster(folder):
    """A cluster whose objects are read in place as well."""
    return Cluster(folder, ["--devices-per-node", "1", "--proxies", "2", "--data-ports", "--direct-sockets"])


def data_port():
    """Setting of a data port, for the client that reads in place."""
    return {"MARTLET_DATA_ADDRESS": f"127.0.0.1:{harness.free_ports(1)[0]}"}


def with_server(names, server, folder):
    """How many clients passed; they share one server."""
    if not names:
        return 0
    passed = 0
    try:
        server.start()
        for name in names:
            passed += run(name, server, folder)
        if server.stop() != 0 or server.complaints():
            complaints = "\n".join(server.complaints())
            print(f"something went wrong in the server:\n{complaints}\n{server.log()}")
            passed = min(passed, len(names) - 1)
    finally:
        server.kill()
    return passed


def run(name, server, folder):
    """Whether a client passed; prints its line."""
    begun = time.monotonic()
    try:
        command = environments.prepare(name)
    except environments.Unprepared as error:
        print(f"{name:<18} FAILED   it could not be installed: {error}", flush=True)
        return False
    installed_s = time.monotonic() - begun
    work = folder / name
    work.mkdir()
    begun = time.monotonic()
    code, said = finish(command, environment(name, server, work), work)
    took_s = time.monotonic() - begun
    shutil.rmtree(work, ignore_errors=True)
    summary = said.strip().rsplit("\n", 1)[-1]
    if code == 0:
        note = f", installed in {installed_s:.0f} s" if installed_s > 5 else ""
        print(f"{name:<18} ok       {summary} ({took_s:.1f} s{note})", flush=True)
        return True
    print(f"{name:<18} FAILED   {summary}\n{said[-6000:]}\n-- server --\n{server.log()[-2000:]}", flush=True)
    return False


def finish(command, environment, work):
    """The exit code and the words of a command that may take no longer than it should."""
    with open(work / "said", "w+b") as said:
        process = subprocess.Popen(command, env=environment, cwd=work, stdin=subprocess.DEVNULL,
                                   stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(CLIENT_S)
        except subprocess.TimeoutExpired:
            code = f"after {CLIENT_S} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        text = said.read().decode(errors="replace")
    return code, text if code == 0 else f"{text}\nended with {code}"


def environment(name, server, work):
    """The environment of a client, with the variables that AWS's own tools know too."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    return {
        **inherited,
        "HOME": str(work),
        "TMPDIR": str(work),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "MARTLET_ENDPOINT": server.endpoint,
        "MARTLET_HOST": server.host,
        "MARTLET_BUCKET": f"with-{name}",
        # The home of a client is a folder of its own.
        "MARTLET_CLIENTS": str(environments.CACHE),
        "MARTLET_ADMIN_ADDRESS": f"127.0.0.1:{server.admin_port}",
        "MARTLET_ROOT_ACCESS_KEY": harness.ACCESS_KEY,
        "MARTLET_ROOT_SECRET_KEY": harness.SECRET_KEY,
        # For tests that start servers of their own.
        "MARTLET_BIN": str(harness.binary()),
        "MARTLET_ODD_KEYS": str(HERE / "roundtrips/odd_keys.json"),
        "AWS_ACCESS_KEY_ID": harness.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": harness.SECRET_KEY,
        "AWS_REGION": harness.REGION,
        "AWS_DEFAULT_REGION": harness.REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        **getattr(server, "trusted", {}),
        # A proxy, where there is one, does not know this machine's loopback addresses.
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
