"""HTTP/1.1 over pooled sockets, whose bodies are received straight into the caller's memory.

A connection reads a reply's head into a small buffer of its own. The body goes by `recv_into` to where it is
wanted: no copy but the kernel's. Timeouts are the kernel's too, so that one call can wait for a whole chunk.
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from . import forks
from .errors import ConnectionLost, MartletError, ProtocolError, Silence, Untrusted

HEAD_BYTES = 16 << 10
HEAD_BYTES_MAX = 256 << 10
# One receive: small enough that its bytes are still in the core's cache when their checksum is taken.
CHUNK_BYTES = 512 << 10
# Servers close idle connections: an older one is likely to be dead.
IDLE_S = 15.0
IDLE_PER_PLACE = 64
SUSPECTS_MAX = 4096
SCRATCH_BYTES = 64 << 10
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,12}")
# Replies of status 1xx before the final one, and lines after the last chunk.
INTERIM_MAX = TRAILERS_MAX = 16
# Linux waits for the whole chunk in one call. TLS has no such flag.
WAIT_ALL = socket.MSG_WAITALL if hasattr(socket, "MSG_WAITALL") else 0


@dataclass(frozen=True)
class Place:
    """Host, port and scheme of a server."""

    host: str
    port: int
    tls: bool

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}"


def place_of(url: str) -> Place:
    """Parses the scheme, host and port of a URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise MartletError(f"{url.split('?')[0]!r} is no URL of a server: write http://HOST:PORT or https://HOST:PORT")
    tls = parts.scheme == "https"
    return Place(parts.hostname, parts.port or (443 if tls else 80), tls)


@dataclass(frozen=True)
class Timeouts:
    """Limits of a connection."""

    connect_s: float
    idle_s: float


@dataclass
class Head:
    """Status and headers of a reply; names of headers are in lower case."""

    status: int
    headers: dict[str, str]

    @property
    def length(self) -> int | None:
        """Length of the body, unless it is chunked."""
        value = self.headers.get("content-length")
        if value is None:
            return None
        found = whole(value)
        if found is None:
            raise ProtocolError(f"the reply's Content-Length is {value[:40]!r}")
        return found


