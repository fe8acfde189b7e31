"""What several tests of exchanges need."""
from __future__ import annotations

from typing import Final

import pytest

from pyclient.client.driver import Driver
from pyclient.testing import FakeCluster
from tests.unit.net.lone_records import PARTITIONS

SHORT_S: Final = 0.5


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    """With the topic "t"."""
    fake_cluster.create_topic("t", PARTITIONS)
    return fake_cluster


@pytest.fixture
def _short_timers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No deadline but that of a linger or a back-off wakes the client's loop."""
    set_timer = Driver._set_timer

    def set_if_short(driver: Driver, deadline: float) -> None:
        if deadline < driver._clock() + SHORT_S:
            set_timer(driver, deadline)

    monkeypatch.setattr(Driver, "_set_timer", set_if_short)
