"""Offsets by time: one request per leader, retried within the question's time, each ended once."""
from __future__ import annotations

from typing import Any

from pyclient.core.fetching.lookups import EARLIEST, OffsetLookups
from pyclient.core.metadata import Metadata
from pyclient.records import OffsetAndTimestamp, TopicPartition
from tests.unit.core.world import DOUBLING, World, topic, view

A0 = TopicPartition("a", 0)


def test_a_question_is_asked_of_the_leader_and_answered() -> None:
    world = World()
    metadata = Metadata(max_age=200.0, max_idle=300.0, rebootstrap_after=None, request_timeout=30.0, backoff=DOUBLING,
                        create_topics=False, on_update=lambda cluster: None)
    lookups = OffsetLookups(metadata, isolation=0, request_timeout=30.0, backoff=DOUBLING)
    ended: list[Any] = []
    lookups.submit({A0: EARLIEST}, lambda *outcome: ended.append(outcome), deadline=None, now=world.now)
    (asked,) = world.turn(metadata, lookups)
    asked.reply(**view(topic("a", 2)))
    (asked,) = world.turn(metadata, lookups)
    assert asked.node == 2
    asked.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "timestamp": -1, "offset": 5, "leader_epoch": 0}]}])
    assert ended == [(A0, OffsetAndTimestamp(5, -1, 0), None)]
