"""Client of a storage node's direct socket: descriptors of extents on this machine, with their checksums.

A token of locate is exchanged for a lease and two read-only descriptors. The node doesn't verify what is read from
them: every block is compared here. A lease that has ended can only shorten reads, which is an error that the caller
answers by another source.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import socket
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from . import forks
from .blocks import Receiver
from .errors import ConnectionLost, MartletError, ProtocolError
from .pieces import Piece
from .plan import Fetch, parts
from .settings import BLOCK_BYTES
from .transport import Place

MAGIC = b"MDS1"
HEAD = struct.Struct("<4sBBHQ")
LEASE, RELEASE, GRANTED, REFUSED, REVOKED, RELEASED = 1, 2, 129, 130, 131, 132
GRANT = struct.Struct("<QQQQII")
REVOCATION = struct.Struct("<QQ")
PACKET_BYTES = 8192
TOKEN_BYTES_MAX = 4096
PIECE_ID = re.compile("[0-9a-f]{32}")
BLOCKS_MAX = 1024
# Below the node's 64 leases of a connection, so that a lease is released before another one is needed.
LEASES_MAX = 32
PAGE = 4096
REPLY_S = 10.0
# Leases are given up this long before they end.
MARGIN_S = 10.0
# Refusals that hold for the whole socket: this user is served nothing.
FOR_ALL = frozenset({2, 10})
# Refusal of an extent that this node doesn't hold: another node of this machine may.
ABSENT = 7
PAUSE_S = 30.0


class Refusal(MartletError):
    """Refusal of a lease, with the code of the node."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Lease:
    """Right to read one extent by descriptors, as long as its connection lives."""

    number: int
    offset: int
    length: int
    expires_s: float
    sums: tuple[int, ...] = field(repr=False)
    #: Descriptor that uses the page cache.
    plain: int
    #: Descriptor with O_DIRECT.
    uncached: int
    has_uncached: bool
    read_only_mount: bool
    users: int = 0
    over: bool = False

    @property
    def path(self) -> str:
        """Path by which libraries that take no descriptor, such as cuFile, open the file."""
        return f"/proc/self/fd/{self.uncached if self.has_uncached else self.plain}"

    def close(self) -> None:
        """Closes both descriptors."""
        for descriptor in (self.plain, self.uncached):
            os.close(descriptor)


