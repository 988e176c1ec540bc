"""Reads of descriptors by NIXL: one agent, one backend, no network."""

from __future__ import annotations

import importlib
import itertools
import time
from typing import Any

import cufile

NAMES = ("nixl_cu13", "nixl_cu12", "nixl")
WAIT_S = 30.0
_numbers = itertools.count()


def module() -> Any:
    """Imports NIXL; an ImportError names what is missing."""
    errors = []
    for name in NAMES:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            errors.append(f"{name}: {error}")
    raise ImportError("; ".join(errors))


class Agent:
    """Agent of NIXL with one backend for files: GDS, GDS_MT or POSIX."""

    def __init__(self, backend: str) -> None:
        if backend != "POSIX":
            # Its plugin finds cuFile once that is loaded; without CUDA's driver it doesn't return.
            cufile.library()
        nixl = module()
        self._name = f"reader-{next(_numbers)}"
        self._backend = backend
        self._agent = nixl.nixl_agent(self._name, nixl.nixl_agent_config(backends=[]))
        if backend not in self._agent.get_plugin_list():
            raise ImportError(f"NIXL has no plugin {backend}; it has {', '.join(self._agent.get_plugin_list())}")
        self._agent.create_backend(backend)

    def read(self, descriptor: int, place: int, tensor: Any) -> None:
        """Fills a tensor of bytes from a place of a descriptor's file."""
        agent, backends = self._agent, [self._backend]
        memory = agent.register_memory(tensor, backends=backends)
        try:
            file = agent.register_memory([(place, tensor.numel(), descriptor, "")], "FILE", backends=backends)
            try:
                source = agent.get_xfer_descs([(place, tensor.numel(), descriptor)], "FILE")
                request = agent.initialize_xfer(
                    "READ", agent.get_xfer_descs(tensor), source, self._name, backends=backends
                )
                self._wait(request)
                agent.release_xfer_handle(request)
            finally:
                agent.deregister_memory(file, backends=backends)
        finally:
            agent.deregister_memory(memory, backends=backends)

    def _wait(self, request: Any) -> None:
        until, state = time.monotonic() + WAIT_S, self._agent.transfer(request)
        while state == "PROC":
            if time.monotonic() > until:
                raise TimeoutError(f"NIXL's {self._backend} didn't end within {WAIT_S:g} s")
            time.sleep(0.0005)
            state = self._agent.check_xfer_state(request)
        if state != "DONE":
            raise OSError(f"NIXL's {self._backend} ended with {state}")
