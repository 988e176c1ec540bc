"""Objects as files: seekable, read by ranges."""

from __future__ import annotations

import io

from .plan import spans_of
from .reader import Reader
from .settings import MIB

# A buffered file reads at least this much at once.
BUFFER_BYTES = MIB


class RawObject(io.RawIOBase):
    """Unbuffered object file: each read is one read of the range."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._at = 0

    def readable(self) -> bool:
        """True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """True: the file can be positioned."""
        return True

    def tell(self) -> int:
        """Position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Positions the next read, also behind the end."""
        if self.closed:
            raise ValueError("seek of a closed file")
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence is {whence}: it must be 0, 1 or 2")
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.reader.info.size}[whence]
        if base + offset < 0:
            raise ValueError(f"position {base + offset} lies before the file")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: object) -> int:
        """Fills memory with the bytes at the position; returns how many there were."""
        if self.closed:
            raise ValueError("read of a closed file")
        view = memoryview(buffer)  # type: ignore[arg-type]
        span = spans_of(self._at, view)
        count = max(0, min(span.into.nbytes, self.reader.info.size - self._at))
        if count:
            self.reader.read_into([spans_of(self._at, span.into[:count])])
            self._at += count
        return count


class ObjectFile(io.BufferedReader):
    """Buffered object file. Large reads go straight to the caller's memory."""

    def __init__(self, reader: Reader, buffering: int = BUFFER_BYTES) -> None:
        super().__init__(RawObject(reader), max(1, min(buffering, max(1, reader.info.size))))
        self.reader = reader

    @property
    def size(self) -> int:
        """Size of the object."""
        return self.reader.info.size

    @property
    def etag(self) -> str:
        """ETag of the object."""
        return self.reader.info.etag

    @property
    def direct(self) -> bool:
        """True as long as large reads go to storage nodes."""
        return self.reader.direct

    @property
    def reason(self) -> str:
        """Cause why reads go by plain GET; empty if they don't."""
        return self.reader.reason
