"""A small cluster of real processes with several proxies, by `martlet cluster up`."""

import os
import subprocess
import time
import tomllib
import urllib.request
from pathlib import Path

from . import server as harness

READY_S = 180
STOP_S = 120


class Cluster(harness.Served):
    """Three nodes and two proxies in a folder; the first proxy is the one that is spoken to. Stopped by
    its own pid."""

    stop_s = STOP_S
    # That somebody isn't there yet, or is behind, is a warning and no more.
    complaint = (" ERROR ", "panicked")

    def __init__(self, folder, flags=("--devices-per-node", "1", "--proxies", "2"), settings=None):
        self.folder = Path(folder)
        self.flags, self.settings = list(flags), dict(settings or {})
        self.proxies = []

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        port, = harness.free_ports(1)
        command = [str(harness.binary()), "cluster", "up", "--data-dir", str(self.folder / "c"),
                   "--nodes", "3", *self.flags, "--s3-port", str(port)]
        environment = {**os.environ, **self.settings, "MARTLET_ROOT_ACCESS_KEY": harness.ACCESS_KEY,
                       "MARTLET_ROOT_SECRET_KEY": harness.SECRET_KEY}
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = (self.folder / "log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"the cluster was not ready within {READY_S} s:\n{log}")
            time.sleep(0.2)
        return self

    def _is_ready(self):
        try:
            layout = tomllib.loads((self.folder / "c/cluster.toml").read_text())
            self.proxies = [(one["s3_port"], one["admin_port"]) for one in layout["proxy"]]
            for _, admin_port in self.proxies:
                urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/readyz", timeout=5).close()
            self.port, self.admin_port = self.proxies[0]
            return True
        except (OSError, KeyError, tomllib.TOMLDecodeError):
            return False

    def tell(self, *words):
        """Runs a command of `martlet cluster` on it and returns its output."""
        command = [str(harness.binary()), "cluster", *words, "--data-dir", str(self.folder / "c")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    @property
    def pid(self):
        """Of the proxy that is spoken to."""
        lines = self.tell("status").splitlines()
        return next(int(line.split()[2]) for line in lines if line.startswith("p1 "))

    def logs(self):
        """Of all its processes."""
        return [self.folder / "log", *sorted((self.folder / "c").glob("*/log"))]

    def log(self):
        """What all of them wrote, the end of each."""
        ends = ((log.parent.name, log.read_text(errors="replace")[-2000:]) for log in self.logs())
        return "\n".join(f"{name}:\n{end}" for name, end in ends)

    def kill(self):
        """SIGTERM, since its processes would outlive it; SIGKILL to all of them after `stop_s`, which is an error."""
        self.stop()
