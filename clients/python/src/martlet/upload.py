"""Uploads: one PUT, or parts in parallel. Every body carries a CRC32C, which the store compares."""

from __future__ import annotations

import base64
import hashlib
import io
import mmap
import struct
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from xml.sax.saxutils import escape

from crc32c import crc32c

from .address import Address
from .errors import Conflict, MartletError, NotFound, ProtocolError
from .progress import Progress, serialized
from .store import Store, error_of, parse_xml, text_of
from .workers import Workers

PARTS_MAX = 10_000
# Parts double after this many, so that the largest object fits into 10,000.
PARTS_OF_ONE_SIZE = 2_000
# Memory of a part: one that grows, or one of the part's whole size.
Buffer = bytearray | mmap.mmap


@dataclass(frozen=True)
class Written:
    """Object as it was stored."""

    address: Address
    etag: str
    size: int
    version_id: str | None
    #: Value of x-martlet-checkpoint: the outcome for a marker of a checkpoint set.
    checkpoint: str | None


@dataclass(frozen=True)
class _Part:
    number: int
    etag: str
    sum: str


def sum_of(data: memoryview) -> str:
    """Returns the CRC32C of a body as S3 writes it."""
    return base64.b64encode(struct.pack(">I", crc32c(data))).decode()


def put(store: Store, address: Address, data: memoryview) -> Written:
    """Stores an object by one request."""
    reply = store.request("PUT", address, {}, {"x-amz-checksum-crc32c": sum_of(data)}, data)
    return _written(address, data.nbytes, reply.headers)


def _written(address: Address, size: int, headers: dict[str, str], etag: str = "") -> Written:
    version = headers.get("x-amz-version-id")
    return Written(
        address,
        etag or headers.get("etag", ""),
        size,
        None if version == "null" else version,
        headers.get("x-martlet-checkpoint"),
    )


class Multipart:
    """Upload in parts. Threads may send parts at once."""

    def __init__(self, store: Store, address: Address) -> None:
        self._store = store
        self.address = address
        reply = store.request("POST", address, {"uploads": ""}, {"x-amz-checksum-algorithm": "CRC32C"})
        self._id = text_of(parse_xml(reply.body), "UploadId")
        if not self._id:
            raise ProtocolError(f"upload of {address}: the reply names no upload")
        self._lock = threading.Lock()
        self._parts: dict[int, _Part] = {}

    def send(self, number: int, data: memoryview) -> None:
        """Sends one part."""
        query = {"uploadId": self._id, "partNumber": str(number)}
        text = sum_of(data)
        reply = self._store.request("PUT", self.address, query, {"x-amz-checksum-crc32c": text}, data)
        with self._lock:
            self._parts[number] = _Part(number, reply.headers.get("etag", ""), text)

    def complete(self, size: int) -> Written:
        """Makes the object of all parts."""
        parts = [self._parts[number] for number in sorted(self._parts)]
        lines = "".join(
            f"<Part><PartNumber>{part.number}</PartNumber><ETag>{escape(part.etag)}</ETag>"
            f"<ChecksumCRC32C>{part.sum}</ChecksumCRC32C></Part>"
            for part in parts
        )
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        document = f'<CompleteMultipartUpload xmlns="{namespace}">{lines}</CompleteMultipartUpload>'.encode()
        # The store refuses parts of another size. Stores that don't know the header ignore it.
        headers = {"x-amz-mp-object-size": str(size)}
        try:
            reply = self._store.request("POST", self.address, {"uploadId": self._id}, headers, memoryview(document))
        except NotFound:
            # The reply to an earlier attempt may have been lost after the object was made.
            return self._made_before(parts, size)
        code, message = error_of(reply.body)
        etag = text_of(parse_xml(reply.body), "ETag")
        if code or not etag:
            raise Conflict(f"upload of {self.address} couldn't be completed: {code} {message}", code=code)
        return _written(self.address, size, reply.headers, etag)

    def _made_before(self, parts: list[_Part], size: int) -> Written:
        try:
            sums = b"".join(bytes.fromhex(part.etag.strip('"')) for part in parts)
        except ValueError:
            raise Conflict(
                f"upload of {self.address}: it is gone, and may have been completed: look, or write again"
            ) from None
        expected = f'"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(parts)}"'
        found = self._store.head(self.address)
        if found.etag != expected or found.size != size:
            raise Conflict(f"upload of {self.address}: it is gone, and the object is another one: write it again")
        return Written(self.address, found.etag, size, found.version_id, None)

    def abort(self) -> None:
        """Drops the parts. Failures are left to the bucket's rule for unfinished uploads."""
        try:
            self._store.request("DELETE", self.address, {"uploadId": self._id})
        except MartletError:
            return


