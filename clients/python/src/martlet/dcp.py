"""Storage of torch.distributed.checkpoint: shards by parallel uploads, one PUT of `.metadata`, an explicit commit.

    writer = StorageWriter("martlet://train/run-7/step-1000")
    dcp.save(state, storage_writer=writer)          # writer.outcome: committed, generation 1
    dcp.load(state, storage_reader=StorageReader("martlet://train/run-7/step-1000"))

The reader takes one generation of the set, the newest by default, whatever is saved meanwhile. A set whose generations
are pending or withdrawn isn't read: its folder may mix two saves. In a store without checkpoint sets both work on the
plain folder, and say so in `outcome` and `generation`, and in one line of the log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, cast

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.filesystem import (
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import checkpoints
from . import metadata as stored_metadata
from .address import Address, parse
from .checkpoints import Generation, Outcome
from .clients import Client, shared
from .errors import AccessDenied, MartletError, StoreError
from .plan import Span
from .reader import Reader
from .torch_files import Files
from .upload import Written

LOG = logging.getLogger("martlet")
METADATA = ".metadata"
CURRENT_VERSION = "1.0.0"


def _client(client: Client | None, options: dict[str, Any]) -> Client:
    if client is not None and options:
        raise MartletError("pass a client or options, not both")
    return client or shared(options)


@dataclasses.dataclass(frozen=True)
class _Result(WriteResult):
    """Result of an item, with the object that holds it: so the coordinator can commit the objects of all ranks."""

    stored: Written | None = None


class StorageWriter(FileSystemWriter):
    """Writer of checkpoints that commits them as a set.

    `commit` is "auto" (commit where the store has sets and a rule covers the folder), "require" (an error where that
    fails, after `wait_s` seconds of a pending commit) or "never". `outcome` has the result on the coordinating rank.
    Without collectives no rank knows all objects: call `Client.commit(folder)` after all ranks are done.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        client: Client | None = None,
        commit: Literal["auto", "require", "never"] = "auto",
        publish_as: str | None = None,
        wait_s: float = 120.0,
        single_file_per_rank: bool = True,
        thread_count: int = 1,
        overwrite: bool = True,
        **options: Any,
    ) -> None:
        if commit not in ("auto", "require", "never"):
            raise MartletError(f"commit is {commit!r}: it must be 'auto', 'require' or 'never'")
        super().__init__(
            path,
            single_file_per_rank=single_file_per_rank,
            thread_count=thread_count,
            sync_files=False,
            overwrite=overwrite,
        )
        self.client = _client(client, options)
        self._files = Files(self.client)
        self.fs = cast(Any, self._files)
        self.path = self.fs.init_path(path)
        self.outcome: Outcome | None = None
        self._commit = commit
        self._publish_as = publish_as
        self._wait_s = wait_s

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins another save, possibly in another folder."""
        super().reset(checkpoint_id)
        self.outcome = None

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Refuses to overwrite where that was asked for; nothing is deleted before the save."""
        overwrite, self.overwrite = self.overwrite, False
        try:
            if not overwrite:
                return super().prepare_local_plan(plan)
        finally:
            self.overwrite = overwrite
        if self.rank is not None and not self.use_collectives:
            return super().prepare_local_plan(plan)
        return plan

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Uploads the shards of this rank."""
        results = super().write_data(plan, planner).value()
        files = self._files
        if len(results) != len(plan.items):
            # torch drops the errors of its threads.
            raise MartletError(
                f"{self.path}: {len(plan.items) - len(results)} of {len(plan.items)} items weren't stored, because a "
                "thread failed; its error was printed before. Save again"
            )
        noted: list[WriteResult] = []
        for it in results:
            path = files.concat_path(self.path, it.storage_data.relative_path)
            noted.append(_Result(it.index, it.size_in_bytes, it.storage_data, stored=files.written(path)))
        future: Future[list[WriteResult]] = Future()
        future.set_result(noted)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Stores `.metadata` by one PUT, and commits exactly the objects of this save."""
        metadata.storage_data = {it.index: it.storage_data for listed in results for it in listed}
        metadata.storage_meta = self.storage_meta()
        metadata.version = CURRENT_VERSION
        alone = not self.use_collectives and self.rank is not None
        name = f"__{self.rank}{METADATA}" if alone else METADATA
        path = self._files.concat_path(self.path, name)
        marker = self.client.write(path, pickle.dumps(metadata))
        if alone or self._commit == "never":
            return
        stored = {
            it.stored.address: it.stored for listed in results for it in listed if isinstance(it, _Result) and it.stored
        }
        self.outcome = self._committed([*stored.values(), marker], marker)

    def _committed(self, objects: list[Written], marker: Written) -> Outcome | None:
        folder = parse(str(self.path))
        try:
            if self._publish_as is None and (found := self._by_marker(folder, objects, marker)):
                return found
            outcome = self.client.commit(folder, objects, self._publish_as)
            if self._commit == "require":
                published = Address(folder.bucket, self._publish_as) if self._publish_as else folder
                outcome = checkpoints.settled(self.client.store, published, outcome, self._wait_s)
        except StoreError as error:
            if self._commit == "require":
                raise
            LOG.warning("%s was saved and not committed: %s", folder, error)
            return Outcome("refused", reason=str(error))
        except MartletError as error:
            if self._commit == "require":
                raise
            LOG.warning("%s was saved and not committed: %s", folder, error)
            return Outcome("refused", reason=str(error))
        if self._commit == "require" and not outcome.committed:
            raise MartletError(f"{folder} was saved; its commit is {outcome.state}: {outcome.reason}")
        return outcome

    def _by_marker(self, folder: Address, objects: list[Written], marker: Written) -> Outcome | None:
        """Returns the generation that the marker's rule has made, if it has exactly the objects of this save.

        Equal counts and sizes prove nothing: all saves of one model have them, and a rank of a former attempt may
        have replaced a shard in between.
        """
        state, _, rest = (marker.checkpoint or "").partition("; generation=")
        if state != "committed" or not rest.isdigit():
            return None
        number = int(rest)
        view = folder.generation(number)
        try:
            listed = {
                (it.key.removeprefix(view.folder), it.etag.strip('"'), it.size)
                for it in self.client.store.list(view.bucket, view.folder)
            }
        except StoreError:
            # The explicit commit judges then.
            return None
        saved = {(it.address.key.removeprefix(folder.folder), it.etag.strip('"'), it.size) for it in objects}
        if listed != saved:
            if not saved <= listed:
                self._withdraw(folder, number)
            return None
        return Outcome("committed", number)

    def _withdraw(self, folder: Address, generation: int) -> None:
        """Takes a generation out of the view whose marker is this save's, and whose shards are not."""
        try:
            self.client.withdraw(folder, generation)
        except StoreError as error:
            LOG.warning(
                "%s: generation %d has shards of another save, and stays: %s. Withdraw it", folder, generation, error
            )
        else:
            LOG.warning("%s: generation %d had shards of another save, and was withdrawn", folder, generation)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns true for `martlet://` and `s3://` addresses."""
        return Files.validate_checkpoint_id(checkpoint_id)


@dataclasses.dataclass(frozen=True)
class _Seen:
    """Generation that a rank has read its metadata from."""

    generation: int | None


class StorageReader(FileSystemReader):
    """Reader of one generation of a checkpoint.

    `generation` is "newest", a number, or None for the plain folder. `hold_s` keeps it from removal for so long. With
    "newest", a set that has generations and no committed one is an error.
    `trusted=True` unpickles any class in `.metadata`; by default only torch's own descriptions of checkpoints are.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        client: Client | None = None,
        generation: int | Literal["newest"] | None = "newest",
        trusted: bool = False,
        hold_s: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(path)
        self.client = _client(client, options)
        self._files = Files(self.client)
        self.fs = cast(Any, self._files)
        self.path = self.fs.init_path(path)
        self._asked = generation
        self._trusted = trusted
        self._hold_s = hold_s
        #: Number of the generation that is read; None for the plain folder.
        self.generation: int | None = generation if isinstance(generation, int) else None
        self._folder: Address | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins another load, possibly from another folder."""
        super().reset(checkpoint_id)
        self._folder = None

    def _resolve(self) -> Address:
        if self._folder is None:
            folder = parse(str(self.path))
            if self._asked == "newest":
                try:
                    found = self._newest(folder)
                except AccessDenied as error:
                    raise MartletError(
                        f"{folder}: finding the newest generation needs martlet:GetCheckpoint, which was denied; "
                        f"name one by generation=, or pass generation=None for the plain folder ({error})"
                    ) from error
                self.generation = found.number if found else None
                if found is None:
                    LOG.info("%s is read without a generation: the store has no such checkpoint set", folder)
            if self._hold_s and self.generation is not None:
                self.client.hold(folder, self._hold_s, self.generation)
            self._folder = folder.generation(self.generation) if self.generation is not None else folder
        return self._folder

    def _newest(self, folder: Address) -> Generation | None:
        """Returns the newest committed generation; None where the store has no such set."""
        listed = checkpoints.known(self.client.store, folder)
        found = checkpoints.committed(listed or [])
        if listed and found is None:
            states = "; ".join(
                f"generation {it.number} is {it.state}" + (f": {it.reason}" if it.reason else "") for it in listed
            )
            raise MartletError(
                f"{folder} has no committed generation ({states}). Load another checkpoint, or wait, or save again; "
                "generation=None reads the plain folder, which may mix two saves"
            )
        return found

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002
        """Reads the metadata of the generation, or of one rank."""
        rank = kwargs.get("rank")
        name = METADATA if rank is None else f"__{rank}{METADATA}"
        memory = self.client.read(self._resolve().child(name))
        found = stored_metadata.loads(bytes(memory.view), self._trusted)
        if getattr(found, "storage_meta", None) is None:
            found.storage_meta = StorageMeta()
        cast(StorageMeta, found.storage_meta).load_id = self.load_id
        return found

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Notes the generation of this rank."""
        return dataclasses.replace(plan, storage_data=_Seen(self.generation))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Refuses a load whose ranks saw different generations."""
        seen = {plan.storage_data.generation for plan in plans if isinstance(plan.storage_data, _Seen)}
        if len(seen) > 1:
            raise MartletError(
                f"{self.path} was saved while the ranks began to load: they saw the generations "
                f"{sorted(map(str, seen))}. Load again, or name one by generation="
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads all items, in windows of bounded memory; the next window is read while this one is loaded."""
        folder = self._resolve()
        items = [_Item(it, self.storage_data[it.storage_index]) for it in plan.items]
        items.sort(key=lambda it: (it.file, it.offset))
        readers: dict[str, Reader] = {}
        windows = _windows(items, self.client.settings.memory_bytes // 2)
        ahead = self._start(folder, next(windows, []), readers)
        while ahead is not None:
            window = ahead()
            ahead = self._start(folder, next(windows, []), readers)
            try:
                for item in window:
                    self._load(item, planner)
            except BaseException:
                if ahead is not None:
                    # No thread reads on after the error.
                    with contextlib.suppress(Exception):
                        ahead()
                raise
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _start(
        self, folder: Address, window: list[_Item], readers: dict[str, Reader]
    ) -> Callable[[], list[_Item]] | None:
        """Begins to read a window; the function that is returned waits for it."""
        if not window:
            return None
        reading = self.client.workers.submit(lambda: self._fetch(folder, window, readers))

        def wait() -> list[_Item]:
            reading.result()
            return window

        return wait

    def _fetch(self, folder: Address, window: list[_Item], readers: dict[str, Reader]) -> None:
        by_file: dict[str, list[_Item]] = {}
        for item in window:
            by_file.setdefault(item.file, []).append(item)
        lock = threading.Lock()

        def read(file: str) -> None:
            with lock:
                reader = readers.get(file)
            if reader is None:
                reader = self.client.reader(folder.child(file))
                with lock:
                    # One window needs the readers of its own files; a shard may go on in the next.
                    readers[file] = reader
            for item in by_file[file]:
                # Before memory is taken: metadata that is wrong may name any length.
                if min(item.offset, item.length) < 0 or item.offset + item.length > reader.info.size:
                    raise MartletError(
                        f"{reader.info.address} has {reader.info.size} bytes; the metadata names "
                        f"{item.length} bytes from byte {item.offset} on"
                    )
                item.memory = bytearray(item.length)
            reader.read_into([Span(it.offset, memoryview(it.memory)) for it in by_file[file] if it.length])

        for file in [name for name in readers if name not in by_file]:
            del readers[file]
        self.client.workers.each(iter(by_file), read)

    def _load(self, item: _Item, planner: LoadPlanner) -> None:
        request = item.request
        stream: Any = io.BytesIO(item.memory)
        item.memory = bytearray()
        stream = self.transforms.transform_load_stream(request, item.transforms, stream)
        if request.type == LoadItemType.BYTE_IO:
            planner.load_bytes(request, io.BytesIO(stream.read(-1)))
            return
        if not stream.seekable():
            stream = io.BytesIO(stream.read(-1))
        tensor = cast(torch.Tensor, torch.load(stream, map_location="cpu", weights_only=True))
        tensor = narrow_tensor_by_index(tensor, request.storage_offsets, request.lengths)
        target = planner.resolve_tensor(request).detach()
        if target.size() != tensor.size():
            raise MartletError(
                f"{request.storage_index}: the saved tensor has {tensor.size()}, the target {target.size()}"
            )
        target.copy_(tensor)
        planner.commit_tensor(request, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns true for `martlet://` and `s3://` addresses."""
        return Files.validate_checkpoint_id(checkpoint_id)


class _Item:
    """Item of a load: its place in the checkpoint, and its bytes once they are read."""

    def __init__(self, request: ReadItem, stored: Any) -> None:
        self.request = request
        self.file: str = stored.relative_path
        self.offset: int = stored.offset
        self.length: int = stored.length
        self.transforms = getattr(stored, "transform_descriptors", None) or ()
        self.memory = bytearray()


def _windows(items: Iterable[_Item], limit: int) -> Iterator[list[_Item]]:
    """Divides items into windows of at most `limit` bytes; a larger item has one of its own."""
    window: list[_Item] = []
    size = 0
    for item in items:
        if window and size + item.length > limit:
            yield window
            window, size = [], 0
        window.append(item)
        size += item.length
    if window:
        yield window
