"""One member of a group on a real broker: removed, replaced, refused, frozen or closed; and its listener."""
from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from pyclient import Admin, AsyncConsumer, Consumer, SubscriptionPattern, TopicPartition
from pyclient.errors import (
    CommitFailedError, GroupMaxSizeReachedError, IllegalStateError, InconsistentGroupProtocolError, InvalidRegularExpressionError, InvalidSessionTimeoutError,
    UnreleasedInstanceIdError, UnsupportedAssignorError,
)
from pyclient.testing import LocalCluster
from tests.groups import (
    ALL, BOTH, BY_BROKER, LIMIT_S, MOST, ON_ONE_BROKER, Ledger, Listener, Member, Terms, by_members, commits, describe, end_sessions_after, evenly, fill, goes_back,
    members, on, quick, settled, share_evenly, shared_out,
)
from tests.kafka import make_topic
from tests.leaving import closed, closed_async
from tests.waiting import eventually

pytestmark = [ON_ONE_BROKER, pytest.mark.timeout(180)]


def by_hand(cluster: LocalCluster, group: str, topics: Any, listener: Any = None, **options: Any) -> Consumer:
    """A member that polls when the test does."""
    given = quick(**{"enable_auto_commit": False, **options})
    return Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group, topics=topics, rebalance_listener=listener, **given)


def poll_until(reader: Consumer, condition: Any) -> list[Any]:
    """All that comes until *condition* holds."""
    found: list[Any] = []

    def so() -> bool:
        found.extend(reader.poll(0.05))
        return bool(condition(found))

    eventually(so, LIMIT_S)
    return found


