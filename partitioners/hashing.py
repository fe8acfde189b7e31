"""Hash partitioners with a hash from a library: murmur3 and CRC-32. Records with equal keys go to one partition.

Records without a key get `STICKY`: the producer then fills one partition's batch after another (KIP-794).
"""
from __future__ import annotations

from zlib import crc32

import mmh3

from pyclient.plugins import STICKY, Partitions


class Murmur3Partitioner:
    """murmur3 of the key (x86, 32 bits, seed 0), for topics that another murmur3 producer writes too."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """The same key gives the same partition as long as the topic's number of partitions stays."""
        return STICKY if key is None else (mmh3.hash(key, signed=False) & 0x7FFFFFFF) % len(partitions)


class ConsistentPartitioner:
    """CRC-32 of the key, as librdkafka's ``consistent``. All records without a key go to one partition: the empty
    key's.
    """

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """The same key gives the same partition as long as the topic's number of partitions stays."""
        return crc32(key or b"") % len(partitions)


class ConsistentRandomPartitioner:
    """CRC-32 of the key, as librdkafka's default ``consistent_random``. An empty key counts as none."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """The same key gives the same partition as long as the topic's number of partitions stays."""
        return crc32(key) % len(partitions) if key else STICKY
