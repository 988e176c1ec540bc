"""Memory for reads: page-aligned, or pinned by torch; handed on by DLPack without a copy."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from .errors import MartletError

if TYPE_CHECKING:
    import torch


class Memory:
    """Contiguous bytes that a read fills.

    `Memory(size)` is page-aligned, so O_DIRECT can read into it. `Memory(size, pinned=True)` is pinned by torch, so a
    GPU can copy from it while the processor goes on; it needs torch with CUDA.
    """

    def __init__(self, size: int, pinned: bool = False) -> None:
        if size < 0:
            raise MartletError(f"the size of memory is {size}: it must not be negative")
        self.size = size
        self.pinned = pinned
        self._tensor: torch.Tensor | None = None
        if pinned:
            self._tensor = _pinned(size)
            array: Any = self._tensor.numpy()
            self._view = memoryview(array)
        else:
            # Private, so that a forked child gets a copy of its own.
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._view = memoryview(mmap.mmap(-1, max(1, size), flags=flags))[:size]

    def __len__(self) -> int:
        return self.size

    @property
    def view(self) -> memoryview:
        """The bytes themselves."""
        return self._view

    def tensor(self) -> torch.Tensor:
        """Returns a tensor of bytes that shares this memory."""
        if self._tensor is None:
            import torch

            self._tensor = torch.frombuffer(self._view, dtype=torch.uint8) if self.size else torch.empty(0).byte()
        return self._tensor

    def _exporter(self) -> Any:
        if self._tensor is not None:
            return self._tensor
        try:
            import numpy
        except ImportError:
            try:
                return self.tensor()
            except ImportError:
                raise MartletError("DLPack needs numpy or torch: install martlet[arrays] or martlet[torch]") from None
        return numpy.frombuffer(self._view, dtype=numpy.uint8)

    def __dlpack__(self, **options: Any) -> Any:
        """Exports the bytes as a DLPack capsule, which keeps them alive."""
        return self._exporter().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        """Returns DLPack's device: the processor, or its pinned memory as torch reports it."""
        kind, number = self._exporter().__dlpack_device__()
        return kind, int(number)


def _pinned(size: int) -> torch.Tensor:
    try:
        import torch
    except ImportError:
        raise MartletError("pinned memory needs torch: install martlet[torch]") from None
    if not torch.cuda.is_available():
        raise MartletError("pinned memory needs a GPU that torch can use; leave out pinned=True")
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)
