"""Loops that users would otherwise write: consume, transform and produce exactly once."""
from __future__ import annotations

from pyclient.processing.dead_letters import ATTEMPTS, ERROR, MESSAGE, OFFSET, PARTITION, TIMESTAMP, TOPIC
from pyclient.processing.exactly_once import AsyncExactlyOnce, ExactlyOnce
from pyclient.processing.outputs import Output
from pyclient.processing.work import Progress

__all__ = [
    "ATTEMPTS", "ERROR", "MESSAGE", "OFFSET", "PARTITION", "TIMESTAMP", "TOPIC", "AsyncExactlyOnce", "ExactlyOnce", "Output", "Progress",
]
