"""Metadata of torch.distributed.checkpoint: a pickle, of which only torch's own descriptions are accepted."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import io
import pickle
from typing import Any, cast

import torch
from torch.distributed.checkpoint.metadata import Metadata

from .errors import MartletError

PLAIN = {
    "builtins": {
        "set",
        "frozenset",
        "dict",
        "list",
        "tuple",
        "int",
        "float",
        "str",
        "bytes",
        "bytearray",
        "bool",
        "complex",
        "slice",
        "range",
    },
    "collections": {"OrderedDict", "deque", "defaultdict"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath", "PurePath"},
    "torch": {"Size", "device"},
    "torch.serialization": {"_get_layout"},
    "datetime": {"datetime", "date", "timedelta", "timezone"},
}
# Modules whose dataclasses and enumerations describe checkpoints.
DESCRIPTIONS = ("torch.distributed.checkpoint.", "torch.distributed._shard.", "torch.distributed.tensor.")


class _Unpickler(pickle.Unpickler):
    """Unpickler that finds descriptions, and no code that acts."""

    def find_class(self, module: str, name: str) -> Any:
        """Returns a description by its name; anything else is refused."""
        if name in PLAIN.get(module, ()):
            return getattr(importlib.import_module(module), name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        if module.startswith(DESCRIPTIONS) and "." not in name:
            found = getattr(importlib.import_module(module), name, None)
            described = isinstance(found, type) and found.__module__ == module
            if described and (dataclasses.is_dataclass(found) or issubclass(cast(type, found), enum.Enum | tuple)):
                return found
        raise MartletError(
            f"the metadata names {module}.{name}, which is no description of a checkpoint: unpickling it could run "
            "code. If you trust whoever wrote this checkpoint, pass trusted=True"
        )


def loads(data: bytes, trusted: bool) -> Metadata:
    """Unpickles metadata; any class if it is trusted."""
    try:
        found = pickle.loads(data) if trusted else _Unpickler(io.BytesIO(data)).load()  # noqa: S301
    except MartletError:
        raise
    except (Exception, RecursionError) as error:
        # Damaged pickles fail in any way.
        raise MartletError(f"the metadata can't be read: {type(error).__name__}: {error}") from error
    if not isinstance(found, Metadata):
        raise MartletError(f"the metadata is a {type(found).__name__}, not a description of a checkpoint")
    return found
