"""Java reads what we write: Kafka's own log dump walks a segment file of our batches, of every codec, and finds all."""
from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from pyclient.codec.encode import encode_batch
from pyclient.records import TimestampType
from pyclient.testing.jars import ensure_jars
from pyclient.testing.java import find_java
from tests.unit.codec.strategies import RecordFields

NOW: Final = 1_700_000_000_000
LARGE: Final = b"0123456789abcdef" * 6000  # more than one block of lz4 and of snappy
ROWS: Final[list[RecordFields]] = [
    (NOW, b"key", b"value", [("trace", b"1"), ("null", None), ("Grüße", b"")]),
    (NOW - 5, None, b"no key", []),
    (NOW + 100_000_000_000, b"no value", None, []),
    (NOW, b"", b"", []),
    (NOW + 1, b"large", LARGE, []),
]
LEVELS: Final[dict[str, list[int | None]]] = {
    "none": [None], "gzip": [None, 1, 9], "snappy": [None], "lz4": [None, 3, 17], "zstd": [None, -7, 1, 19],
}
CODECS: Final = [(codec, level) for codec, levels in LEVELS.items() for level in levels]


class Dump(NamedTuple):
    """What DumpLogSegments says of one batch: its header line, and a line for every record."""

    batch: str
    records: list[str]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> list[Dump]:
    """One segment with a batch per codec and level, then special ones; read by one JVM."""
    segment = tmp_path_factory.mktemp("segment") / "00000000000000000000.log"
    segment.write_bytes(b"".join([*by_codec(), *special()]))
    return dumped(segment)


def by_codec() -> list[bytes]:
    return [
        encode_batch(ROWS, base_offset=10 * i, compression=codec, level=level, leader_epoch=3)
        for i, (codec, level) in enumerate(CODECS)
    ]


def special() -> list[bytes]:
    """A transaction's batch, its markers, and one with the broker's time."""
    encode = functools.partial(encode_batch, producer_id=77, producer_epoch=4, transactional=True)
    marker = b"\0\0\0\0\0\x09"  # version 0, coordinator epoch 9
    return [
        encode(ROWS[:2], base_offset=1000, base_sequence=40, compression="zstd"),
        encode([(NOW, b"\0\0\0\1", marker, [])], base_offset=1002, control=True),
        encode([(NOW, b"\0\0\0\0", marker, [])], base_offset=1003, control=True),
        encode_batch(ROWS, base_offset=1010, timestamp_type=TimestampType.LOG_APPEND_TIME),
    ]


def dumped(segment: Path) -> list[Dump]:
    command = [
        str(find_java().path), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", ensure_jars().classpath, "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration",
        "--print-data-log", "--files", str(segment),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, encoding="utf-8", check=False)
    assert run.returncode == 0, run.stderr
    found: list[Dump] = []
    for line in run.stdout.splitlines():
        if line.startswith("baseOffset:"):
            found.append(Dump(line, []))
        elif line.startswith("| "):
            found[-1].records.append(line)
    return found


def field(line: str, name: str) -> str:
    match = re.search(rf"\b{name}: (\S+)", line)
    assert match, (name, line)
    return match[1]


def test_java_finds_every_batch_and_record_and_calls_each_batch_valid(dumps: list[Dump]) -> None:
    assert len(dumps) == len(CODECS) + 4
    assert all(field(dump.batch, "isvalid") == "true" for dump in dumps)
    assert [len(dump.records) for dump in dumps] == [len(ROWS)] * len(CODECS) + [2, 1, 1, len(ROWS)]


@pytest.mark.parametrize("index", range(len(CODECS)), ids=[f"{codec}-{level}" for codec, level in CODECS])
def test_java_reads_the_records_of_every_codec_and_level(dumps: list[Dump], index: int) -> None:
    dump = dumps[index]
    codec, _ = CODECS[index]
    assert field(dump.batch, "compresscodec").lower() == codec
    assert field(dump.batch, "partitionLeaderEpoch") == "3"
    for offset, (line, (timestamp, key, value, headers)) in enumerate(zip(dump.records, ROWS, strict=True), 10 * index):
        assert field(line, "offset") == str(offset)
        assert field(line, "CreateTime") == str(timestamp)
        assert field(line, "keySize") == str(-1 if key is None else len(key))
        assert field(line, "valueSize") == str(-1 if value is None else len(value))
        assert f"headerKeys: [{','.join(name for name, _ in headers)}]" in line
        assert not value or line.endswith(f" payload: {value.decode()}")


def test_java_reads_the_producers_fields_of_a_transaction_and_its_markers(dumps: list[Dump]) -> None:
    data, commit, abort, _ = dumps[-4:]
    for dump in (data, commit, abort):
        assert field(dump.batch, "isTransactional") == "true"
        assert (field(dump.batch, "producerId"), field(dump.batch, "producerEpoch")) == ("77", "4")
    assert (field(data.batch, "baseSequence"), field(data.batch, "isControl")) == ("40", "false")
    assert [field(line, "sequence") for line in data.records] == ["40", "41"]
    assert "endTxnMarker: COMMIT coordinatorEpoch: 9" in commit.records[0]
    assert "endTxnMarker: ABORT coordinatorEpoch: 9" in abort.records[0]


def test_java_reads_the_brokers_time_for_every_record(dumps: list[Dump]) -> None:
    latest = max(timestamp for timestamp, *_ in ROWS)
    assert {field(line, "LogAppendTime") for line in dumps[-1].records} == {str(latest)}
