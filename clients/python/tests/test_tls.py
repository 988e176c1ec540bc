"""TLS at data ports: trusted ones are read, all others are named in a warning, and their bytes come by GET."""

from __future__ import annotations

import logging
import random
import re
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import servers
from servers import MIB, read

import martlet
from fake import S3, Cluster, Node, serve
from martlet import reader as readers
from martlet.errors import Untrusted

Connect = Callable[..., martlet.Client]
URL = "martlet://b/k"
REAL_URL = "martlet://box/k"
ONLY_LOCALHOST = "subjectAltName=DNS:localhost"


@pytest.fixture(autouse=True)
def _warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_untrusted", set())
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Files of an authority, of a certificate for `localhost` alone, and of its key."""
    certificates = servers.module("clients", "certificates")
    issued: tuple[Path, Path, Path] = certificates.issue(tmp_path_factory.mktemp("papers"), ONLY_LOCALHOST)
    return issued


@pytest.fixture
def secure(cluster: Cluster, papers: tuple[Path, Path, Path]) -> Cluster:
    """The fake cluster, whose data ports speak TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(papers[1], papers[2])
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
    papers: tuple[Path, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = rng.randbytes(3 * MIB + 5)
    secure.put("b", "k", body)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(papers[0]))
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
    papers: tuple[Path, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wrong: str,
    words: str,
) -> None:
    body = rng.randbytes(3 * MIB + 5)
    secure.put("b", "k", body)
    if wrong != "authority":
        monkeypatch.setenv("AWS_CA_BUNDLE", str(papers[0]))
    if wrong == "name":
        secure.host = "127.0.0.1"
    if wrong == "clear":
        secure.scheme = "http"
    if wrong == "no tls":
        secure.servers += [serve(Node, secure) for _ in range(3)]
        secure.first_server = 3
    with caplog.at_level(logging.INFO, logger="martlet"):
        found, stats = read(connect(), URL)
    assert (found, stats.direct_bytes, stats.get_bytes) == (body, 0, len(body))
    assert re.search(words, caplog.text), caplog.text
    if wrong != "clear":
        said = warnings(caplog)
        assert 1 <= len(said) == len(set(said)) <= 3, "each data port is warned of once"
    tokens = [it.target.partition("t=")[2] for it in secure.requests if "/x/" in it.target]
    assert not any(token and token in caplog.text for token in tokens)


def test_the_store_itself(
    cluster: Cluster, connect: Connect, papers: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that isn't trusted is an error at once: further attempts wouldn't change it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(papers[1], papers[2])
    other = serve(S3, cluster, context)
    cluster.put("b", "k", b"bytes")
    port = other.server_address[1]
    try:
        with pytest.raises(Untrusted, match="AWS_CA_BUNDLE"):
            connect(endpoint=f"https://localhost:{port}").info(URL)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(papers[0]))
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
    papers: tuple[Path, Path, Path],
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
        "MARTLET_DATA_TLS_CERTIFICATE": str(papers[1]),
        "MARTLET_DATA_TLS_KEY": str(papers[2]),
    }
    if trusts:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(papers[0]))
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