def put_parallel(
    store: Store, workers: Workers, address: Address, data: memoryview, progress: Progress | None = None
) -> Written:
    """Stores memory of any size from where it lies: parts are sent in parallel without a copy."""
    data = data.cast("B") if data.format != "B" or data.ndim != 1 else data
    advance = serialized(progress)
    if data.nbytes <= store.settings.part_bytes:
        written = put(store, address, data)
        advance(data.nbytes)
        return written
    size = max(store.settings.part_bytes, -(-data.nbytes // PARTS_MAX))
    upload = Multipart(store, address)

    def send(number: int) -> None:
        part = data[(number - 1) * size : number * size]
        upload.send(number, part)
        advance(part.nbytes)

    try:
        workers.each(iter(range(1, -(-data.nbytes // size) + 1)), send)
        return upload.complete(data.nbytes)
    except BaseException:
        upload.abort()
        raise


class ObjectWriter(io.BufferedIOBase):
    """File that becomes an object when it is closed. An error within `with` discards it.

    At most `upload_parts` parts that are sent are in memory, and one that fills: a write waits for the oldest one.
    Buffers of parts that were sent are filled again. Errors of parts are raised by a later write, or by `close`.
    A file whose write failed becomes no object, since bytes are missing: later writes and `close` raise an error.
    """

    def __init__(self, store: Store, workers: Workers, address: Address) -> None:
        self.address = address
        #: The stored object, once the file is closed.
        self.written: Written | None = None
        self._store = store
        self._workers = workers
        # The first `_filled` bytes are those of the part. The buffer of a file's first part grows; later ones don't.
        self._part: Buffer = bytearray()
        self._filled = 0
        self._size = 0
        self._upload: Multipart | None = None
        self._number = 0
        self._sent: deque[tuple[Future[None], Buffer]] = deque()
        self._spare: list[mmap.mmap] = []
        # Reason why the file becomes no object, such as the error of a write.
        self._failed: BaseException | None = None

    def writable(self) -> bool:
        """True: the file can only be written."""
        return True

    def tell(self) -> int:
        """Number of bytes written so far."""
        return self._size

    def _part_bytes(self) -> int:
        return self._store.settings.part_bytes << (self._number // PARTS_OF_ONE_SIZE)

    def write(self, data: object) -> int:
        """Takes bytes; sends a part once it is full."""
        if self.closed:
            raise ValueError(f"{self.address} is closed")
        if self._failed is not None:
            self._drop()
            raise self._refusal() from self._failed
        view = memoryview(data)  # type: ignore[arg-type]
        view = view.cast("B") if view.format != "B" or view.ndim != 1 else view
        try:
            self._take(view)
        except BaseException as error:
            self._failed = error
            raise
        self._size += view.nbytes
        return view.nbytes

    def _take(self, view: memoryview) -> None:
        at = 0
        while at < view.nbytes:
            size = self._part_bytes()
            whole = min((view.nbytes - at) // size, PARTS_OF_ONE_SIZE - self._number % PARTS_OF_ONE_SIZE)
            if not self._filled and whole > 1:
                self._send_whole(view[at : at + whole * size], size)
                at += whole * size
                continue
            step = min(view.nbytes - at, size - self._filled)
            self._fill(view[at : at + step])
            at += step
            if self._filled == size:
                self._send_filled()

    def _fill(self, view: memoryview) -> None:
        end = self._filled + view.nbytes
        if self._upload is not None and not self._part:
            self._part = self._buffer(self._part_bytes())
        if isinstance(self._part, bytearray):
            self._part += view
        else:
            memoryview(self._part)[self._filled : end] = view
        self._filled = end

    def _buffer(self, size: int) -> mmap.mmap:
        """Returns a buffer for a part; one of this file that was sent, if there is any of this size."""
        while self._sent and self._sent[0][0].done():
            self._reclaim()
        self._spare = [one for one in self._spare if len(one) == size]
        return self._spare.pop() if self._spare else self._store.buffers.take(size)

    def _reclaim(self) -> None:
        """Waits for the oldest part, and keeps its buffer."""
        sent, buffer = self._sent.popleft()
        sent.result()
        if isinstance(buffer, mmap.mmap):
            self._spare.append(buffer)

    def _send_whole(self, view: memoryview, size: int) -> None:
        """Sends whole parts. The last ones are copied, and on their way while the caller goes on.

        The others are sent from the caller's memory, and waited for: it may change afterwards.
        """
        upload, before, count = self._begun(), self._number, view.nbytes // size
        self._number += count
        direct = max(0, count - max(1, self._store.settings.upload_parts // 2))
        for index in range(direct, count):
            part = self._buffer(size)
            memoryview(part)[:] = view[index * size : (index + 1) * size]
            self._submit(upload, before + 1 + index, part, size)

        def send(index: int) -> None:
            upload.send(before + 1 + index, view[index * size : (index + 1) * size])

        self._workers.each(iter(range(direct)), send)

    def _begun(self) -> Multipart:
        if self._upload is None:
            self._upload = Multipart(self._store, self.address)
        return self._upload

    def _send_filled(self) -> None:
        """Sends the part that was filled, and goes on with an empty one."""
        upload, part, filled = self._begun(), self._part, self._filled
        self._number += 1
        self._part, self._filled = bytearray(), 0
        self._submit(upload, self._number, part, filled)

    def _submit(self, upload: Multipart, number: int, part: Buffer, size: int) -> None:
        while len(self._sent) >= self._store.settings.upload_parts:
            self._reclaim()
        view = memoryview(part)[:size]
        self._sent.append((self._workers.submit(lambda: upload.send(number, view)), part))

    def close(self) -> None:
        """Stores the object and waits for it. After a failed write it discards the file, and raises an error."""
        if self.closed:
            return
        if (failed := self._failed) is not None:
            self.discard()
            raise self._refusal() from failed
        try:
            if self._upload is None:
                self.written = put_parallel(self._store, self._workers, self.address, memoryview(self._part))
            else:
                if self._filled:
                    self._send_filled()
                while self._sent:
                    self._reclaim()
                self.written = self._upload.complete(self._size)
        except BaseException as error:
            self._failed = error
            self.discard()
            raise
        self._forget()
        super().close()

    def discard(self) -> None:
        """Closes the file without an object."""
        if self.closed:
            return
        # If this call is interrupted, `close` must make no object of what is left.
        self._failed = self._failed or MartletError(f"{self.address} was discarded")
        self._drop()
        super().close()
        # Its traceback refers to this file, and to the caller's memory.
        self._failed = None

    def _refusal(self) -> MartletError:
        return MartletError(f"{self.address} isn't stored, because an earlier write failed: write the whole file again")

    def _drop(self) -> None:
        """Drops all parts, in memory and at the store."""
        for sent, _ in self._sent:
            if not sent.cancel():
                sent.exception()
        if self._upload is not None:
            self._upload.abort()
            self._upload = None
        self._forget()

    def _forget(self) -> None:
        self._part, self._filled = bytearray(), 0
        # Buffers in `_sent` may be of attempts that failed: they are dropped.
        self._sent.clear()
        while self._spare:
            self._store.buffers.give(self._spare.pop())

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # A forgotten file is no object: nothing tells that it was complete.
        try:
            self.discard()
        except Exception:
            return
