"""Reads into the memory of a real GPU from a real server, by each way. `clients/gpu.sh` runs them on such a machine.

Each group has a process of its own there: a fault of cuFile or NIXL ends its group alone.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import servers
from servers import MIB

import martlet
from martlet.pieces import Piece

torch = pytest.importorskip("torch")

from cufile import CuFile, CuFileError, nvidia_fs  # noqa: E402
from nixl_files import Agent  # noqa: E402

from martlet import gpu  # noqa: E402

DEVICE = "cuda"
SIZE = 150 * MIB + 11
WINDOW = gpu.WINDOW_BYTES
URL = "martlet://gpu/large"
NO_SECOND_DESCRIPTOR = "5031, no new descriptor of the file"
NO_GPU = "torch has no CUDA device: run clients/gpu.sh on a machine with a GPU"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU)


def note(what: str, **facts: Any) -> None:
    """Prints a fact, and keeps it in the file that MARTLET_GPU_FACTS names."""
    line = json.dumps({"what": what, **facts}, default=str)
    print(line)
    if path := os.environ.get("MARTLET_GPU_FACTS"):
        with Path(path).open("a") as file:
            file.write(f"{line}\n")


def connect(server: Any, **options: object) -> martlet.Client:
    client = servers.connect(server, **options)
    harness = servers.module("tests/s3", "harness.server")
    client.store.signer.use(harness.ACCESS_KEY, harness.SECRET_KEY)
    return client


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with servers.folder() as place:
        path = str(place / "direct.sock")
        with servers.server(place, None, "--direct-socket", path) as started:
            started.socket, started.place = path, place
            with connect(started) as client:
                client.store.request("PUT", martlet.Address("gpu"))
            yield started


@pytest.fixture(scope="module")
def body(server: Any) -> bytes:
    """Bytes of the object, which has three extents."""
    seed = int(os.environ.get("MARTLET_SEED") or random.randrange(1_000_000))
    print(f"seed of the object {seed}")
    made = random.Random(seed).randbytes(SIZE)
    with connect(server) as client:
        servers.put(client, URL, made)
        assert len(client.reader(URL).pieces(0, SIZE)) == 3
    return made


def ranges(rng: random.Random) -> list[tuple[int, int]]:
    """First bytes and sizes: bytes, edges of windows and extents, the whole object, and random ones."""
    found = [(0, 0), (0, 1), (SIZE - 1, 1), (65_537, 3 * MIB + 1), (0, WINDOW), (1, WINDOW), (0, WINDOW + 1)]
    found += [(WINDOW - 3, 7), (3, 2 * WINDOW + 5), (0, SIZE)]
    for _ in range(6):
        first = rng.randrange(SIZE)
        found.append((first, rng.randrange(1, SIZE - first + 1)))
    return found


def empty(size: int) -> Any:
    """Memory of the GPU, full of a byte that a read must replace."""
    return torch.full((size,), 0xA5, dtype=torch.uint8, device=DEVICE)


def same(tensor: Any, expected: bytes) -> bool:
    found = tensor.reshape(-1).view(torch.uint8).cpu().numpy()
    return bytes(found.data) == expected


def test_pinned_reads(server: Any, body: bytes, rng: random.Random) -> None:
    for direct in ("auto", "never"):
        with connect(server, direct=direct) as client:
            for first, size in ranges(rng):
                reader, target = client.reader(URL), empty(size)
                gpu.read(reader, first, target)
                assert same(target, body[first : first + size]), (direct, first, size)
                assert reader.stats.direct_bytes == (size if direct == "auto" else 0)


def test_pinned_reads_wait_for_the_stream(server: Any, body: bytes) -> None:
    """Work that was enqueued before the read doesn't overwrite its bytes."""
    with connect(server) as client:
        reader, target = client.reader(URL), empty(8 * MIB)
        torch.cuda._sleep(2_000_000_000)
        target.zero_()
        gpu.read(reader, 0, target)
        assert same(target, body[: 8 * MIB])


def test_pinned_reads_by_files(server: Any, body: bytes, rng: random.Random) -> None:
    for uncached in (False, True):
        with connect(server, direct_socket=server.socket, direct_io=uncached) as client:
            for first, size in ranges(rng):
                reader, target = client.reader(URL), empty(size)
                gpu.read(reader, first, target)
                assert same(target, body[first : first + size]), (uncached, first, size)
                assert reader.stats.local_bytes == size


