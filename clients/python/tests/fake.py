"""Fake of a Martlet cluster for tests: S3 with locate on one port, data ports of several nodes, and planned faults.

It serves only what the package requests, and plays faults that a real server won't: wrong blocks, wrong lengths,
connections that break, tokens that have ended.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from crc32c import crc32c

BLOCK = 65_536
AnyServer = TypeVar("AnyServer", bound=ThreadingTCPServer)


@dataclass
class Fault:
    """Fault of the next `times` requests that match."""

    match: Callable[[str, str], bool]
    kind: str
    times: int = 1
    at: int = 0


@dataclass
class Stored:
    body: bytes
    version: str
    etag: str


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    port: int


@dataclass
class Cluster:
    """State that all ports share."""

    extent_bytes: int = 1 << 20
    fragments: int = 1
    copies: int = 2
    martlet: bool = True
    locate: bool = True
    reason: str | None = None
    page_extents: int = 1000
    token_s: float = 60
    behind_s: float = 0
    """Seconds by which the clock of the servers is behind."""
    host_id: str = "h"
    scheme: str = "http"
    host: str = "127.0.0.1"
    first_server: int = 0
    """Number of the first of three servers that hold pieces."""
    sets: bool = True
    ignores_conditions: bool = False
    """True for a store that sends the bytes of any version, whatever `If-Match` names."""
    withheld: frozenset[str] = frozenset()
    """Headers that replies lack, each after its method: `HEAD ETag`."""
    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)
    pieces: dict[str, bytes] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    """All tokens that locate has issued."""
    connections: Counter[int] = field(default_factory=Counter)
    """Connections that each port has accepted."""
    pending: int = 0
    """Number of looks at a set until its last commit is complete."""
    commits: list[tuple[str, list[dict[str, object]]]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.servers = [serve(Node, self) for _ in range(3)]
        self.s3 = serve(S3, self)
        self.endpoint = f"http://127.0.0.1:{self.s3.server_address[1]}"

    def close(self) -> None:
        for server in [*self.servers, self.s3]:
            server.shutdown()
            server.server_close()

    def put(self, bucket: str, key: str, body: bytes) -> Stored:
        with self.lock:
            etag = f'"{hashlib.md5(body).hexdigest()}"'
            stored = self.objects[bucket, key] = Stored(body, f"v{len(self.requests)}", etag)
            return stored

    def fault(self, kind: str, times: int = 1, at: int = 0, path: str = "", method: str = "") -> None:
        self.faults.append(Fault(lambda m, t: path in t and method in m, kind, times, at))

    def take_fault(self, method: str, target: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.match(method, target):
                    fault.times -= 1
                    return fault
        return None

    def count(self, path: str, method: str = "") -> int:
        return sum(path in one.target and method in one.method for one in self.requests)

    def describe(self, stored: Stored, first: int, end: int) -> dict[str, object]:
        """The document of locate."""
        extents, after, at = [], None, 0
        while at < len(stored.body):
            body = stored.body[at : at + self.extent_bytes]
            if at + len(body) > first and at < end:
                if len(extents) == self.page_extents:
                    after = at
                    break
                extents.append(self.describe_extent(at, body, first, end))
            at += len(body)
        return {
            "size": len(stored.body),
            "etag": stored.etag,
            "versionId": stored.version,
            "stamp": "s",
            "expires_ms": int((self.now() + self.token_s) * 1000),
            "direct": self.reason is None,
            "reason": self.reason,
            "extents": [] if self.reason else extents,
            "next": None if self.reason else after,
        }

    def now(self) -> float:
        return time.time() - self.behind_s

    def port(self, number: int) -> int:
        return int(self.servers[self.first_server + number].server_address[1])

    def describe_extent(self, offset: int, body: bytes, first: int, end: int) -> dict[str, object]:
        size = self.extent_bytes // self.fragments
        pieces = []
        for number, at in enumerate(range(0, len(body), size)):
            data = body[at : at + size]
            if offset + at + len(data) <= first or offset + at >= end:
                continue
            name = hashlib.sha256(data + str((offset, at)).encode()).hexdigest()[:32]
            self.pieces[name] = data
            low = max(0, first - offset - at) // BLOCK
            high = -(-min(len(data), end - offset - at) // BLOCK)
            token = base64.urlsafe_b64encode(json.dumps([name, low, high, self.now() + self.token_s]).encode())
            self.tokens.add(token.decode())
            holders = [
                {
                    "url": f"{self.scheme}://{self.host}:{self.port((number + n) % 3)}/x/{name}",
                    "token": token.decode(),
                    "host_id": self.host_id,
                }
                for n in range(self.copies)
                if name not in self.missing
            ]
            pieces.append({"piece": number, "id": name, "from": at, "length": len(data), "holders": holders})
        code = None if self.fragments == 1 else {"k": self.fragments, "m": 2, "F": size}
        return {
            "id": "0" * 32,
            "offset": offset,
            "length": len(body),
            "blake3": "0" * 64,
            "code": code,
            "pieces": pieces,
        }


def serve(
    handler: type[BaseHTTPRequestHandler], cluster: Cluster, context: ssl.SSLContext | None = None
) -> ThreadingHTTPServer:
    class Server(ThreadingHTTPServer):
        def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:
            with cluster.lock:
                cluster.connections[self.server_address[1]] += 1
            super().process_request(request, client_address)

    server = Server(("127.0.0.1", 0), type(handler.__name__, (handler,), {"cluster": cluster}))
    if context:
        # The handshake belongs to the connection's own thread: a client that fails must not stop the port.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return started(server)


def serve_raw(handler: type[BaseRequestHandler]) -> ThreadingTCPServer:
    """A server of another protocol."""
    return started(ThreadingTCPServer(("127.0.0.1", 0), handler))


def started(server: AnyServer) -> AnyServer:
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # Clients that leave are no fault of the test.
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


class Handler(BaseHTTPRequestHandler):
    """Request with its faults."""

    cluster: Cluster
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fault: Fault | None = None

    def log_message(self, *_: object) -> None:
        return

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.cluster.now() if timestamp is None else timestamp)

    def begin(self) -> bool:
        """Records a request; plays faults that need no reply of the operation."""
        with self.cluster.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.cluster.requests.append(Request(self.command, self.path, headers, self.server.server_address[1]))
        self.fault = self.cluster.take_fault(self.command, f":{self.server.server_address[1]}{self.path}")
        kind = self.fault.kind if self.fault else ""
        if kind.isdigit():
            self.body()
            self.reply(int(kind), b"<Error><Code>SlowDown</Code><Message>busy</Message></Error>", {"Retry-After": "0"})
        elif kind in ("gone", "expired", "range", "device"):
            status = {"gone": 404, "expired": 403, "range": 403, "device": 503}[kind]
            self.reply(status, b"", {"x-martlet-refused": kind})
        elif kind == "early 403":
            self.close_connection = True
            self.reply(403, b"<Error><Code>AccessDenied</Code></Error>", {"Connection": "close"})
            self.connection.shutdown(socket.SHUT_RD)
        elif kind == "hang up":
            self.body()
            self.hang_up()
        elif kind == "silence":
            time.sleep(self.fault.at if self.fault else 0)
            self.hang_up()
        else:
            if self.fault and kind == "slow":
                time.sleep(self.fault.at / 1000)
            return True
        return False

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        kind, at = (self.fault.kind, self.fault.at) if self.fault else ("", 0)
        if kind == "flip" and body:
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        sent = {"Content-Length": str(len(body)), **(headers or {})}
        if kind == "short":
            body = body[: len(body) // 2]
            sent["Content-Length"] = str(len(body))
        self.send_response(status)
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if kind == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.hang_up()
            return
        self.wfile.write(body)

    def range_of(self, size: int) -> tuple[int, int] | None:
        text = self.headers.get("Range")
        if not text:
            return None
        first, _, last = text.removeprefix("bytes=").partition("-")
        return int(first), min(size, int(last) + 1 if last else size)


class Node(Handler):
    """Data port of one node."""

    def do_GET(self) -> None:
        if not self.begin():
            return
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        name = parts.path.removeprefix("/x/")
        data = self.cluster.pieces.get(name)
        token = json.loads(base64.urlsafe_b64decode(query["t"][0]))
        if data is None:
            return self.reply(404, b"", {"x-martlet-refused": "gone"})
        if token[3] < self.cluster.now():
            return self.reply(403, b"", {"x-martlet-refused": "expired"})
        first, end = self.range_of(len(data)) or (0, len(data))
        low, high = first // BLOCK, -(-end // BLOCK)
        if token[0] != name or low < token[1] or high > token[2]:
            return self.reply(403, b"", {"x-martlet-refused": "range"})
        sums = [crc32c(data[at * BLOCK : (at + 1) * BLOCK]) for at in range(low, high)]
        listed = base64.b64encode(struct.pack(f">{len(sums)}I", *sums)).decode()
        if self.fault and self.fault.kind == "sums":
            listed = listed[:-8]
        return self.reply(
            206,
            data[first:end],
            {
                "Content-Range": f"bytes {first}-{end - 1}/{len(data)}",
                "x-martlet-block-crc32c": listed,
                "x-martlet-verified": "client" if query.get("verify") else "node",
            },
        )


class S3(Handler):
    """S3 port."""

    def place(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: value[0] for name, value in parse_qs(parts.query, keep_blank_values=True).items()}
        return bucket, key, query

    def marks(self, stored: Stored) -> dict[str, str]:
        changed = formatdate(1_700_000_000 + int(stored.version[1:]), usegmt=True)
        found = {"ETag": stored.etag, "Last-Modified": changed}
        if self.cluster.martlet:
            found |= {"x-martlet-stamp": "s", "x-martlet-consistency": "quorum"}
        return {name: value for name, value in found.items() if f"{self.command} {name}" not in self.cluster.withheld}

    def error(self, status: int, code: str) -> None:
        self.reply(status, f"<Error><Code>{code}</Code><Message>text</Message></Error>".encode())

    def find(self, bucket: str, key: str) -> Stored | None:
        with self.cluster.lock:
            return self.cluster.objects.get((bucket, key))

    def do_HEAD(self) -> None:
        if not self.begin():
            return
        bucket, key, _ = self.place()
        stored = self.find(bucket, key)
        if stored is None:
            return self.reply(404)
        return self.reply(200, stored.body, self.marks(stored))

    def do_GET(self) -> None:
        if not self.begin():
            return
        bucket, key, query = self.place()
        if not key:
            return self.bucket(bucket, query)
        stored = self.find(bucket, key)
        if stored is None:
            return self.error(404, "NoSuchKey")
        if not self.cluster.ignores_conditions and self.headers.get("If-Match", stored.etag) != stored.etag:
            return self.error(412, "PreconditionFailed")
        first, end = self.range_of(len(stored.body)) or (0, len(stored.body))
        if "locate" in query and self.cluster.martlet:
            if not self.cluster.locate:
                return self.error(501, "NotImplemented")
            with self.cluster.lock:
                document = self.cluster.describe(stored, first, end)
            return self.reply(200, json.dumps(document).encode(), {"x-martlet-locate": "1", **self.marks(stored)})
        if not self.headers.get("Range"):
            return self.reply(200, stored.body, self.marks(stored))
        if first >= len(stored.body):
            return self.error(416, "InvalidRange")
        where = {"Content-Range": f"bytes {first}-{end - 1}/{len(stored.body)}"}
        return self.reply(206, stored.body[first:end], {**self.marks(stored), **where})

    def bucket(self, bucket: str, query: dict[str, str]) -> None:
        if "checkpoint" in query:
            if not self.cluster.sets:
                return self.error(404, "NoSuchCheckpointConfiguration")
            made = [objects for name, objects in self.cluster.commits if name == query["checkpoint"]]
            listed = [
                {
                    "generation": number,
                    "state": "committed" if self.settles() else "pending",
                    "objects": len(objects),
                    "noted_ms": 0,
                    "changed_ms": 0,
                    "bytes": sum(it["size"] for it in objects),
                }
                for number, objects in enumerate(made, 1)
            ]
            return self.reply(200, json.dumps({"set": query["checkpoint"], "generations": listed}).encode())
        with self.cluster.lock:
            lines = "".join(
                f"<Contents><Key>{key}</Key><Size>{len(it.body)}</Size><ETag>{it.etag}</ETag></Contents>"
                for (name, key), it in sorted(self.cluster.objects.items())
                if name == bucket and key.startswith(query.get("prefix", ""))
            )
        return self.reply(200, f"<ListBucketResult>{lines}</ListBucketResult>".encode())

    def settles(self) -> bool:
        with self.cluster.lock:
            self.cluster.pending = max(0, self.cluster.pending - 1)
            return self.cluster.pending == 0

    def do_PUT(self) -> None:
        if not self.begin():
            return
        bucket, key, query = self.place()
        body = self.body()
        expected = self.headers.get("x-amz-checksum-crc32c")
        if expected and base64.b64encode(struct.pack(">I", crc32c(body))).decode() != expected:
            return self.error(400, "BadDigest")
        if "uploadId" in query:
            with self.cluster.lock:
                self.cluster.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return self.reply(200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
        if "hold" in query:
            return self.reply(200, b'{"generation": 1}')
        stored = self.cluster.put(bucket, key, body)
        return self.reply(200, b"", self.marks(stored))

    def do_POST(self) -> None:
        if not self.begin():
            return
        bucket, key, query = self.place()
        body = self.body()
        if "uploads" in query:
            with self.cluster.lock:
                name = f"u{len(self.cluster.uploads)}"
                self.cluster.uploads[name] = {}
            return self.reply(200, f"<R><UploadId>{name}</UploadId></R>".encode())
        if "uploadId" in query:
            announced = self.headers.get("x-amz-mp-object-size") if self.cluster.martlet else None
            with self.cluster.lock:
                parts = self.cluster.uploads.get(query["uploadId"])
                if parts and announced and int(announced) != sum(map(len, parts.values())):
                    return self.error(400, "InvalidRequest")
                self.cluster.uploads.pop(query["uploadId"], None)
            if parts is None:
                return self.error(404, "NoSuchUpload")
            whole = b"".join(parts[number] for number in sorted(parts))
            sums = b"".join(hashlib.md5(parts[number]).digest() for number in sorted(parts))
            stored = self.cluster.put(bucket, key, whole)
            stored.etag = f'"{hashlib.md5(sums).hexdigest()}-{len(parts)}"'
            if self.fault and self.fault.kind == "lost reply":
                return self.hang_up()
            return self.reply(200, f"<R><ETag>{stored.etag}</ETag></R>".encode())
        if not self.cluster.sets or not self.cluster.martlet:
            return self.error(400, "InvalidRequest")
        return self.commit(bucket, query, json.loads(body))

    def commit(self, bucket: str, query: dict[str, str], named: list[dict[str, object]]) -> None:
        folder = query["checkpoint"]
        with self.cluster.lock:
            for it in named:
                stored = self.cluster.objects.get((bucket, str(it["key"])))
                if stored is None or stored.etag.strip('"') != it["etag"] or len(stored.body) != it["size"]:
                    return self.error(409, "CheckpointConflict")
            also = query.get("as", folder)
            self.cluster.commits.append((also, named))
            number = sum(name == also for name, _ in self.cluster.commits)
            for it in named:
                stored = self.cluster.objects[bucket, str(it["key"])]
                name = str(it["key"]).removeprefix(folder)
                self.cluster.objects[f"{bucket}--committed", f"{also.rstrip('/')}@{number}/{name}"] = stored
                self.cluster.objects[f"{bucket}--committed", f"{also}{name}"] = stored
        return self.reply(
            200,
            json.dumps({"state": "pending" if self.cluster.pending else "committed", "generation": number}).encode(),
        )

    def do_DELETE(self) -> None:
        if not self.begin():
            return
        bucket, key, query = self.place()
        with self.cluster.lock:
            if "uploadId" in query:
                self.cluster.uploads.pop(query["uploadId"], None)
            elif "checkpoint" in query:
                return self.reply(200, b'{"withdrawn": 1}')
            else:
                self.cluster.objects.pop((bucket, key), None)
        self.reply(204)
