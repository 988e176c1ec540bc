"""Writes to the fake cluster: uploads in parts, files, lost replies."""

from __future__ import annotations

import gc
import io
import mmap
import random
from collections.abc import Callable

import pytest

import martlet
from fake import Cluster
from martlet.upload import Multipart

MIB = 1 << 20
Connect = Callable[..., martlet.Client]
URL = "martlet://b/k"


@pytest.mark.parametrize("size", [0, 1, 5 * MIB, 5 * MIB + 1, 17 * MIB])
def test_write(cluster: Cluster, connect: Connect, rng: random.Random, size: int) -> None:
    body = rng.randbytes(size)
    written = connect().write(URL, body)
    assert cluster.objects["b", "k"].body == body
    assert (written.etag, written.size) == (cluster.objects["b", "k"].etag, size)
    assert not cluster.uploads


@pytest.mark.parametrize("size", [0, 100, 5 * MIB, 23 * MIB + 7])
def test_a_file(cluster: Cluster, connect: Connect, rng: random.Random, size: int) -> None:
    body = rng.randbytes(size)
    with connect().open(URL, "wb") as file:
        at = 0
        while at < size:
            step = rng.choice([1, 1000, 3 * MIB, 8 * MIB])
            file.write(memoryview(body)[at : at + step])
            at += step
        assert file.tell() == size
    assert cluster.objects["b", "k"].body == body
    assert file.written is not None
    assert file.written.etag == cluster.objects["b", "k"].etag


def test_an_error_discards_the_file(cluster: Cluster, connect: Connect) -> None:
    for size in (100, 12 * MIB):
        with pytest.raises(RuntimeError, match="stop"), connect().open(URL, "wb") as file:
            file.write(bytes(size))
            raise RuntimeError("stop")
    assert not cluster.objects
    assert not cluster.uploads


def test_a_forgotten_file_is_no_object(cluster: Cluster, connect: Connect) -> None:
    connect().open(URL, "wb").write(bytes(100))
    gc.collect()
    assert not cluster.objects


@pytest.mark.parametrize("kind", ["503", "hang up"])
def test_requests_are_tried_again(cluster: Cluster, connect: Connect, rng: random.Random, kind: str) -> None:
    body = rng.randbytes(12 * MIB)
    cluster.fault(kind, times=2, method="PUT")
    connect().write(URL, body)
    assert cluster.objects["b", "k"].body == body