def whole(text: str) -> int | None:
    """Parses a number of at most 18 decimal digits; None for anything else, such as a sign or another alphabet."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


# First bytes of TLS's answer to a request in clear.
TLS_ALERT = b"\x15\x03"
# OpenSSL's reasons for bytes that aren't TLS.
NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})


class Connection:
    """One socket, which carries one exchange at a time."""

    def __init__(self, place: Place, timeouts: Timeouts, context: ssl.SSLContext | None) -> None:
        self.place = place
        self.used_at = 0.0
        self.exchanges = 0
        self._buffer = bytearray(HEAD_BYTES)
        self._have = self._at = 0
        self._left: int | None = 0
        self._close = False
        self._idle_s = timeouts.idle_s
        try:
            plain = socket.create_connection((place.host, place.port), timeout=timeouts.connect_s)
        except (OSError, UnicodeError) as error:
            # A name that DNS can't carry is no OSError.
            raise ConnectionLost(f"{place} can't be reached: {error}") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket: socket.socket = plain
            self._wait_all = 0
            if place.tls:
                context = context or ssl.create_default_context()
                self._socket = context.wrap_socket(plain, server_hostname=place.host)
                self._socket.settimeout(timeouts.idle_s)
            else:
                self._use_kernel_timeouts(plain, timeouts.idle_s)
        except OSError as error:
            plain.close()
            raise unusable(place, error) from error
        except ValueError as error:
            plain.close()
            raise ConnectionLost(f"{place} has a name that TLS can't carry: {error}") from error

    def _use_kernel_timeouts(self, plain: socket.socket, idle_s: float) -> None:
        if os.name != "posix":
            plain.settimeout(idle_s)
            return
        plain.settimeout(None)
        limit = struct.pack("ll", int(idle_s), max(1000, int(idle_s % 1 * 1e6)))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._wait_all = WAIT_ALL

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    @property
    def reusable(self) -> bool:
        """True when the last body was read to its end, nothing came after it, and the server keeps the connection."""
        return self._left == 0 and not self._close and self._at == self._have

    @property
    def quiet(self) -> bool:
        """False if the server has closed the connection, or has sent bytes that nothing asked for."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return False
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        return not ready.poll(0)

    def send(self, method: str, target: str, headers: Mapping[str, str], body: memoryview | None = None) -> Head:
        """Sends a request and receives the head of its reply."""
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if any("\r" in line or "\n" in line for line in lines):
            raise MartletError("a name or a header has a line break, which HTTP can't carry")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._left, self._close = None, True
        try:
            self._socket.sendall(head)
            if body is not None and body.nbytes:
                self._socket.sendall(body)
        except OSError as error:
            return self._early_reply(error)
        for _ in range(INTERIM_MAX):
            reply = self._head()
            if not 100 <= reply.status < 200:
                self._expect(method, reply)
                return reply
        raise ProtocolError(f"{self.place} sent {INTERIM_MAX} interim replies and no final one")

    def _early_reply(self, error: OSError) -> Head:
        """Returns the refusal of a server that closes before it has received the whole body."""
        try:
            reply = self._head()
        except Untrusted:
            raise
        except (ConnectionLost, ProtocolError):
            raise ConnectionLost(f"{self.place} broke the connection while it was sent a request: {error}") from error
        self._expect("PUT", reply)
        self._close = True
        return reply

    def _expect(self, method: str, reply: Head) -> None:
        if method == "HEAD" or reply.status in (204, 304):
            self._left = 0
        else:
            self._left = reply.length
        self._close = reply.headers.get("connection", "").lower() == "close"
        self.exchanges += 1

    def _head(self) -> Head:
        end = self._buffer.find(b"\r\n\r\n", self._at, self._have)
        while end < 0:
            if self._at:
                self._buffer[: self._have - self._at] = self._buffer[self._at : self._have]
                self._have, self._at = self._have - self._at, 0
            if self._have == len(self._buffer):
                if len(self._buffer) >= HEAD_BYTES_MAX:
                    raise ProtocolError(f"{self.place} sent a head of more than {HEAD_BYTES_MAX} bytes")
                self._buffer = self._buffer + bytearray(len(self._buffer))
            searched = max(0, self._have - 3)
            self._have += self._receive(memoryview(self._buffer)[self._have :], 0)
            if self._buffer.startswith(TLS_ALERT) and not self.place.tls:
                raise Untrusted(f"{self.place} speaks TLS: its address must begin with https://")
            end = self._buffer.find(b"\r\n\r\n", searched, self._have)
        head = parse_head(bytes(self._buffer[self._at : end]))
        self._at = end + 4
        return head

    def _receive(self, view: memoryview, flags: int) -> int:
        try:
            count = self._socket.recv_into(view, 0, flags) if flags else self._socket.recv_into(view)
        except (BlockingIOError, TimeoutError) as error:
            raise Silence(f"{self.place} sent nothing for {self._idle_s:g} s") from error
        except OSError as error:
            raise ConnectionLost(f"{self.place} broke the connection: {error}") from error
        if count == 0:
            raise ConnectionLost(f"{self.place} closed the connection in mid-reply")
        return count

    def read_into(self, view: memoryview) -> None:
        """Receives exactly the bytes that fill a view."""
        size = view.nbytes
        if self._left is None or size > self._left:
            raise ProtocolError(f"{self.place} sent a shorter body than was asked for")
        done = 0
        if self._at < self._have:
            done = min(size, self._have - self._at)
            view[:done] = memoryview(self._buffer)[self._at : self._at + done]
            self._at += done
        while done < size:
            done += self._receive(view[done : done + CHUNK_BYTES], self._wait_all)
        self._left -= size

    def discard(self, size: int, scratch: memoryview) -> None:
        """Receives bytes that nobody needs."""
        while size:
            step = min(size, scratch.nbytes)
            self.read_into(scratch[:step])
            size -= step

    def read_all(self, limit: int) -> bytes:
        """Receives a whole body of at most `limit` bytes."""
        if self._left is not None:
            if self._left > limit:
                raise ProtocolError(f"{self.place} sent {self._left} bytes where at most {limit} make sense")
            body = bytearray(self._left)
            self.read_into(memoryview(body))
            return bytes(body)
        return self._read_chunked(limit)

    def _read_chunked(self, limit: int) -> bytes:
        body = bytearray()
        while size := self._chunk_size():
            if len(body) + size > limit:
                raise ProtocolError(f"{self.place} sent more than {limit} bytes in chunks")
            self._left = size + 2
            chunk = bytearray(size + 2)
            self.read_into(memoryview(chunk))
            self._left = None
            if not chunk.endswith(b"\r\n"):
                raise ProtocolError(f"{self.place} sent a chunk of another size than its line")
            body += chunk[:size]
        for _ in range(TRAILERS_MAX):
            if not self._line():
                self._left = 0
                return bytes(body)
        raise ProtocolError(f"{self.place} sent more than {TRAILERS_MAX} lines after the last chunk")

    def _chunk_size(self) -> int:
        line = self._line().split(b";")[0].strip()
        if not CHUNK_SIZE.fullmatch(line):
            raise ProtocolError(f"{self.place} sent a body without length or chunks")
        return int(line, 16)

    def _line(self) -> bytes:
        end = self._buffer.find(b"\r\n", self._at, self._have)
        while end < 0:
            if self._have - self._at > 1024:
                raise ProtocolError(f"{self.place} sent a chunk without a size")
            self._buffer[: self._have - self._at] = self._buffer[self._at : self._have]
            self._have, self._at = self._have - self._at, 0
            self._have += self._receive(memoryview(self._buffer)[self._have :], 0)
            end = self._buffer.find(b"\r\n", 0, self._have)
        line = bytes(self._buffer[self._at : end])
        self._at = end + 2
        return line


