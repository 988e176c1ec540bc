"""What a crowd without a key costs a client with one: GETs a second, quiet and beside the crowd, in turns.

A third of the crowd sends nothing, a third sends half of a head, a third sends half of a document that
nobody signed. Connections that the server closes are opened again. The crowd, the client and the server
share this machine.
"""

import argparse
import asyncio
import contextlib
import resource
import shutil
import tempfile
import threading
from pathlib import Path

from martlet import Martlet
from rows import Figure, Row, print_table

GET = ["--op", "get", "--size", "4KiB", "--objects", "256", "--concurrency", "8", "--prefix", "crowd",
       "--prepared"]
DOCUMENT_BYTES, SENT_BYTES = 1 << 20, 50_000
PAUSE_S = 10.0
"""Seconds from the end of a connection until the next one takes its place."""
SENT = [
    b"",
    b"GET /bucket/key HTTP/1.1\r\nhost: x\r\nx: ",
    b"POST /bucket/key?uploadId=x HTTP/1.1\r\nhost: x\r\n"
    + f"content-length: {DOCUMENT_BYTES}\r\n\r\n".encode() + b" " * SENT_BYTES,
]


class Crowd:
    """Connections that never send a whole request, for as long as the `with` lasts."""

    def __init__(self, port, count):
        self.port, self.count = port, count
        self.opened, self.open = 0, 0

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
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
        await asyncio.gather(*(self._hold(SENT[at % len(SENT)]) for at in range(self.count)))

    async def _hold(self, sent):
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                self.opened += 1
                self.open += 1
                try:
                    writer.write(sent)
                    while await reader.read(4096):
                        pass
                finally:
                    self.open -= 1
                    writer.transport.abort()
            await asyncio.sleep(PAUSE_S)


def measure(server, arguments):
    """GETs a second by round: (quiet, beside the crowd, the server's resident MiB then)."""
    get = [*GET, "--duration", f"{arguments.seconds}s"]
    quiet, beside, resident = [], [], 0
    for _ in range(arguments.rounds):
        quiet.append(server.bench(*get))
        with Crowd(server.port, arguments.connections) as crowd:
            beside.append(server.bench(*get))
            resident = max(resident, server.resident_bytes() >> 20)
            print(f"the crowd opened {crowd.opened} connections, {crowd.open} are open", flush=True)
    return quiet, beside, resident


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=5000, help="size of the crowd [%(default)s]")
    parser.add_argument("--seconds", type=int, default=8, help="length of a measure [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="measures of each kind [%(default)s]")
    parser.add_argument("--dir", type=Path, default=Path.home() / ".cache/martlet",
                        help="where to write [%(default)s]")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, arguments.connections + 4096), most))
    arguments.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="martlet-bench-strangers-", dir=arguments.dir))
    try:
        with Martlet(folder / "server") as server:
            server.prepare("crowd", 4096, 256)
            quiet, beside, resident = measure(server, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    name = f"GET 4 KiB/s beside {arguments.connections} strangers"
    rate = ["requests_per_s"]
    print_table([Row(name, Figure.median(beside, rate), Figure.median(quiet, rate), "without them",
                     least_of_limit=0.5)])
    print(f"{resident} MiB of the server are resident beside the crowd")


if __name__ == "__main__":
    main()
