"""Requests of S3 and of Martlet's own operations: signed, tried again within bounds, with errors that can be read."""

from __future__ import annotations

import logging
import os
import random
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from .address import Address, encode_key, encode_query
from .buffers import Buffers
from .errors import ConnectionLost, MartletError, ProtocolError, Silence, Unavailable, Untrusted, of_status
from .settings import MIB, Settings
from .signing import Signer
from .transport import Connection, Head, Place, Pool, Timeouts, place_of, whole

LOG = logging.getLogger("martlet")
BUSY = frozenset({429, 500, 502, 503, 504})
DOCUMENT_BYTES = 64 * MIB
ERROR_BYTES = MIB
# The longest pause that a server may impose between two attempts.
PAUSE_S_MAX = 20.0

USER_AGENT = "martlet-python/0.1.0"

T = TypeVar("T")


@dataclass(frozen=True)
class Reply:
    """Whole reply of a small request."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class ObjectInfo:
    """Size and identity of one object version."""

    address: Address
    size: int
    etag: str
    version_id: str | None
    #: True when the reply came from a Martlet server.
    martlet: bool


@dataclass(frozen=True)
class Listed:
    """Line of a listing: a key with its size and ETag."""

    key: str
    size: int
    etag: str


class Store:
    """One endpoint with the credentials for it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.signer = Signer(settings)
        self.endpoint = self._choose_endpoint()
        self.pool = Pool(Timeouts(settings.connect_timeout_s, settings.idle_timeout_s))
        #: Memory for parts of files that are written.
        self.buffers = Buffers(settings.upload_parts + 1)
        self._place = place_of(self.endpoint)

    def __repr__(self) -> str:
        return f"Store({self.endpoint!r})"

    def _choose_endpoint(self) -> str:
        chosen = (
            self.settings.endpoint
            or os.environ.get("AWS_ENDPOINT_URL_S3")
            or os.environ.get("AWS_ENDPOINT_URL")
            or self.signer.configured_endpoint()
            or f"https://s3.{self.signer.region}.amazonaws.com"
        )
        return chosen.rstrip("/")

    def locate_request(self, address: Address, query: dict[str, str]) -> tuple[Place, str, str]:
        """Returns the place, the target and the URL of a request for an object or a bucket."""
        place, path = self._place, f"/{address.bucket}/{encode_key(address.key)}"
        if not address.key:
            path = f"/{address.bucket}"
        if not self.settings.path_style:
            place = Place(f"{address.bucket}.{place.host}", place.port, place.tls)
            path = f"/{encode_key(address.key)}"
        if address.version_id and address.key:
            query = {**query, "versionId": address.version_id}
        target = path + (f"?{encode_query(query)}" if query else "")
        return place, target, f"{'https' if place.tls else 'http'}://{place.authority}{target}"

    def retrying(self, what: str, attempt: Callable[[], T]) -> T:
        """Calls an attempt until it succeeds, with pauses that grow, within the bounds of the settings."""
        deadline = time.monotonic() + self.settings.deadline_s
        for number in range(1, self.settings.attempts + 1):
            try:
                return attempt()
            except Untrusted:
                raise
            except (ConnectionLost, _Busy) as error:
                pause = min(PAUSE_S_MAX, 0.1 * 2**number) * random.uniform(0.5, 1.0)
                if isinstance(error, _Busy):
                    pause = max(pause, error.pause_s)
                if number == self.settings.attempts or time.monotonic() + pause > deadline:
                    if isinstance(error, _Busy):
                        raise error.refusal from None
                    raise Unavailable(f"{what}: {error}; {number} attempts failed") from error
                LOG.debug("%s: attempt %d failed: %s", what, number, error)
                time.sleep(pause)
        raise AssertionError("the loop returns or raises")

    def open(
        self,
        method: str,
        address: Address,
        query: dict[str, str],
        headers: dict[str, str],
        body: memoryview | None = None,
    ) -> tuple[Connection, Head]:
        """Sends one request. Headers that are no `x-` headers of a read stay unsigned, so its signature is reused."""
        place, target, url = self.locate_request(address, query)
        if method in ("GET", "HEAD") and not any(name.startswith("x-") for name in headers):
            sent = {**self.signer.sign_read(method, url), **headers}
        else:
            sent = self.signer.sign(method, url, headers, body)
        sent["Host"] = place.authority
        if body is not None or method in ("PUT", "POST"):
            sent["Content-Length"] = str(body.nbytes if body is not None else 0)
        return self.exchange(place, method, target, sent, body)

    def exchange(
        self, place: Place, method: str, target: str, headers: dict[str, str], body: memoryview | None = None
    ) -> tuple[Connection, Head]:
        """Sends a request on a pooled connection; on a new one if the pooled one turns out to be dead."""
        headers = {**headers, "User-Agent": USER_AGENT}
        connection = self.pool.take(place)
        used = connection.exchanges > 0
        try:
            return connection, connection.send(method, target, headers, body)
        except ConnectionLost as error:
            connection.close()
            if not used or isinstance(error, Silence):
                raise
        except BaseException:
            connection.close()
            raise
        connection = self.pool.take(place, fresh=True)
        try:
            return connection, connection.send(method, target, headers, body)
        except BaseException:
            connection.close()
            raise

    def refuse(self, connection: Connection, head: Head, what: str) -> MartletError:
        """Reads the body of a refusal and returns it as an error. Busy replies become a request for another attempt."""
        try:
            text = connection.read_all(ERROR_BYTES) if connection.reusable is False else b""
            self.pool.give(connection)
        except MartletError:
            connection.close()
            text = b""
        code, message = error_of(text)
        refusal = of_status(head.status, code, message, what, head.headers.get("x-amz-request-id", ""))
        if head.status in BUSY:
            return _Busy(refusal, pause_of(head.headers))
        return refusal

    def request(
        self,
        method: str,
        address: Address,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: memoryview | None = None,
        limit: int = DOCUMENT_BYTES,
    ) -> Reply:
        """Makes a small request and returns its whole reply."""
        what = f"{method} {address}"

        def attempt() -> Reply:
            connection, head = self.open(method, address, query or {}, dict(headers or {}), body)
            if head.status >= 300:
                raise self.refuse(connection, head, what)
            try:
                text = b"" if method == "HEAD" else connection.read_all(limit)
            except BaseException:
                connection.close()
                raise
            self.pool.give(connection)
            return Reply(head.status, head.headers, text)

        return self.retrying(what, attempt)

    def head(self, address: Address) -> ObjectInfo:
        """Returns size, ETag and version of an object."""
        headers = self.request("HEAD", address).headers
        size = whole(headers.get("content-length", ""))
        if size is None:
            raise ProtocolError(f"HEAD {address}: the reply has no Content-Length")
        martlet = "x-martlet-stamp" in headers or "x-martlet-consistency" in headers
        version = headers.get("x-amz-version-id")
        version = None if version in (None, "null") else version
        return ObjectInfo(address, size, headers.get("etag", ""), address.version_id or version, martlet)

    def list(self, bucket: str, prefix: str = "") -> Iterator[Listed]:
        """Yields the keys below a prefix, page after page."""
        token = ""
        while True:
            query = {"list-type": "2", "prefix": prefix}
            query.update({"continuation-token": token} if token else {})
            page = parse_xml(self.request("GET", Address(bucket), query).body)
            for item in page.iter():
                if local(item) == "Contents":
                    yield Listed(text_of(item, "Key"), whole(text_of(item, "Size")) or 0, text_of(item, "ETag"))
            before, token = token, text_of(page, "NextContinuationToken")
            if not token:
                return
            if token == before:
                raise ProtocolError(f"the listing of {bucket} names one page as its own next")

    def delete(self, address: Address) -> None:
        """Deletes an object; an absent one is no error."""
        self.request("DELETE", address)


