"""What brokers and other members of a group write gets into errors and logs as one harmless line."""
from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.codec.consumer_protocol import decode_assignment, decode_subscription, encode_assignment, encode_subscription
from pyclient.core.acl_errors import RIGHTS, error_of
from pyclient.core.cluster import Cluster
from pyclient.core.group.coordinator import Identity
from pyclient.core.group.leader import _decoded
from pyclient.errors import BY_CODE, CorruptRecordError, KafkaError, ProtocolError, error_for
from pyclient.plugins import Assignment, MemberView
from pyclient.records import Node, TopicPartition
from pyclient.redaction import LONGEST_SHOWN
from tests.unit.core.groups import UNKNOWN_MEMBER, ClassicHarness, tps
from tests.unit.core.world import answer, make_metadata, topic, view

EVIL = "a\nERROR root: all is lost\r\x1b[2J\x1b]0;title\x07\x9b\u202egnp.\u2028\x00b"
A0 = TopicPartition("a", 0)


def harmless(text: str) -> bool:
    return text.isprintable() and "ERROR root" in text


def response(*topics: Any, **more: Any) -> Any:
    return answer(Api.METADATA, 12, **{**view(*topics), **more})


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_every_error_is_one_line_whatever_it_quotes() -> None:
    for error in (KafkaError(EVIL), KafkaError("x", topic_partition=TopicPartition(EVIL, 0)), KafkaError("x", node=Node(1, EVIL, 1)), ProtocolError(EVIL, api=EVIL),
                  CorruptRecordError(EVIL, next_offset=5), pickle.loads(pickle.dumps(KafkaError(EVIL)))):
        assert harmless(str(error))
        assert error.message.isprintable()
        assert repr(error).isprintable()


@pytest.mark.parametrize("code", [*BY_CODE, 9999])
def test_a_brokers_text_is_short_and_on_one_line(code: int) -> None:
    without = len(str(error_for(code)))
    error = error_for(code, EVIL + 100_000 * "x")
    assert harmless(str(error))
    assert len(str(error)) < without + LONGEST_SHOWN + 10


@pytest.mark.parametrize(("api", "code"), RIGHTS, ids=lambda each: str(int(each)))
def test_a_brokers_text_about_a_missing_right_is_short_and_on_one_line(api: Api, code: int) -> None:
    error = error_of(api, code, EVIL + 100_000 * "x", topics=["a"], group="b")
    assert harmless(str(error))
    assert len(str(error)) < 2000


# ---- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("node", "host", "port"), [
    (2, "b2", 70_000), (2, "b2", 0), (2, "b2", -1), (2, "", 9092), (2, EVIL, 9092), (2, "two words", 9092), (2, "b2\x1b[2J", 9092), (2, "x" * 256, 9092),
    (2, "b2/path", 9092), (2, "[::1]", 9092), (-2, "b2", 9092), (-1, "b2", 9092),
])
def test_a_broker_with_an_unusable_address_is_left_out_and_logged_once(node: int, host: str, port: int, caplog: pytest.LogCaptureFixture) -> None:
    """A port of 70000 would connect to 4464; an id below 0 is a bootstrap address's."""
    metadata = make_metadata()
    nodes = [{"node_id": 1, "host": "b1", "port": 65_535, "rack": None}, {"node_id": node, "host": host, "port": port, "rack": None}]
    for _ in range(3):
        metadata.hint(metadata.cluster.updated(response(topic("a", node), brokers=nodes)))
    assert metadata.cluster.nodes == {1: Node(1, "b1", 65_535)}
    assert metadata.cluster.leader(A0) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f":{port} (node {node})" in record.getMessage()
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < 500


@pytest.mark.parametrize("host", ["b1", "b-1.example.com.", "::1", "fe80::1%eth0", "10.0.0.1", "bücher.example", "under_score"])
def test_usual_addresses_are_used(host: str) -> None:
    cluster = Cluster().updated(response(brokers=[{"node_id": 0, "host": host, "port": 1, "rack": "r"}]))
    assert cluster.nodes == {0: Node(0, host, 1, "r")}


def test_hints_of_leaders_do_not_add_nodes_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyclient.core.cluster.MOST_NODES", 10)
    cluster = Cluster().updated(response(topic("a", 1)))
    for number in range(4, 30):
        cluster = cluster.moved(A0, number, number, Node(number, "b", 1))
    assert len(cluster.nodes) == 10
    assert cluster.leader(A0) == 10


# ---- topics and members ---------------------------------------------------------------------------------------------


def test_a_topic_with_control_characters_in_its_name_is_not_known() -> None:
    cluster = Cluster().updated(response(topic(EVIL, 1), topic("a", 1)), everything=True)
    assert set(cluster.topics) == {"a"}
    refused = Cluster().updated(response(topic("a\nb", error=17)))  # the answer to a user's own name: its error is raised
    assert refused.topics["a\nb"].error == 17


def test_topics_with_control_characters_in_what_other_members_write_are_left_out() -> None:
    member = decode_subscription(encode_subscription(MemberView(("a", EVIL), (TopicPartition(EVIL, 0), A0))))
    assert (member.topics, member.owned) == (("a",), (A0,))
    assert decode_assignment(encode_assignment(Assignment((TopicPartition(EVIL, 0), A0)))).partitions == (A0,)


def test_the_members_own_id_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """In the classic protocol the coordinator assigns it."""
    member = ClassicHarness()
    member.becomes_stable(*tps(0))
    member.group.identity = Identity(1, EVIL + "x" * 10_000)
    member.heartbeat().reply(error_code=UNKNOWN_MEMBER)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "lost its partitions" in line
    assert harmless(line)
    assert len(line) < 1000


def test_member_ids_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers make them of other clients' ``client.id``."""
    assert _decoded(EVIL + "x" * 10_000, None, b"").topics == ()
    (record,) = caplog.records
    assert harmless(record.getMessage())
    assert len(record.getMessage()) < 1000
