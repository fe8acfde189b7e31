"""From which node each partition is read: never from two at once (C02)."""
from __future__ import annotations

import pytest

from pyclient.codec.fetch import PartitionRequest
from pyclient.core.fetching.sources import Sources
from tests.unit.core.fetching import A0, A1, A2, B0


def request_of(_tp: object) -> PartitionRequest:
    return PartitionRequest(0, 1, 0, -1, None)


@pytest.fixture
def sources() -> Sources:
    return Sources()


def send(sources: Sources, node: int) -> None:
    assert sources.next_request(node, request_of) is not None


def test_C02_a_partition_removed_during_a_request_waits_for_the_response_before_it_moves(sources: Sources) -> None:
    sources.add(A0, 1)
    send(sources, 1)
    sources.remove(A0)
    sources.add(A0, 2)
    assert (sources.idle(), sources.ended(1)) == ([], [A0])
    sources.add(A0, 2)
    assert sources.idle() == [2]


def test_the_node_with_the_oldest_last_request_comes_first(sources: Sources) -> None:
    sources.add(A0, 1)
    sources.add(A2, 2)
    assert sources.idle() == [1, 2]
    send(sources, 1)
    sources.ended(1)
    assert sources.idle() == [2, 1]


def test_C02_a_partition_forgotten_by_its_old_node_stays_at_the_new_one(sources: Sources) -> None:
    sources.add(A0, 1)
    sources.add(A1, 1)
    send(sources, 1)
    sources.ended(1)
    sources.add(A0, 2)
    send(sources, 2)
    send(sources, 1)
    sources.ended(1)
    sources.add(A0, 3)
    assert sources.idle() == [1]
    assert sources.ended(2) == [A0]


def test_C02_a_recreated_topic_is_forgotten_under_its_old_id_and_read_where_it_was(sources: Sources) -> None:
    sources.add(A0, 1)
    send(sources, 1)
    sources.ended(1)
    sources.add(A0, 1)
    new = PartitionRequest(0, 1, 0, -1, bytes(16))
    assert sources.next_request(1, lambda tp: new) is not None
    sources.add(A0, 2)
    assert sources.idle() == []
    assert sources.ended(1) == [A0]


def test_a_node_that_is_gone_is_forgotten_once_it_has_no_request_and_reads_nothing(sources: Sources) -> None:
    sources.add(A0, 1)
    sources.add(B0, 2)
    send(sources, 1)
    before = sources.session(1)
    before.id = 7
    sources.remove(A0)
    sources.forget_nodes(lambda node: node != 1)
    assert sources.session(1) is before
    sources.ended(1)
    sources.forget_nodes(lambda node: True)
    assert sources.session(1) is before
    sources.forget_nodes(lambda node: node != 1)
    assert [node for node, _, _ in sources.closing_requests()] == []
    sources.add(A0, 2)
    assert sources.idle() == [2]


def test_a_node_that_is_gone_but_has_partitions_to_read_is_kept(sources: Sources) -> None:
    sources.add(A0, 1)
    sources.forget_nodes(lambda node: False)
    assert sources.idle() == [1]
