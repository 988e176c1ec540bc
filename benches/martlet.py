"""A Martlet server to be measured, and `martlet bench` to measure with."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

ACCESS_KEY, SECRET_KEY = "MARTLETBENCHACCESS", "martlet-bench-secret-key"
READY_S = 60


def binary():
    """The binary: MARTLET_BIN, or the one of the usual target folder."""
    target = os.environ.get("CARGO_TARGET_DIR") or Path.home() / ".cache/martlet/target"
    return os.environ.get("MARTLET_BIN") or str(Path(target) / "release/martlet")


def bench(*arguments, authority=None):
    """Runs `martlet bench`, and returns its figures. It trusts certificates of `authority`."""
    environment = {
        **os.environ,
        **({"SSL_CERT_FILE": str(authority)} if authority else {}),
        "MARTLET_ROOT_ACCESS_KEY": ACCESS_KEY,
        "MARTLET_ROOT_SECRET_KEY": SECRET_KEY,
    }
    command = [binary(), "bench", "--json", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def free_port():
    """A port that nobody listens on at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def large_objects():
    """What the largest objects add to a server's memory: (what, MiB), from the tests that say so."""
    command = ["cargo", "test", "--release", "--locked", "-p", "martlet-tests", "--test", "server",
               "--", "--ignored", "--nocapture", "--test-threads", "1", "memory"]
    root = Path(__file__).parent.parent
    environment = {**os.environ, "MARTLET_BIN": binary()}
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stdout)
    found = re.findall(r"memory: (.*) raised it by (\d+) MiB", done.stdout)
    return [(what, int(mib)) for what, mib in found]


class Martlet:
    """A server with a data folder of its own, for as long as the `with` lasts.

    With `certificates`, the files of an authority's certificate, of the server's and of its key, clients use
    TLS, and HTTP/2 unless a run says otherwise. `settings` are more of the server's variables.
    """

    def __init__(self, folder, certificates=None, settings=None):
        self.folder, self.settings = folder, settings or {}
        self.authority, self.certificate, self.key = certificates or (None, None, None)

    def __enter__(self):
        self.folder.mkdir(parents=True)
        self.port, self.admin_port = free_port(), free_port()
        self._start()
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def restart(self):
        """Stops the server and starts it again, with its data."""
        self.__exit__()
        self._start()

    def _start(self):
        settings = {
            "MARTLET_ROOT_ACCESS_KEY": ACCESS_KEY,
            "MARTLET_ROOT_SECRET_KEY": SECRET_KEY,
            "MARTLET_DATA_DIR": str(self.folder / "data"),
            "MARTLET_S3_ADDRESS": f"127.0.0.1:{self.port}",
            "MARTLET_ADMIN_ADDRESS": f"127.0.0.1:{self.admin_port}",
            **self.settings,
        }
        if self.authority:
            settings["MARTLET_S3_TLS_CERTIFICATE"] = str(self.certificate)
            settings["MARTLET_S3_TLS_KEY"] = str(self.key)
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [binary(), "server"], env={**os.environ, **settings}, stdout=log, stderr=log)
        try:
            self._wait()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _wait(self):
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server does not start:\n{(self.folder / 'log').read_text()}")
            time.sleep(0.1)
        time.sleep(1)

    def _is_ready(self):
        try:
            return bool(self._ask("/readyz"))
        except OSError:
            return False

    def _ask(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as reply:
            return reply.read().decode()

    def resident_bytes(self):
        """Resident memory of the server."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def io(self, name):
        """A counter of the server's I/O: `read_bytes` and `write_bytes` are those of disks."""
        text = Path(f"/proc/{self.process.pid}/io").read_text()
        return int(re.search(rf"^{name}: (\d+)$", text, re.MULTILINE)[1])

    def endpoint(self):
        """URL of the S3 endpoint."""
        return f"{'https' if self.authority else 'http'}://127.0.0.1:{self.port}"

    def syncs(self):
        """Synced batches and files so far."""
        names = ("martlet_device_index_syncs_total", "martlet_device_extent_syncs_total")
        lines = self._ask("/metrics").splitlines()
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))

    def prepare(self, prefix, size, count):
        """Stores objects to be read again and again."""
        self.bench("--op", "get", "--keep", "--prefix", prefix, "--size", str(size),
                   "--objects", str(count), "--concurrency", "1", "--duration", "100ms")

    def bench(self, *arguments, is_http2=True):
        """Runs the load generator against it. HTTP/2 needs TLS."""
        version = ["--http2"] if self.authority and is_http2 else []
        endpoint = ["--endpoint", self.endpoint(), "--pid", str(self.process.pid)]
        return bench(*endpoint, *version, *arguments, authority=self.authority)

    def bench_counting_syncs(self, *arguments):
        """The same, and how many syncs each request took."""
        before = self.syncs()
        result = self.bench(*arguments)
        return {**result, "syncs_per_request": (self.syncs() - before) / result["requests"]}
