"""Peers that send what no server should: an error of the package, no leak, and no byte for another request."""

from __future__ import annotations

import os
import pickle
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import martlet
from fake import Cluster
from martlet import clients, errors
from martlet.direct import DirectSocket
from martlet.plan import Span
from martlet.transport import Connection, Pool, Timeouts, place_of

MIB = 1 << 20
Connect = Callable[..., martlet.Client]
URL = "martlet://b/k"
LIMITS = Timeouts(5.0, 2.0)
OK = b"HTTP/1.1 200 OK\r\n"


class Peer:
    """Server that answers each request of a connection with the next text of a list, then closes it."""

    def __init__(self) -> None:
        self.replies: list[bytes] = []
        self.echo = False
        self.accepted = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.place = place_of(self.url)
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            with connection, suppress(OSError):
                for reply in list(self.replies):
                    request = b""
                    while not request.endswith(b"\r\n\r\n"):
                        if not (came := connection.recv(4096)):
                            break
                        request += came
                    connection.sendall(request if self.echo else reply)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)
        self.listener.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


def chunked(text: bytes) -> bytes:
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + text


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 \xb200 OK\r\n\r\n",
        b"HTTP/1.1 -10 OK\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"Content-Length: \xb2\r\n\r\n",
        OK + b"Content-Length: -5\r\n\r\n",
        OK + b"Content-Length: +5\r\n\r\nhello",
        OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        OK + b"Content-Length: 99\r\n\r\nshort",
        OK + b"x: " + b"y" * 300_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 17 + OK + b"\r\n",
        chunked(b"-5\r\nhello\r\n0\r\n\r\n"),
        chunked(b"+5\r\nhello\r\n0\r\n\r\n"),
        chunked(b"0x5\r\nhello\r\n0\r\n\r\n"),
        chunked(b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n"),
        chunked(b"4\r\nhello\r\n0\r\n\r\n"),
        chunked(b"f" * 12 + b"\r\nhello"),
        chunked(b"0\r\n" + b"a: b\r\n" * 17 + b"\r\n"),
        b"",
    ],
)
def test_malformed_replies_are_errors(peer: Peer, reply: bytes) -> None:
    peer.replies = [reply]
    connection = Connection(peer.place, LIMITS, None)
    with pytest.raises((errors.ProtocolError, errors.ConnectionLost)):
        assert connection.send("GET", "/", {}).status != 200 or connection.read_all(MIB) is None
    assert not connection.reusable
    connection.close()