def test_the_lost_reply_to_a_completion(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    body = rng.randbytes(12 * MIB)
    cluster.fault("lost reply", path="uploadId", method="POST")
    assert connect().write(URL, body).etag == cluster.objects["b", "k"].etag


def test_an_upload_that_fails_leaves_no_parts(cluster: Cluster, connect: Connect) -> None:
    cluster.fault("503", times=1000, path="partNumber", method="PUT")
    with pytest.raises(martlet.Unavailable):
        connect().write(URL, bytes(12 * MIB))
    assert not cluster.objects
    assert not cluster.uploads


def test_bodies_carry_their_checksums(cluster: Cluster, connect: Connect) -> None:
    connect().write(URL, bytes(12 * MIB))
    bodies = [one for one in cluster.requests if one.method == "PUT"]
    assert len(bodies) == 3
    assert all("x-amz-checksum-crc32c" in one.headers for one in bodies)
    assert all("x-amz-checksum-crc32c" in one.headers["authorization"] for one in bodies)


def test_memory_of_a_file_is_bounded(cluster: Cluster, connect: Connect) -> None:
    client = connect(upload_parts=2)
    with client.open(URL, "wb") as file:
        for _ in range(60):
            file.write(bytes(MIB))
            assert len(file._sent) <= 2
    assert len(cluster.objects["b", "k"].body) == 60 * MIB


@pytest.mark.parametrize("parts", [2, 3, 9])
def test_memory_may_change_after_a_write(cluster: Cluster, connect: Connect, rng: random.Random, parts: int) -> None:
    body = rng.randbytes(parts * 5 * MIB + 77)
    memory = bytearray(body)
    cluster.fault("slow", times=1000, at=200, path="partNumber", method="PUT")
    with connect(upload_parts=4).open(URL, "wb") as file:
        file.write(memory)
        memory[:] = bytes(len(memory))
    assert cluster.objects["b", "k"].body == body


def test_the_last_parts_of_a_write_are_sent_meanwhile(cluster: Cluster, connect: Connect) -> None:
    cluster.fault("slow", times=1000, at=1000, path="partNumber", method="PUT")
    with connect(upload_parts=4).open(URL, "wb") as file:
        file.write(bytes(10 * MIB))
        assert [sent.done() for sent, _ in file._sent] == [False, False]
    assert len(cluster.objects["b", "k"].body) == 10 * MIB


def test_buffers_are_used_again(
    cluster: Cluster, connect: Connect, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(upload_parts=2)
    fresh = []

    class Counted(mmap.mmap):
        def __new__(cls, *args, **options):
            fresh.append(args)
            return super().__new__(cls, *args, **options)

    monkeypatch.setattr(mmap, "mmap", Counted)
    for _ in range(3):
        body = rng.randbytes(48 * MIB + rng.randrange(MIB))
        with client.open(URL, "wb") as file:
            for at in range(0, len(body), 3 * MIB):
                file.write(body[at : at + 3 * MIB])
        assert cluster.objects["b", "k"].body == body
    assert 1 <= len(fresh) <= 3


def test_a_part_that_fails_ends_the_file(cluster: Cluster, connect: Connect, rng: random.Random) -> None:
    client = connect(upload_parts=2)
    cluster.fault("early 403", times=1000, path="partNumber=3", method="PUT")
    with pytest.raises(martlet.AccessDenied), client.open(URL, "wb") as file:
        for _ in range(60):
            file.write(bytes(MIB))
    assert not cluster.objects
    assert not cluster.uploads
    cluster.faults.clear()
    body = rng.randbytes(23 * MIB)
    with client.open(URL, "wb") as file:
        file.write(body[:MIB])
        file.write(body[MIB:])
    assert cluster.objects["b", "k"].body == body


@pytest.mark.parametrize("how", ["stops", "goes on", "text"])
def test_a_file_whose_write_failed_is_no_object(cluster: Cluster, connect: Connect, how: str) -> None:
    # Another store ignores the size that a completion names.
    cluster.martlet = False
    before = cluster.put("b", "k", b"before")
    cluster.fault("early 403", times=1000, path="partNumber=3", method="PUT")
    file = connect(upload_parts=2).open(URL, "wb")
    outer = io.TextIOWrapper(file, encoding="ascii") if how == "text" else file
    failures = []
    for _ in range(60):
        try:
            outer.write("x" * MIB if how == "text" else bytes(MIB))
        except martlet.MartletError as error:
            failures.append(error)
            if how != "goes on":
                break
    assert isinstance(failures[0], martlet.AccessDenied)
    with pytest.raises(martlet.MartletError, match="an earlier write failed") as caught:
        outer.close()
    assert {one.__cause__ for one in [*failures[1:], caught.value]} == {failures[0]}
    assert (file.closed, file.written) == (True, None)
    assert cluster.objects["b", "k"] is before
    assert not cluster.uploads
    outer.close()


def test_a_close_that_was_interrupted_stores_nothing_later(
    cluster: Cluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.martlet = False
    cluster.fault("early 403", times=1000, path="partNumber=4", method="PUT")
    file = connect().open(URL, "wb")
    # The last part is sent by `close`.
    file.write(bytes(17 * MIB))

    def interrupt(_: Multipart) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Multipart, "abort", interrupt)
        with pytest.raises(KeyboardInterrupt):
            file.close()
    assert not file.closed
    with pytest.raises(martlet.MartletError, match="an earlier write failed"):
        file.close()
    assert file.closed
    assert not cluster.objects
    assert not cluster.uploads


def test_a_completion_names_the_size_of_the_object(cluster: Cluster, connect: Connect) -> None:
    upload = Multipart(connect().store, martlet.Address("b", "k"))
    upload.send(1, memoryview(bytes(5 * MIB)))
    with pytest.raises(martlet.StoreError, match="InvalidRequest"):
        upload.complete(6 * MIB)
    assert not cluster.objects
    upload.complete(5 * MIB)
    completions = [one for one in cluster.requests if one.method == "POST" and "uploadId" in one.target]
    assert [one.headers["x-amz-mp-object-size"] for one in completions] == [str(6 * MIB), str(5 * MIB)]
    assert all("x-amz-mp-object-size" in one.headers["authorization"] for one in completions)


def test_listing_and_deleting(cluster: Cluster, connect: Connect) -> None:
    client = connect()
    for name in ("a/1", "a/2", "b"):
        client.write(f"martlet://b/{name}", b"x")
    assert [it.key for it in client.listing("martlet://b/a/")] == ["a/1", "a/2"]
    client.delete("martlet://b/a/1")
    assert not client.exists("martlet://b/a/1")
    assert client.exists("martlet://b/a/2")


def test_sets(cluster: Cluster, connect: Connect) -> None:
    client = connect()
    folder = "martlet://b/run/step"
    written = [client.write(f"{folder}/{name}", name.encode()) for name in ("x", "y")]
    assert client.newest(folder) is None
    assert client.commit(folder, written) == martlet.Outcome("committed", 1)
    client.write(f"{folder}/x", b"another")
    with pytest.raises(martlet.Conflict):
        client.commit(folder, written)
    assert client.commit(folder).generation == 2
    assert [it.number for it in client.generations(folder)] == [1, 2]
    address = martlet.Address("b", "run/step")
    assert bytes(client.read(address.generation(1).child("x")).view) == b"x"
    assert client.hold(folder, 60) == 1
    assert client.withdraw(folder, 1) == 1


@pytest.mark.parametrize("what", ["another store", "no sets"])
def test_stores_without_sets(cluster: Cluster, connect: Connect, what: str) -> None:
    cluster.martlet, cluster.sets = what == "no sets", False
    client = connect()
    assert client.newest("martlet://b/run/step") is None
    with pytest.raises(martlet.MartletError):
        client.commit("martlet://b/run/step", [])


def test_a_refusal_before_the_body_is_read(cluster: Cluster, connect: Connect) -> None:
    cluster.fault("early 403", times=100, method="PUT")
    with pytest.raises(martlet.AccessDenied):
        connect(part_bytes=64 << 20).write(URL, bytes(48 * MIB))
    assert cluster.count("/b/k", "PUT") <= 2
