"""Names of objects and folders: `martlet://bucket/key`, `s3://bucket/key`, a version, a generation."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, quote

from .errors import MartletError

SCHEMES = ("martlet://", "s3://")
VIEW = "--committed"
FOREIGN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class Address:
    """Bucket, key, and the version if one is named."""

    bucket: str
    key: str = ""
    version_id: str | None = None

    def __str__(self) -> str:
        version = f"?versionId={self.version_id}" if self.version_id else ""
        return f"martlet://{self.bucket}/{self.key}{version}"

    def child(self, name: str) -> Address:
        """Returns the address of a name below this folder."""
        return Address(self.bucket, f"{self.folder}{name.lstrip('/')}")

    @property
    def folder(self) -> str:
        """Key with one closing slash, or nothing for the whole bucket."""
        return f"{self.key.rstrip('/')}/" if self.key else ""

    def generation(self, number: int) -> Address:
        """Returns the folder of one generation of a checkpoint set, in the bucket's committed view."""
        bucket = self.bucket if self.bucket.endswith(VIEW) else self.bucket + VIEW
        return replace(self, bucket=bucket, key=f"{self.key.rstrip('/')}@{number}/")

    def committed(self) -> Address:
        """Returns this address in the bucket's committed view."""
        return self if self.bucket.endswith(VIEW) else replace(self, bucket=self.bucket + VIEW)


def parse(url: str | Address) -> Address:
    """Parses `martlet://bucket/key?versionId=ID`, the `s3://` form, or `bucket/key`."""
    if isinstance(url, Address):
        return url
    rest = next((url[len(scheme) :] for scheme in SCHEMES if url.startswith(scheme)), url)
    if rest == url and (FOREIGN.match(url) or url.startswith("/")):
        raise MartletError(f"{url!r} is no address of an object: write martlet://BUCKET/KEY or s3://BUCKET/KEY")
    version = None
    path, mark, query = rest.rpartition("?versionId=")
    if mark:
        rest, version = path, parse_qs(f"versionId={query}").get("versionId", [None])[0]
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise MartletError(f"{url!r} names no bucket: write martlet://BUCKET/KEY")
    return Address(bucket, key, version)


def encode_key(key: str) -> str:
    """Encodes a key as the path of a URL."""
    return quote(key, safe="/-_.~")


def encode_query(pairs: dict[str, str]) -> str:
    """Encodes a query in the order in which SigV4 sorts it."""
    return "&".join(f"{quote(name, safe='-_.~')}={quote(pairs[name], safe='-_.~')}" for name in sorted(pairs))
