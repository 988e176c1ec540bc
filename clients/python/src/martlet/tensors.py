"""Tensors of safetensors files: whole ones, or slices of rows, read straight into their memory.

with TensorFile("martlet://models/llama/model-00001.safetensors") as file:
    weight = file.tensor("model.embed_tokens.weight")
    rows = file.rows("model.embed_tokens.weight", 1000, 2000)
    everything = file.tensors()
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .address import Address
from .clients import Client, shared
from .errors import MartletError
from .plan import Span
from .progress import Progress

HEADER_BYTES_MAX = 100_000_000
# First request: it covers the header of most files.
FIRST_BYTES = 256 << 10
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


@dataclass(frozen=True)
class TensorInfo:
    """Form of a tensor, and its place in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    #: First byte in the file.
    offset: int
    nbytes: int


class TensorFile:
    """One safetensors file."""

    def __init__(self, url: str | Address, client: Client | None = None, **options: Any) -> None:
        self._client = client or shared(options)
        self.reader = self._client.reader(url)
        #: Tensors by name, in the order of the file.
        self.infos, self.metadata = self._header()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def _header(self) -> tuple[dict[str, TensorInfo], dict[str, str]]:
        size = self.reader.info.size
        first = bytearray(min(FIRST_BYTES, size))
        if len(first) < 8:
            raise MartletError(f"{self.reader.info.address} has {size} bytes: it is no safetensors file")
        self.reader.read_into([Span(0, memoryview(first))])
        (length,) = struct.unpack("<Q", first[:8])
        if length > min(HEADER_BYTES_MAX, size - 8):
            raise MartletError(
                f"{self.reader.info.address}: the header would have {length} bytes; it is no safetensors file"
            )
        header = bytearray(length)
        known = min(length, len(first) - 8)
        header[:known] = first[8 : 8 + known]
        if known < length:
            self.reader.read_into([Span(8 + known, memoryview(header)[known:])])
        return parse_header(bytes(header), size, str(self.reader.info.address))

    def keys(self) -> list[str]:
        """Returns the names of all tensors."""
        return list(self.infos)

    def _info(self, name: str) -> TensorInfo:
        if name not in self.infos:
            raise MartletError(f"{self.reader.info.address} has no tensor {name!r}")
        return self.infos[name]

    def tensor(self, name: str, progress: Progress | None = None) -> torch.Tensor:
        """Reads one tensor."""
        return self.tensors([name], progress)[name]

    def tensors(self, names: Iterable[str] | None = None, progress: Progress | None = None) -> dict[str, torch.Tensor]:
        """Reads tensors, all by default, with as few requests as their places allow."""
        chosen = self.keys() if names is None else list(names)
        made = {name: torch.empty(self._info(name).shape, dtype=self._info(name).dtype) for name in chosen}
        self.read_into(made, progress)
        return made

    def read_into(self, targets: dict[str, torch.Tensor], progress: Progress | None = None) -> None:
        """Reads tensors into memory that is there: contiguous, on the processor, of equal form."""
        spans = []
        for name, target in targets.items():
            info = self._info(name)
            if (target.dtype, tuple(target.shape)) != (info.dtype, info.shape):
                raise MartletError(
                    f"{name!r} is {info.dtype} {list(info.shape)}; the target is {target.dtype} {list(target.shape)}"
                )
            if info.nbytes:
                spans.append(Span(info.offset, bytes_of(target, name)))
        self.reader.read_into(spans, progress)

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Reads the rows `start..stop` of a tensor's first dimension; only their bytes travel."""
        info = self._info(name)
        if not info.shape or not 0 <= start <= stop <= info.shape[0]:
            raise MartletError(f"rows {start}-{stop} lie outside of {name!r}, which has the shape {list(info.shape)}")
        row_bytes = info.nbytes // info.shape[0] if info.shape[0] else 0
        made = torch.empty((stop - start, *info.shape[1:]), dtype=info.dtype)
        if made.numel():
            self.reader.read_into([Span(info.offset + start * row_bytes, bytes_of(made, name))])
        return made

    def columns(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Reads the columns `start..stop` of a tensor's second dimension, as tensor parallelism needs them."""
        info = self._info(name)
        if len(info.shape) < 2 or not 0 <= start <= stop <= info.shape[1]:
            raise MartletError(
                f"columns {start}-{stop} lie outside of {name!r}, which has the shape {list(info.shape)}"
            )
        made = torch.empty((info.shape[0], stop - start, *info.shape[2:]), dtype=info.dtype)
        if not made.numel():
            return made
        item = math.prod(info.shape[2:]) * info.dtype.itemsize
        view, width = bytes_of(made, name), (stop - start) * item
        row = info.shape[1] * item
        self.reader.read_into(
            Span(info.offset + at * row + start * item, view[at * width : (at + 1) * width])
            for at in range(info.shape[0])
        )
        return made


def parse_header(text: bytes, size: int, what: str) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """Parses a header, and refuses places outside of the file or of another length than the form has."""
    begin = 8 + len(text)
    try:
        document = json.loads(text)
        metadata = {str(key): str(value) for key, value in document.pop("__metadata__", {}).items()}
        infos = {}
        for name, it in sorted(document.items(), key=lambda pair: pair[1]["data_offsets"]):
            dtype = getattr(torch, DTYPES[it["dtype"]])
            shape = tuple(int(length) for length in it["shape"])
            first, end = (int(place) for place in it["data_offsets"])
            if min(shape, default=0) < 0 or not 0 <= first <= end <= size - begin:
                raise ValueError(f"{name!r} lies outside of the file")
            if math.prod(shape) * dtype.itemsize != end - first:
                raise ValueError(f"{name!r} has {end - first} bytes, which isn't the size of its form")
            infos[name] = TensorInfo(dtype, shape, begin + first, end - first)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise MartletError(f"{what} is no safetensors file that can be read: {error!r}") from error
    return infos, metadata


def bytes_of(tensor: torch.Tensor, name: str = "the tensor") -> memoryview:
    """Returns the bytes of a tensor without a copy."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise MartletError(f"{name}: the target must be contiguous and on the processor")
    array: Any = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)
