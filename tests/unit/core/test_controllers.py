"""A client that is bound to controllers (KIP-919): how it learns of them, which it asks, and what it does not send."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.core.admin.cluster import describe_controllers_call, describe_quorum_call
from pyclient.core.admin.topics import metadata_call
from pyclient.core.calls import Call, Calls
from pyclient.core.group.offsets import commit_call
from pyclient.errors import ClusterAuthorizationError, KafkaError, MismatchedEndpointTypeError, UnsupportedEndpointTypeError
from pyclient.records import Node, OffsetAndMetadata, TopicPartition
from tests.unit.core.world import DOUBLING, Sent, World, make_metadata

NOT_LEADER, NOT_ALLOWED, MISMATCHED = 6, 31, 114


class Client:
    """Metadata and calls of a client that knows no controller yet, and how its calls ended."""

    def __init__(self) -> None:
        self.world = World()
        self.metadata = make_metadata(of_controllers=True)
        self.calls = Calls(self.metadata, request_timeout=30.0, backoff=DOUBLING)
        self.ended: list[tuple[Any, KafkaError | None]] = []

    def finish(self, result: Any, error: BaseException | None) -> None:
        assert error is None or isinstance(error, KafkaError)
        self.ended.append((result, error))

    def asks(self) -> list[Sent]:
        return self.world.turn(self.metadata, self.calls)

    def learns(self, *nodes: int, active: int = 1) -> None:
        (sent,) = [each for each in self.asks() if each.api is Api.DESCRIBE_CLUSTER]
        sent.reply(**controllers(*nodes, active=active))

    def submit(self, call: Call) -> None:
        self.calls.submit(call)


def controllers(*nodes: int, active: int = 1, code: int = 0) -> dict[str, Any]:
    rows = [{"broker_id": node, "host": f"host-{node}", "port": 9093, "rack": None, "is_fenced": False} for node in nodes]
    return {"error_code": code, "error_message": "said", "endpoint_type": 2, "cluster_id": "c", "controller_id": active, "brokers": rows,
            "cluster_authorized_operations": -(2**31)}


@pytest.fixture
def client() -> Client:
    return Client()


def test_controllers_are_learnt_of_by_describe_cluster(client: Client) -> None:
    (sent,) = client.asks()
    assert (sent.api, sent.body.endpoint_type) == (Api.DESCRIBE_CLUSTER, 2)
    assert sent.request.versions is not None
    assert sent.request.versions.low == 1
    sent.reply(**controllers(1, 2, active=2))
    cluster = client.metadata.cluster
    assert (cluster.id, cluster.controller, dict(cluster.nodes)) == ("c", 2, {node: Node(node, f"host-{node}", 9093) for node in (1, 2)})


def test_each_call_goes_to_the_active_controller_and_to_the_next_one_when_it_leads_no_more(client: Client) -> None:
    client.learns(1, 2, 3, active=2)
    client.submit(describe_quorum_call(finish=client.finish, deadline=None))
    (sent,) = client.asks()
    assert sent.node == 2
    sent.reply(error_code=NOT_LEADER, topics=[], nodes=[])
    client.world.after(10)
    (refresh,) = client.world.turn(client.metadata)
    refresh.reply(**controllers(1, 2, 3, active=3))
    (again,) = client.asks()
    assert (again.api, again.node) == (Api.DESCRIBE_QUORUM, 3)


@pytest.mark.parametrize("make", [
    lambda finish: metadata_call([], finish=finish, deadline=None),
    lambda finish: commit_call("g", {TopicPartition("t", 0): OffsetAndMetadata(1)}, finish, None),
])
def test_what_controllers_do_not_answer_is_refused_at_once(client: Client, make: Any) -> None:
    client.submit(make(client.finish))
    ((_, error),) = client.ended
    assert isinstance(error, UnsupportedEndpointTypeError)
    assert "open one with bootstrap_servers" in str(error)


@pytest.mark.parametrize(("code", "kind", "words"), [
    (MISMATCHED, MismatchedEndpointTypeError, "bootstrap_controllers leads to a broker"),
    (NOT_ALLOWED, ClusterAuthorizationError, "not allowed to ALTER the cluster (to ask controllers)"),
])
def test_what_controllers_refuse_ends_calls_until_they_answer(client: Client, code: int, kind: type[KafkaError], words: str) -> None:
    client.submit(describe_controllers_call(operations=False, finish=client.finish, deadline=None))
    (sent,) = client.asks()
    sent.reply(**controllers(code=code))
    client.asks()
    ((_, error),) = client.ended
    assert isinstance(error, kind)
    assert words in str(error)
    client.world.after(10)
    client.learns(1)
    client.submit(describe_controllers_call(operations=False, finish=client.finish, deadline=None))
    (asked,) = client.asks()
    asked.reply(**controllers(1))
    assert client.ended[-1][1] is None
