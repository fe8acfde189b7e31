"""Partitioners that keep records of one key together: the partition follows from the key's hash alone.

Records without a key get `STICKY`: the producer then fills one partition's batch after another (KIP-794).
"""
from __future__ import annotations

import mmh3

from pyclient.partitioners.murmur2 import murmur2_capsule, murmur2_partition
from pyclient.plugins import STICKY, Partitions


class Murmur2Partitioner:
    """Java's choice, and this client's when none is named: murmur2 of the key."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """The same key gives the same partition as long as the topic's number of partitions stays."""
        return STICKY if key is None else murmur2_partition(key, len(partitions))

    def key_hash(self) -> object:
        """See `pyclient.plugins.HashesKeys`."""
        return murmur2_capsule()


class Murmur3Partitioner:
    """murmur3 of the key (x86, 32 bits, seed 0): for topics that another murmur3 producer writes too."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """The same key gives the same partition as long as the topic's number of partitions stays."""
        return STICKY if key is None else (mmh3.hash(key, signed=False) & 0x7FFFFFFF) % len(partitions)
