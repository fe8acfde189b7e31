"""Who may commit offsets to the fake's coordinators, and what is found afterwards."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.producer_ids import BLOCK, fresh_id
from tests.unit.testing.fake.classic_members import ClassicMembers



@pytest.fixture
def members() -> Iterator[ClassicMembers]:
    with ClassicMembers() as found:
        yield found


def test_commits_are_rejected_between_the_joins_and_the_assignment(members: ClassicMembers) -> None:
    (first,) = members.stable(None)
    joins = [members.joining(members.id()), members.joining(first)]
    members.soon()
    assert members.commit(5, member=first, generation=2) == 27
    assert [each.done() for each in joins] == [True, True]


def test_members_commit_while_others_are_waited_for(members: ClassicMembers) -> None:
    (first,) = members.stable(None)
    members.joining(members.id())
    members.soon()
    assert members.commit(5, member=first, generation=1) == 0


def test_a_deleted_topic_takes_its_offsets_with_it(members: ClassicMembers) -> None:
    members.commit(5)
    members.do(lambda: members.kafka.delete_topic("t"))
    assert members.committed() == (0, {})
    members.do(lambda: members.kafka.create_topic("t"))


def test_every_producer_gets_an_unused_id_also_from_another_broker_and_after_a_restart(members: ClassicMembers) -> None:
    def fresh(broker: int, producer_id: int = -1, epoch: int = -1) -> int:
        answer = members.call(Api.INIT_PRODUCER_ID, 5, {"transactional_id": None, "transaction_timeout": 1000, "producer_id": producer_id,
                                                     "producer_epoch": epoch}, broker)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        return int(answer.producer_id)
    first = [fresh(1), fresh(1), fresh(2), fresh(1, 0, 5)]
    members.kill(1)
    members.restart(1)
    assert [*first, fresh(1)] == [0, 1, 1000, 2, 2000]


def test_a_broker_takes_another_block_when_its_ids_are_used_up(members: ClassicMembers) -> None:
    assert [fresh_id(members.kafka, 1) for _ in range(BLOCK + 1)] == list(range(BLOCK + 1))
    assert fresh_id(members.kafka, 2) == 2 * BLOCK
