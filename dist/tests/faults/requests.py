"""Faults of requests, readers in place, checkpoints, connections and certificates."""

import json
import os
import resource
import socket
import ssl
import threading
import time
import urllib.parse

from faults.fault import Fault
from watched import check

LARGE = 8 << 20
# Uploads for all turns (MARTLET_MAX_REQUESTS), and more readers than may wait for one.
HOLDERS, WAITERS, HOLDS_S = 8, 40, 3.5
# Descriptors beyond those in use that a process may open, and the share of all at which connections come no more.
SPARE_DESCRIPTORS, FULL_SHARE = 200, 0.92


class UnfinishedCheckpoint(Fault):
    """A generation waits for an hour, and an operator gives it up."""

    expected = ("MartletCheckpointPending",)

    def begin(self):
        for name in ("a", "done"):
            check(self.s3.request("PUT", f"/train/run-1/step-1/{name}", b"x" * 9000)[0] == 200, "the checkpoint isn't taken")

    def end(self):
        for name in ("done", "a"):
            self.s3.request("DELETE", f"/train/run-1/step-1/{name}")
        self.cluster.admin_command("checkpoints", "withdraw", "train", "run-1/step-1/", "--generation", "1")


class LeavingReaders(Fault):
    """Clients that read in place leave in the middle of replies."""

    expected = ("MartletDataPortCut",)
    # The certificate of a data port is its own: nothing vouches for it.
    trusting = ssl._create_unverified_context()  # noqa: SLF001

    def begin(self):
        check(self.s3.request("PUT", "/large/whole", os.urandom(LARGE))[0] == 200, "a large object isn't taken")

    def go_on(self):
        located = json.loads(self.s3.request("GET", "/large/whole", query={"locate": ""})[1])
        for holder in located["extents"][0]["pieces"][0]["holders"]:
            url = urllib.parse.urlsplit(holder["url"])
            with socket.socket() as bare:
                bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
                bare.settimeout(10)
                bare.connect((url.hostname, url.port))
                with self.trusting.wrap_socket(bare) if url.scheme == "https" else bare as one:
                    one.sendall(f"GET {url.path}?t={holder['token']} HTTP/1.1\r\nhost: {url.netloc}\r\n\r\n".encode())
                    one.recv(4096)


class Herd(Fault):
    """Many readers of one object: no fault, but what makes windows be shared."""

    def go_on(self):
        readers = [threading.Thread(target=self.s3.request, args=("GET", "/large/herd")) for _ in range(8)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    def begin(self):
        self.s3.request("PUT", "/large/herd", os.urandom(LARGE))


class Overload(Fault):
    """Uploads that stall have all turns, for seconds at a time. Readers wait for theirs, and further ones are refused."""

    expected = ("MartletSlowDown", "MartletReadsSlow", "MartletErrors")
    ends = False

    def begin(self):
        self.hold()
        self.waiters = [threading.Thread(target=self.wait, daemon=True) for _ in range(WAITERS)]
        for waiter in self.waiters:
            waiter.start()

    def hold(self):
        self.held = [self.s3.hold(f"/load/held{at}", 1 << 20) for at in range(HOLDERS)]
        self.since = time.monotonic()

    def release(self):
        for connection in self.held:
            connection.close()

    def wait(self):
        while not self.ends:
            self.s3.request("GET", "/load/o1")
            time.sleep(0.5)

    def go_on(self):
        if time.monotonic() > self.since + HOLDS_S:
            self.release()
            time.sleep(0.3)
            self.hold()

    def end(self):
        self.ends = True
        self.release()
        for waiter in self.waiters:
            waiter.join(90)


class IdleConnections(Fault):
    """Clients open connections without end, and a proxy's limit of descriptors is low."""

    expected = ("MartletDescriptorsLow",)

    def begin(self):
        self.connections, self.pid = [], self.cluster.pid("p1")
        self.before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        self.limit = self.open() + SPARE_DESCRIPTORS
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (self.limit, self.before[1]))

    def open(self):
        """Returns the number of the proxy's open descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def go_on(self):
        for _ in range(max(0, int(FULL_SHARE * self.limit) - self.open())):
            self.connections.append(socket.create_connection((self.s3.host, self.s3.port), 10))

    def end(self):
        for connection in self.connections:
            connection.close()
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.before)


class EndingCertificate(Fault):
    """The certificate of a data port ends within the hour."""

    expected = ("MartletCertificateEnds",)

    def begin(self):
        self.cluster.certificate.make(3600)

    def end(self):
        self.cluster.certificate.make()
