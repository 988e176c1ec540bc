"""One Martlet server on free ports and a data folder of its own, started and stopped by its pid."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCESS_KEY = "MARTLETTESTACCESSKEY"
SECRET_KEY = "martlet-test-secret-key-with/slash+plus"
REGION = "us-east-1"

READY_S = 60
STOP_S = 60


def binary():
    """The binary under test."""
    target = os.environ.get("CARGO_TARGET_DIR") or Path.home() / ".cache/martlet/target"
    path = Path(os.environ.get("MARTLET_BIN") or Path(target) / "debug/martlet")
    if not path.is_file():
        raise SystemExit(f"there is no binary at {path}: build it or set MARTLET_BIN")
    return path


def free_ports(count):
    """Ports that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def descendants(pid):
    """Processes below a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return [*found, *(below for child in found for below in descendants(child))]


class Served:
    """Processes that answer S3 on one port and operators on another, and keep a log."""

    folder: Path
    process: subprocess.Popen | None = None
    port = admin_port = 0
    stop_s = STOP_S
    # What stands in lines of the log that say that something went wrong.
    complaint = (" ERROR ", " WARN ", "panicked")

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    @property
    def endpoint(self):
        return f"http://{self.host}"

    @property
    def pid(self):
        return self.process.pid

    def admin(self, path):
        """The text that the admin address gives for a path; an OSError unless it is a 200."""
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.read().decode()

    def metric(self, pattern):
        """The sum of all samples whose name matches a pattern; None if there is none."""
        samples = [
            float(line.rsplit(" ", 1)[1])
            for line in self.admin("/metrics").splitlines()
            if line and not line.startswith("#") and re.search(pattern, line.split("{")[0].split(" ")[0])
        ]
        return sum(samples) if samples else None

    def logs(self):
        """The files that something went wrong in."""
        return [self.folder / "log"]

    def log(self):
        return (self.folder / "log").read_text(errors="replace")[-8000:]

    def complaints(self):
        """Lines of the logs that say that something went wrong in the server."""
        lines = [line for log in self.logs() for line in log.read_text(errors="replace").splitlines()]
        return [line for line in lines if any(word in line for word in self.complaint)]

    def stop(self):
        """SIGTERM, and the exit code."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                return self.process.wait(self.stop_s)
            except subprocess.TimeoutExpired:
                self.destroy()
                raise
        return self.process.returncode if self.process else None

    def kill(self):
        """SIGKILL."""
        self.destroy()

    def destroy(self):
        """SIGKILL to the process that was started, and to all that it started."""
        if self.process and self.process.poll() is None:
            started = descendants(self.process.pid)
            self.process.kill()
            self.process.wait()
            for pid in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def rss_bytes(self, peak=False):
        """Resident memory of the process, now or at its peak so far."""
        name = "VmHWM" if peak else "VmRSS"
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"no {name} for process {self.pid}")

    def descriptors(self):
        """How many file descriptors the process has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Server(Served):
    """A server process. The same data folder may be served again after `stop` or `kill`."""

    def __init__(self, folder, settings=None, flags=()):
        self.folder = Path(folder)
        self.settings = dict(settings or {})
        self.flags = list(flags)
        self.port, self.admin_port = free_ports(2)

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "MARTLET_ROOT_ACCESS_KEY": ACCESS_KEY,
            "MARTLET_ROOT_SECRET_KEY": SECRET_KEY,
            **self.settings,
        }
        command = [
            str(binary()), "server",
            "--data-dir", str(self.folder / "data"),
            "--s3-address", self.host,
            "--admin-address", f"127.0.0.1:{self.admin_port}",
            *self.flags,
        ]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._wait_until_ready()
        return self

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log()}")
            try:
                self.admin("/readyz")
                return
            except OSError:
                time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"the server was not ready within {READY_S} s:\n{self.log()}")
