"""Admin operations: requests in every version, and one result or error per item."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.admin import delete_topics_call
from pyclient.core.calls import Done
from pyclient.errors import UnknownTopicOrPartitionError
from tests.unit.core.world import answer


@pytest.mark.parametrize("version", range(SPOKEN[Api.DELETE_TOPICS].low, SPOKEN[Api.DELETE_TOPICS].high + 1))
def test_each_topic_has_its_own_outcome(version: int) -> None:
    call = delete_topics_call(["a", "b"], timeout=3.0, finish=lambda result, error: None, deadline=None)
    verdict = call.judge(answer(Api.DELETE_TOPICS, version, responses=[{"name": "a"}, {"name": "b", "error_code": 3}]))
    assert isinstance(verdict, Done)
    assert verdict.result["a"] is None
    assert isinstance(verdict.result["b"], UnknownTopicOrPartitionError)