class _Busy(MartletError):
    """Refusal after which another attempt may succeed."""

    def __init__(self, refusal: MartletError, pause_s: float) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.pause_s = pause_s


def pause_of(headers: dict[str, str]) -> float:
    """Returns the seconds that a busy server requests, at most 20."""
    for name in ("retry-after", "x-amz-retry-after"):
        value = whole(headers.get(name, ""))
        if value is not None:
            return min(PAUSE_S_MAX, value / (1000 if name.startswith("x-amz") else 1))
    return 0.0


def parse_xml(text: bytes) -> ElementTree.Element:
    """Parses an XML document; a document type is refused, so entities can't expand."""
    if b"<!DOCTYPE" in text[:4096]:
        raise ProtocolError("the reply has a document type, which S3's replies never have")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ProtocolError(f"the reply is no XML: {error}") from error


def local(element: ElementTree.Element) -> str:
    """Returns the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def text_of(element: ElementTree.Element, name: str) -> str:
    """Returns the text of the child of this name, or nothing."""
    return next((child.text or "" for child in element if local(child) == name), "")


def error_of(text: bytes) -> tuple[str, str]:
    """Returns the code and the message of an error document."""
    try:
        document = parse_xml(text)
    except ProtocolError:
        return "", ""
    return text_of(document, "Code"), text_of(document, "Message")[:1000]