@BOTH
def test_G04_N08_a_member_that_does_not_poll_is_removed_and_joins_again_with_its_next_poll(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    fill(kafka_cluster, topic, 4)
    ledger = Ledger()
    listener = Listener(ledger)
    with members() as running, by_hand(kafka_cluster, topic, [topic], listener, max_poll_interval_ms=1000, **terms) as slow:
        assert len(poll_until(slow, lambda found: found)) > 0
        running.append(Member(kafka_cluster, topic, [topic], ledger=ledger, **terms).start())
        poll_until(slow, lambda _: len(listener.owned) == 2 and len(running[0].owned) == 2)
        had = listener.owned
        eventually(lambda: shared_out(running, partitions), LIMIT_S)  # while this one does not poll
        assert listener.owned == had, "only its own poll changes its partitions"
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            slow.commit({next(iter(had)): 1})
        slow.poll(0)
        assert listener.of("lost") == [tuple(sorted(had))]
        poll_until(slow, lambda _: len(listener.owned) == 2 and len(running[0].owned) == 2)
        slow.commit()
    assert ledger.breaches == []
    assert goes_back(commits(kafka_cluster, topic)) == {}


class Busy(Listener):
    """Commits revoked partitions, and seeks to offset 5 of assigned ones."""

    consumer: Consumer

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        super().on_partitions_assigned(partitions)
        for tp in partitions:
            if self.consumer.committed([tp])[tp] is None:
                self.consumer.seek(tp, 5)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.consumer.commit({tp: self.consumer.position(tp) for tp in partitions})
        super().on_partitions_revoked(partitions)


@ALL
def test_a_listener_may_commit_and_seek(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    fill(kafka_cluster, topic, 4)
    listener = Busy()
    with members() as running, by_hand(kafka_cluster, topic, [topic], listener, **terms) as reader:
        listener.consumer = reader
        found = poll_until(reader, lambda found: len(found) >= 20)
        assert sorted((each.partition, each.offset) for each in found) == list(itertools.product(range(4), range(5, 10)))
        running.append(Member(kafka_cluster, topic, [topic], ledger=listener.ledger, **terms).start())
        poll_until(reader, lambda _: len(listener.owned) == 2 and len(running[0].owned) == 2)
        fill(kafka_cluster, topic, 4, each=1)
        eventually(lambda: len(running[0].found) == 2, LIMIT_S)
        assert {each.offset for each in running[0].found} == {10}, "it reads on from the committed offsets"
    assert {tp: offsets[0] for tp, offsets in commits(kafka_cluster, topic).items() if tp in listener.of("revoked")[0]} == dict.fromkeys(
        listener.of("revoked")[0], 10)
    assert sorted({tp for parts in listener.of("revoked") for tp in parts}) == partitions
    assert listener.ledger.breaches == []


class Awaited:
    """A listener of an async consumer: its methods are awaited."""

    def __init__(self) -> None:
        self.consumer: Any = None
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", list(partitions)))
        for tp in partitions:
            self.consumer.seek(tp, 5)

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", list(partitions)))
        await self.consumer.commit({tp: await self.consumer.position(tp) for tp in partitions})


def test_an_async_listener_is_awaited_and_may_commit_and_seek(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 2)
    fill(kafka_cluster, topic, 2)
    listener = Awaited()

    async def read() -> list[Any]:
        found: list[Any] = []
        given = {**quick(), "enable_auto_commit": False, "bootstrap_servers": kafka_cluster.bootstrap_servers}
        async with AsyncConsumer(group_id=topic, topics=[topic], rebalance_listener=listener, **given) as reader, asyncio.timeout(LIMIT_S):
            listener.consumer = reader
            while len(found) < 10:
                found += await reader.poll(1)
        return found

    assert sorted((each.partition, each.offset) for each in asyncio.run(read())) == list(itertools.product(range(2), range(5, 10)))
    assert listener.calls == [("assigned", partitions), ("revoked", partitions)]
    assert commits(kafka_cluster, topic) == {tp: [10] for tp in partitions}


class Raising(Listener):
    """Raises in every call."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        super().on_partitions_assigned(partitions)
        raise LookupError("assigned")

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        super().on_partitions_revoked(partitions)
        raise LookupError("revoked")


def test_G10_poll_raises_a_listeners_error_after_the_rebalance_and_the_group_goes_on(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    fill(kafka_cluster, topic, 4)
    listener = Raising()
    raised: list[str] = []
    found: list[Any] = []

    def polled() -> bool:
        try:
            found.extend(reader.poll(0.05))
        except LookupError as error:
            raised.append(str(error.args[0]))
        return True

    with members() as running:
        reader = by_hand(kafka_cluster, topic, [topic], listener)
        eventually(lambda: polled() and len(found) == 40, LIMIT_S)
        assert raised == ["assigned"]
        running.append(Member(kafka_cluster, topic, [topic], ledger=listener.ledger).start())
        eventually(lambda: polled() and len(listener.owned) == 2 and shared_out([*running, _Owns(listener)], partitions), LIMIT_S)
        assert raised == ["assigned", "revoked", "assigned"]
        with pytest.raises(LookupError, match="revoked"):
            reader.close()
        eventually(lambda: shared_out(running, partitions), LIMIT_S)
    assert listener.ledger.breaches == []


class Refusing(Listener):
    """Raises in its first call, before it records anything."""

    refused: Sequence[TopicPartition] = ()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        if not self.refused:
            self.refused = partitions
            raise LookupError("not yet")
        super().on_partitions_assigned(partitions)


def test_N06_partitions_at_which_a_listener_raised_are_assigned_again(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    fill(kafka_cluster, topic, 4)
    listener = Refusing()
    with members() as running, by_hand(kafka_cluster, topic, [topic], listener, **BY_BROKER) as reader:
        with pytest.raises(LookupError, match="not yet"):
            poll_until(reader, lambda _: False)
        assert sorted(listener.refused) == partitions
        assert reader.assignment() == frozenset()
        assert len(poll_until(reader, lambda found: len(found) == 40)) == 40
        assert listener.owned == set(partitions)
        running.append(Member(kafka_cluster, topic, [topic], ledger=listener.ledger, **BY_BROKER).start())
        poll_until(reader, lambda _: len(listener.owned) == 2 and shared_out([*running, _Owns(listener)], partitions))
    assert listener.ledger.breaches == []


class _Owns(Member):
    """A listener's partitions, counted like those of a member."""

    def __init__(self, listener: Listener) -> None:
        self.listener, self.fault = listener, None


# --- leaving and coming back -----------------------------------------------------------------------------------------


@BOTH
def test_C26_a_closed_consumer_leaves_at_once(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    end_sessions_after(kafka_cluster, topic, 60)
    with members() as running:
        running += [Member(kafka_cluster, topic, [topic], session_timeout_ms=60_000, **terms).start() for _ in range(2)]
        share_evenly(running, partitions)
        began = time.monotonic()
        running.pop().stop()
        eventually(lambda: shared_out(running, partitions), LIMIT_S)
        assert time.monotonic() - began < 20, "not only after its session timeout"


@ALL
def test_a_member_unsubscribes_and_subscribes_to_something_else(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    first, second = (make_topic(kafka_cluster, f"{topic}-{name}", 2) for name in "ab")
    for name in "ab":
        fill(kafka_cluster, f"{topic}-{name}", 2)
    listener = Listener()
    with by_hand(kafka_cluster, topic, [f"{topic}-a"], listener, enable_auto_commit=True, **terms) as reader:
        assert {each.topic for each in poll_until(reader, lambda found: len(found) == 20)} == {f"{topic}-a"}
        reader.subscribe([f"{topic}-b"], rebalance_listener=listener)
        assert {each.topic for each in poll_until(reader, lambda found: len(found) == 20)} == {f"{topic}-b"}
        assert listener.owned == set(second) == reader.assignment()
        reader.subscribe([f"{topic}-a", f"{topic}-b"], rebalance_listener=listener)
        assert poll_until(reader, lambda _: listener.owned == {*first, *second}) == [], "it keeps its positions"
        reader.unsubscribe()
        assert reader.assignment() == listener.owned == frozenset()
        assert describe(kafka_cluster, topic).state == "EMPTY"
        with pytest.raises(IllegalStateError):
            reader.seek(first[0], 0)
        reader.subscribe([f"{topic}-a"], rebalance_listener=listener)
        fill(kafka_cluster, f"{topic}-a", 2, each=1)
        assert [each.offset for each in poll_until(reader, lambda found: len(found) == 2)] == [10, 10]
    assert listener.ledger.breaches == []
    assert describe(kafka_cluster, topic).state == "EMPTY"
    assert goes_back(commits(kafka_cluster, topic)) == {}


# --- refused ---------------------------------------------------------------------------------------------------------


@BOTH
def test_G03_N07_a_full_group_raises_an_error(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 1)
    with members() as running:
        running += [Member(kafka_cluster, topic, [topic], **terms).start() for _ in range(MOST)]
        eventually(lambda: len(settled(kafka_cluster, topic, partitions).members) == MOST, LIMIT_S)
        with by_hand(kafka_cluster, topic, [topic], **terms) as one_too_many, pytest.raises(
                GroupMaxSizeReachedError, match="group.*GROUP_MAX_SIZE_REACHED"):
            poll_until(one_too_many, lambda _: False)


@pytest.mark.parametrize("session_ms", [100, 7_200_000])
def test_G03_a_session_timeout_that_the_brokers_do_not_allow_raises_an_error(kafka_cluster: LocalCluster, topic: str, session_ms: int) -> None:
    make_topic(kafka_cluster, topic, 1)
    with by_hand(kafka_cluster, topic, [topic], session_timeout_ms=session_ms, heartbeat_interval_ms=30) as reader:
        for _ in range(2):
            with pytest.raises(InvalidSessionTimeoutError, match="group.*INVALID_SESSION_TIMEOUT"):
                poll_until(reader, lambda _: False)


def test_G07_members_use_a_common_assignor_and_a_member_without_one_gets_an_error(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    with members() as running:
        running.append(Member(kafka_cluster, topic, [topic], assignors=["range", "roundrobin"]).start())
        share_evenly(running, partitions)
        assert describe(kafka_cluster, topic).assignor == "range"
        running.append(Member(kafka_cluster, topic, [topic], assignors=["sticky", "roundrobin"]).start())
        share_evenly(running, partitions)
        assert describe(kafka_cluster, topic).assignor == "roundrobin"
        with by_hand(kafka_cluster, topic, [topic], assignors=["sticky"]) as alone:
            with pytest.raises(InconsistentGroupProtocolError, match="INCONSISTENT_GROUP_PROTOCOL"):
                poll_until(alone, lambda _: False)
            assert evenly(running, partitions), "the other members keep their partitions"
            while running:
                running.pop().stop()
            alone.subscribe([topic])
            poll_until(alone, lambda _: alone.assignment() == set(partitions))


def test_N07_an_assignor_that_the_brokers_do_not_have_raises_an_error(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 1)
    with by_hand(kafka_cluster, topic, [topic], group_remote_assignor="fair", **BY_BROKER) as reader:
        for _ in range(2):
            with pytest.raises(UnsupportedAssignorError, match="group.*UNSUPPORTED_ASSIGNOR"):
                poll_until(reader, lambda _: False)


def test_N07_an_invalid_pattern_raises_an_error_until_it_is_replaced(kafka_cluster: LocalCluster, topic: str) -> None:
    """RE2 has no look-behind."""
    partitions = make_topic(kafka_cluster, topic, 2)
    listener = Listener()
    with by_hand(kafka_cluster, topic, [topic], listener, **BY_BROKER) as reader:
        poll_until(reader, lambda _: listener.owned == set(partitions))
        reader.subscribe(SubscriptionPattern("(?<=a)b"), rebalance_listener=listener)
        for _ in range(2):
            with pytest.raises(InvalidRegularExpressionError, match="group.*INVALID_REGULAR_EXPRESSION"):
                poll_until(reader, lambda _: False)
        assert listener.of("lost") == [tuple(partitions)]
        reader.subscribe(SubscriptionPattern(re.escape(topic)), rebalance_listener=listener)
        poll_until(reader, lambda _: listener.owned == set(partitions))
    assert listener.ledger.breaches == []


# --- frozen ----------------------------------------------------------------------------------------------------------

PROGRAM = """
import json, sys
from pyclient import Admin, AsyncConsumer, Consumer, TopicPartition
from pyclient.errors import KafkaError

class Recorder:
    def on_partitions_assigned(self, partitions): say("assigned", [p.partition for p in partitions])
    def on_partitions_revoked(self, partitions): say("revoked", [p.partition for p in partitions])
    def on_partitions_lost(self, partitions): say("lost", [p.partition for p in partitions])

def say(*words): print(json.dumps(words), flush=True)

servers, topic, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with Consumer(bootstrap_servers=servers, group_id=topic, topics=[topic], rebalance_listener=Recorder(), enable_auto_commit=False, **options) as consumer:
    for order in map(str.strip, sys.stdin):
        try:
            done = consumer.commit() if order == "commit" else len(consumer.poll(0.2))
        except KafkaError as error:
            say("raised", type(error).__name__, str(error))
        else:
            say("done", done)
"""


class Remote:
    """A member in a process of its own that runs one command after the other, and nothing in between."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.calls: list[Any] = []
        self.owned: set[int] = set()

    def does(self, order: str) -> list[Any]:
        """The outcome of its last command: done or raised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(order, file=self._process.stdin, flush=True)
        while True:
            kind, *rest = word = json.loads(self._process.stdout.readline())
            if kind in ("done", "raised"):
                return list(word)
            self.calls.append(word)
            self.owned = self.owned | set(rest[0]) if kind == "assigned" else self.owned - set(rest[0])

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)


@contextmanager
def remote(cluster: LocalCluster, topic: str, **options: Any) -> Iterator[Remote]:
    command = [sys.executable, "-c", PROGRAM, cluster.bootstrap_servers, topic, json.dumps(quick(**options))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = Remote(process)
        try:
            yield found
        finally:
            found.thaw()
            assert process.stdin is not None
            process.stdin.close()
            process.wait(LIMIT_S)


@on(range=by_members("range"), cooperative=by_members("cooperative-sticky"), consumer=BY_BROKER, static={**BY_BROKER, "group_instance_id": "frozen"})
def test_a_frozen_member_is_removed_and_learns_it_when_it_resumes(kafka_cluster: LocalCluster, topic: str, terms: Terms) -> None:
    partitions = make_topic(kafka_cluster, topic, 4)
    fill(kafka_cluster, topic, 4)
    end_sessions_after(kafka_cluster, topic, 2)
    with members() as running, remote(kafka_cluster, topic, session_timeout_ms=1000, **terms) as frozen:
        eventually(lambda: frozen.does("poll")[0] == "done" and frozen.owned == {0, 1, 2, 3}, LIMIT_S)
        running.append(Member(kafka_cluster, topic, [topic], **{**terms, "group_instance_id": None}).start())
        eventually(lambda: frozen.does("poll") and len(frozen.owned) == 2 and len(running[0].owned) == 2, LIMIT_S)
        fill(kafka_cluster, topic, 4)
        had = set(frozen.owned)
        eventually(lambda: frozen.does("poll")[1] > 0, LIMIT_S)
        frozen.freeze()
        eventually(lambda: shared_out(running, partitions), LIMIT_S)
        frozen.thaw()
        outcome = frozen.does("commit")
        assert outcome[:2] == ["raised", "CommitFailedError"], outcome
        calls_before = len(frozen.calls)
        eventually(lambda: frozen.does("poll") and len(frozen.owned) == 2 and len(running[0].owned) == 2, LIMIT_S)
        assert frozen.calls[calls_before][0] == "lost"
        assert set(frozen.calls[calls_before][1]) == had
        assert frozen.does("commit")[0] == "done"
    assert goes_back(commits(kafka_cluster, topic)) == {}


def test_N01_the_instance_id_of_a_silent_static_member_is_free_after_its_session(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 2)
    end_sessions_after(kafka_cluster, topic, 2)
    listener = Listener()
    refused: list[str] = []
    static = {**BY_BROKER, "group_instance_id": "one"}

    def comes() -> bool:
        try:
            heir.poll(0.05)
        except UnreleasedInstanceIdError as error:
            refused.append(str(error))
            heir.subscribe([topic], rebalance_listener=listener)
        return listener.owned == set(partitions)

    with remote(kafka_cluster, topic, **static) as frozen, by_hand(kafka_cluster, topic, [topic], listener, **static) as heir:
        eventually(lambda: frozen.does("poll") and frozen.owned == {0, 1}, LIMIT_S)
        frozen.freeze()
        eventually(comes, LIMIT_S)
        assert refused
        frozen.thaw()
        eventually(lambda: frozen.does("poll")[:2] == ["raised", "FencedInstanceIdError"], LIMIT_S)
        assert frozen.calls[-1] == ["lost", [0, 1]]
        heir.poll(0)
    assert [each.kind for each in listener.calls if each.partitions] == ["assigned", "revoked"], "the heir keeps its partitions"


def test_N07_a_frozen_member_that_only_polls_is_fenced_by_its_heartbeat(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    end_sessions_after(kafka_cluster, topic, 2)
    with remote(kafka_cluster, topic, **BY_BROKER) as frozen:
        eventually(lambda: frozen.does("poll") and frozen.owned == {0, 1}, LIMIT_S)
        frozen.freeze()
        eventually(lambda: describe(kafka_cluster, topic).state == "EMPTY", LIMIT_S)
        frozen.thaw()
        eventually(lambda: frozen.does("poll") and [kind for kind, partitions in frozen.calls if partitions][-2:] == ["lost", "assigned"], LIMIT_S)
        assert frozen.owned == {0, 1}


@BOTH
@pytest.mark.parametrize(("instance_id", "leave", "stays"), [
    (None, None, False), (None, True, False), (None, False, True), ("static", None, True), ("static", True, False), ("static", False, True)])
@pytest.mark.parametrize("ends", [closed, closed_async], ids=["sync", "async"])
def test_a_member_leaves_or_stays_at_its_end_as_it_was_asked(
        kafka_cluster: LocalCluster, topic: str, terms: Terms, ends: Callable[..., None], instance_id: str | None, leave: bool | None, stays: bool) -> None:
    make_topic(kafka_cluster, topic, 2)
    ends(leave, bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=topic, topics=[topic], group_instance_id=instance_id, **terms)
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        assert bool(admin.describe_groups([topic])[topic].members) == stays


def test_an_enforced_rebalance_begins_the_next_generation(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 2)
    with by_hand(kafka_cluster, topic, [topic]) as reader:
        poll_until(reader, lambda _: len(reader.assignment()) == 2)
        generation = reader.group_metadata().generation_id
        reader.enforce_rebalance()
        poll_until(reader, lambda _: reader.group_metadata().generation_id > generation and len(reader.assignment()) == 2)
