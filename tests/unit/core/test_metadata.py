"""When metadata is asked for, about what, and what is believed (M01, M02, M03, M06)."""
from __future__ import annotations

import pytest

from pyclient.core.cluster import Cluster
from pyclient.core.metadata import Metadata
from tests.unit.core.world import DOUBLING, World, topic, view


class Client:
    """A Metadata manager in its world, and the views it published."""

    def __init__(self, *, rebootstrap_after: float | None = None, max_idle: float = 300.0) -> None:
        self.world = World()
        self.views: list[Cluster] = []
        self.metadata = Metadata(
            max_age=200.0, max_idle=max_idle, rebootstrap_after=rebootstrap_after, request_timeout=30.0, backoff=DOUBLING,
            create_topics=False, on_update=self.views.append)


@pytest.fixture
def client() -> Client:
    return Client()


def test_M01_a_new_topic_is_asked_for_at_once_and_alone_while_the_rest_is_fresh(client: Client) -> None:
    client.metadata.want("a", client.world.now)
    (first,) = client.world.turn(client.metadata)
    first.reply(**view(topic("a", 1)))
    client.metadata.want("b", client.world.now)
    (second,) = client.world.turn(client.metadata)
    assert [each.name for each in second.body.topics] == ["b"]
