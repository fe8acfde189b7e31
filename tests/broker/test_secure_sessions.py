"""Sessions that expire (KIP-368) on a real broker under load, with credentials that change meanwhile.

No request fails; nothing is lost, doubled or reordered.
"""
from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from pyclient import Consumer, Delivery, Producer, TopicPartition
from pyclient.core.connection import State
from pyclient.errors import DeliveryError, KafkaError, SaslAuthenticationError
from pyclient.net.authentication import Authentication
from pyclient.net.connection import Connection
from pyclient.net.node_connections import NodeConnections
from pyclient.net.node_failures import NodeFailures
from pyclient.testing import LocalCluster, Security
from pyclient.testing.tokens import unsecured_token
from tests.broker.durability.load import Load, load
from tests.broker.durability.numbering import Verdict, judge
from tests.groups import ON_ONE_BROKER, Member, members, processed
from tests.kafka import make_topic, read
from tests.secured_clients import Options, Proof, called, from_endpoint, reaching, with_password, with_token
from tests.waiting import eventually

RENEWALS: Final = 2
LONGEST_S: Final = 150.0
"""Sessions last 2.5 s; a starved broker takes seconds for each response, and several attempts for a renewal. No test
judges a client by time."""
PATIENT: Final[Options] = {"session_timeout_ms": 300_000, "max_poll_interval_ms": 300_000}
"""Of members: a coordinator that has no CPU for half a minute must not put them out."""
PARTITIONS: Final = 3
SHORT: Final = pytest.mark.kafka(security=Security(connections_max_reauth_ms=2500), **ON_ONE_BROKER.kwargs)
pytestmark = [SHORT, pytest.mark.timeout(900)]  # each wait has its own limit


def ever_new_tokens(listener: str) -> Proof:
    """Tokens that last for some seconds: most renewals use a new one."""
    def options(cluster: LocalCluster, user: str) -> Options:
        alice = cluster.credentials.users[user]
        make = alice.unsecured_token if listener == "SASL_PLAINTEXT" else alice.token
        return with_token(listener, lambda _: lambda: make(6.0))(cluster, user)
    return options


PROOFS: Final[dict[str, Proof]] = {
    "PLAIN": with_password("PLAIN", "SASL_PLAINTEXT"),
    "SCRAM": with_password("SCRAM-SHA-256", "SASL_SSL"),
    "tokens": ever_new_tokens("SASL_PLAINTEXT"),
    "signed tokens": with_token("SASL_SSL", called),
    "endpoint": from_endpoint("OIDC"),
}


