"""Clients that are slow, fall silent or go away in the middle: nothing visible, nothing leaked."""

import os
import socket
import struct
import threading
import time

import pytest

from conftest import SLOW_SETTINGS, client_for, running_server
from harness import sigv4, wire
from helpers import absent, assert_refused, get

MIB = 1 << 20
# What SLOW_SETTINGS makes of the server's patience, and a margin for a busy machine.
PATIENCE_S = 2
MARGIN_S = 12


@pytest.fixture(scope="module")
def impatient():
    with running_server(settings=SLOW_SETTINGS) as server:
        client = client_for(server)
        client.create_bucket(Bucket="slow")
        yield server, client


def head(server, key, length, expect=None):
    target = f"/slow/{key}"
    headers = {**sigv4.Signer().headers("PUT", target, {"host": server.host}), "content-length": str(length)}
    return wire.head("PUT", target, {**headers, **(expect or {})})


def ends_in_time(connection):
    """The connection is closed by the server before its patience and the margin are over."""
    connection.socket.settimeout(PATIENCE_S + MARGIN_S)
    begun = time.monotonic()
    while connection.socket.recv(4096):
        pass
    return time.monotonic() - begun


def test_slow_headers(impatient):
    server, _ = impatient
    with wire.Wire(server) as connection:
        connection.send(b"GET / HTTP/1.1\r\nhost: x\r\n")
        ends_in_time(connection)


def test_headers_that_trickle(impatient):
    server, _ = impatient
    with wire.Wire(server) as connection:
        stop = threading.Event()

        def trickle():
            connection.send(b"GET / HTTP/1.1\r\n")
            while not stop.wait(0.3):
                connection.send(b"x: y\r\n")

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            ends_in_time(connection)
        except ConnectionResetError:
            pass
        finally:
            stop.set()
            thread.join()


def test_a_connection_that_says_nothing(impatient):
    server, _ = impatient
    with wire.Wire(server) as connection:
        ends_in_time(connection)


@pytest.mark.parametrize("length", [1000, 100_000, 70 * MIB])
def test_a_body_that_stalls(impatient, length):
    server, client = impatient
    data = head(server, "stalled", length) + os.urandom(length // 2)
    with wire.Wire(server, timeout=PATIENCE_S + MARGIN_S) as connection:
        connection.send(data)
        reply = connection.reply("PUT")
        assert reply is None or (reply.status, reply.code) == (400, "RequestTimeout"), reply
    absent(client, "slow", "stalled")


def test_a_body_that_is_slow_but_moves_is_taken(impatient):
    server, client = impatient
    with wire.Wire(server, timeout=30) as connection:
        connection.send(head(server, "slow", 8))
        for _ in range(8):
            time.sleep(PATIENCE_S / 4)
            connection.send(b"x")
        assert connection.reply("PUT").status == 200
    assert get(client, "slow", "slow") == b"x" * 8


@pytest.mark.parametrize("sent", [0, 1, 4096, MIB, 70 * MIB])
@pytest.mark.parametrize("how", ["half-close", "close", "reset"])
def test_a_client_that_leaves_in_mid_put(impatient, sent, how):
    server, client = impatient
    client.put_object(Bucket="slow", Key="left", Body=b"before")
    # Made first: the server is impatient with connections that say nothing yet.
    data = head(server, "left", sent + 1000) + os.urandom(sent)
    with wire.Wire(server) as connection:
        connection.send(data)
        if how == "half-close":
            connection.half_close()
            reply = connection.reply("PUT")
            assert reply is None or (reply.status, reply.code) == (400, "IncompleteBody"), reply
        elif how == "reset":
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(0.2)
    assert get(client, "slow", "left") == b"before"


def test_nothing_is_left_of_those_who_left(impatient):
    server, client = impatient
    client.put_object(Bucket="slow", Key="warm", Body=os.urandom(66 * MIB))
    client.delete_object(Bucket="slow", Key="warm")
    descriptors, files = settled(server)
    for _ in range(20):
        data = head(server, "gone", 80 * MIB) + os.urandom(3 * MIB)
        with wire.Wire(server) as connection:
            connection.send(data)
    deadline = time.monotonic() + MARGIN_S
    while settled(server) > (descriptors, files) and time.monotonic() < deadline:
        time.sleep(0.2)
    left_descriptors, left_files = settled(server)
    assert left_descriptors <= descriptors + 2 and left_files <= files, (descriptors, files)
    absent(client, "slow", "gone")


def settled(server):
    """Open descriptors, and files of extents, once requests under way had a moment to end."""
    time.sleep(0.5)
    files = [name for _, _, names in os.walk(server.folder / "data") for name in names
             if "extents" in _ and "index" not in _]
    return server.descriptors(), len(files)


def test_a_reader_that_does_not_read(impatient):
    server, client = impatient
    client.put_object(Bucket="slow", Key="big", Body=os.urandom(64 * MIB))
    before = server.rss_bytes()
    lazy = []
    for _ in range(20):
        connection = wire.Wire(server)
        target = "/slow/big"
        headers = sigv4.Signer().headers("GET", target, {"host": server.host})
        connection.send(wire.head("GET", target, headers))
        lazy.append(connection)
    time.sleep(1)
    assert server.rss_bytes() - before < 200 * MIB
    assert len(get(client, "slow", "big")) == 64 * MIB
    for connection in lazy:
        connection.socket.close()


def test_it_still_serves(impatient):
    server, client = impatient
    assert_refused(wire.request(server, "GET", "/slow/none"), 404, "NoSuchKey")
    client.put_object(Bucket="slow", Key="after", Body=b"all")
    assert get(client, "slow", "after") == b"all"
