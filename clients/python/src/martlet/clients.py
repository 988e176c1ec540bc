"""Client of one endpoint: the package's entry point."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, overload

from . import checkpoints, forks, upload
from .address import Address, parse
from .checkpoints import Generation, Outcome
from .direct import DirectSocket
from .errors import MartletError, NotFound
from .files import BUFFER_BYTES, ObjectFile, RawObject
from .memory import Memory
from .plan import Span, spans_of
from .progress import Progress
from .reader import Reader
from .settings import Settings
from .store import Listed, ObjectInfo, Store
from .upload import ObjectWriter, Written
from .workers import Workers


class Client:
    """Connections, threads and credentials for one endpoint. Threads may share it."""

    def __init__(self, settings: Settings | None = None, **options: Any) -> None:
        unknown = sorted(set(options) - Settings.known())
        if unknown:
            raise MartletError(f"there is no option {unknown[0]!r}; there are: {', '.join(sorted(Settings.known()))}")
        self.settings = replace(settings or Settings(), **options)
        self.store = Store(self.settings)
        self.workers: Workers = Workers(self.settings.threads)
        #: Direct socket of this machine's node, if the settings name one.
        self.local = DirectSocket(self.settings.direct_socket) if self.settings.direct_socket else None

    def __repr__(self) -> str:
        return f"Client({self.store.endpoint!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # For processes that are started with one: keys that were set by hand don't travel.
        return Client, (self.settings,)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the threads and closes idle connections."""
        self.workers.close()
        self.store.pool.close()
        self.store.buffers.clear()
        if self.local is not None:
            self.local.close()

    def info(self, url: str | Address) -> ObjectInfo:
        """Returns size, ETag and version of an object."""
        return self.store.head(_object(url))

    def exists(self, url: str | Address) -> bool:
        """Returns true if the object exists."""
        try:
            self.info(url)
        except NotFound:
            return False
        return True

    def reader(self, url: str | Address) -> Reader:
        """Returns a parallel reader of one object, as it is now."""
        return Reader(self.store, self.info(url), self.workers, self.local)

    @overload
    def open(self, url: str | Address, mode: Literal["rb", "r"] = "rb", buffering: int = ...) -> ObjectFile: ...

    @overload
    def open(self, url: str | Address, mode: Literal["wb", "w"], buffering: int = ...) -> ObjectWriter: ...

    def open(self, url: str | Address, mode: str = "rb", buffering: int = BUFFER_BYTES) -> ObjectFile | ObjectWriter:
        """Opens an object as a binary file, for reading or writing."""
        if mode in ("rb", "r"):
            return ObjectFile(self.reader(url), buffering)
        if mode in ("wb", "w"):
            return ObjectWriter(self.store, self.workers, _object(url))
        raise MartletError(f"mode {mode!r} isn't known: objects are opened with 'rb' or 'wb'")

    def open_raw(self, url: str | Address) -> RawObject:
        """Opens an object for reading without a buffer."""
        return RawObject(self.reader(url))

    def read(self, url: str | Address, progress: Progress | None = None, pinned: bool = False) -> Memory:
        """Reads a whole object into memory of its own."""
        reader = self.reader(url)
        memory = Memory(reader.info.size, pinned)
        reader.read_into([Span(0, memory.view)], progress)
        return memory

    def read_into(
        self, url: str | Address, spans: Iterable[tuple[int, Any]], progress: Progress | None = None
    ) -> Reader:
        """Fills buffers: pairs of an offset in the object and writable memory. Returns the reader, with its counts."""
        reader = self.reader(url)
        reader.read_into([spans_of(offset, memoryview(buffer)) for offset, buffer in spans], progress)
        return reader

    def write(self, url: str | Address, data: Any, progress: Progress | None = None) -> Written:
        """Stores memory as an object; large ones in parts, in parallel."""
        return upload.put_parallel(self.store, self.workers, _object(url), memoryview(data), progress)

    def listing(self, url: str | Address) -> Iterator[Listed]:
        """Yields the keys that begin with the key of an address."""
        address = parse(url)
        return self.store.list(address.bucket, address.key)

    def delete(self, url: str | Address) -> None:
        """Deletes an object; an absent one is no error."""
        self.store.delete(_object(url))

    def commit(
        self, folder: str | Address, objects: Iterable[Written] | None = None, publish_as: str | None = None
    ) -> Outcome:
        """Commits a checkpoint set: exactly these objects, or all that a listing of the folder shows."""
        address = parse(folder)
        if objects is None:
            found = self.store.list(address.bucket, address.folder)
            objects = [Written(Address(address.bucket, it.key), it.etag, it.size, None, None) for it in found]
        return checkpoints.commit(self.store, address, objects, publish_as)

    def generations(self, folder: str | Address) -> list[Generation]:
        """Returns the generations of a checkpoint set, the earliest first."""
        return checkpoints.generations(self.store, parse(folder))

    def newest(self, folder: str | Address) -> Generation | None:
        """Returns the newest committed generation of a checkpoint set; None if there is none."""
        return checkpoints.newest(self.store, parse(folder))

    def hold(self, folder: str | Address, seconds: int, generation: int | None = None) -> int:
        """Keeps a generation, the newest by default, from removal for a time; returns its number."""
        return checkpoints.hold(self.store, parse(folder), seconds, generation)

    def withdraw(self, folder: str | Address, generation: int | None = None, delete_objects: bool = False) -> int:
        """Takes one generation or all of a checkpoint set out of the view; returns how many."""
        return checkpoints.withdraw(self.store, parse(folder), generation, delete_objects)


def _object(url: str | Address) -> Address:
    address = parse(url)
    if not address.key:
        raise MartletError(f"{address} names no object: write martlet://BUCKET/KEY")
    return address


_shared: dict[Settings, Client] = {}


class _Making:
    """Lock of the shared clients, which a thread of the parent may hold at a fork."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        forks.register(self)

    def after_fork(self) -> None:
        self.lock = threading.Lock()


_making = _Making()


def shared(options: dict[str, Any], make: Callable[[Settings], Client] = Client) -> Client:
    """Returns the process's client for these options."""
    unknown = sorted(set(options) - Settings.known())
    if unknown:
        raise MartletError(f"there is no option {unknown[0]!r}; there are: {', '.join(sorted(Settings.known()))}")
    settings = Settings(**options)
    with _making.lock:
        if settings not in _shared:
            _shared[settings] = make(settings)
        return _shared[settings]
