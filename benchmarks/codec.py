"""Record batches in memory: encode, decode to objects, decode to Arrow, beside the other clients' codecs.

One batch of 100-byte values (about 256 KiB) is written and read repeatedly. Rounds are interleaved, so that other load
of the machine affects all clients alike. A figure is the median of the rounds, in µs of CPU per record, with the best
round in brackets: on a machine whose cores share their units with other work, that round had the least of it. Reading
includes the checksum and every field of every record as an object of that client; ours are whole `Record`s.
confluent-kafka has no codec that can be called without a broker.
"""
from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyclient.codec.batches import read_batches
from pyclient.codec.columns import to_arrow
from pyclient.codec.encode import encode_batch, encode_values

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
NUMBER: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NOW: Final = 1_700_000_000_000
BUDGETS: Final = {"encode": 0.10, "decode to objects": 0.10, "decode to Arrow": 0.04}
VERSIONS: Final = ("aiokafka", "kafka-python", "cramjam", "crc32c", "pyarrow", "Cython")

Work = Callable[[], object]


class Case(NamedTuple):
    """One thing that one client does with one batch."""

    work: str
    client: str
    codec: str
    call: Work


def values(count: int) -> list[bytes]:
    """Values of 100 bytes that look like data: they compress about threefold."""
    return [(b'{"id": %d, "carrier": "%c%c", "delay": %d, "note": "' % (i * 7919, 65 + i % 26, 65 + i * 7 % 26, i * 31 % 97)).ljust(98, b"x") + b'"}' for i in range(count)]


# --- ours ------------------------------------------------------------------------------------------------------------


def ours(rows: list[bytes], codec: str) -> Iterator[Case]:
    """The fast loops, and the general writer that takes keys, timestamps and headers too."""
    data = encode_values(rows, timestamp=NOW, compression=codec)
    full = [(NOW + i, b"key", row, [("trace", b"1")]) for i, row in enumerate(rows)]
    yield Case("encode", "pyclient", codec, lambda: encode_values(rows, timestamp=NOW, compression=codec))
    yield Case("decode to objects", "pyclient", codec, lambda: read_batches(data)[0].records("flights", 0))
    yield Case("decode to objects, one by one", "pyclient", codec, lambda: all(read_batches(data)[0].iter_records("flights", 0)))
    yield Case("decode to Arrow", "pyclient", codec, lambda: to_arrow([("flights", 0, read_batches(data)[0], 0, None)]))
    if codec == "none":
        keyed = encode_batch(full)
        yield Case("encode with key and header", "pyclient", codec, lambda: encode_batch(full))
        yield Case("decode with key and header", "pyclient", codec, lambda: read_batches(keyed)[0].records("flights", 0))


# --- peers -----------------------------------------------------------------------------------------------------------


def aiokafka(rows: list[bytes], codec: str) -> Iterator[Case]:
    """The compiled builder and reader of aiokafka."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords

    def encode(codec: int = NUMBER[codec], headers: list[tuple[str, bytes]] | None = None, key: bytes | None = None) -> bytes:
        builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 24)
        for offset, row in enumerate(rows):
            builder.append(offset, NOW, key, row, headers or [])
        return bytes(builder.build())

    def decode(data: bytes) -> object:
        batch = MemoryRecords(data).next_batch()
        if not batch.validate_crc():
            raise ValueError("the checksum is wrong")
        return [record.value for record in batch]

    yield from peer("aiokafka", encode, decode, codec)


def kafka_python(rows: list[bytes], codec: str) -> Iterator[Case]:
    """kafka-python's builder and reader, for codecs with an installed library: python-snappy, lz4, zstandard."""
    from kafka import codec as codecs
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

    def encode(codec: int = NUMBER[codec], headers: list[tuple[str, bytes]] | None = None, key: bytes | None = None) -> bytes:
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
        for offset, row in enumerate(rows):
            builder.append(offset, NOW, key, row, headers or [])
        return bytes(builder.build())

    def decode(data: bytes) -> object:
        batch = MemoryRecords(data).next_batch()
        if not batch.validate_crc():
            raise ValueError("the checksum is wrong")
        return [record.value for record in batch]

    if codec == "none" or getattr(codecs, f"has_{codec}")():
        yield from peer("kafka-python", encode, decode, codec)


