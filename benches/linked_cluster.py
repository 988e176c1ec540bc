"""A cluster of storage nodes and a proxy, each on a host of its own."""

import os
import secrets
import signal
import subprocess
import time
import urllib.request

from links import Network
from martlet import ACCESS_KEY, SECRET_KEY, binary

INTERNAL, ADMIN, DATA, S3 = 7001, 7101, 7401, 9000
COPIES, READY_S, STOP_S = 3, 60, 60


class LinkedCluster:
    """Nodes n1, n2 …, each with one device, a data port and a direct socket, and the proxy p1."""

    def __init__(self, folder, nodes):
        self.folder, self.count, self.network = folder, nodes, Network()
        self.processes = {}

    def __enter__(self):
        self.folder.mkdir(parents=True)
        self.network.__enter__()
        try:
            names = [*(f"n{number}" for number in range(1, self.count + 1)), "p1"]
            hosts = [self.network.add(name) for name in names]
            self._make_rings(hosts[:-1])
            for host in hosts:
                self._start(host)
            for host in hosts:
                self._wait(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            for process in reversed(self.processes.values()):
                process.send_signal(signal.SIGTERM)
            for process in self.processes.values():
                try:
                    process.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        finally:
            self.network.__exit__()

    def _make_rings(self, hosts):
        key = self.folder / "cluster.key"
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(32))
        for ring in ("index", "data-0"):
            builder = self.folder / f"{ring}.builder"
            copies = str(min(COPIES, self.count))
            self._ring(builder, "create", "--part-power", "8", "--replicas", copies)
            for number, host in enumerate(hosts, 1):
                self._ring(builder, "add", f"r1z{number}-{host.name}@{host.address}:{INTERNAL}/d1", "100")
            self._ring(builder, "rebalance")
            self._ring(builder, "write-ring")

    @staticmethod
    def _ring(builder, *words):
        done = subprocess.run([binary(), "ring", str(builder), *words], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"ring {' '.join(words)}: {done.stdout}{done.stderr}")

    def _start(self, host):
        own = self.folder / host.name
        (own / "d1").mkdir(parents=True)
        role = "proxy" if host.name == "p1" else "storage-node"
        lines = [f'name = "{host.name}"', f'data_dir = "{own / "data"}"', f'admin_address = "{host.address}:{ADMIN}"', "admin_allow_clear = true",
                 f'cluster_key_file = "{self.folder / "cluster.key"}"',
                 f'rings = ["{self.folder / "index.ring"}", "{self.folder / "data-0.ring"}"]']
        if role == "proxy":
            lines += [f's3_address = "{host.address}:{S3}"']
        else:
            lines += [f'internal_address = "{host.address}:{INTERNAL}"', f'data_address = "{host.address}:{DATA}"',
                      f'direct_socket = "{self.socket(host.name)}"', 'reserve = "64MiB"', "[devices]",
                      f'd1 = "{own / "d1"}"']
        settings = own / "settings.toml"
        settings.write_text("\n".join(lines) + "\n")
        keys = {"MARTLET_ROOT_ACCESS_KEY": ACCESS_KEY, "MARTLET_ROOT_SECRET_KEY": SECRET_KEY} if role == "proxy" else {}
        plain = {name: value for name, value in os.environ.items() if not name.startswith("MARTLET_")}
        with open(own / "log", "w") as log:
            command = [*host.within(), binary(), role, "--config", str(settings)]
            self.processes[host.name] = subprocess.Popen(command, env={**plain, **keys}, stdout=log, stderr=log)

    def _wait(self, host):
        deadline = time.monotonic() + READY_S
        # A proxy of the environment doesn't know these addresses.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            try:
                opener.open(f"http://{host.address}:{ADMIN}/readyz", timeout=2).close()
                return
            except OSError:
                if self.processes[host.name].poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / host.name / "log").read_text()
                    raise SystemExit(f"{host.name} does not start:\n{log}") from None
                time.sleep(0.1)

    def socket(self, name):
        """The direct socket of a node."""
        return self.folder / name / "s"

    def endpoint(self):
        """URL of the proxy."""
        return f"http://{self.network.hosts['p1'].address}:{S3}"

    def pids(self):
        """Processes by role."""
        nodes = [process.pid for name, process in self.processes.items() if name != "p1"]
        return {"proxy": [self.processes["p1"].pid], "nodes": nodes}

    def limit(self, mbit):
        """Limits the cables of all nodes and of the proxy."""
        for host in self.network.hosts.values():
            host.limit(mbit)

    def sent(self):
        """Bytes that nodes and the proxy have sent over their cables."""
        sent = {"nodes": 0, "proxy": 0}
        for name, host in self.network.hosts.items():
            sent["proxy" if name == "p1" else "nodes"] += host.counters()[1]
        return sent
