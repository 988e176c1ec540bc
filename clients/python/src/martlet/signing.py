"""Credentials and SigV4, by botocore. Signatures of reads are kept for a minute, because ranges aren't signed."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.session import Session

from . import forks
from .errors import AccessDenied
from .settings import Settings

UNSIGNED = "UNSIGNED-PAYLOAD"
KEPT_S = 60.0
KEPT_MAX = 256


class _Auth(S3SigV4Auth):  # type: ignore[misc]
    """SigV4 with a hash of the body that the caller has taken, or without one."""

    def __init__(self, credentials: Any, region: str, payload_hash: str) -> None:
        super().__init__(credentials, "s3", region)
        self._payload_hash = payload_hash

    def payload(self, request: Any) -> str:  # noqa: ARG002
        """Returns the hash that is signed for the body."""
        return self._payload_hash


class Signer:
    """Signer of requests with the credentials of botocore's chain."""

    def __init__(self, settings: Settings) -> None:
        self._session = Session(profile=settings.profile) if settings.profile else Session()
        self._anonymous = settings.anonymous
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._kept: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}
        forks.register(self)
        self.region: str = settings.region or self._session.get_config_variable("region") or "us-east-1"

    def after_fork(self) -> None:
        """Replaces the lock, which a thread of the parent may have held."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Signer(region={self.region!r})"

    def use(self, key: str, secret: str, token: str | None = None) -> None:
        """Uses explicit keys instead of botocore's chain."""
        with self._lock:
            self._credentials = Credentials(key, secret, token)
            self._kept.clear()

    def configured_endpoint(self) -> str | None:
        """Returns the endpoint of botocore's configuration, if it names one."""
        configured = self._session.get_scoped_config() if self._session.profile else {}
        value = configured.get("endpoint_url")
        return value if isinstance(value, str) else None

    def _frozen(self) -> Any:
        with self._lock:
            if self._credentials is None:
                self._credentials = self._session.get_credentials()
            if self._credentials is None:
                raise AccessDenied(
                    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, "
                    "or pass anonymous=True for a public bucket"
                )
            return self._credentials.get_frozen_credentials()

    def sign(self, method: str, url: str, headers: dict[str, str], body: memoryview | bytes | None) -> dict[str, str]:
        """Returns the headers of a request, signed. A body that carries a checksum header isn't hashed again."""
        if self._anonymous:
            return headers
        if body is not None and "x-amz-checksum-crc32c" in headers:
            payload = UNSIGNED
        else:
            payload = hashlib.sha256(body or b"").hexdigest()
        request = AWSRequest(method=method, url=url, headers=headers)
        _Auth(self._frozen(), self.region, payload).add_auth(request)
        return dict(request.headers.items())

    def sign_read(self, method: str, url: str) -> dict[str, str]:
        """Returns signed headers of a request without body, which may be up to a minute old."""
        key, now = (method, url), time.monotonic()
        with self._lock:
            kept = self._kept.get(key)
            if kept and now - kept[0] < KEPT_S:
                return dict(kept[1])
        signed = self.sign(method, url, {}, None)
        with self._lock:
            if len(self._kept) >= KEPT_MAX:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = (now, signed)
        return dict(signed)
