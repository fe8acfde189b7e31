"""C21: what counts as consumed, where positions move without records."""
from __future__ import annotations

import itertools

import pytest

from pyclient import Consumer, TopicPartition
from pyclient.errors import WakeupError
from pyclient.testing import FakeCluster

TP = TopicPartition("t", 0)


def test_C21_a_position_that_moved_before_the_records_of_a_loop_does_not_take_theirs_back(fake_cluster: FakeCluster) -> None:
    """A position that was looked up reaches the user as an entry without records, in front of the first ones."""
    fake_cluster.create_topic("t")
    for _ in range(2):
        fake_cluster.produce("t", b"x")
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([TP])
        loop = iter(consumer)
        assert [record.offset for record in itertools.islice(loop, 2)] == [0, 1]
        consumer.wakeup()
        with pytest.raises(WakeupError):
            next(loop)  # the next record is requested: the one before counts as consumed
        assert consumer.position(TP) == 2
        consumer.commit()
    assert fake_cluster.committed("g")[TP].offset == 2