def peer(client: str, encode: Callable[..., bytes], decode: Callable[[bytes], object], codec: str) -> Iterator[Case]:
    """A peer's cases; with key and header only for uncompressed batches, as for ours."""
    data = encode()
    yield Case("encode", client, codec, encode)
    yield Case("decode to objects", client, codec, lambda: decode(data))
    if codec == "none":
        keyed = encode(headers=[("trace", b"1")], key=b"key")
        yield Case("encode with key and header", client, codec, lambda: encode(headers=[("trace", b"1")], key=b"key"))
        yield Case("decode with key and header", client, codec, lambda: decode(keyed))


# --- measuring -------------------------------------------------------------------------------------------------------


def once(call: Work, shortest_s: float = 0.02) -> float:
    """CPU seconds of one call: the mean of as many as fill *shortest_s*, at least one."""
    calls, begin = 0, time.process_time()
    while True:
        call()
        calls += 1
        spent = time.process_time() - begin
        if spent >= shortest_s:
            return spent / calls


class Figure(NamedTuple):
    """µs of CPU per record."""

    median: float
    best: float


def measured(cases: list[Case], rounds: int, records: int) -> dict[Case, Figure]:
    """Interleaved rounds, after one that only warms up."""
    times: dict[Case, list[float]] = {case: [] for case in cases}
    for case in cases:
        case.call()
    for _ in range(rounds):
        for case in cases:
            times[case].append(once(case.call))
    scale = 1e6 / records
    return {case: Figure(statistics.median(spent) * scale, min(spent) * scale) for case, spent in times.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Size of the run."""
    parser.add_argument("--records", type=int, default=2500, help="records in a batch (2500 are about 256 KiB)")
    parser.add_argument("--rounds", type=int, default=7)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure all, print the table."""
    rows = values(arguments.records)
    cases = [case for codec in CODECS for client in (ours, aiokafka, kafka_python) for case in client(rows, codec)]
    figures = measured(cases, arguments.rounds, len(rows))
    print_table(figures)
    return {
        "records": len(rows),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS},
        "us_per_record": [
            {"work": case.work, "client": case.client, "codec": case.codec, "us": round(us.median, 4), "best": round(us.best, 4)}
            for case, us in figures.items()
        ],
        "budgets_us": BUDGETS,
        "missed": [work for work, limit in BUDGETS.items() if own(figures, work).median > limit],
        "missed_by_the_best_round": [work for work, limit in BUDGETS.items() if own(figures, work).best > limit],
    }


def own(figures: dict[Case, Figure], work: str) -> Figure:
    """Our figure for uncompressed batches, which the budgets are about."""
    return next(us for case, us in figures.items() if (case.work, case.client, case.codec) == (work, "pyclient", "none"))


def print_table(figures: dict[Case, Figure]) -> None:
    """A Markdown table: µs per record, and how many times ours the best peer takes."""
    clients = ("pyclient", "aiokafka", "kafka-python")
    print("| Work | Codec | " + " | ".join(clients) + " | best peer / pyclient | budget |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for work, codec in dict.fromkeys((case.work, case.codec) for case in figures):
        row = {case.client: us for case, us in figures.items() if (case.work, case.codec) == (work, codec)}
        shown = [f"{row[client].median:.3f} ({row[client].best:.3f})" if client in row else "–" for client in clients]
        peers = [us.median for client, us in row.items() if client != "pyclient"]
        ratio = f"{min(peers) / row['pyclient'].median:.1f}×" if peers else "–"
        budget = f"{BUDGETS[work]:.2f}" if codec == "none" and work in BUDGETS else ""
        print(f"| {work} | {codec} | {' | '.join(shown)} | {ratio} | {budget} |")
