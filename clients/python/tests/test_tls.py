"""TLS at data ports: trusted ones are read, all others are named in a warning, and their bytes come by GET."""

from __future__ import annotations

import logging
import random
import re
import socketserver
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
import servers
from servers import MIB, read

import martlet
from fake import S3, Cluster, Node, serve, serve_raw
from martlet import Untrusted
from martlet import reader as readers
from martlet.transport import Pool, Timeouts, place_of

Connect = Callable[..., martlet.Client]
URL = "martlet://b/k"
REAL_URL = "martlet://box/k"
ONLY_LOCALHOST = "subjectAltName=DNS:localhost"


@pytest.fixture(autouse=True)
def _warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_untrusted", readers._Named())
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Files of an authority, of a certificate for `localhost` alone, and of its key."""
    issuer = servers.module("clients", "certificates")
    issued: tuple[Path, Path, Path] = issuer.issue(tmp_path_factory.mktemp("certificates"), ONLY_LOCALHOST)
    return issued


@pytest.fixture
def secure(cluster: Cluster, certificates: tuple[Path, Path, Path]) -> Cluster:
    """The fake cluster, whose data ports speak TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates[1], certificates[2])
    for server in cluster.servers:
        server.shutdown()
        server.server_close()
    cluster.servers = [serve(Node, cluster, context) for _ in range(3)]
    cluster.scheme, cluster.host = "https", "localhost"
    return cluster


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if it.name == "martlet" and it.levelno >= logging.WARNING]


def test_a_trusted_port(
    secure: Cluster,
    connect: Connect,
    rng: random.Random,
    certificates: tuple[Path, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = rng.randbytes(3 * MIB + 5)
    secure.put("b", "k", body)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates[0]))
    found, stats = read(connect(), URL)
    assert (found, stats.direct_bytes, stats.get_bytes) == (body, len(body), 0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("authority", "certificate that isn't trusted"),
        ("name", "certificate that isn't trusted: Hostname mismatch|IP address mismatch"),
        ("clear", "must begin with https://|broke|closed"),
        ("no tls", "must begin with http://"),
    ],
)
def test_ports_that_are_not_to_be_trusted(
    secure: Cluster,
    connect: Connect,
    rng: random.Random,
    certificates: tuple[Path, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wrong: str,
    words: str,
) -> None:
    body = rng.randbytes(3 * MIB + 5)
    secure.put("b", "k", body)
    if wrong != "authority":
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates[0]))
    if wrong == "name":
        secure.host = "127.0.0.1"
    if wrong == "clear":
        secure.scheme = "http"
    if wrong == "no tls":
        secure.servers += [serve(Node, secure) for _ in range(3)]
        secure.first_server = 3
    client = connect()
    with caplog.at_level(logging.INFO, logger="martlet"):
        found, stats = read(client, URL)
    assert (found, stats.direct_bytes, stats.get_bytes) == (body, 0, len(body))
    assert re.search(words, caplog.text), caplog.text
    if wrong != "clear":
        said = warnings(caplog)
        assert 1 <= len(said) == len(set(said)) <= 3, "each data port is warned of once"
        assert secure.count("locate") == 1, "locate would name these ports again"
        assert stats.located_again == 0
        # At most one handshake of each thread with each port, and none after the first has failed.
        made = sum(secure.connections[secure.port(number)] for number in range(3))
        assert made == stats.other_holder <= 3 * 4
        assert read(client, URL)[0] == body
        assert sum(secure.connections[secure.port(number)] for number in range(3)) == made
    assert secure.tokens
    assert not any(token in caplog.text for token in secure.tokens)
    assert secure.count("/x/") == 0


ALERT = b"\x15\x03\x03\x00\x02\x02\x46"


