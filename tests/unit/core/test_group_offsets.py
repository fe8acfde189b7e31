"""Committed offsets without membership: requests in every version, and what each answer means (C20, C24, C25)."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.calls import Done
from pyclient.core.group.offsets import committed_call
from pyclient.records import OffsetAndMetadata, TopicPartition
from tests.unit.core.world import answer

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.mark.parametrize("version", range(SPOKEN[Api.OFFSET_FETCH].low, SPOKEN[Api.OFFSET_FETCH].high + 1))
def test_C20_what_is_committed_is_found_and_nothing_is_None(version: int) -> None:
    parts = [{"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "metadata": "note"},
             {"partition_index": 1, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}]
    topics = [{"name": "a", "partitions": parts}]
    message = answer(Api.OFFSET_FETCH, version, topics=topics, groups=[{"group_id": "g", "topics": topics}])
    call = committed_call("g", [A0, A1], lambda result, error: None, None)
    assert call.judge(message) == Done({A0: OffsetAndMetadata(7, "note"), A1: None})
