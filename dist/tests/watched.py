"""A cluster of real processes on small disks, a Prometheus that scrapes it, and a webhook that can refuse."""

import contextlib
import ctypes
import datetime
import fcntl
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import alerts
import generate
from s3 import S3

NODES = 3
DISK_BYTES = 1 << 30
START_MAX_S = 60
# Small enough to be filled and to be used up in a test.
SETTINGS = {"MARTLET_MAX_REQUESTS": "8", "MARTLET_MAX_NOTIFICATION_REFUSALS": "1"}
SPOOL = "64KiB"
# From sched.h. Python has them from 3.12 on.
CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000


class Failed(Exception):
    """A check that doesn't hold."""


def check(holds, sentence):
    """Fails with a sentence unless something holds."""
    if not holds:
        raise Failed(sentence)


def until(limit_s, ready, what):
    """Waits until a function returns something, and returns that."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := ready():
            return found
        time.sleep(0.3)
    raise Failed(f"after {limit_s} s: {what() if callable(what) else what}")


def free_port():
    """Returns a port of loopback that is free at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def enter_own_namespaces():
    """Gives this process a loopback and mounts of its own.

    No other process of the machine can take the port of a stopped node. A namespace that another process makes has no copy of
    a mount, which would keep a disk in use that is mounted anew.
    """
    entered = ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET | CLONE_NEWNS)
    check(entered == 0, f"no namespaces: {os.strerror(ctypes.get_errno())}")
    run("mount", "--make-rprivate", "/")
    run("ip", "link", "set", "lo", "up")


