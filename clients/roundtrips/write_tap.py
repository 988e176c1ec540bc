"""A TCP relay before the server that counts requests which write, and kills a saver before one of them.

It reads requests of HTTP/1.1 as far as it must: heads, and the lengths of bodies. Bytes go through unchanged,
so signatures stay right. A process is killed with its group, and all that it had under way is cut.
"""

import os
import re
import signal
import socket
import threading
import time
from urllib.parse import urlsplit

WRITES = (b"PUT ", b"POST ", b"DELETE ")
CHUNK_BYTES = 1 << 16
HEAD_BYTES_MAX = 1 << 16
SETTLE_S = 10


class Closed(Exception):
    """A connection ended, or was cut."""


class WriteTap:
    """Relays connections on a loopback port of its own to the server at `endpoint`."""

    def __init__(self, endpoint):
        self.server = urlsplit(endpoint)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        self.writes, self.doomed, self.kill_at, self.relayed = 0, None, None, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def begin(self, pid, kill_at=None):
        """Counts from zero. The group of process `pid` is killed before its write `kill_at`, counted from 1."""
        with self.lock:
            self.writes, self.doomed, self.kill_at = 0, pid, kill_at

    def settle(self):
        """Waits until nothing of a killed process is on its way."""
        deadline = time.monotonic() + SETTLE_S
        while self.relayed and time.monotonic() < deadline:
            time.sleep(0.05)

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client):
        with self.lock:
            self.relayed += 1
        try:
            self._relay_all(client)
        finally:
            with self.lock:
                self.relayed -= 1

    def _relay_all(self, client):
        with client, socket.create_connection((self.server.hostname, self.server.port)) as server:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            try:
                requests = Requests(client, server)
                while True:
                    head = requests.head()
                    if head.startswith(WRITES):
                        self._count()
                    requests.forward(head)
            except (Closed, OSError):
                pass
            shut(server)
            back.join(60)

    def _count(self):
        with self.lock:
            self.writes += 1
            if self.kill_at is None or self.writes < self.kill_at:
                return
            if self.writes == self.kill_at and self.doomed:
                os.killpg(self.doomed, signal.SIGKILL)
        raise Closed


class Requests:
    """Requests on one connection."""

    def __init__(self, client, server):
        self.client, self.server, self.pending = client, server, b""

    def head(self):
        while b"\r\n\r\n" not in self.pending:
            if len(self.pending) > HEAD_BYTES_MAX:
                raise Closed
            self._more()
        head, _, self.pending = self.pending.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def forward(self, head):
        """Sends a head and the body that belongs to it."""
        self.server.sendall(head)
        if re.search(rb"\r\ntransfer-encoding: *chunked", head, re.IGNORECASE):
            self._forward_chunks()
        elif length := re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE):
            self._forward_bytes(int(length[1]))

    def _forward_chunks(self):
        while True:
            line = self._line()
            length = int(line.split(b";")[0], 16)
            self.server.sendall(line)
            if length == 0:
                break
            self._forward_bytes(length + 2)
        while True:
            line = self._line()
            self.server.sendall(line)
            if line == b"\r\n":
                return

    def _line(self):
        while b"\r\n" not in self.pending:
            self._more()
        line, _, self.pending = self.pending.partition(b"\r\n")
        return line + b"\r\n"

    def _forward_bytes(self, count):
        while count:
            if not self.pending:
                self._more()
            piece, self.pending = self.pending[:count], self.pending[count:]
            self.server.sendall(piece)
            count -= len(piece)

    def _more(self):
        more = self.client.recv(CHUNK_BYTES)
        if not more:
            raise Closed
        self.pending += more


def pump(source, sink):
    """Sends what comes from one socket to another until either ends."""
    try:
        while piece := source.recv(CHUNK_BYTES):
            sink.sendall(piece)
    except OSError:
        pass
    shut(sink)


def shut(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
