"""What a crowd without a key costs a client with one: GETs a second, quiet and beside the crowd, in turns.

A third of the crowd sends nothing, a third half of a head, a third half of a document without a signature:
by HTTP/1, then by HTTP/2 over TLS, as the client does. A measure begins when each connection of the crowd has
been opened. Connections that the server closes are opened again after --pause seconds. The crowd, the client
and the server share this machine.
"""

import argparse
import asyncio
import contextlib
import resource
import shutil
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path

from martlet import Martlet
from rows import Figure, Row, print_table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "clients"))
from certificates import issue  # noqa: E402

GET = ["--op", "get", "--size", "4KiB", "--objects", "256", "--concurrency", "8", "--prefix", "crowd",
       "--prepared"]
DOCUMENT_BYTES, SENT_BYTES = 1 << 20, 50_000
HANDSHAKES_MAX = 64
"""Connections that are being opened at a time: more would time out among themselves."""
OPENED_S = 120
TARGET = "/bucket/key?uploadId=x"
HALF_A_DOCUMENT = b" " * SENT_BYTES


def frame(kind, flags, stream, payload):
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def literal(name, value):
    """A header that HPACK neither indexes nor compresses (RFC 7541, section 6.2.2), shorter than 127 bytes."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))


def http2_requests():
    """What the three kinds of HTTP/2 connections send."""
    head = b"".join(literal(name, value) for name, value in [
        (":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", TARGET),
        ("content-length", str(DOCUMENT_BYTES))])
    headers, data, end_of_headers, settings = 1, 0, 4, 4
    start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0, b"")
    chunks = (HALF_A_DOCUMENT[at:at + 16_000] for at in range(0, SENT_BYTES, 16_000))
    document = b"".join(frame(data, 0, 1, chunk) for chunk in chunks)
    return [
        start,
        start + frame(headers, end_of_headers, 1, head)[:-10],
        start + frame(headers, end_of_headers, 1, head) + document,
    ]


SENT = {
    "HTTP/1": [
        b"",
        b"GET /bucket/key HTTP/1.1\r\nhost: x\r\nx: ",
        f"POST {TARGET} HTTP/1.1\r\nhost: x\r\ncontent-length: {DOCUMENT_BYTES}\r\n\r\n".encode()
        + HALF_A_DOCUMENT,
    ],
    "HTTP/2": http2_requests(),
}


class Crowd:
    """Connections that never send a whole request, for as long as the `with` lasts."""

    def __init__(self, server, version, arguments):
        self.port, self.count, self.pause_s = server.port, arguments.connections, arguments.pause
        self.sent, self.tls = SENT[version], client_tls(server)
        self.opened, self.open = 0, 0

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + OPENED_S
        while self.opened < self.count:
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.opened} of {self.count} connections were opened in {OPENED_S} s")
            time.sleep(0.1)
        if not self.open:
            raise SystemExit("the server has closed each connection: there is no crowd to measure beside")
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join()

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.task = self.loop.create_task(self._hold_all())
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(self.task)
        self.loop.close()

    async def _hold_all(self):
        self.turns = asyncio.Semaphore(HANDSHAKES_MAX)
        await asyncio.gather(*(self._hold(self.sent[at % len(self.sent)]) for at in range(self.count)))

    async def _hold(self, sent):
        while True:
            with contextlib.suppress(OSError):
                async with self.turns:
                    try:
                        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
                    finally:
                        self.opened += 1
                self.open += 1
                try:
                    writer.write(sent)
                    while await reader.read(4096):
                        pass
                finally:
                    self.open -= 1
                    writer.transport.abort()
            await asyncio.sleep(self.pause_s)


def client_tls(server):
    """TLS by HTTP/2 for a server that has a certificate, and None for one without."""
    if not server.authority:
        return None
    context = ssl.create_default_context(cafile=str(server.authority))
    context.set_alpn_protocols(["h2"])
    return context


def measure(server, arguments, version):
    """GETs a second by round: (quiet, beside the crowd, the server's resident MiB then)."""
    get = [*GET, "--duration", f"{arguments.seconds}s"]
    server.prepare("crowd", 4096, 256)
    quiet, beside, resident = [], [], 0
    for _ in range(arguments.rounds):
        quiet.append(server.bench(*get))
        with Crowd(server, version, arguments) as crowd:
            open_before = crowd.open
            beside.append(server.bench(*get))
            resident = max(resident, server.resident_bytes() >> 20)
            print(f"the crowd opened {crowd.opened} {version} connections; {open_before} were open before"
                  f" the measure and {crowd.open} after", flush=True)
    return quiet, beside, resident


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=5000, help="size of the crowd [%(default)s]")
    parser.add_argument("--seconds", type=int, default=8, help="length of a measure [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="measures of each kind [%(default)s]")
    parser.add_argument("--pause", type=float, default=10.0,
                        help="seconds until a closed connection is opened again [%(default)s]")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="where to write [%(default)s]")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, arguments.connections + 4096), most))
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-bench-strangers-", dir=arguments.dir))
    try:
        measured = {}
        for version, files in ("HTTP/1", None), ("HTTP/2", issue(folder)):
            with Martlet(folder / version.replace("/", ""), files) as server:
                measured[version] = measure(server, arguments, version)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rate = ["requests_per_s"]
    print_table([
        Row(f"GET 4 KiB/s beside {arguments.connections} strangers by {version}",
            Figure.median(beside, rate), Figure.median(quiet, rate), "without them", least_of_limit=0.5)
        for version, (quiet, beside, _) in measured.items()])
    for version, (_, _, resident) in measured.items():
        print(f"{resident} MiB of the server are resident beside the {version} crowd")


if __name__ == "__main__":
    main()
