"""Writes the partitions that librdkafka's partitioners choose for `partition_vectors.KEYS`.

It calls them in the library of confluent-kafka.

``python -m tests.data.librdkafka_partitions`` writes ``partitions-librdkafka-<name>.bin`` into its folder.
"""
from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

import confluent_kafka

from tests.data.partition_vectors import DATA, KEYS, as_bytes

NAMES: Final = ("consistent", "murmur2_random", "fnv1a_random")
"""``consistent_random`` draws for an empty key, which needs a running producer: tests/interop asks one."""


def library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka*.so*")
    for needed in folder.glob("*.so*"):
        if needed != path:
            _preload(needed)
    return ctypes.CDLL(str(path))


def _preload(needed: Path) -> None:
    try:
        ctypes.CDLL(str(needed), ctypes.RTLD_GLOBAL)
    except OSError:
        return  # it needs another one first; the loader finds both


def partition(librdkafka: ctypes.CDLL, name: str, key: bytes, partitions: int) -> int:
    function = librdkafka[f"rd_kafka_msg_partitioner_{name}"]
    function.restype = ctypes.c_int32
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    return int(function(None, key, len(key), partitions, None, None))


def main() -> None:
    librdkafka = library()
    for name in NAMES:
        found = [partition(librdkafka, name, key, count) for key, count in KEYS]
        (DATA / f"partitions-librdkafka-{name}.bin").write_bytes(as_bytes(found))


if __name__ == "__main__":
    main()
