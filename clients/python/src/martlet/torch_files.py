"""Objects as the file system that torch.distributed.checkpoint writes to. It notes what was written, with ETags."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from torch.distributed.checkpoint.filesystem import FileSystemBase

from .address import SCHEMES, parse
from .clients import Client
from .errors import MartletError
from .upload import ObjectWriter, Written


class Files(FileSystemBase):
    """Objects as torch's file system. It remembers what was written, with ETags."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._lock = threading.Lock()
        self._written: dict[str, Written] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Files, (self.client,)

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase, None, None]:
        """Opens an object for reading or writing."""
        if mode == "rb":
            with self.client.open(str(path)) as file:
                yield cast(io.IOBase, file)
            return
        with self.client.open(str(path), "wb") as file:
            shard = Shard(file, self._note)
            try:
                yield cast(io.IOBase, shard)
                shard.close()
            except BaseException:
                # torch.save reports a failed write as an error of its own format.
                if shard.error is not None:
                    raise shard.error from None
                raise

    def _note(self, written: Written) -> None:
        with self._lock:
            self._written[written.address.key] = written

    def written(self, path: str) -> Written:
        """Returns what was written under a path."""
        return self._written[parse(path).key]

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> str:
        """Returns the name below a folder."""
        return f"{str(path).rstrip('/')}/{suffix}"

    def init_path(self, path: str | os.PathLike[str]) -> str:
        """Returns the folder as it is given."""
        return str(parse(str(path)))

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Refuses: the writer never renames."""
        raise MartletError(f"{path} isn't renamed to {new_path}: objects are written under their final names")

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Does nothing: folders need no objects."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns true for `martlet://` and `s3://` addresses."""
        return str(checkpoint_id).startswith(SCHEMES)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Returns true if the object exists."""
        return self.client.exists(str(path))

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        """Deletes an object."""
        self.client.delete(str(path))


class Shard(io.BufferedIOBase):
    """Stream of one shard; notes what it became."""

    def __init__(self, file: ObjectWriter, note: Callable[[Written], None]) -> None:
        self._file = file
        self._note = note
        self.error: MartletError | None = None

    def writable(self) -> bool:
        """True: the stream can only be written."""
        return True

    def write(self, data: Any) -> int:
        """Takes bytes, and keeps the first error."""
        try:
            return self._file.write(data)
        except MartletError as error:
            self.error = self.error or error
            raise

    def tell(self) -> int:
        """Number of bytes written so far."""
        return self._file.tell()

    def close(self) -> None:
        """Stores the shard. After a failed write it discards the shard, and raises the error of this write."""
        if not self.closed and not self._file.closed:
            if self.error is not None:
                self._file.discard()
                raise self.error
            self._file.close()
            if self._file.written is not None:
                self._note(self._file.written)
        super().close()

    def __del__(self) -> None:
        # The object is closed by its writer alone; a stream that is dropped makes none.
        return