def test_chunks_with_trailers_and_interim_replies(peer: Peer) -> None:
    chunks = b"5;name=value\r\nhello\r\n1 \r\n!\r\n0\r\nchecksum: x\r\n\r\n"
    peer.replies = [b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n" + chunked(chunks), OK + b"Content-Length: 3\r\n\r\nyes"]
    connection = Connection(peer.place, LIMITS, None)
    for expected in (b"hello!", b"yes"):
        assert connection.send("GET", "/", {}).status == 200
        assert connection.read_all(100) == expected
        assert connection.reusable
    connection.close()


@pytest.mark.parametrize("late", [False, True])
def test_surplus_bytes_are_no_reply_to_the_next_request(peer: Peer, late: bool) -> None:
    """A peer that sends two replies to one request must not answer the next one with the second."""
    good, evil = OK + b"Content-Length: 4\r\n\r\ngood", OK + b"Content-Length: 4\r\n\r\nevil"
    peer.replies = [good, evil] if late else [good + evil]
    pool = Pool(LIMITS)
    connection = pool.take(peer.place)
    connection.send("GET", "/", {})
    assert connection.read_all(100) == b"good"
    pool.give(connection)
    if late:
        # The peer sends the second reply while the connection is idle.
        connection._socket.send(b"GET / HTTP/1.1\r\n\r\n")
        until = time.monotonic() + 5
        while connection.quiet and time.monotonic() < until:
            time.sleep(0.01)
    other = pool.take(peer.place)
    assert other is not connection
    other.send("GET", "/", {})
    assert other.read_all(100) == b"good"
    other.close()
    pool.close()


def test_an_echo_tells_no_token(peer: Peer) -> None:
    peer.replies, peer.echo = [b"-"], True
    connection = Connection(peer.place, LIMITS, None)
    with pytest.raises(errors.ProtocolError) as caught:
        connection.send("GET", f"/x/{'0' * 32}?t=AQMPsecret", {})
    assert "AQMP" not in str(caught.value)
    connection.close()


@pytest.mark.parametrize(
    ("scheme", "host"), [("ftp", "127.0.0.1"), ("http", "a" * 70), ("http", ".x"), ("https", ".x")]
)
def test_holders_without_a_place_are_left_out(
    cluster: Cluster, connect: Connect, rng: random.Random, scheme: str, host: str
) -> None:
    body = rng.randbytes(MIB)
    cluster.put("b", "k", body)
    cluster.scheme, cluster.host = scheme, host
    memory = connect().read(URL)
    assert bytes(memory.view) == body


@pytest.mark.parametrize("text", ['{"expires_ms": 1e400}', "[" * 100_000, '{"direct": 1}', "[]", "7", ""])
def test_malformed_locations_lead_to_get(
    cluster: Cluster, connect: Connect, rng: random.Random, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    body = rng.randbytes(MIB)
    cluster.put("b", "k", body)
    monkeypatch.setattr("fake.json.dumps", lambda _: text)
    reader = connect().reader(URL)
    memory = bytearray(len(body))
    reader.read_into([Span(0, memoryview(memory))])
    assert memory == body
    assert (reader.stats.get_bytes, reader.direct) == (len(body), False)
    assert "another form" in reader.reason


def test_pieces_with_wrong_names_are_not_requested(tmp_path: object) -> None:
    local = DirectSocket(f"{tmp_path}/none")
    for name in ("x" * 32, "0" * 31, "²" * 32):
        with pytest.raises(errors.ProtocolError), local.lease(name, "token"):
            pass


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_failures_leave_no_descriptors_and_no_threads(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = rng.randbytes(3 * MIB)
    cluster.put("b", "k", body)
    with martlet.Client(endpoint=cluster.endpoint, threads=4, attempts=1, direct_min_bytes=0) as client:
        client.read(URL)
    others, before = set(threading.enumerate()), open_files()
    for kind in ("flip", "cut", "short", "hang up", "gone", "sums", "503"):
        with martlet.Client(endpoint=cluster.endpoint, threads=4, attempts=1, direct_min_bytes=0) as client:
            reader = client.reader(URL)
            cluster.fault(kind, times=1000, path="/")
            with suppress(martlet.MartletError):
                reader.read_into([Span(0, memoryview(bytearray(len(body))))])
        cluster.faults.clear()
        assert not [it for it in set(threading.enumerate()) - others if it.name.startswith("martlet")]
    until = time.monotonic() + 10
    # The fake's own threads close their ends a moment later.
    while open_files() > before and time.monotonic() < until:
        time.sleep(0.02)
    assert open_files() <= before


def test_a_fork_while_locks_are_held(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = rng.randbytes(MIB)
    cluster.put("b", "k", body)
    client = connect()
    reader = client.reader(URL)
    with reader.stats._lock, clients._making.lock, client.store.pool._lock, client.store.signer._lock:
        child = os.fork()
        if child == 0:
            memory = bytearray(len(body))
            reader.read_into([Span(0, memoryview(memory))])
            shared = martlet.client(endpoint=cluster.endpoint)
            os._exit(0 if memory == body and shared.exists(URL) else 1)
    until, ended = time.monotonic() + 60, (0, 0)
    while not ended[0] and time.monotonic() < until:
        ended = os.waitpid(child, os.WNOHANG)
        time.sleep(0.02)
    if not ended[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_other_keys_sign_at_once(connect: Connect) -> None:
    signer = connect().store.signer
    first = signer.sign_read("GET", "http://h/b/k")
    assert signer.sign_read("GET", "http://h/b/k") == first
    signer.use("another-key", "another-secret")
    assert "another-key" in signer.sign_read("GET", "http://h/b/k")["Authorization"]


def test_readers_refuse_wrong_memory(cluster: Cluster, connect: Connect) -> None:
    cluster.put("b", "k", bytes(100_000))
    reader = connect().reader(URL)
    with pytest.raises(martlet.MartletError, match="writable"):
        reader.read_into([Span(0, memoryview(bytes(10)))])
    table = memoryview(bytearray(b"x" * 80_000)).cast("d", (100, 100))
    reader.read_into([Span(0, table)])
    assert table.tobytes() == bytes(80_000)


@pytest.mark.parametrize("document", [b"{}", b"[]", b'{"generations": 7}', b'{"generations": [{}]}', b'{"state": 1}'])
def test_other_answers_of_sets(peer: Peer, document: bytes) -> None:
    peer.replies = [OK + f"Content-Length: {len(document)}\r\n\r\n".encode() + document]
    with martlet.Client(endpoint=peer.url, attempts=1) as client:
        for call in (client.generations, lambda folder: client.hold(folder, 5), client.withdraw):
            with pytest.raises(errors.ProtocolError):
                call("martlet://b/run/")


def test_listings_that_name_their_own_page(peer: Peer) -> None:
    page = b"<R><Contents><Key>k</Key><Size>many</Size></Contents><NextContinuationToken>t</NextContinuationToken></R>"
    peer.replies = [OK + f"Content-Length: {len(page)}\r\n\r\n".encode() + page] * 5
    with martlet.Client(endpoint=peer.url, attempts=1) as client, pytest.raises(errors.ProtocolError):
        assert len(list(client.listing("martlet://b/"))) < 5


def test_damaged_metadata(rng: random.Random) -> None:
    """Each flipped byte gives metadata or an error of the package."""
    pytest.importorskip("torch")
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, TensorProperties

    from martlet.metadata import loads

    whole = pickle.dumps(
        Metadata({"a": BytesStorageMetadata(), "b": BytesStorageMetadata()}, {"p": TensorProperties()})
    )
    assert loads(whole, trusted=False)
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with suppress(martlet.MartletError):
            loads(bytes(damaged), trusted=False)


def test_metadata_that_names_bytes_that_are_not_there(cluster: Cluster, connect: Connect) -> None:
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    from martlet.dcp import StorageReader, StorageWriter

    failed = pytest.importorskip("torch.distributed.checkpoint.utils").CheckpointException
    client, folder = connect(), "martlet://b/run/step-1"
    writer = StorageWriter(folder, client=client, commit="never")
    state = {"w": torch.ones(300, 300)}
    dcp.save(state, storage_writer=writer, no_dist=True)
    stored = cluster.objects["b", "run/step-1/.metadata"]
    for offset, length in ((0, 1 << 50), (1 << 50, 4), (-4, 8), (0, -1)):
        metadata = pickle.loads(stored.body)
        for place in metadata.storage_data.values():
            place.offset, place.length = offset, length
        cluster.put("b", "run/step-1/.metadata", pickle.dumps(metadata))
        with pytest.raises(failed, match="the metadata names"):
            dcp.load(state, storage_reader=StorageReader(folder, client=client, generation=None), no_dist=True)


def test_safetensors_with_endless_numbers(cluster: Cluster, connect: Connect) -> None:
    pytest.importorskip("torch")
    from martlet.tensors import parse_header

    for text in (b'{"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,8]}}', b"[" * 200_000):
        with pytest.raises(martlet.MartletError, match="safetensors file"):
            parse_header(text, 1 << 30, "x")