def test_pinned_reads_of_shapes_and_wrong_targets(server: Any, body: bytes) -> None:
    with connect(server) as client:
        reader = client.reader(URL)
        target = torch.zeros((64, 33, 5), dtype=torch.bfloat16, device=DEVICE)
        gpu.read(reader, 17, target)
        assert same(target, body[17 : 17 + 2 * 64 * 33 * 5])
        for wrong in (target.transpose(0, 1), target.cpu()):
            with pytest.raises(martlet.MartletError, match="contiguous and on a GPU"):
                gpu.read(reader, 0, wrong)
        for first in (-1, SIZE - 3):
            with pytest.raises(ValueError, match="outside"):
                gpu.read(reader, first, empty(4))
            with pytest.raises(ValueError, match="outside"):
                gpu.read_by_cufile(reader, first, empty(4))


def test_pinned_memory_and_dlpack(server: Any, body: bytes) -> None:
    with connect(server) as client:
        memory = client.read(URL, pinned=True)
        assert memory.tensor().is_pinned()
        assert same(memory.tensor().to(DEVICE, non_blocking=True), body)
        note("DLPack of pinned memory", device=memory.__dlpack_device__())
        shared = torch.from_dlpack(memory)
        assert shared.data_ptr() == memory.tensor().data_ptr()
        assert same(shared, body)
        cupy = pytest.importorskip("cupy")
        target = cupy.zeros(9 * MIB, dtype=cupy.uint8)
        gpu.read(client.reader(URL), 5, torch.from_dlpack(target))
        assert cupy.asnumpy(target).tobytes() == body[5 : 5 + 9 * MIB]


@pytest.fixture
def counting() -> Iterator[Callable[[], dict[str, int]]]:
    """Counts of cuFile's reads since the test began, by mode; empty where cuFile doesn't open or count."""
    try:
        opened = CuFile()
    except (CuFileError, OSError) as error:
        note("cuFile doesn't open", error=error)
        yield dict
        return
    before = opened.counts()
    yield lambda: {name: count - before[name] for name, count in opened.counts().items()}
    opened.close()


@pytest.mark.parametrize("mode", ["ON", "AUTO", "OFF"])
def test_kvikio_reads(server: Any, body: bytes, rng: random.Random, counting: Any, mode: str) -> None:
    pytest.importorskip("kvikio")
    import kvikio.defaults

    with kvikio.defaults.set({"compat_mode": getattr(kvikio.CompatMode, mode)}):
        with connect(server, direct_socket=server.socket) as client:
            for first, size in ranges(rng):
                target = empty(size)
                report = gpu.read_by_cufile(client.reader(URL), first, target)
                assert same(target, body[first : first + size]), (first, size)
                assert report.cufile_bytes + report.pinned_bytes == size
                # KvikIO reads what is lent by itself unless it must call cuFile.
                assert report.cufile_bytes == size or mode == "OFF"
            note(
                f"KvikIO with compat_mode {mode}",
                effective=report.compat_mode,
                kvikio_bytes=report.cufile_bytes,
                pinned_bytes=report.pinned_bytes,
                by_cufile=counting(),
                nvidia_fs=nvidia_fs(),
            )


def test_kvikio_leaves_the_rest_to_pinned_memory(server: Any, rng: random.Random) -> None:
    pytest.importorskip("kvikio")
    sealed = rng.randbytes(3 * MIB)
    with connect(server, direct_socket=server.socket) as client:
        address = martlet.Address("gpu", "sealed")
        client.store.request("PUT", address, {}, {"x-amz-server-side-encryption": "AES256"}, memoryview(sealed))
        target = empty(len(sealed))
        report = gpu.read_by_cufile(client.reader(address), 0, target)
        assert same(target, sealed)
        assert (report.cufile_bytes, report.pinned_bytes) == (0, len(sealed))


@pytest.fixture
def lent(server: Any, body: bytes) -> Iterator[tuple[Piece, dict[str, int]]]:
    """The first extent, and four descriptors of its file: from the detached mount, and by its path."""
    with ExitStack() as stack:
        client = stack.enter_context(connect(server, direct_socket=server.socket))
        (piece, *_) = client.reader(URL).pieces(0, SIZE)
        lease = stack.enter_context(client.reader(URL).lent(piece))
        assert lease is not None
        assert lease.offset == 0
        assert lease.read_only_mount
        path = servers.file_of(server.place, piece.id)
        found = {"detached, plain": lease.plain, "ordinary, plain": os.open(path, os.O_RDONLY)}
        stack.callback(os.close, found["ordinary, plain"])
        if lease.has_uncached:
            found["detached, O_DIRECT"] = lease.uncached
            found["ordinary, O_DIRECT"] = os.open(path, os.O_RDONLY | os.O_DIRECT)
            stack.callback(os.close, found["ordinary, O_DIRECT"])
        yield piece, found


