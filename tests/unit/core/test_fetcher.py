"""What is fetched from whom, and where what came belongs (C01, C03, C04, C05, C08, C10, C12, C13, C14, C20)."""
from __future__ import annotations

from pyclient.buffers.fetchbuffer import FetchBuffer
from pyclient.core.fetching.fetcher import Fetcher, FetchLimits
from pyclient.core.fetching.lookups import OffsetLookups
from pyclient.core.metadata import Metadata
from pyclient.records import TopicPartition
from tests.unit.core.world import DOUBLING, World, topic, view

A0 = TopicPartition("a", 0)


def test_C01_a_partition_is_not_fetched_before_its_position_is_known() -> None:
    world = World()
    metadata = Metadata(max_age=200.0, max_idle=300.0, rebootstrap_after=None, request_timeout=30.0, backoff=DOUBLING,
                        create_topics=False, on_update=lambda cluster: None)
    lookups = OffsetLookups(metadata, isolation=0, request_timeout=30.0, backoff=DOUBLING)
    limits = FetchLimits(min_bytes=1, max_wait=0.5, max_bytes=1000, max_partition_bytes=100, buffer_memory=1000,
                         decompression_limit=10_000, check_crcs=True, isolation=0, rack="", request_timeout=30.0)
    fetcher = Fetcher(FetchBuffer(), metadata, lookups, limits, backoff=DOUBLING, reset_time=lambda: None,
                      find_committed=lambda partitions, tell: None)
    fetcher.assign([A0], world.now)
    (asked,) = world.turn(metadata, lookups, fetcher)
    asked.reply(**view(topic("a", 2)))
    assert world.turn(metadata, lookups, fetcher) == []
    fetcher.seek(A0, 5)
    (fetch,) = world.turn(metadata, lookups, fetcher)
    assert fetch.node == 2
