"""`martlet://` for fsspec: s3fs, whose whole-object and range reads go straight to storage nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import s3fs

from .address import SCHEMES, Address
from .clients import Client, shared
from .files import ObjectFile
from .plan import Span


class MartletFileSystem(s3fs.S3FileSystem):  # type: ignore[misc]
    """File system of fsspec. Options of `martlet.Settings` go into `martlet={...}`; all others are those of s3fs."""

    protocol = ("martlet",)

    def __init__(self, *args: Any, martlet: dict[str, Any] | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("use_listings_cache", False)
        options = dict(martlet or {})
        endpoint = kwargs.get("endpoint_url") or (kwargs.get("client_kwargs") or {}).get("endpoint_url")
        endpoint = endpoint or options.get("endpoint")
        if endpoint:
            options["endpoint"] = kwargs["endpoint_url"] = endpoint
        self._keys = {name: str(kwargs[name]) for name in ("key", "secret", "token") if kwargs.get(name)}
        if kwargs.get("anon"):
            options["anonymous"] = True
        if kwargs.get("profile"):
            options["profile"] = kwargs["profile"]
        self._options = options
        super().__init__(*args, **kwargs)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        for scheme in SCHEMES:
            text = text.removeprefix(scheme)
        return super()._strip_protocol(text)

    def client(self) -> Client:
        """Returns the client of direct reads."""
        return shared(self._options) if not self._keys else _keyed(self._options, self._keys)

    def _address(self, path: str, version_id: str | None = None) -> Address:
        bucket, key, version = self.split_path(path, version_id=version_id) if version_id else self.split_path(path)
        return Address(bucket, key, version or version_id)

    def _open(self, path: str, mode: str = "rb", version_id: str | None = None, **kwargs: Any) -> Any:
        if mode == "rb":
            return ObjectFile(self.client().reader(self._address(path, version_id)))
        return super()._open(path, mode, version_id=version_id, **kwargs)

    async def _cat_file(
        self, path: str, version_id: str | None = None, start: int | None = None, end: int | None = None
    ) -> bytes:
        if start is not None and end is not None and 0 <= end - start < self.client().settings.direct_min_bytes:
            # A short range needs neither locations nor the object's size.
            return bytes(await super()._cat_file(path, version_id=version_id, start=start, end=end))
        return await asyncio.to_thread(self._read, self._address(path, version_id), start, end)

    def _read(self, address: Address, start: int | None, end: int | None) -> bytes:
        reader = self.client().reader(address)
        first, last, _ = slice(start, end).indices(reader.info.size)
        memory = bytearray(max(0, last - first))
        if memory:
            reader.read_into([Span(first, memoryview(memory))])
        return bytes(memory)


def _keyed(options: dict[str, Any], keys: dict[str, str]) -> Client:
    """Returns the client of explicit keys."""
    place = (tuple(sorted(options.items())), tuple(sorted(keys.items())))
    if place not in _clients:
        client = Client(**options)
        client.store.signer.use(keys["key"], keys["secret"], keys.get("token"))
        _clients[place] = client
    return _clients[place]


_clients: dict[Any, Client] = {}