class DirectSocket:
    """Connection to a direct socket, with the leases that it keeps. Threads may share it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._leases: OrderedDict[str, Lease] = OrderedDict()
        self._requests = 0
        self._off_until = 0.0
        #: Data port of the node behind the socket, once a lease was granted: other nodes may run on this machine.
        self.home: Place | None = None
        forks.register(self)

    def after_fork(self) -> None:
        """Closes descriptors of the parent's leases; the parent keeps its own."""
        self._lock = threading.Lock()
        leases, self._leases = self._leases, OrderedDict()
        for lease in leases.values():
            lease.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def usable(self) -> bool:
        """False for a while after the socket served nothing."""
        return time.monotonic() >= self._off_until

    @contextmanager
    def lease(self, piece_id: str, token: str, place: Place | None = None) -> Iterator[Lease]:
        """Borrows the lease of an extent; its descriptors stay open within the block.

        `place` is the data port of the holder that the token names. It is the socket's own if the token is granted.
        """
        with self._lock:
            found = self._find(piece_id)
            if found is None:
                found = self._request(piece_id, token)
                self.home = place or self.home
            found.users += 1
        try:
            yield found
        finally:
            with self._lock:
                found.users -= 1
                if found.over and not found.users:
                    found.close()

    def close(self) -> None:
        """Ends all leases."""
        with self._lock:
            self._reset()

    def _find(self, piece_id: str) -> Lease | None:
        self._take_notices()
        found = self._leases.get(piece_id)
        if found is None:
            return None
        if time.time() > found.expires_s - MARGIN_S:
            self._drop(piece_id)
            return None
        self._leases.move_to_end(piece_id)
        return found

    def _request(self, piece_id: str, token: str) -> Lease:
        text = token.encode()
        if len(text) > TOKEN_BYTES_MAX or not PIECE_ID.fullmatch(piece_id):
            raise ProtocolError(f"{self.path}: the token or the id doesn't fit a packet")
        while len(self._leases) >= LEASES_MAX:
            self._drop(next(iter(self._leases)))
        try:
            self._requests += 1
            number = self._requests
            self._send(HEAD.pack(MAGIC, LEASE, 0, 0, number) + bytes.fromhex(piece_id) + text)
            lease = self._await(number)
        except Refusal as error:
            if error.code in FOR_ALL:
                self._off_until = time.monotonic() + PAUSE_S
            raise
        except (OSError, ConnectionLost) as error:
            self._reset()
            self._off_until = time.monotonic() + PAUSE_S
            raise ConnectionLost(f"{self.path}: {error}") from error
        self._leases[piece_id] = lease
        return lease

    def _send(self, packet: bytes) -> None:
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            made.settimeout(REPLY_S)
            try:
                made.connect(self.path)
            except OSError:
                made.close()
                raise
            self._socket = made
        self._socket.send(packet)

    def _await(self, number: int) -> Lease:
        """Receives packets up to the reply to a request."""
        deadline = time.monotonic() + REPLY_S
        while time.monotonic() < deadline:
            kind, code, request, flags, rest, descriptors = self._receive()
            if kind == GRANTED and request == number:
                return _granted(flags, rest, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            if kind == REFUSED and request in (number, 0):
                raise Refusal(f"{self.path}: {rest.decode(errors='replace')[:300]} (code {code})", code)
            self._notice(kind, rest)
        raise ConnectionLost(f"no reply within {REPLY_S:g} s")

    def _receive(self) -> tuple[int, int, int, int, bytes, list[int]]:
        assert self._socket is not None  # noqa: S101
        packet, descriptors, _, _ = socket.recv_fds(self._socket, PACKET_BYTES, 2, socket.MSG_CMSG_CLOEXEC)
        if len(packet) < HEAD.size:
            for descriptor in descriptors:
                os.close(descriptor)
            raise ConnectionLost("the node closed the connection")
        magic, kind, said, code, request = HEAD.unpack_from(packet)
        if magic != MAGIC:
            for descriptor in descriptors:
                os.close(descriptor)
            raise ConnectionLost("the peer is no direct socket")
        return kind, code, request, said, packet[HEAD.size :], list(descriptors)

    def _take_notices(self) -> None:
        """Takes revocations that have come meanwhile."""
        while self._socket is not None:
            # A flag wouldn't do: Python waits for a socket with a timeout whatever the flags are.
            ready = select.poll()
            ready.register(self._socket, select.POLLIN)
            if not ready.poll(0):
                return
            try:
                kind, _, _, _, rest, descriptors = self._receive()
            except (OSError, ConnectionLost):
                self._reset()
                return
            for descriptor in descriptors:
                os.close(descriptor)
            self._notice(kind, rest)

    def _notice(self, kind: int, rest: bytes) -> None:
        if kind != REVOKED or len(rest) < REVOCATION.size:
            return
        number, _ = REVOCATION.unpack_from(rest)
        for piece_id, lease in list(self._leases.items()):
            if lease.number == number:
                self._drop(piece_id)

    def _drop(self, piece_id: str) -> None:
        """Releases a lease; its descriptors close once nobody reads from them."""
        lease = self._leases.pop(piece_id)
        lease.over = True
        if not lease.users:
            lease.close()
        if self._socket is not None:
            self._requests += 1
            try:
                packet = HEAD.pack(MAGIC, RELEASE, 0, 0, self._requests) + struct.pack("<Q", lease.number)
                self._socket.send(packet)
            except OSError:
                return

    def _reset(self) -> None:
        connection, self._socket = self._socket, None
        for piece_id in list(self._leases):
            self._drop(piece_id)
        if connection is not None:
            connection.close()


def _granted(flags: int, rest: bytes, descriptors: list[int]) -> Lease:
    """Parses a grant; descriptors of a wrong one are closed."""
    try:
        if len(descriptors) != 2 or len(rest) < GRANT.size:
            raise ConnectionLost(f"a grant came with {len(descriptors)} descriptors and {len(rest)} bytes")
        number, offset, length, expires_ms, block, count = GRANT.unpack_from(rest)
        if block != BLOCK_BYTES or count > BLOCKS_MAX or count != -(-length // BLOCK_BYTES):
            raise ConnectionLost(f"a grant of {length} bytes has {count} blocks of {block} bytes")
        if len(rest) != GRANT.size + 4 * count:
            raise ConnectionLost("a grant has another length than its checksums")
    except ConnectionLost:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    sums = struct.unpack_from(f"<{count}I", rest, GRANT.size)
    plain, uncached = descriptors
    return Lease(number, offset, length, expires_ms / 1000, sums, plain, uncached, bool(flags & 2), bool(flags & 1))


def read(lease: Lease, fetch: Fetch, piece: Piece, scratch: memoryview, uncached: bool) -> None:
    """Reads the parts of a request from the file of a leased extent, and compares every block."""
    first, end = fetch.start - piece.start, fetch.end - piece.start
    if piece.length != lease.length:
        raise ProtocolError(f"extent {piece.id} has {lease.length} bytes in its file, {piece.length} by locate")
    source = _File(lease, first, uncached)
    sums = lease.sums[first // BLOCK_BYTES : -(-end // BLOCK_BYTES)]
    Receiver(source, sums, scratch, f"the file of extent {piece.id}").receive(parts(fetch))


class _File:
    """Bytes of an extent from a place on, as a `Receiver` takes them."""

    def __init__(self, lease: Lease, at: int, uncached: bool) -> None:
        self._lease = lease
        self._at = at
        self._uncached = uncached and lease.has_uncached

    def read_into(self, view: memoryview) -> None:
        """Fills a view with the next bytes."""
        done, size = 0, view.nbytes
        while done < size:
            rest, place = view[done:], self._lease.offset + self._at + done
            if self._uncached and aligned(rest, place):
                descriptor, rest = self._lease.uncached, rest[: rest.nbytes // PAGE * PAGE]
            else:
                descriptor = self._lease.plain
            try:
                count = os.preadv(descriptor, [rest], place)
            except OSError as error:
                raise ConnectionLost(f"the extent's file can't be read: {error}") from error
            if count == 0:
                raise ConnectionLost("the extent's file was shortened: its lease has ended")
            done += count
        self._at += size

    def discard(self, size: int, scratch: memoryview) -> None:  # noqa: ARG002
        """Passes over bytes that nobody needs."""
        self._at += size


def aligned(view: memoryview, place: int) -> bool:
    """Returns true if O_DIRECT can read at least one page from a place of the file into a view."""
    if place % PAGE or view.nbytes < PAGE:
        return False
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % PAGE == 0