def unusable(place: Place, error: OSError) -> ConnectionLost:
    """Returns the error of a connection that can't be used, with the remedy where there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = error.verify_message.rstrip(".")
        return Untrusted(
            f"{place} shows a certificate that isn't trusted: {cause}. AWS_CA_BUNDLE names the file of the authority; "
            "the host must be a name in the certificate"
        )
    if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
        return Untrusted(f"{place} doesn't speak TLS: its address must begin with http://")
    return ConnectionLost(f"{place} can't be used: {error}")


def parse_head(text: bytes) -> Head:
    """Parses the status line and headers of a reply."""
    first, *rest = text.decode("latin-1").split("\r\n")
    version, _, status = first.partition(" ")
    number = whole(status[:3])
    if not version.startswith("HTTP/1.") or number is None:
        # Few bytes of it: a peer that echoes requests would put a token into this text.
        raise ProtocolError(f"the reply begins with {first[:16]!r}, which isn't HTTP/1.1")
    headers: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon:
            raise ProtocolError(f"the reply has the header line {line[:60]!r}")
        headers[name.strip().lower()] = value.strip()
    return Head(number, headers)


class Pool:
    """Idle connections by place. Threads share it; a forked child begins with an empty one."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._idle: dict[Place, list[Connection]] = {}
        self._suspect_until: dict[Place, float] = {}
        self._distrust_until: dict[Place, float] = {}
        self._busy: Counter[Place] = Counter()
        forks.register(self)

    def after_fork(self) -> None:
        """Forgets the parent's connections: their bytes would mix."""
        self._lock = threading.Lock()
        self._idle = {}
        self._busy = Counter()

    def take(self, place: Place, fresh: bool = False) -> Connection:
        """Returns an idle connection, or opens one."""
        with self._lock:
            idle = self._idle.get(place, [])
            while idle and not fresh:
                found = idle.pop()
                if time.monotonic() - found.used_at < IDLE_S and found.quiet:
                    return found
                found.close()
            context = self._tls() if place.tls else None
        return Connection(place, self._timeouts, context)

    def give(self, connection: Connection) -> None:
        """Keeps a connection for the next request, if it can carry one."""
        connection.used_at = time.monotonic()
        with self._lock:
            idle = self._idle.setdefault(connection.place, [])
            if connection.reusable and len(idle) < IDLE_PER_PLACE:
                idle.append(connection)
                return
        connection.close()

    def suspect(self, place: Place, for_s: float) -> None:
        """Has a place asked last for a while, after it was silent, unreachable or busy."""
        self._mark(self._suspect_until, place, for_s)

    def is_suspect(self, place: Place) -> bool:
        """Returns true for a place that failed a moment ago."""
        return self._suspect_until.get(place, 0.0) > time.monotonic()

    def distrust(self, place: Place, for_s: float) -> None:
        """Leaves a place out of reads for a while, after TLS with it failed for good."""
        self._mark(self._distrust_until, place, for_s)

    def is_distrusted(self, place: Place) -> bool:
        """Returns true for a place that reads leave out."""
        return self._distrust_until.get(place, 0.0) > time.monotonic()

    def _mark(self, until: dict[Place, float], place: Place, for_s: float) -> None:
        with self._lock:
            if len(until) >= SUSPECTS_MAX:
                until.clear()
            until[place] = time.monotonic() + for_s

    @contextmanager
    def counted(self, place: Place) -> Iterator[None]:
        """Counts a read from a place while it runs."""
        with self._lock:
            self._busy[place] += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy[place] -= 1
                if self._busy[place] <= 0:
                    del self._busy[place]

    def busy(self, place: Place) -> int:
        """Returns the number of reads of this client that a place serves now."""
        return self._busy.get(place, 0)

    def close(self) -> None:
        """Closes all idle connections."""
        with self._lock:
            for idle in self._idle.values():
                for connection in idle:
                    connection.close()
            self._idle = {}

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
            try:
                self._context = ssl.create_default_context(cafile=bundle)
            except OSError as error:
                raise MartletError(f"the authorities of AWS_CA_BUNDLE, {bundle}, can't be read: {error}") from error
        return self._context
