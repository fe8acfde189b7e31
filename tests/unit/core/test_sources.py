"""From which node each partition is read: never of two at once (C02)."""
from __future__ import annotations

from uuid import UUID

import pytest

from pyclient.core.fetching.sessions import Wish
from pyclient.core.fetching.sources import Sources
from tests.unit.core.fetching import A0, A1, A2, B0


def wish(_where: object) -> Wish:
    return Wish(0, 1, 0, -1, None)


@pytest.fixture
def sources() -> Sources:
    return Sources()


def asks(sources: Sources, node: int) -> None:
    assert sources.ask(node, wish) is not None


def test_C02_what_is_not_wanted_any_more_while_it_is_asked_for_waits_for_the_answer_all_the_same(sources: Sources) -> None:
    sources.put(A0, 1)
    asks(sources, 1)
    sources.take(A0)
    sources.put(A0, 2)
    assert (sources.idle(), sources.ended(1)) == ([], [A0])
    sources.put(A0, 2)
    assert sources.idle() == [2]


def test_the_node_that_was_asked_longest_ago_is_asked_first(sources: Sources) -> None:
    sources.put(A0, 1)
    sources.put(A2, 2)
    assert sources.idle() == [1, 2]
    asks(sources, 1)
    sources.ended(1)
    assert sources.idle() == [2, 1]


def test_C02_an_old_node_that_forgets_a_partition_forgets_nothing_of_the_new_one(sources: Sources) -> None:
    sources.put(A0, 1)
    sources.put(A1, 1)
    asks(sources, 1)
    sources.ended(1)
    sources.put(A0, 2)
    asks(sources, 2)
    asks(sources, 1)
    sources.ended(1)
    sources.put(A0, 3)
    assert sources.idle() == [1]
    assert sources.ended(2) == [A0]


def test_C02_a_recreated_topic_is_forgotten_under_its_old_id_and_read_where_it_was(sources: Sources) -> None:
    sources.put(A0, 1)
    asks(sources, 1)
    sources.ended(1)
    sources.put(A0, 1)
    new = wish(A0)._replace(topic_id=UUID(int=1))
    assert sources.ask(1, lambda tp: new) is not None
    sources.put(A0, 2)
    assert sources.idle() == []
    assert sources.ended(1) == [A0]


def test_a_node_that_is_gone_is_forgotten_when_it_is_asked_for_nothing_and_reads_nothing(sources: Sources) -> None:
    sources.put(A0, 1)
    sources.put(B0, 2)
    asks(sources, 1)
    before = sources.session(1)
    before.id = 7
    sources.take(A0)
    sources.forget_nodes(lambda node: node != 1)
    assert sources.session(1) is before
    sources.ended(1)
    sources.forget_nodes(lambda node: True)
    assert sources.session(1) is before
    sources.forget_nodes(lambda node: node != 1)
    assert [node for node, _, _ in sources.farewells()] == []
    sources.put(A0, 2)
    assert sources.idle() == [2]


def test_a_node_that_is_gone_and_is_to_be_read_is_kept(sources: Sources) -> None:
    sources.put(A0, 1)
    sources.forget_nodes(lambda node: False)
    assert sources.idle() == [1]
