"""Fake of a node's direct socket, which lends files of a temporary folder and plays faults."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c

BLOCK = 65_536
HEAD = struct.Struct("<4sBBHQ")
LATE_S = 0.5


class DirectNode:
    """Node that lends the extents of a fake cluster."""

    def __init__(self, folder: Path, pieces: dict[str, bytes]) -> None:
        self.path = str(folder / "direct.sock")
        self.folder = folder
        self.pieces = pieces
        self.refuse = 0
        self.wrong = ""
        self.granted: list[str] = []
        self.released: list[int] = []
        self.connections: list[socket.socket] = []
        #: Held while this fake has files open itself: all others are the client's.
        self.opened = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        # A thread between two calls must not find another test's socket under its number: they end before the close.
        sockets = [self._listener, *self.connections]
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for one in sockets:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self._begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        while True:
            try:
                packet = connection.recv(8192)
            except OSError:
                return
            if not packet:
                return
            _, kind, _, _, request = HEAD.unpack_from(packet)
            if kind == 1:
                self._lend(connection, request, packet[16:32].hex())
            else:
                (number,) = struct.unpack_from("<Q", packet, 16)
                self.released.append(number)
                connection.send(HEAD.pack(b"MDS1", 132, 0, 0, request) + packet[16:24])

    def _lend(self, connection: socket.socket, request: int, name: str) -> None:
        if self.wrong == "hang up":
            connection.close()
            return
        if self.refuse:
            connection.send(HEAD.pack(b"MDS1", 130, 0, self.refuse, request) + b"a sentence")
            return
        if self.wrong == "late":
            time.sleep(LATE_S)
        with self.opened:
            self._grant(connection, request, name)

    def _grant(self, connection: socket.socket, request: int, name: str) -> None:
        body = self.pieces[name]
        file = self.file(name)
        file.write_bytes(body + bytes(-len(body) % 4096))
        sums = [crc32c(body[at : at + BLOCK]) for at in range(0, len(body), BLOCK)]
        if self.wrong == "flip":
            file.write_bytes(bytes([body[0] ^ 1]) + body[1:])
        if self.wrong == "sums":
            sums.pop()
        self.granted.append(name)
        grant = struct.pack(
            "<QQQQII", len(self.granted), 0, len(body), int(time.time() * 1000) + 3_600_000, BLOCK, len(sums)
        )
        grant += struct.pack(f"<{len(sums)}I", *sums)
        plain, uncached = os.open(file, os.O_RDONLY), os.open(file, os.O_RDONLY | os.O_DIRECT)
        try:
            socket.send_fds(
                connection,
                [HEAD.pack(b"MDS1", 129, 3, 0, request) + grant],
                [plain] if self.wrong == "descriptors" else [plain, uncached],
            )
        except OSError:
            return  # The client has left: this grant came too late.
        finally:
            os.close(plain)
            os.close(uncached)

    def file(self, name: str) -> Path:
        return self.folder / name

    def revoke(self, number: int) -> None:
        self.connections[-1].send(HEAD.pack(b"MDS1", 131, 0, 4, 0) + struct.pack("<QQ", number, 0))
