"""Limits of this machine without an object store: nginx with sendfile, a data port's floor, bare files, direct reads."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from martlet import bench, binary, free_port

BUCKET = "martlet-bench"
# Reads of each file by `parallel_reads`: one of 256 MiB takes less than half a second.
LOOPS = 8
READY_S = 60
CONFIGURATION = """\
{user}
worker_processes auto;
worker_rlimit_nofile 16384;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    open_file_cache max=10000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {host}:{port};
        root {folder}/www;
    }}
}}
"""


class Nginx:
    """nginx over a folder of its own, for as long as the `with` lasts. `within` are words that run it elsewhere."""

    def __init__(self, folder, host="127.0.0.1", within=()):
        self.folder, self.host, self.within = folder, host, within

    def __enter__(self):
        (self.folder / "www").mkdir(parents=True)
        self.port = free_port()
        # Another user could not look into every folder that files are measured in.
        user = "user root;" if os.geteuid() == 0 else ""
        text = CONFIGURATION.format(user=user, folder=self.folder, host=self.host, port=self.port)
        (self.folder / "nginx.conf").write_text(text)
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        command = [*self.within, program, "-c", str(self.folder / "nginx.conf"), "-g", "daemon off;"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def prepare(self, prefix, size, count):
        """Makes files where Martlet has objects."""
        folder = self.folder / "www" / BUCKET / prefix
        folder.mkdir(parents=True)
        for index in range(count):
            (folder / f"{index:08}").write_bytes(os.urandom(size))

    def bench(self, *arguments):
        """Runs the load generator against it, without signatures."""
        pids = ",".join(map(str, self.pids()))
        endpoint = ["--endpoint", f"http://127.0.0.1:{self.port}", "--pid", pids]
        return bench(*endpoint, "--unsigned", *arguments)

    def pids(self):
        """The master and its workers."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [self.process.pid, *(int(pid) for pid in task.read_text().split())]


class PortFloor:
    """The necessary work of a data port over a folder's files for as long as the `with` lasts.

    `work` is `verified` or `sent`. With `threads`, so many threads wait for all sockets at once; without, each
    connection has a thread.
    """

    def __init__(self, folder, work, host="127.0.0.1", within=(), threads=0):
        self.folder, self.work, self.host, self.within, self.threads = folder, work, host, within, threads

    def __enter__(self):
        program = Path(binary()).with_name("martlet-port-floor")
        if not program.exists():
            raise SystemExit(f"there is no {program}: cargo build --release --locked --package martlet-port-floor")
        self.port = free_port()
        command = [*self.within, str(program), f"{self.host}:{self.port}", str(self.folder), self.work,
                   *([str(self.threads)] if self.threads else [])]
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + READY_S
        while True:
            try:
                socket.create_connection((self.host, self.port), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.__exit__()
                    raise SystemExit("martlet-port-floor does not start") from None
                time.sleep(0.1)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def endpoint(self):
        """URL of the folder; of a path its last part counts."""
        return f"http://{self.host}:{self.port}"

    def pids(self):
        """The one process."""
        return [self.process.pid]


def baseline(op, *arguments):
    """A baseline of `martlet bench`: necessary work with the product's algorithms, without a server."""
    return bench("--op", op, *arguments)


def parallel_reads(files):
    """Direct reads by fio, each file by one stream, `LOOPS` times; bytes in a second of all together."""
    jobs = [word for number, file in enumerate(files) for word in (f"--name=j{number}", f"--filename={file}")]
    return direct_bytes_per_s("--readonly", f"--loops={LOOPS}", *jobs)


def direct_reads(folder, size):
    """One stream of direct reads by fio, of a file as large as all that Martlet reads."""
    bytes_per_s = direct_bytes_per_s("--name=read", f"--filename={folder / 'direct'}", f"--size={size}")
    return {"megabytes_per_s": bytes_per_s / 1e6}


def direct_bytes_per_s(*words):
    """Runs fio's direct reads of 1 MiB; bytes in a second of all jobs together."""
    command = ["fio", "--output-format=json", "--name=global", "--rw=read", "--bs=1M", "--direct=1",
               "--ioengine=psync", "--group_reporting", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    # Notes of fio may stand before its JSON.
    result = json.loads(done.stdout[done.stdout.index("{"):])
    return sum(job["read"]["bw_bytes"] for job in result["jobs"])
