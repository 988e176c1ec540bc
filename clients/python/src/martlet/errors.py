"""Errors of the package. Each names the object, the cause, and the remedy where the caller has one."""

from __future__ import annotations

OVERWRITTEN = "The object was overwritten: open it again, or name a version"


class MartletError(Exception):
    """Base of all errors of this package."""


class StoreError(MartletError):
    """Refusal by the store: an HTTP status, S3's code and message."""

    def __init__(self, text: str, *, status: int = 0, code: str = "", request_id: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.request_id = request_id


class NotFound(StoreError, FileNotFoundError):
    """Absent bucket, key, version or generation."""


class AccessDenied(StoreError, PermissionError):
    """Refusal for lack of a permission, or of a valid signature."""


class ObjectChanged(StoreError):
    """Overwrite of the object between two requests of one read."""


class Conflict(StoreError):
    """Commit or conditional write that lost against the state of the bucket."""


class Unavailable(StoreError):
    """Failure that persisted through all attempts."""


class Corrupt(MartletError):
    """Bytes that differ from the checksum of their block."""


class ProtocolError(MartletError):
    """Reply that breaks HTTP or the form that Martlet documents."""


class ConnectionLost(MartletError):
    """Connection that broke, or that stayed silent longer than the limit."""


class Untrusted(ConnectionLost):
    """TLS that failed for good: a certificate that isn't trusted, or a peer that speaks another protocol."""


class Silence(ConnectionLost):
    """Connection on which nothing came within the limit."""


def of_status(status: int, code: str, message: str, what: str, request_id: str = "") -> StoreError:
    """Builds the error for a refusal."""
    named = code or f"HTTP {status}"
    text = f"{what}: {named}" + (f": {message}" if message else "")
    kind: type[StoreError] = StoreError
    if status == 404:
        kind, text = NotFound, f"{text}. Check the bucket, the key and the version"
    elif status in (401, 403):
        kind, text = AccessDenied, f"{text}. Check the credentials, the region and the policies of the key"
    elif status == 412:
        kind, text = ObjectChanged, f"{text}. {OVERWRITTEN}"
    elif status == 409:
        kind = Conflict
    elif status in (429, 500, 502, 503, 504):
        kind, text = Unavailable, f"{text}. The store was busy or degraded through all attempts: try later"
    return kind(text, status=status, code=code, request_id=request_id)
