"""Subscribed consumers on a fake cluster, over real sockets: listeners, commits, errors, sync and async."""
from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from pyclient.errors import CommitFailedError, ConcurrentUseError, ConfigurationError, IllegalStateError, InvalidTopicError, KafkaError
from pyclient.testing import Delay, FakeCluster
from tests.waiting import eventually

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({P0, P1})


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", 2)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield cluster


def options(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "topics": ["t"], "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100, "session_timeout_ms": 6000, **more}


def member(cluster: FakeCluster, **more: Any) -> Consumer:
    return Consumer(**options(cluster, **more))


def poll_until(condition: Callable[[], object], *members: Consumer) -> list[bytes]:
    """Poll these in turn until it holds; the values they got."""
    got: list[bytes] = []

    def holds() -> object:
        for each in members:
            got.extend(record.value or b"" for record in each.poll(0.01))
        return condition()

    eventually(holds)
    return got


def read(count: int, *members: Consumer) -> list[tuple[int, int]]:
    """Poll these in turn until they got so many records; partition and offset of each."""
    got: list[tuple[int, int]] = []

    def enough() -> bool:
        for each in members:
            got.extend((record.partition, record.offset) for record in each.poll(0.01))
        return len(got) >= count

    eventually(enough)
    return got


def owned(each: Consumer | AsyncConsumer) -> frozenset[TopicPartition]:
    return each.assignment()


class Listener:
    """Records its calls; *reacts* is called with the kind and the partitions."""

    def __init__(self, reacts: Callable[[str, Sequence[TopicPartition]], Any] = lambda kind, partitions: None) -> None:
        self.reported: list[tuple[str, frozenset[TopicPartition]]] = []
        self.reacts = reacts

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> Any:
        return self._log("assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> Any:
        return self._log("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition], /) -> Any:
        return self._log("lost", partitions)

    def _log(self, kind: str, partitions: Sequence[TopicPartition]) -> Any:
        self.reported.append((kind, frozenset(partitions)))
        return self.reacts(kind, partitions)


# ---- what may be subscribed to --------------------------------------------------------------------------------------


def test_without_a_group_a_subscription_is_refused_and_assign_is_named(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigurationError, match=r"group_id.*assign"):
        Consumer(bootstrap_servers=cluster.bootstrap_servers, topics=["t"])
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer, pytest.raises(ConfigurationError, match=r"group_id.*assign"):
        consumer.subscribe(["t"])


@pytest.mark.parametrize(("topics", "error"), [
    ("t", TypeError), (7, TypeError), ([], ValueError), ([""], InvalidTopicError), ([7], TypeError), (re.compile(b"t"), TypeError)])
def test_what_is_no_list_of_topics_is_refused_before_anything_changes(cluster: FakeCluster, topics: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        member(cluster, topics=topics)
    with member(cluster) as consumer:
        poll_until(lambda: owned(consumer) == BOTH, consumer)
        with pytest.raises(error):
            consumer.subscribe(topics)
        assert consumer.subscription() == {"t"}


def test_a_listener_without_any_method_is_rejected(cluster: FakeCluster) -> None:
    with pytest.raises(TypeError, match="on_partitions_assigned"):
        member(cluster, rebalance_listener=lambda partitions: None)


def test_partitions_come_from_assign_or_from_the_group_and_unsubscribe_ends_both(cluster: FakeCluster) -> None:
    with member(cluster) as consumer:
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            consumer.assign([P0])
        consumer.unsubscribe()
        consumer.assign([P0])
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            consumer.subscribe(["t"])
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        poll_until(lambda: owned(consumer) == BOTH, consumer)


def test_a_pattern_reads_what_matches_with_its_whole_name(cluster: FakeCluster) -> None:
    for name in ("orders", "my-orders", "orders-2"):
        cluster.create_topic(name, 1)
    with member(cluster, topics=re.compile("orders(-[0-9])?")) as consumer:
        poll_until(lambda: owned(consumer) == {TopicPartition("orders", 0), TopicPartition("orders-2", 0)}, consumer)
        assert consumer.subscription() == {"orders", "orders-2"}


@pytest.mark.parametrize("protocol", [{}, {"group_protocol": "consumer"}])
def test_M03_a_missing_topic_is_logged_once_and_read_when_it_is_created(protocol: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    own = {"heartbeat_interval_ms": None, "session_timeout_ms": None, **protocol} if protocol else {}
    with FakeCluster(brokers=1, config={"auto.create.topics.enable": "false"}) as cluster:
        with member(cluster, topics=["nope"], metadata_max_age_ms=200, **own) as consumer:
            poll_until(lambda: "'nope' does not exist" in caplog.text, consumer)
            cluster.create_topic("nope", 1)
            poll_until(lambda: owned(consumer), consumer)
        assert caplog.text.count("does not exist") == 1


# ---- listeners ------------------------------------------------------------------------------------------------------


def test_G10_a_listener_is_called_before_records_come_and_before_partitions_go(cluster: FakeCluster) -> None:
    listener = Listener()
    with member(cluster, rebalance_listener=listener) as consumer:
        consumer.poll(0)
        assert listener.reported == [] == list(consumer.assignment()), "nothing happens outside of a poll that waits for the group"
        assert len(read(20, consumer)) == 20
        assert listener.reported == [("assigned", BOTH)]
        consumer.unsubscribe()
        assert listener.reported == [("assigned", BOTH), ("revoked", BOTH)]
        assert not consumer.assignment()
        assert not consumer.subscription()


@pytest.mark.parametrize("protocol", [{}, {"group_protocol": "consumer", "heartbeat_interval_ms": None, "session_timeout_ms": None}])
@pytest.mark.parametrize("performed", [False, True])
def test_ctrl_c_before_or_after_any_step_of_a_rebalance_leaves_a_member_that_goes_on(
        cluster: FakeCluster, protocol: dict[str, Any], performed: bool) -> None:
    number, going_on = 0, True
    while going_on:
        listener = Listener()
        with member(cluster, group_id=f"g{number}", rebalance_listener=listener, **protocol) as consumer:
            going_on = broken_off(consumer, number, performed, lambda consumer=consumer: read(20, consumer))  # type: ignore[misc]
            poll_until(lambda consumer=consumer: consumer.assignment() == BOTH, consumer)  # type: ignore[misc]
            consumer.seek_to_beginning()
            assert len(read(20, consumer)) == 20, number
            assert ("assigned", BOTH) in listener.reported, number
            going_on = broken_off(consumer, number, performed, consumer.unsubscribe) or going_on
            consumer.unsubscribe()
            consumer.subscribe(["t"])
            poll_until(lambda consumer=consumer: consumer.assignment() == BOTH, consumer)  # type: ignore[misc]
        number += 1
    assert number > 3


def broken_off(consumer: Consumer, number: int, performed: bool, call: Callable[[], object]) -> bool:
    """Make a call with Ctrl-C in its step of this *number*, which is *performed* or not; whether it has so many."""
    perform, left = consumer._perform, number

    def step(each: Any) -> Any:
        nonlocal left
        left -= 1
        outcome = perform(each) if left != -1 or performed else None
        if left == -1:
            raise KeyboardInterrupt
        return outcome

    consumer._perform = step  # type: ignore[method-assign,assignment]
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        del consumer._perform
    return False


def test_a_listener_need_not_have_every_method_and_lost_partitions_are_reported_as_revoked(cluster: FakeCluster) -> None:
    reported: list[frozenset[TopicPartition]] = []

    class Revoked:
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            reported.append(frozenset(partitions))

    with member(cluster, rebalance_listener=Revoked(), max_poll_interval_ms=300) as consumer:
        poll_until(lambda: owned(consumer) == BOTH, consumer)
        _waits_until_it_is_out(cluster)
        poll_until(lambda: reported == [BOTH], consumer)


def test_a_listener_may_seek_pause_ask_for_positions_and_commit(cluster: FakeCluster) -> None:
    seen: dict[str, Any] = {}

    def reacts(kind: str, partitions: Sequence[TopicPartition]) -> None:
        if kind == "assigned":
            seen["position"] = consumer.position(P0)
            consumer.seek(P0, 7)
            consumer.pause(P1)
        else:
            consumer.commit({P1: 3})

    with member(cluster, rebalance_listener=Listener(reacts)) as consumer:
        assert read(3, consumer) == [(0, 7), (0, 8), (0, 9)]
        assert seen["position"] == 0
    with member(cluster, topics=None) as witness:
        found = witness.committed([P0, P1])
    assert {tp: position and position.offset for tp, position in found.items()} == {P0: 10, P1: 3}


@pytest.mark.parametrize("call", [
    lambda c: c.poll(0), lambda c: c.close(), lambda c: c.unsubscribe(), lambda c: c.subscribe(["t"]), lambda c: c.assign([P0]), lambda c: next(iter(c))])
def test_inside_a_listener_what_would_begin_a_rebalance_again_is_refused(cluster: FakeCluster, call: Callable[[Consumer], object]) -> None:
    errors: list[Exception] = []

    def reacts(_kind: str, _partitions: Sequence[TopicPartition]) -> None:
        try:
            call(consumer)
        except IllegalStateError as error:
            errors.append(error)

    with member(cluster, rebalance_listener=Listener(reacts)) as consumer:
        poll_until(lambda: owned(consumer) == BOTH, consumer)
        assert "rebalance listener" in str(errors[0])
        assert consumer.subscription() == {"t"}


def test_another_thread_may_not_use_the_consumer_while_its_listener_runs(cluster: FakeCluster) -> None:
    errors: list[BaseException] = []

    def other() -> None:
        try:
            consumer.commit({P0: 1})
        except KafkaError as error:
            errors.append(error)

    def reacts(_kind: str, _partitions: Sequence[TopicPartition]) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    with member(cluster, rebalance_listener=Listener(reacts)) as consumer:
        poll_until(lambda: owned(consumer) == BOTH, consumer)
    assert errors
    assert all(isinstance(each, ConcurrentUseError) for each in errors)


@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt()])
def test_G10_what_a_listener_raises_is_raised_by_poll_and_the_group_goes_on(cluster: FakeCluster, error: BaseException) -> None:
    fails = [error]

    def reacts(_kind: str, _partitions: Sequence[TopicPartition]) -> None:
        if fails:
            raise fails.pop()

    with member(cluster, rebalance_listener=Listener(reacts)) as consumer:
        with pytest.raises(type(error)):
            poll_until(lambda: False, consumer)
        assert owned(consumer) == BOTH
        assert len(read(20, consumer)) == 20


def test_C26_a_close_calls_the_listener_and_leaves_whatever_it_raises(cluster: FakeCluster) -> None:
    def reacts(kind: str, _partitions: Sequence[TopicPartition]) -> None:
        if kind == "revoked":
            raise ZeroDivisionError

    consumer = member(cluster, rebalance_listener=Listener(reacts))
    read(20, consumer)
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    consumer.close()
    with member(cluster) as other:
        poll_until(lambda: owned(other) == BOTH, other)


def test_C26_a_close_that_waits_for_its_commit_is_no_silence_of_the_user(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    consumer = member(cluster, max_poll_interval_ms=300, auto_commit_interval_ms=3_600_000)
    read(20, consumer)
    late = cluster.intercept(lambda request: Delay(1.0), api="OffsetCommit", times=1)
    consumer.close()
    late.remove()
    assert "max_poll_interval_ms" not in caplog.text
    with member(cluster, topics=None) as witness:
        assert {each and each.offset for each in witness.committed([P0, P1]).values()} == {10}


# ---- commits --------------------------------------------------------------------------------------------------------


def test_C23_what_was_handed_out_is_committed_before_its_partition_goes(cluster: FakeCluster) -> None:
    with member(cluster, auto_commit_interval_ms=3_600_000) as first:
        read(20, first)
        with member(cluster, auto_commit_interval_ms=3_600_000) as second:
            again = poll_until(lambda: owned(first) != BOTH and owned(first) | owned(second) == BOTH, first, second)
    assert again == []


def test_leaving_by_an_exception_commits_nothing_past_it_even_if_the_listener_commits(cluster: FakeCluster) -> None:
    def reacts(kind: str, _partitions: Sequence[TopicPartition]) -> None:
        if kind == "revoked":
            consumer.commit()

    with pytest.raises(ZeroDivisionError), member(cluster, rebalance_listener=Listener(reacts), enable_auto_commit=False) as consumer:
        for number, _record in enumerate(consumer):
            if number == 5:
                raise ZeroDivisionError
    with member(cluster, topics=None) as witness:
        found = witness.committed([P0, P1])
    assert sum(each.offset for each in found.values() if each is not None) <= 5


def test_C25_a_commit_of_what_went_to_another_member_fails_as_such(cluster: FakeCluster) -> None:
    with member(cluster, enable_auto_commit=False) as first, member(cluster, enable_auto_commit=False) as second:
        poll_until(lambda: owned(first) == BOTH, first)
        poll_until(lambda: owned(second) and owned(first) | owned(second) == BOTH, first, second)
        (theirs,) = owned(second)
        with pytest.raises(CommitFailedError, match=str(theirs)):
            first.commit({theirs: 1})
        failures: list[BaseException | None] = []
        first.commit_async({theirs: 1}, lambda _offsets, error: failures.append(error))
        poll_until(lambda: failures, first)
        assert isinstance(failures[0], CommitFailedError)
        (ours,) = owned(first)
        first.commit({ours: 1})


def test_C25_a_member_that_was_away_gets_an_error_and_loses_its_partitions(cluster: FakeCluster) -> None:
    listener = Listener()
    with member(cluster, rebalance_listener=listener, max_poll_interval_ms=300, enable_auto_commit=False) as consumer:
        poll_until(lambda: owned(consumer) == BOTH, consumer)
        _waits_until_it_is_out(cluster)
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            consumer.commit({P0: 1})
        poll_until(lambda: len(listener.reported) == 3, consumer)
    assert listener.reported[:3] == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]


def _waits_until_it_is_out(cluster: FakeCluster) -> None:
    eventually(lambda: not cluster.groups()["g"].members)


# ---- who it is ------------------------------------------------------------------------------------------------------


def test_group_metadata_is_that_of_the_member(cluster: FakeCluster) -> None:
    with member(cluster, group_instance_id="i") as consumer:
        assert consumer.group_metadata() == ConsumerGroupMetadata("g", -1, "", "i")
        poll_until(lambda: owned(consumer) == BOTH, consumer)
        reported = consumer.group_metadata()
        assert (reported.group_id, reported.generation_id, reported.group_instance_id) == ("g", 1, "i")
        assert reported.member_id
        consumer.unsubscribe()
        assert consumer.group_metadata().generation_id == -1
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader, pytest.raises(IllegalStateError, match="group_id"):
        reader.group_metadata()


# ---- async ----------------------------------------------------------------------------------------------------------


def test_an_async_listener_is_awaited_and_may_use_the_consumer(cluster: FakeCluster) -> None:
    reported: list[str] = []

    class Awaited:
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(0)
            consumer.seek(P0, 9)
            reported.append("assigned")

        async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            await consumer.commit({P0: 4})
            reported.append("revoked")

    consumer = AsyncConsumer(**options(cluster, rebalance_listener=Awaited()))

    async def main() -> list[tuple[int, int]]:
        async with consumer:
            got: list[tuple[int, int]] = []
            async with asyncio.timeout(20):
                while len(got) < 11:
                    got += [(record.partition, record.offset) for record in await consumer.poll(1.0)]
            await consumer.unsubscribe()
            assert reported == ["assigned", "revoked"]
            return got

    assert (0, 9) in asyncio.run(main())
    with member(cluster, topics=None) as witness:
        found = witness.committed([P0])[P0]
    assert found is not None
    assert found.offset == 4


def test_G10_a_cancelled_poll_ends_what_its_listener_had_begun(cluster: FakeCluster) -> None:
    began = asyncio.Event()

    class Slow:
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            if not began.is_set():
                began.set()
                await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncConsumer(**options(cluster, rebalance_listener=Slow())) as consumer:
            poll = asyncio.create_task(consumer.poll())
            await began.wait()
            poll.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await poll
            assert owned(consumer) == BOTH
            async with asyncio.timeout(20):
                assert await consumer.poll()

    asyncio.run(main())


def test_C24_a_commit_before_partitions_go_follows_one_that_was_just_begun(cluster: FakeCluster) -> None:
    """Found by simulation: an automatic commit, not yet begun when a rebalance committed newer offsets, came later."""
    seen: list[int] = []
    order = cluster.intercept(lambda request: seen.append(request.body.topics[0].partitions[0].committed_offset), api="OffsetCommit")

    async def main() -> None:
        async with AsyncConsumer(**options(cluster, enable_auto_commit=False)) as consumer:
            async with asyncio.timeout(20):
                while not owned(consumer):
                    await consumer.poll(0.1)
            consumer._start_commit({P0: OffsetAndMetadata(3)}, lambda _offsets, _error: None)
            consumer._consumed_positions.start_at(P0, OffsetAndMetadata(8))
            consumer._consumed_positions.auto_commits = True
            await consumer.unsubscribe()

    asyncio.run(main())
    order.remove()
    assert seen == [3, 8]