def run(*command):
    """Runs a command that must succeed, and returns its output."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired as late:
        raise Failed(str(late)) from None
    check(done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


class Disk:
    """File system in a file, mounted by loop. Its size bounds a device."""

    def __init__(self, image, folder):
        self.image, self.folder, self.is_cut = image, folder, False
        folder.mkdir(parents=True)
        with open(image, "wb") as file:
            file.truncate(DISK_BYTES)
        run("mkfs.ext4", "-q", "-F", "-m", "0", image)
        run("mount", "-o", "loop", image, folder)
        self.filler = folder / "filler"

    def free(self):
        """Returns the free bytes."""
        about = os.statvfs(self.folder)
        return about.f_bavail * about.f_frsize

    def leave(self, count):
        """Takes space by a foreign file until so many bytes are free."""
        size = self.filler.stat().st_size if self.filler.exists() else 0
        with open(self.filler, "ab") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, size + self.free() - count))

    def release(self):
        """Removes the foreign file."""
        self.filler.unlink(missing_ok=True)

    def fill(self):
        """Takes all space by a foreign file."""
        self.leave(1 << 20)
        with open(self.filler, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def cut(self):
        """Lets every call fail with EIO until the file system is mounted anew. What was not synced is lost."""
        about = os.open(self.folder, os.O_RDONLY)
        try:
            # EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH.
            fcntl.ioctl(about, 0x8004587D, struct.pack("I", 2))
        finally:
            os.close(about)
        self.is_cut = True

    def mount_anew(self):
        """Mounts the file system again. A process that has files open keeps it busy for a while."""
        def is_unmounted():
            return subprocess.run(["umount", self.folder], check=False, capture_output=True).returncode == 0

        until(START_MAX_S, is_unmounted, f"{self.folder} is busy")
        run("mount", "-o", "loop", self.image, self.folder)
        self.is_cut = False

    def freeze(self):
        """Lets all writes hang."""
        run("fsfreeze", "-f", self.folder)

    def thaw(self):
        """Lets writes go on."""
        run("fsfreeze", "-u", self.folder)

    def close(self):
        """Unmounts the file system."""
        subprocess.run(["umount", "-l", str(self.folder)], check=False)


class Hook(http.server.ThreadingHTTPServer):
    """Webhook that accepts events, or answers another status."""

    status = 200

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            """Handler of a message."""

            def do_POST(self):  # noqa: N802
                """Takes a message."""
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(self.server.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Prints nothing."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        """Ends it."""
        self.shutdown()
        self.server_close()

    def url(self):
        """Returns the address for the settings."""
        return f"http://127.0.0.1:{self.server_port}/"


class Certificate:
    """Certificate of loopback that signs itself, and its key."""

    def __init__(self, folder):
        self.folder, self.key, self.file = folder, folder / "key.pem", folder / "certificate.pem"
        folder.mkdir()
        (folder / "index.txt").touch()
        (folder / "settings").write_text(
            f"[ca]\ndefault_ca = own\n[own]\ndatabase = {folder}/index.txt\nnew_certs_dir = {folder}\ndefault_md = sha256\n"
            f"serial = {folder}/serial\npolicy = names\nunique_subject = no\nx509_extensions = more\n"
            "[names]\ncommonName = supplied\n[more]\nsubjectAltName = IP:127.0.0.1\n")
        run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=127.0.0.1",
            "-keyout", self.key, "-out", folder / "request.pem")
        self.make()

    def make(self, lasts_s=365 * 86_400):
        """Replaces the certificate by one that ends after so many seconds."""
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=lasts_s)
        new = self.folder / "new.pem"
        run("openssl", "ca", "-selfsign", "-batch", "-notext", "-create_serial", "-config", self.folder / "settings",
            "-keyfile", self.key, "-in", self.folder / "request.pem", "-out", new, "-enddate", f"{end:%Y%m%d%H%M%SZ}")
        new.replace(self.file)


class Cluster:
    """Three nodes with a device each, their replicators, and a proxy."""

    def __init__(self, folder, hook):
        self.binary, self.folder = pathlib.Path(os.environ["MARTLET_BIN"]).resolve(), folder / "c"
        self.certificate = Certificate(folder / "certificate")
        self.disks = [Disk(folder / f"disk{at}", self.folder / f"n{at}" / "d1") for at in range(1, NODES + 1)]
        self.logs = Disk(folder / "logs.image", folder / "logs")
        self.port, self.apart = free_port(), {}
        variables = {**os.environ, **SETTINGS, "MARTLET_NOTIFICATIONS": f"hook={hook.url()}",
                     "MARTLET_ACCESS_LOG": str(self.logs.folder / "access.log")}
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [self.binary, "cluster", "up", "--data-dir", str(self.folder), "--nodes", str(NODES), "--zones", str(NODES),
                 "--devices-per-node", "1", "--data-ports", "--direct-sockets", "--s3-port", str(self.port)],
                env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def wait(self):
        """Waits until all processes serve, and gives two of them further settings."""
        until(START_MAX_S, lambda: "Ctrl-C stops" in self.log.read_text(), self.log.read_text)
        rows = re.findall(r"^(\w+) +(storage-node|replicator|proxy) +\d+ +(\S+) +(\S+)", self.log.read_text(), re.MULTILINE)
        self.admin = {name: address for name, _, _, address in rows}
        self.addresses = {name: address for name, _, address, _ in rows}
        self.roles = {name: role for name, role, _, _ in rows}
        keys = dict(line.split("=", 1) for line in (self.folder / "credentials").read_text().split())
        self.s3 = S3("127.0.0.1", self.port, keys["MARTLET_ROOT_ACCESS_KEY"], keys["MARTLET_ROOT_SECRET_KEY"])
        self.set("n1", data_tls_certificate=self.certificate.file, data_tls_key=self.certificate.key)
        self.set("p1", notification_spool=SPOOL, audit_log=self.logs.folder / "audit")
        until(START_MAX_S, lambda: self.s3.request("GET", "/")[0] == 200, "the proxy doesn't come back")

    def set(self, name, **settings):
        """Starts a process again with further settings."""
        file = self.folder / name / f"{self.roles[name]}.toml"
        lines = "".join(f'{key} = "{value}"\n' for key, value in settings.items())
        file.write_text(lines + file.read_text())
        self.control("stop", name)
        self.start(name)

    def control(self, verb, *names):
        """Runs `martlet cluster VERB NAME`."""
        return run(self.binary, "cluster", verb, *names, "--data-dir", self.folder)

    def status(self):
        """Returns the state of all processes, as JSON."""
        return self.control("status", "--json")

    def pid(self, name):
        """Returns the id of a process."""
        return next(it["pid"] for it in json.loads(self.status())["processes"] if it["name"] == name)

    def run_apart(self, name, *flags, log=None, **variables):
        """Runs a process outside of `martlet cluster`, with flags of setpriv, another log file, and further variables."""
        about = pathlib.Path(f"/proc/{self.pid(name)}")
        words = [word for word in (about / "cmdline").read_text().split("\0") if word][1:]
        environment = dict(it.split("=", 1) for it in (about / "environ").read_text().split("\0") if "=" in it)
        self.control("stop", name)
        with open(log or self.folder / name / "log", "ab") as file:
            self.apart[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, flags), str(self.binary), *words],
                env=environment | variables, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True)
        until(START_MAX_S, lambda: self.is_ready(name), f"{name} isn't ready")

    def run_within(self, name):
        """Ends a process that runs apart, and lets `martlet cluster` start it again."""
        if process := self.apart.pop(name, None):
            process.terminate()
            process.wait(60)
        self.start(name)

    def is_ready(self, name):
        """Returns true if a process answers and is ready."""
        try:
            return "martlet_ready 1" in self.page(name)
        except OSError:
            return False

    def begin(self, verb, name):
        """Runs `martlet cluster VERB NAME` and doesn't wait for its end."""
        return subprocess.Popen([self.binary, "cluster", verb, name, "--data-dir", str(self.folder)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self, *names):
        """Starts processes again. A port that another process has for a moment is waited for."""
        def is_started(name):
            try:
                return self.control("start", name) or True
            except Failed as failed:
                self.reason = str(failed)
                return "already" in self.reason

        for name in names:
            until(START_MAX_S, lambda name=name: is_started(name), lambda: self.reason)

    def admin_command(self, *arguments):
        """Runs `martlet admin` at the proxy."""
        return run(self.binary, "admin", "--admin-address", self.admin["p1"], "--cluster-key-file",
                   self.folder / "cluster.key", *arguments)

    def page(self, name):
        """Returns the metrics of a process."""
        with urllib.request.urlopen(f"http://{self.admin[name]}/metrics", timeout=10) as reply:
            return reply.read().decode()

    def close(self):
        """Stops all processes and unmounts everything."""
        for process in self.apart.values():
            process.terminate()
            process.wait(60)
        for disk in (*self.disks, self.logs):
            subprocess.run(["fsfreeze", "-u", str(disk.folder)], check=False, capture_output=True)
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for disk in (*self.disks, self.logs):
            disk.close()


class Prometheus:
    """Debian's Prometheus with the rules at a scale. Scaled rules need samples every second, others have Debian's 15 s."""

    def __init__(self, folder, cluster, scale):
        self.port, self.interval_s = free_port(), 15 if scale == 1 else 1
        rules = folder / "rules.yaml"
        rules.write_text(generate.rules_text(alerts.Times(scale), jobs='job=~"martlet-.*"'))
        targets = [{"job_name": f"martlet-{role}", "static_configs": [
            {"targets": [address for name, address in cluster.admin.items() if cluster.roles[name] == role],
             "labels": {"cluster": "test"}}]} for role in ("storage-node", "replicator", "proxy")]
        config = folder / "prometheus.yaml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": f"{self.interval_s}s", "scrape_timeout": "1s" if scale > 1 else "10s",
                       "evaluation_interval": f"{self.interval_s}s"},
            "rule_files": [str(rules)], "scrape_configs": targets}))
        self.log = folder / "prometheus.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [shutil.which("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
                 f"--web.listen-address=127.0.0.1:{self.port}", f"--query.lookback-delta={5 * self.interval_s}s",
                 "--log.level=warn"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        until(START_MAX_S, self.is_ready, self.log.read_text)

    def is_ready(self):
        """Returns true once queries are answered."""
        try:
            return self.get("query", query="vector(1)")["result"]
        except (OSError, Failed):
            return False

    def get(self, call, **parameters):
        """Returns the data of a call of the API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{call}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{parameters}: {error.read().decode()}") from None

    def range(self, expression, start, end):
        """Returns the series of an expression with their samples that are numbers."""
        found = self.get("query_range", query=expression, start=start, end=end, step=1 if end - start < 900 else 3)["result"]
        series = [(it["metric"], [at for at, value in it["values"] if value != "NaN"]) for it in found]
        return [(labels, times) for labels, times in series if times]

    def firing(self):
        """Returns the alerts that fire now, by name."""
        return {it["labels"]["alertname"]: it for it in self.get("alerts")["alerts"] if it["state"] == "firing"}

    def fired(self, start, end):
        """Returns the names of alerts that fired within a time."""
        return {labels["alertname"] for labels, _ in self.range('ALERTS{alertstate="firing"}', start, end)}

    def pending(self, start, end):
        """Returns the seconds for which alerts were pending within a time, by name: those of the series that was so longest."""
        found, step_s = {}, 1 if end - start < 900 else 3
        for labels, times in self.range('ALERTS{alertstate="pending"}', start, end):
            found[labels["alertname"]] = max(found.get(labels["alertname"], 0), len(times) * step_s)
        return found

    def close(self):
        """Stops it."""
        self.process.terminate()
        self.process.wait(30)


class Load:
    """Clients that write, read and list a little all the time."""

    def __init__(self, s3):
        self.s3, self.ends, self.made, self.failed = s3, False, 0, 0
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        """Sends requests until it is closed."""
        at = 0
        while not self.ends:
            at += 1
            name = f"/load/o{at % 40}"
            for method, path in (("PUT", name), ("GET", name), ("HEAD", name), ("GET", "/load")):
                status, _ = self.s3.request(method, path, os.urandom(20_000) if method == "PUT" else b"")
                self.made += 1
                self.failed += status >= 500 or status == 0
            time.sleep(0.2)

    def close(self):
        """Ends it."""
        self.ends = True
        self.thread.join(90)


def folder_of_test():
    """Makes a folder with a short path: sockets have at most 107 bytes."""
    folder = pathlib.Path(f"/tmp/martlet-alerts-{os.getpid()}")
    folder.mkdir()
    return folder
