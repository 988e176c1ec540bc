"""What this machine can do without an object store: nginx with sendfile, and bare files."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from martlet import bench, free_port

BUCKET = "martlet-bench"
CONFIGURATION = """\
{user}
worker_processes auto;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    open_file_cache max=1000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/www;
    }}
}}
"""


class Nginx:
    """nginx over a folder of its own, for as long as the `with` lasts."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        (self.folder / "www").mkdir(parents=True)
        self.port = free_port()
        # Another user could not look into every folder that files are measured in.
        user = "user root;" if os.geteuid() == 0 else ""
        text = CONFIGURATION.format(user=user, folder=self.folder, port=self.port)
        (self.folder / "nginx.conf").write_text(text)
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        command = [program, "-c", str(self.folder / "nginx.conf"), "-g", "daemon off;"]
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
        pids = ",".join(map(str, [self.process.pid, *self._workers()]))
        endpoint = ["--endpoint", f"http://127.0.0.1:{self.port}", "--pid", pids]
        return bench(*endpoint, "--unsigned", *arguments)

    def _workers(self):
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]


def bare_files(folder, duration, size, threads, *arguments):
    """What threads without a server reach that make what they write durable."""
    return bench("--op", "files", "--dir", str(folder), "--size", size, "--concurrency",
                 str(threads), *duration, *arguments)