class Watched:
    """The sessions of all clients of this process."""

    def __init__(self) -> None:
        self.logins: Counter[Connection] = Counter()
        self.cut: list[str] = []
        """What the broker closed before the session's end."""

    def renewed(self, times: int) -> bool:
        """Whether there are ready connections, and *times* renewals for each of them among all with its label.

        Those that ended count: a starved broker cuts connections whose sessions ended before it read their requests.
        """
        logins = dict(self.logins)
        ready = Counter(each.label for each in logins if each.state in (State.READY, State.REAUTHENTICATING))
        renewals = Counter[str]()
        for each, count in logins.items():
            renewals[each.label] += count - 1
        return bool(ready) and all(renewals[label] >= times * count for label, count in ready.items())

    def is_over(self, connection: Connection) -> bool:
        """Whether its session may have ended, or never began: a starved broker refuses a token that was good when it
        left. Then the broker may close it. Real time does not show who was late, client or broker; virtual time does:
        tests/simulation/test_logins.py.
        """
        end = connection.session.ends_at
        return end is None or time.monotonic() >= end


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Counts logins, and connections that the broker closed."""
    found = Watched()
    succeeded, lost = Authentication._succeeded, NodeFailures.connection_lost

    def counted(login: Authentication, lifetime: float | None) -> None:
        succeeded(login, lifetime)
        found.logins[login._connection] += 1

    def noted(failures: NodeFailures, node: NodeConnections, connection: Connection, cause: KafkaError) -> None:
        lost(failures, node, connection, cause)
        if connection.ending is not None and connection.ending.by_peer and not found.is_over(connection):
            found.cut.append(f"{connection.label}: {connection.ending}")

    monkeypatch.setattr(Authentication, "_succeeded", counted)
    monkeypatch.setattr(NodeFailures, "connection_lost", noted)
    return found


class Work:
    """A producer and a group of two that read what it sends."""

    def __init__(self, sending: Load, group: list[Member]) -> None:
        self.sending = sending
        self.group = group

    def read(self) -> int:
        return len(processed(*(each.found for each in self.group)))

    def verdict(self) -> Verdict:
        return judge(self.sending.acknowledged(), self.sending.sent, processed(*(each.found for each in self.group)))


@contextlib.contextmanager
def at_work(cluster: LocalCluster, topic: str, running: list[Member], options: Options) -> Iterator[Work]:
    make_topic(cluster, topic, PARTITIONS)
    with load(cluster, topic, partitions=PARTITIONS, producers=1, rate=150, **options) as sending:
        group = [Member(cluster, topic, [topic], manual=True, use_async=number == 1, **PATIENT, **options) for number in range(2)]
        running += [each.start() for each in group]
        yield Work(sending, group)


def test_M11_sessions_are_renewed_under_load_without_a_failed_request(kafka_cluster: LocalCluster, topic: str, watched: Watched) -> None:
    with members() as running, contextlib.ExitStack() as loads:
        works = [loads.enter_context(at_work(kafka_cluster, f"{topic}-{name.replace(' ', '-')}", running, proof(kafka_cluster, "alice")))
                 for name, proof in PROOFS.items()]
        eventually(lambda: watched.renewed(RENEWALS), LONGEST_S)
        for work in works:
            work.sending.stop()
        for work in works:
            eventually(lambda work=work: work.read() >= sum(work.sending.sent.values()), LONGEST_S)  # type: ignore[misc]
        assert watched.cut == []
    assert len(watched.logins) >= len(PROOFS) * 3
    for work in works:
        assert work.verdict() == Verdict(sum(work.sending.sent.values()), lost=0, doubled=0, misplaced=0, strange=0)
        assert all(each.listener.of("lost") == [] for each in work.group)


def stored(cluster: LocalCluster, topic: str, count: int) -> list[bytes]:
    return [record.value or b"" for record in read(cluster, [TopicPartition(topic, 0)], count)]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_M11_a_password_that_is_changed_ends_the_client_at_the_next_renewal_and_no_record_silently(
        kafka_cluster: LocalCluster, topic: str, watched: Watched, mechanism: str) -> None:
    user, deliveries = f"user-{mechanism[-3:]}", list[Delivery]()
    make_topic(kafka_cluster, topic)
    kafka_cluster.set_password(user, "first")
    kafka_cluster.grant(user, "ALL", topic=topic)
    options = reaching(kafka_cluster, "SASL_SSL", sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password="first")
    pace = threading.Event()
    with contextlib.suppress(DeliveryError), Producer(linger_ms=5, **options) as producer:

        def send() -> bool:
            deliveries.append(producer.send(topic, b"%d" % len(deliveries), partition=0))
            return pace.wait(0.01)
        eventually(lambda: send() or watched.renewed(1), LONGEST_S)
        kafka_cluster.set_password(user, "second")
        before = Counter(watched.logins.copy())
        with pytest.raises(SaslAuthenticationError, match="sasl_plain_username and sasl_plain_password") as refused:
            eventually(send, LONGEST_S)
        assert all(count <= 1 for count in (watched.logins - before).values()), "an exchange may have been under way, no more"
        with pytest.raises(SaslAuthenticationError):
            producer.send(topic, b"later")
    assert all(each.done() for each in deliveries)
    failed = [each.exception(0) for each in deliveries if each.exception(0) is not None]
    assert all(isinstance(each, SaslAuthenticationError) for each in failed), failed
    acknowledged = sum(each.exception(0) is None for each in deliveries)
    doubtful = sum("may or may not be stored" in str(each) for each in failed)
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap_servers) as reader:
        [end] = reader.end_offsets([TopicPartition(topic, 0)]).values()
    assert acknowledged <= end <= acknowledged + doubtful
    assert stored(kafka_cluster, topic, end) == [b"%d" % number for number in range(end)]
    assert "first" not in str(refused.value)
    kafka_cluster.revoke(user, "ALL", topic=topic)


def paced(producer: Producer[Any, Any], topic: str, deliveries: list[Delivery]) -> Callable[[], bool]:
    """Sends the next number, at most a hundred a second; returns False."""
    pace = threading.Event()

    def send() -> bool:
        deliveries.append(producer.send(topic, b"%d" % len(deliveries), partition=0))
        return pace.wait(0.01)

    return send


@pytest.mark.parametrize(("listener", "mechanism"), [("SASL_SSL", "SCRAM-SHA-256"), ("SASL_PLAINTEXT", "SCRAM-SHA-512")])
def test_M11_a_function_gives_each_renewal_the_password_of_the_moment_and_a_late_one_is_an_outage(
        kafka_cluster: LocalCluster, topic: str, watched: Watched, listener: str, mechanism: str) -> None:
    user, current, asked, deliveries = f"changing-{mechanism[-3:]}", ["first"], list[str](), list[Delivery]()
    make_topic(kafka_cluster, topic)
    kafka_cluster.set_password(user, "first")
    kafka_cluster.grant(user, "ALL", topic=topic)

    def password() -> str:
        asked.append(current[0])
        return current[0]

    options = reaching(kafka_cluster, listener, sasl_mechanism=mechanism, sasl_plain_username=user, sasl_plain_password=password)
    with Producer(delivery_timeout_ms=600_000, **options) as producer:
        send = paced(producer, topic, deliveries)
        eventually(lambda: send() or watched.renewed(1), LONGEST_S)
        kafka_cluster.set_password(user, "second")
        asked.clear()
        eventually(lambda: send() or len(asked) >= 3, LONGEST_S)  # the function lags behind
        current[0] = "second"
        before = sum(watched.logins.values())
        eventually(lambda: send() or sum(watched.logins.values()) >= before + 2, LONGEST_S)
        producer.send(topic, b"the last", partition=0).result(LONGEST_S)
    assert [each.exception(0) for each in deliveries] == [None] * len(deliveries)
    values = [b"%d" % number for number in range(len(deliveries))]
    assert stored(kafka_cluster, topic, len(deliveries) + 1) == [*values, b"the last"]
    kafka_cluster.revoke(user, "ALL", topic=topic)


def test_tokens_that_are_refused_for_a_while_are_an_outage_for_who_was_accepted_before(
        kafka_cluster: LocalCluster, topic: str, watched: Watched) -> None:
    make_topic(kafka_cluster, topic)
    bad, deliveries, asked = threading.Event(), list[Delivery](), [0, 0]

    def token() -> tuple[str, float]:
        asked[bad.is_set()] += 1
        lifetime_s = -60.0 if bad.is_set() else 600.0
        return unsecured_token("alice", lifetime_s), time.time() + 1.0  # soon to be fetched again

    options = reaching(kafka_cluster, "SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_token_provider=token)
    with Producer(delivery_timeout_ms=600_000, **options) as producer:
        send = paced(producer, topic, deliveries)
        eventually(lambda: send() or watched.renewed(1), LONGEST_S)
        bad.set()
        eventually(lambda: send() or asked[True] >= 3, LONGEST_S)
        bad.clear()
        producer.send(topic, b"the last", partition=0).result(LONGEST_S)
    assert [each.exception(0) for each in deliveries] == [None] * len(deliveries)
    values = [b"%d" % number for number in range(len(deliveries))]
    assert stored(kafka_cluster, topic, len(deliveries) + 1) == [*values, b"the last"]