def outcome(opened: CuFile, descriptor: int, body: bytes, piece: Piece) -> str:
    """Registers a descriptor and reads by it; right bytes, or the refusal."""
    try:
        handle = opened.register(descriptor)
    except CuFileError as error:
        return str(error)
    try:
        for first, size in ((0, piece.length), (4096, MIB), (4097, 100_001), (piece.length - 1, 1)):
            target = empty(size)
            torch.cuda.synchronize()
            count = opened.read(handle, target, first)
            assert count == size
            assert same(target, body[first : first + size]), (first, size)
    except CuFileError as error:
        return str(error)
    finally:
        opened.deregister(handle)
    return "reads"


def test_cufile_takes_descriptors_of_the_detached_mount(server: Any, body: bytes, lent: Any) -> None:
    """cuFile reads by the plain descriptor of the detached mount as by one of the file's path.

    It opens a file with O_DIRECT again, by its path, and no path leads to the mount.
    """
    try:
        opened = CuFile()
    except (CuFileError, OSError) as error:
        note("cuFile doesn't open", error=error)
        pytest.skip(f"cuFile doesn't open: {error}")
    piece, descriptors = lent
    note("cuFile", **opened.facts())
    found = {}
    for name, descriptor in descriptors.items():
        before = opened.counts()
        found[name] = outcome(opened, descriptor, body, piece)
        by_mode = {key: count - before[key] for key, count in opened.counts().items()}
        note(f"cuFile, {name}", outcome=found[name], by_mode=by_mode)
    opened.close()
    assert found["detached, plain"] == found["ordinary, plain"]
    if found.get("ordinary, O_DIRECT") == "reads":
        assert found["detached, O_DIRECT"] in ("reads", f"cuFileHandleRegister: {NO_SECOND_DESCRIPTOR}")


@pytest.mark.parametrize("backend", ["GDS", "GDS_MT", "POSIX"])
def test_nixl_reads_descriptors(server: Any, body: bytes, lent: Any, counting: Any, backend: str) -> None:
    try:
        agent = Agent(backend)
    except Exception as error:
        note(f"NIXL's {backend}", outcome=repr(error))
        pytest.skip(f"NIXL's {backend} can't be had: {error!r}")
    piece, descriptors = lent
    found = {}
    for name, descriptor in descriptors.items():
        # Files go to pinned memory by POSIX, which knows no memory of a GPU.
        target = empty(piece.length)
        buffer = torch.zeros(piece.length, dtype=torch.uint8, pin_memory=True) if backend == "POSIX" else target
        torch.cuda.synchronize()
        try:
            agent.read(descriptor, 0, buffer)
            found[name] = "reads"
        except Exception as error:
            found[name] = repr(error)
        else:
            target.copy_(buffer)
            assert same(target, body[: piece.length]), name
    note(f"NIXL's {backend}", **found, by_cufile=counting())
    # Batches of the backend GDS, and O_DIRECT by cuFile, need a second descriptor, which cuFile opens by the path.
    if backend != "GDS":
        assert (found["detached, plain"] == "reads") == (found["ordinary, plain"] == "reads")
    if backend == "POSIX":
        assert found.get("detached, O_DIRECT") == found.get("ordinary, O_DIRECT")


def test_torch_checkpoint_of_a_gpu(server: Any) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    from martlet.dcp import StorageReader, StorageWriter

    torch.manual_seed(29)
    state = {"w": torch.randn(3000, 1000, device=DEVICE), "b": torch.arange(70_000, device=DEVICE), "epoch": 3}
    found = {"w": torch.zeros_like(state["w"]), "b": torch.zeros_like(state["b"]), "epoch": 0}
    where = "martlet://gpu/run/step-1"
    for options in ({}, {"direct_socket": server.socket}):
        with connect(server, **options) as client:
            dcp.save(state, storage_writer=StorageWriter(where, client=client, commit="never"), no_dist=True)
            dcp.load(found, storage_reader=StorageReader(where, client=client, generation=None), no_dist=True)
        assert found["w"].device.type == torch.device(DEVICE).type
        assert torch.equal(found["w"], state["w"])
        assert torch.equal(found["b"], state["b"])
        assert found["epoch"] == 3
        found["w"].zero_()


def test_torch_slices_of_safetensors(server: Any) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    from martlet.tensors import TensorFile

    whole = torch.randn(4096, 700, dtype=torch.float32).to(torch.bfloat16)
    url = "martlet://gpu/model.safetensors"
    with connect(server, direct_socket=server.socket) as client:
        client.write(url, safetensors.save({"w": whole}))
        with TensorFile(url, client) as file:
            rows, columns = file.rows("w", 1000, 3001).to(DEVICE), file.columns("w", 13, 620).to(DEVICE)
            info, target = file.infos["w"], torch.zeros_like(whole, device=DEVICE)
            gpu.read(file.reader, info.offset, target)
    assert torch.equal(rows, whole[1000:3001].to(DEVICE))
    assert torch.equal(columns, whole[:, 13:620].to(DEVICE))
    assert torch.equal(target, whole.to(DEVICE))
