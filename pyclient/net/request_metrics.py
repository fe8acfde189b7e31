"""Which answers are counted and timed by their kind, besides all together."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyclient.codec.apis import Api
from pyclient.metrics import (
    COMMIT_LATENCY, COMMITS, FETCH_LATENCY, FETCHES, HEARTBEAT_TIME, HEARTBEATS, JOIN_TIME, JOINS, SYNC_TIME, SYNCS, Metric,
)

TIMED: Final[Mapping[Api, tuple[Metric, Metric]]] = {
    Api.FETCH: (FETCHES, FETCH_LATENCY), Api.OFFSET_COMMIT: (COMMITS, COMMIT_LATENCY), Api.HEARTBEAT: (HEARTBEATS, HEARTBEAT_TIME),
    Api.JOIN_GROUP: (JOINS, JOIN_TIME), Api.SYNC_GROUP: (SYNCS, SYNC_TIME),
}
"""Kind → how many, and how long in ms."""
