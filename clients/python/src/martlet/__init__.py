"""Reader and writer of objects for training: straight from Martlet's storage nodes, by GET from any S3 store.

    import martlet

    with martlet.open("martlet://train/run-7/step-1000/model.bin") as file:
        header = file.read(1024)

`Client` has everything else: parallel reads into the caller's memory, uploads, checkpoint sets. Parts with
dependencies of their own are modules: `martlet.dcp` (torch), `martlet.tensors` (safetensors), `martlet.filesystem`
(fsspec), `martlet.gpu` (CUDA).
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, overload

from . import errors
from .address import Address
from .checkpoints import Generation, Outcome
from .clients import Client, shared
from .errors import (
    AccessDenied,
    Conflict,
    Corrupt,
    MartletError,
    NotFound,
    ObjectChanged,
    StoreError,
    Unavailable,
    Untrusted,
)
from .files import ObjectFile
from .memory import Memory
from .progress import bar
from .reader import Reader, Stats
from .settings import Settings
from .store import Listed, ObjectInfo
from .upload import ObjectWriter, Written

try:
    __version__ = version("martlet")
except PackageNotFoundError:
    __version__ = "0"

__all__ = [
    "AccessDenied",
    "Address",
    "Client",
    "Conflict",
    "Corrupt",
    "Generation",
    "Listed",
    "MartletError",
    "Memory",
    "NotFound",
    "ObjectChanged",
    "ObjectFile",
    "ObjectInfo",
    "ObjectWriter",
    "Outcome",
    "Reader",
    "Settings",
    "Stats",
    "StoreError",
    "Unavailable",
    "Untrusted",
    "Written",
    "__version__",
    "bar",
    "client",
    "errors",
    "open",
]


def client(**options: Any) -> Client:
    """Returns this process's client for these options, which are the fields of `Settings`."""
    return shared(options)


@overload
def open(url: str | Address, mode: Literal["rb", "r"] = "rb", **options: Any) -> ObjectFile: ...


@overload
def open(url: str | Address, mode: Literal["wb", "w"], **options: Any) -> ObjectWriter: ...


def open(url: str | Address, mode: Any = "rb", **options: Any) -> ObjectFile | ObjectWriter:
    """Opens an object as a binary file, for reading or writing. Options are the fields of `Settings`."""
    opened: ObjectFile | ObjectWriter = shared(options).open(url, mode)
    return opened
