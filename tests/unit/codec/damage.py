"""Ways to harm a batch: with the checksum left wrong, or made right again so that what lies behind it is reached."""
from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from pyclient.codec.crc import crc32c

OFFSETS: Final = {
    "base_offset": (0, ">q"), "length": (8, ">i"), "magic": (16, ">b"), "crc": (17, ">I"), "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"), "base_timestamp": (27, ">q"), "max_timestamp": (35, ">q"), "count": (57, ">i"),
}


def healed(data: bytes | bytearray) -> bytes:
    """With length and checksum made those of the content."""
    out = bytearray(data)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def changed(data: bytes, fields: Mapping[str, int], *, heal: bool = True) -> bytes:
    """With fields of the header replaced."""
    out = bytearray(data)
    for name, value in fields.items():
        at, form = OFFSETS[name]
        struct.pack_into(form, out, at, value)
    if not heal:
        return bytes(out)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def zigzag(number: int) -> bytes:
    """A varint."""
    raw = number << 1 if number >= 0 else -number * 2 - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def with_records(template: bytes, *records: bytes, count: int | None = None) -> bytes:
    """The header of *template* before records given as bytes."""
    body = b"".join(records)
    return healed(changed(template[:61], {"count": len(records) if count is None else count}, heal=False) + body)


def record(body: bytes) -> bytes:
    """A record's length before its body."""
    return zigzag(len(body)) + body
