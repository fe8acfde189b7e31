"""Partitioners: they choose the partition of a record that is sent without one.

A key must go to the same partition as with the other clients of a company: that matters more than the hash.
`__all__` lists them.
"""
from __future__ import annotations

from pyclient.partitioners.fnv1a import Fnv1aPartitioner, fnv1a
from pyclient.partitioners.hashing import ConsistentPartitioner, ConsistentRandomPartitioner, Murmur3Partitioner
from pyclient.partitioners.murmur2 import Murmur2Partitioner, murmur2, murmur2_partition
from pyclient.partitioners.spreading import ExplicitPartitioner, RandomPartitioner, RoundRobinPartitioner, StickyPartitioner

__all__ = [
    "ConsistentPartitioner",
    "ConsistentRandomPartitioner",
    "ExplicitPartitioner",
    "Fnv1aPartitioner",
    "Murmur2Partitioner",
    "Murmur3Partitioner",
    "RandomPartitioner",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "fnv1a",
    "murmur2",
    "murmur2_partition",
]
