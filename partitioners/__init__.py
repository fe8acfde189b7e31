"""Partitioners: which partition a record goes to when its sender names none.

Same key, same partition as the other clients in the company: that matters more than the hash. ``murmur2`` is Java's.
"""
from __future__ import annotations

from pyclient.partitioners.hashing import Murmur2Partitioner, Murmur3Partitioner
from pyclient.partitioners.murmur2 import murmur2, murmur2_partition
from pyclient.partitioners.spreading import RandomPartitioner, RoundRobinPartitioner

__all__ = [
    "Murmur2Partitioner",
    "Murmur3Partitioner",
    "RandomPartitioner",
    "RoundRobinPartitioner",
    "murmur2",
    "murmur2_partition",
]