def refuse(cluster: Cluster, number: int, received: bytearray) -> None:
    """Replaces a data port by one that answers a request in clear as TLS does: with a fatal alert."""

    class Refuses(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            received.extend(self.request.recv(16 << 10))
            self.request.sendall(ALERT)

    cluster.servers[number].shutdown()
    cluster.servers[number].server_close()
    cluster.servers[number] = serve_raw(Refuses)


def test_one_of_two_holders(
    cluster: Cluster, connect: Connect, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    body, received = rng.randbytes(3 * MIB + 5), bytearray()
    cluster.put("b", "k", body)
    refuse(cluster, 0, received)
    client = connect()
    found, stats = read(client, URL)
    assert (found, stats.direct_bytes, stats.get_bytes, stats.located_again) == (body, len(body), 0, 0)
    assert len(warnings(caplog)) == 1
    assert 1 <= stats.other_holder <= 4
    # Once a minute has passed, the port is tried again.
    before = len(received)
    client.store.pool._distrust_until.clear()
    assert read(client, URL)[0] == body
    assert len(received) > before


def test_a_url_in_clear_to_a_port_with_tls(
    cluster: Cluster, connect: Connect, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    """The request leaves before the port can refuse it: its token is lost, and the port is left out from then on."""
    body, received = rng.randbytes(3 * MIB + 5), bytearray()
    cluster.put("b", "k", body)
    for number in range(3):
        refuse(cluster, number, received)
    client = connect()
    with caplog.at_level(logging.INFO, logger="martlet"):
        found, stats = read(client, URL)
    assert (found, stats.direct_bytes, stats.located_again) == (body, 0, 0)
    assert all("must begin with https://" in it for it in warnings(caplog))
    assert 1 <= len(warnings(caplog)) <= 3
    assert any(quote(token, safe="-_.~").encode() in received for token in cluster.tokens)
    assert not any(token in caplog.text for token in cluster.tokens)
    before = len(received)
    assert read(client, URL)[0] == body
    assert len(received) == before


def test_an_alert_before_the_whole_request_is_sent(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port with TLS that cuts a large request is named too."""
    connection = Pool(Timeouts(5, 5)).take(place_of(cluster.endpoint))

    class Cut:
        def sendall(self, _: bytes) -> None:
            raise BrokenPipeError

        def recv_into(self, view: memoryview) -> int:
            view[: len(ALERT)] = ALERT
            return len(ALERT)

    connection.close()
    monkeypatch.setattr(connection, "_socket", Cut())
    with pytest.raises(Untrusted, match="must begin with https://"):
        connection.send("PUT", "/b/k", {}, memoryview(b"bytes"))


def test_a_server_is_named_once() -> None:
    named = readers._Named()
    with ThreadPoolExecutor(8) as threads:
        first = list(threads.map(lambda _: [named.first("http://a"), named.first("http://b")], range(200)))
    assert [sum(column) for column in zip(*first, strict=True)] == [1, 1]
    named = readers._Named()
    assert sum(named.first(str(number)) for number in range(2 * readers.NAMED_MAX)) == readers.NAMED_MAX


def test_the_store_itself(
    cluster: Cluster, connect: Connect, certificates: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that isn't trusted is an error at once: further attempts wouldn't change it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates[1], certificates[2])
    other = serve(S3, cluster, context)
    cluster.put("b", "k", b"bytes")
    port = other.server_address[1]
    try:
        with pytest.raises(Untrusted, match="AWS_CA_BUNDLE"):
            connect(endpoint=f"https://localhost:{port}").info(URL)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates[0]))
        assert connect(endpoint=f"https://localhost:{port}").info(URL).size == 5
        with pytest.raises(Untrusted, match="mismatch"):
            connect(endpoint=f"https://127.0.0.1:{port}").info(URL)
        with pytest.raises(Untrusted, match="must begin with http://"):
            connect(endpoint=cluster.endpoint.replace("http:", "https:")).info(URL)
    finally:
        other.shutdown()
        other.server_close()


@servers.needs_servers
@pytest.mark.parametrize(
    ("url", "trusts", "words"),
    [
        ("https://localhost:{port}", True, ""),
        ("https://localhost:{port}", False, "certificate that isn't trusted"),
        ("https://127.0.0.1:{port}", True, "IP address mismatch"),
        ("http://127.0.0.1:{port}", True, "must begin with https://"),
    ],
)
def test_a_real_port(
    certificates: tuple[Path, Path, Path],
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    url: str,
    trusts: bool,
    words: str,
) -> None:
    body = rng.randbytes(9 * MIB + 7)
    harness = servers.module("tests/s3", "harness.server")
    (port,) = harness.free_ports(1)
    settings = {
        "MARTLET_DATA_ADDRESS": f"127.0.0.1:{port}",
        "MARTLET_DATA_URL": url.format(port=port),
        "MARTLET_DATA_TLS_CERTIFICATE": str(certificates[1]),
        "MARTLET_DATA_TLS_KEY": str(certificates[2]),
    }
    if trusts:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates[0]))
    with servers.folder() as made, servers.running(harness.Server(made, settings)) as server:
        with servers.connect(server) as client:
            client.store.request("PUT", martlet.Address("box"))
            servers.put(client, REAL_URL, body)
            for verify in ("client", "node"):
                with servers.connect(server, verify=verify) as other:
                    found, stats = read(other, REAL_URL)
                assert found == body
                assert stats.direct_bytes == (0 if words else len(body)), caplog.text
    if words:
        assert len(warnings(caplog)) == 1
        assert words in caplog.text
    else:
        assert warnings(caplog) == []
