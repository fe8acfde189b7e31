"""Calls: where they go, how they are retried, and that each ends once (C25, M15)."""
from __future__ import annotations

from typing import Any

from pyclient.core.admin import metadata_call
from pyclient.core.calls import Calls
from pyclient.core.metadata import Metadata
from tests.unit.core.world import DOUBLING, World, topic, view


def test_a_call_for_any_node_goes_to_the_one_with_least_to_do() -> None:
    world = World()
    metadata = Metadata(max_age=200.0, max_idle=300.0, rebootstrap_after=None, request_timeout=30.0, backoff=DOUBLING,
                        create_topics=False, on_update=lambda cluster: None)
    calls = Calls(metadata, request_timeout=30.0, backoff=DOUBLING)
    ended: list[Any] = []
    calls.submit(metadata_call(["a"], finish=lambda result, error: ended.append((result, error)), deadline=None))
    (sent,) = world.turn(calls)
    sent.reply(**view(topic("a", 1)))
    assert len(ended) == 1
    assert ended[0][0].topics["a"].available == (0,)
