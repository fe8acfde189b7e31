"""Reads randomly damaged batches for a while and reports: ``python tests/fuzz/mutate.py SECONDS SEED``.

A process of its own, so that a crash is a failed test and not a lost test run, and its memory can be measured. Starts
from the fixtures that Java wrote, old message formats included, and from batches of our own. Half of the damaged
batches get a correct checksum, and damaged messages are put into sound compressed ones, so that the damage reaches
decompressors and record parsing. The data ends where an unreadable page begins: reading one byte too many ends the
process.
"""
from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import mmap
import random
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Final

from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.columns import to_arrow
from pyclient.codec.compression import Compression, compress
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import encode_batch
from pyclient.errors import CorruptRecordError

LIMIT: Final = 4 * 2**20  # the most bytes that a batch decompresses to
FIXTURES: Final = Path(__file__).resolve().parents[1] / "fixtures" / "batches"
EDGES: Final = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
HOSTILE: Final = (-1, 0, 1, 2**7, 2**15, 2**24, 2**31 - 1, -(2**31))


def corpus() -> list[bytes]:
    """The data to damage: complete files, so that batches after a damaged one are read too."""
    files = [path.read_bytes() for path in sorted(FIXTURES.glob("*.bin"))]
    rows = [(i, b"k%d" % i, b"v" * (i * 7), [(f"h{i}", None), ("é", b"x" * i)][: i % 3]) for i in range(40)]
    plain = [encode_batch([(0, None, b"v" * length, None)]) for length in (0, 1, 62, 63, 64, 200)]
    return files + plain + [encode_batch(rows, compression=codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")]


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Some changes of bytes, numbers and lengths."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(len(out)) if out else 0
        match chance.randrange(7):
            case 0 if out:
                out[at] ^= 1 << chance.randrange(8)
            case 1 if out:
                out[at] = chance.choice(EDGES)
            case 2:
                del out[at : at + chance.choice((1, 2, 8, 100))]
            case 3:
                out[at:at] = chance.randbytes(chance.choice((1, 2, 8, 100)))
            case 4 if len(out) > 4:
                struct.pack_into(">i", out, chance.randrange(len(out) - 3), chance.choice(HOSTILE))
            case 5:
                out[at:at] = out[chance.randrange(len(out) + 1) :][: chance.choice((1, 4, 64))]
            case _:
                del out[at : at + chance.choice((1, 1, 1, len(out)))]
    return bytes(out)


def wrapped(chance: random.Random) -> bytes:
    """Damaged messages of format 0 or 1, in a compressed one that is sound."""
    magic, codec = chance.randrange(2), chance.choice(list(Compression)[1:4])
    inner = damaged(chance, (FIXTURES / f"legacy-magic-{magic}-none.bin").read_bytes())
    value = bytes(compress(codec, inner))
    body = struct.pack(">bb", magic, codec | chance.choice((0, 8))) + bytes(8 * magic) + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", chance.choice((0, 19, 1019, 2**40)), len(body) + 4, zlib.crc32(body)) + body


def healed(data: bytes) -> bytes:
    """*data* as one batch, or message of an old format, with a correct length and checksum."""
    out = bytearray(data)
    if len(out) >= 18 and out[16] < 2:
        struct.pack_into(">iI", out, 8, len(out) - 12, zlib.crc32(out[16:]))
    elif len(out) >= 61:
        struct.pack_into(">i", out, 8, len(out) - 12)
        struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


class Fenced:
    """Memory that ends at an unreadable page."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, (-(-size // mmap.PAGESIZE) + 1) * mmap.PAGESIZE)
        self._end = len(self._memory) - mmap.PAGESIZE
        fence = ctypes.addressof(ctypes.c_char.from_buffer(self._memory, self._end))
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(fence), mmap.PAGESIZE, 0):  # 0: PROT_NONE
            raise OSError(ctypes.get_errno(), "mprotect")

    def holds(self, data: bytes) -> memoryview:
        """*data*, at the very end."""
        start = self._end - len(data)
        self._memory[start : self._end] = data
        return memoryview(self._memory)[start : self._end].toreadonly()


def read_all(data: bytes | memoryview, *, check_crcs: bool = True) -> int:
    """Read in every way; return the number of records. Raises CorruptRecordError, and nothing else ever."""
    batches = read_batches(data, decompression_limit=LIMIT, check_crcs=check_crcs)
    return sum(map(read_one, batches))


def read_one(batch: RecordBatch) -> int:
    """All of one batch; two ways of reading must agree."""
    try:
        batch.open()
    except CorruptRecordError:
        for part in batch.parts():
            if part.size < batch.size:
                with contextlib.suppress(CorruptRecordError):
                    read_one(part)
        raise
    records = batch.records("t", 0)
    if records != list(batch.iter_records("t", 0)) or len(records) != batch.count:
        raise AssertionError("two ways of reading disagree")
    for index in {0, len(records) // 2, len(records) - 1} if records else ():
        if batch.index_of(batch.offset_of(index)) != index:
            raise AssertionError("a position is not found again")
    table = to_arrow([("t", 0, batch, 0, None)])
    table.validate(full=True)
    if table.column("value").to_pylist() != [record.value for record in records]:
        raise AssertionError("columns and records disagree")
    if batch.is_control:
        batch.control_type()
    repr(batch)
    return len(records)


def peak_mib() -> int:
    """The peak memory of this process in MiB; 0 where the platform does not report it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def main(seconds: float, seed: int) -> None:
    """Damage and read for *seconds*; print the counts as JSON."""
    faulthandler.enable()
    chance = random.Random(seed)
    sources = corpus()
    for data in sources:
        read_all(data)
    fenced = Fenced(2 * max(map(len, sources)) + 4096)
    before = peak_mib()
    rounds = read = refused = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = damaged(chance, chance.choice(sources)) if chance.random() < 0.8 else wrapped(chance)
        if chance.random() < 0.5:
            data = healed(data)
        rounds += 1
        try:
            read += read_all(fenced.holds(data), check_crcs=chance.random() < 0.7) > 0
        except CorruptRecordError:
            refused += 1
        except BaseException:
            print(f"seed {seed}, round {rounds}: {data.hex()}", file=sys.stderr)
            raise
    print(json.dumps({"rounds": rounds, "read": read, "refused": refused, "grown_mib": peak_mib() - before}))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
