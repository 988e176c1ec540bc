"""cuFile's C API by ctypes: registration of a descriptor, reads, and cuFile's own counts of reads by mode.

Structures are those of libcufile 1.15, of CUDA 13.0. Another layout shows as `counts()` that don't add up.
"""

from __future__ import annotations

import ctypes
import glob
import sys
from pathlib import Path
from typing import Any

OPAQUE_FD = 1
ALLOW_COMPAT_MODE, FORCE_COMPAT_MODE, USE_PCIP2PDMA = 1, 2, 7
NVFS_FLAGS = {4: "NVMe", 5: "NVMe-oF", 6: "SCSI", 11: "NVMe by P2PDMA"}
ERRORS = {
    5001: "driver not initialized: nvidia-fs isn't loaded, and the compatibility mode isn't allowed",
    5007: "platform not supported",
    5008: "IO not supported on this file",
    5011: "error of the CUDA driver",
    5018: "invalid file type",
    5019: "invalid open flag",
    5020: "descriptor without O_DIRECT",
    5022: "invalid value",
    5025: "permission denied",
    5027: "handle not registered",
    5028: "handle already registered",
    5030: "internal error",
    5031: "no new descriptor of the file",
    5033: "set-up of nvidia-fs failed",
    5034: "disabled by the configuration",
}


class CuFileError(Exception):
    """Refusal by cuFile."""


class _Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("cuda", ctypes.c_int)]


class _File(ctypes.Union):
    _fields_ = [("fd", ctypes.c_int), ("handle", ctypes.c_void_p)]


class _Description(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("file", _File), ("operations", ctypes.c_void_p)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint),
        ("minor", ctypes.c_uint),
        ("poll_bytes", ctypes.c_size_t),
        ("direct_bytes_max", ctypes.c_size_t),
        ("supported", ctypes.c_uint),
        ("control", ctypes.c_uint),
        ("rest", ctypes.c_uint * 64),
    ]


class _Gpu(ctypes.Structure):
    _fields_ = [
        ("uuid", ctypes.c_char * 16),
        *((name, ctypes.c_uint64) for name in ("read_bytes", "read_rate", "read_use", "read_us", "reads")),
        *((name, ctypes.c_uint64) for name in ("p2pdma", "nvidia_fs", "posix", "unaligned", "routed", "sparse")),
        *((name, ctypes.c_uint64) for name in ("inline", "read_errors")),
        ("rest", ctypes.c_uint64 * 16),
    ]


class _Statistics(ctypes.Structure):
    # 64 numbers of the first level, 64 of histograms.
    _fields_ = [
        ("basic", ctypes.c_uint64 * 64),
        ("sizes", ctypes.c_uint64 * 64),
        ("gpus", ctypes.c_uint32),
        ("gpu", _Gpu * 16),
        ("spare", ctypes.c_uint64 * 4096),
    ]


def library() -> ctypes.CDLL:
    """Loads cuFile as the machine's Python packages have it."""
    # Without CUDA's driver cuFile takes memory without end while it opens.
    ctypes.CDLL("libcuda.so.1")
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("cufile").abs_path)
    except Exception as error:
        # Also where the finder is older than cuFile's entry in it.
        found = [name for path in sys.path for name in glob.glob(f"{path}/nvidia/*/lib/libcufile.so.0")]
        if not found:
            raise OSError(f"libcufile isn't installed: {error}") from error
        return ctypes.CDLL(found[0])


class CuFile:
    """cuFile's driver, open until `close`."""

    def __init__(self) -> None:
        self._library = library()
        for name in ("DriverOpen", "DriverClose_v2", "HandleRegister", "SetStatsLevel", "StatsStart", "GetStatsL3"):
            getattr(self._library, f"cuFile{name}").restype = _Error
        for name in ("DriverGetProperties", "GetParameterBool", "GetVersion"):
            getattr(self._library, f"cuFile{name}").restype = _Error
        self._library.cuFileRead.restype = ctypes.c_ssize_t
        self._library.cuFileRead.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_long,
            ctypes.c_long,
        ]
        self._library.cuFileHandleDeregister.argtypes = [ctypes.c_void_p]
        self._library.cuFileHandleDeregister.restype = None
        self._call("DriverOpen")
        self.counting = self._counts_begin()

    def _call(self, name: str, *arguments: Any) -> None:
        error = getattr(self._library, f"cuFile{name}")(*arguments)
        if error.code:
            meaning = ERRORS.get(error.code, "see cufile.h")
            cuda = f", CUDA error {error.cuda}" if error.code == 5011 else ""
            raise CuFileError(f"cuFile{name}: {error.code}, {meaning}{cuda}")

    def _counts_begin(self) -> bool:
        try:
            self._call("SetStatsLevel", 3)
            self._call("StatsStart")
        except (CuFileError, AttributeError) as error:
            print(f"cuFile counts nothing: {error}")
            return False
        return True

    def close(self) -> None:
        self._call("DriverClose_v2")

    def register(self, descriptor: int) -> int:
        """Registers a descriptor and returns cuFile's handle of it."""
        handle = ctypes.c_void_p()
        self._call(
            "HandleRegister", ctypes.byref(handle), ctypes.byref(_Description(OPAQUE_FD, _File(descriptor), None))
        )
        return int(handle.value or 0)

    def deregister(self, handle: int) -> None:
        self._library.cuFileHandleDeregister(handle)

    def read(self, handle: int, tensor: Any, place: int) -> int:
        """Fills a tensor of bytes from a place of the file; returns how many bytes came."""
        count = self._library.cuFileRead(handle, tensor.data_ptr(), tensor.numel(), place, 0)
        if count < 0:
            raise CuFileError(f"cuFileRead: {-count}, {ERRORS.get(-count, 'see cufile.h or errno')}")
        return int(count)

    def counts(self) -> dict[str, int]:
        """Returns cuFile's reads so far by mode; empty where cuFile doesn't count."""
        if not self.counting:
            return {}
        found = _Statistics()
        self._call("GetStatsL3", ctypes.byref(found))
        gpus = found.gpu[: min(found.gpus, 16)]
        names = ("reads", "p2pdma", "nvidia_fs", "posix", "unaligned", "read_errors", "read_bytes")
        return {name: sum(getattr(gpu, name) for gpu in gpus) for name in names}

    def facts(self) -> dict[str, Any]:
        """Returns the version, the configuration and the kernel's side of this process's cuFile."""
        version, properties = ctypes.c_int(), _Properties()
        self._call("GetVersion", ctypes.byref(version))
        self._call("DriverGetProperties", ctypes.byref(properties))
        chosen = {"allow_compat_mode": ALLOW_COMPAT_MODE, "force_compat_mode": FORCE_COMPAT_MODE}
        return {
            "cuFile": version.value,
            "nvidia-fs": nvidia_fs(),
            **{name: self._parameter(number) for name, number in {**chosen, "use_pci_p2pdma": USE_PCIP2PDMA}.items()},
            "supported": [name for bit, name in NVFS_FLAGS.items() if properties.supported >> bit & 1],
        }

    def _parameter(self, number: int) -> bool | str:
        value = ctypes.c_bool()
        try:
            self._call("GetParameterBool", number, ctypes.byref(value))
        except (CuFileError, AttributeError) as error:
            return str(error)
        return value.value


def nvidia_fs() -> str:
    """Returns the version of the kernel module nvidia-fs, or that it isn't loaded."""
    try:
        return Path("/proc/driver/nvidia-fs/version").read_text().strip()
    except OSError:
        return "not loaded"
