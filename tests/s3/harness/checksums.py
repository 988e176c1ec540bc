"""The checksums of S3, in the form that its headers have."""

import base64
import hashlib
import zlib

import crc32c
from awscrt.checksums import XXHash

_POLYNOMIAL = 0x9A6C9329AC4BC9B5  # CRC-64/NVME, reflected


def _table():
    rows = []
    for row in range(256):
        for _ in range(8):
            row = row >> 1 ^ (_POLYNOMIAL if row & 1 else 0)
        rows.append(row)
    return rows


_TABLE = _table()


def crc64nvme(data):
    value = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFFFFFFFFFF


assert crc64nvme(b"123456789") == 0xAE8B14860A799888


def _xxhash(new):
    def digest(data):
        hasher = new()
        hasher.update(data)
        return hasher.finalize()
    return digest


_BYTES = {
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "crc32c": lambda data: crc32c.crc32c(data).to_bytes(4, "big"),
    "crc64nvme": lambda data: crc64nvme(data).to_bytes(8, "big"),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
    "sha512": lambda data: hashlib.sha512(data).digest(),
    "md5": lambda data: hashlib.md5(data).digest(),
    "xxhash64": _xxhash(XXHash.new_xxhash64),
    "xxhash3": _xxhash(XXHash.new_xxhash3_64),
    "xxhash128": _xxhash(XXHash.new_xxhash3_128),
}
ALGORITHMS = list(_BYTES)
# Of parts they say nothing of the whole.
HASHES = [name for name in ALGORITHMS if not name.startswith("crc")]


def checksum(algorithm, data):
    return base64.b64encode(_BYTES[algorithm](data)).decode()
