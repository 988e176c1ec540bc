"""A Debian machine in a folder: packages, services as systemd would start them, and S3 clients outside of it."""

import hashlib
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import time

START_MAX_S = 180
STOP_MAX_S = 150


class Failed(Exception):
    """A check that doesn't hold."""


def check(holds, sentence):
    """Fails with a sentence unless something holds."""
    if not holds:
        raise Failed(sentence)


class Machine:
    """Copy of a clean Debian root, in which commands run by chroot."""

    def __init__(self, clean, folder):
        self.root = folder / "machine"
        subprocess.run(["cp", "-a", "--reflink=auto", clean, self.root], check=True)
        for name, kind in (("proc", "proc"), ("dev", None)):
            source = ["-t", kind, kind] if kind else ["--rbind", "/" + name]
            subprocess.run(["mount", *source, self.root / name], check=True)

    def path(self, name):
        """Returns the path of one of its files, as seen from outside."""
        return self.root / name.lstrip("/")

    def run(self, *command, fails=False, given=None):
        """Runs a command as root, and returns what it printed."""
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C",
                       "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}
        done = subprocess.run(["chroot", self.root, *command], env=environment, text=True, input=given,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        check((done.returncode != 0) == fails, f"{' '.join(command)}: {done.returncode}\n{done.stdout}")
        return done.stdout

    def install(self, package, *flags):
        """Installs a package file by apt, with an operator's changes of settings kept."""
        shutil.copy(package, self.path("/tmp/martlet.deb"))
        return self.run("apt-get", "install", "-y", "-q", "-o", "Dpkg::Options::=--force-confdef",
                        "-o", "Dpkg::Options::=--force-confold", *flags, "/tmp/martlet.deb")

    def check_access(self, name, mode, user, group):
        """Checks mode and owners of a file, by the names that the machine knows."""
        about = self.path(name).stat()
        found = self.run("stat", "-c", "%a %U %G", name).strip()
        check(found == f"{mode:o} {user} {group}", f"{name} is {found}, not {mode:o} {user} {group}")
        return stat.S_IMODE(about.st_mode)

    def unit(self, name, folder="/lib/systemd/system"):
        """Reads a unit of the machine; NAME@INSTANCE.service is an instance of a template."""
        template, _, instance = name.removesuffix(".service").partition("@")
        file = f"{template}@.service" if instance else f"{template}.service"
        text = self.path(f"{folder}/{file}").read_text().replace("%i", instance)
        return Unit(self, name, text)


class Unit:
    """Service of a machine, started as its unit says: user, environment, command line, folders, notification."""

    def __init__(self, machine, name, text):
        self.machine, self.name = machine, name
        pairs = [line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Za-z]+=", line)]
        self.settings = {}
        for key, value in pairs:
            self.settings.setdefault(key, []).append(value)
        check(self.settings["Type"] == ["notify"], f"{name} doesn't wait until the process is ready")
        self.process = self.log = None

    def environment(self):
        """Returns the variables of the unit's environment files; those with `-` may be missing."""
        variables = {}
        for name in self.settings.get("EnvironmentFile", []):
            file = self.machine.path(name.removeprefix("-"))
            if name.startswith("-") and not file.exists():
                continue
            for line in file.read_text().splitlines():
                if line.strip() and not line.startswith(("#", ";")):
                    key, _, value = line.partition("=")
                    if value:
                        variables[key.strip()] = value.strip().strip('"')
        return variables

    def folders(self, user):
        """Makes the state folders, as systemd does before each start."""
        for name in self.settings.get("StateDirectory", [""])[0].split():
            folder = self.machine.path("/var/lib/" + name)
            if not folder.exists():
                self.machine.run("install", "-d", "-o", user, "-g", user, "-m",
                                 self.settings["StateDirectoryMode"][0], f"/var/lib/{name}")

    def start(self, wrapper=()):
        """Starts the service, and waits until it has reported that it is ready."""
        user = self.settings["User"][0]
        self.folders(user)
        inside = f"/run/notify-{self.name}"
        address = self.machine.path(inside)
        address.unlink(missing_ok=True)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(address))
        address.chmod(0o777)
        self.log = self.machine.path(f"/var/log/{self.name}.log")
        with open(self.log, "ab") as log:
            about = os.fstat(log.fileno())
            self.log_from = about.st_size
            variables = {**self.environment(), "NOTIFY_SOCKET": inside, "USER": user, "HOME": "/var/lib/martlet",
                         "PATH": "/usr/bin:/bin", "JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"}
            command = ["/usr/sbin/chroot", f"--userspec={user}:{self.settings['Group'][0]}", str(self.machine.root),
                       *self.settings["ExecStart"][0].split()]
            self.process = subprocess.Popen([*wrapper, *command], env=variables, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, umask=int(self.settings["UMask"][0], 8), start_new_session=True)
        self.heard = []
        self.wait_for("READY=1", START_MAX_S)
        return self

    def wait_for(self, message, limit_s):
        """Waits for a message to the service manager, for as long as the process lives."""
        until = time.monotonic() + limit_s
        self.manager.settimeout(1)
        while message not in self.heard:
            check(time.monotonic() < until, f"{self.name} didn't say {message}:\n{self.printed()}")
            try:
                self.heard += self.manager.recv(65536).decode().splitlines()
            except TimeoutError:
                check(self.process.poll() is None, f"{self.name} ended ({self.process.returncode}):\n{self.printed()}")

    def printed(self):
        """Returns what the service printed since its start."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            log.seek(self.log_from)
            return log.read()

    def stop(self):
        """Stops the service in good order."""
        self.process.send_signal(signal.SIGTERM)
        self.wait_for_end("STOPPING=1")
        check(self.process.returncode == 0, f"{self.name} ended with {self.process.returncode}:\n{self.printed()}")
        self.manager.close()

    def wait_for_end(self, message):
        """Waits for a last message and the end of the process."""
        self.process.wait(STOP_MAX_S)
        self.manager.settimeout(1)
        while message not in self.heard:
            try:
                self.heard += self.manager.recv(65536).decode().splitlines()
            except TimeoutError:
                raise Failed(f"{self.name} ended without {message}") from None

    def kill(self):
        """Ends the service as a power cut would end it."""
        self.process.kill()
        self.process.wait()
        self.manager.close()


class S3:
    """S3 client outside of the machine: curl with signatures of version 4."""

    def __init__(self, credentials, endpoint="http://127.0.0.1:9000"):
        self.endpoint = endpoint
        self.key, self.secret = credentials

    def request(self, method, path, body=None, expect="200"):
        """Sends a request, checks its status, and returns the body of the reply."""
        # The secret goes through standard input, where no list of processes shows it.
        config = [f'user = "{self.key}:{self.secret}"', 'aws-sigv4 = "aws:amz:us-east-1:s3"', f'request = "{method}"',
                  f'url = "{self.endpoint}{path}"', 'header = "x-amz-content-sha256: UNSIGNED-PAYLOAD"', 'write-out = "\\n%{http_code}"', "silent", "max-time = 120"]
        if body is not None:
            config.append(f'data-binary = "@{body}"')
            config.append('header = "content-type: application/octet-stream"')
        done = subprocess.run(["curl", "-K", "-"], input="\n".join(config).encode(), stdout=subprocess.PIPE, check=False)
        reply, _, status = done.stdout.rpartition(b"\n")
        check(status.decode() == expect, f"{method} {path}: {status.decode()} {reply[:400]}")
        return reply


def credentials_of(path):
    """Reads root credentials from a file that a server has made."""
    lines = dict(line.split("=", 1) for line in path.read_text().split())
    return lines["MARTLET_ROOT_ACCESS_KEY"], lines["MARTLET_ROOT_SECRET_KEY"]


def fetch(url):
    """Returns status and body of a plain GET."""
    done = subprocess.run(["curl", "-s", "-m", "10", "-w", "\n%{http_code}", url], stdout=subprocess.PIPE, check=False)
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status or 0), body


def random_file(folder, size):
    """Makes a file of random bytes, and returns its path and SHA-256."""
    path = pathlib.Path(folder) / f"random-{size}"
    path.write_bytes(os.urandom(size))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def digest(body):
    """Returns the SHA-256 of bytes."""
    return hashlib.sha256(body).hexdigest()
