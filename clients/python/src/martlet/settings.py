"""Settings of a client: where the store is, and the bounds of time, memory and concurrency."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Literal

from .errors import MartletError

KIB = 1 << 10
MIB = 1 << 20
# Unit of the checksums that a storage node sends.
BLOCK_BYTES = 64 * KIB


def default_threads() -> int:
    """Number of concurrent requests: four for each core that this process may use, from 8 to 64."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(8, min(64, 4 * cores))


@dataclass(frozen=True)
class Settings:
    """Options of a client. Every option has a default; credentials come from botocore's chain."""

    #: URL of the store. Default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, botocore's profile, then AWS itself.
    endpoint: str | None = None
    #: Region of signatures. Default: AWS_REGION, botocore's profile, then us-east-1.
    region: str | None = None
    #: Profile of botocore's configuration files.
    profile: str | None = None
    #: Path style (http://host/bucket/key). False selects http://bucket.host/key.
    path_style: bool = True
    #: Requests without a signature, for public buckets.
    anonymous: bool = False
    #: Concurrent requests of this client.
    threads: int = field(default_factory=default_threads)
    #: Longest gap between two wanted ranges that one request reads over.
    gap_bytes: int = 512 * KIB
    #: Longest range of one request; a multiple of 64 KiB.
    fetch_bytes: int = 8 * MIB
    #: Reads of fewer bytes go by GET without asking for locations.
    direct_min_bytes: int = MIB
    #: "auto" reads from storage nodes where the store offers it; "never" uses GET alone.
    direct: Literal["auto", "never"] = "auto"
    #: "client" lets nodes send without a check of their own, because this reader checks every block;
    #: "node" asks for both checks.
    verify: Literal["client", "node"] = "client"
    #: Path of the storage node's direct socket on this machine: its extents are read from their files.
    direct_socket: str | None = None
    #: Reads past the page cache where memory and place are aligned to 4 KiB, as `Memory` is.
    direct_io: bool = False
    #: Bound of the memory that a checkpoint or safetensors reader holds beside the caller's buffers.
    memory_bytes: int = 256 * MIB
    #: Part size of uploads; a file that is written has at most `upload_parts` parts in memory, and one that fills.
    part_bytes: int = 16 * MIB
    upload_parts: int = 8
    connect_timeout_s: float = 5.0
    #: Longest silence of a connection.
    idle_timeout_s: float = 30.0
    #: Attempts of a request, and the bound of all attempts together.
    attempts: int = 5
    deadline_s: float = 300.0

    def __post_init__(self) -> None:
        bounds = [
            ("threads", 1, 1024),
            ("gap_bytes", 0, 1 << 30),
            ("fetch_bytes", BLOCK_BYTES, 1 << 30),
            ("memory_bytes", MIB, 1 << 50),
            ("part_bytes", 5 * MIB, 5 << 30),
            ("upload_parts", 1, 256),
            ("attempts", 1, 20),
            ("direct_min_bytes", 0, 1 << 50),
        ]
        for name, least, most in bounds:
            if not least <= getattr(self, name) <= most:
                raise MartletError(f"{name} is {getattr(self, name)}: it must be from {least} to {most}")
        if self.fetch_bytes % BLOCK_BYTES:
            raise MartletError(f"fetch_bytes is {self.fetch_bytes}: it must be a multiple of {BLOCK_BYTES}")
        for name in ("connect_timeout_s", "idle_timeout_s", "deadline_s"):
            if not 0 < getattr(self, name) <= 86_400:
                raise MartletError(f"{name} is {getattr(self, name)}: it must be above 0 and at most 86,400 seconds")
        for name, known in (("direct", ("auto", "never")), ("verify", ("client", "node"))):
            if getattr(self, name) not in known:
                raise MartletError(f"{name} is {getattr(self, name)!r}: it must be {known[0]!r} or {known[1]!r}")

    @classmethod
    def known(cls) -> frozenset[str]:
        """Returns the names of all options."""
        return frozenset(one.name for one in fields(cls))
