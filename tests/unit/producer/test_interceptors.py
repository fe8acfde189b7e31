"""Interceptors see every record before it is serialized and every outcome, in order; their errors lose no record."""
from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow
import pytest

from pyclient import AsyncProducer, Deliveries, Delivery, Producer
from pyclient.errors import (
    BufferExhaustedError, ClientClosedError, ConfigurationError, DeliveryError, IllegalStateError, InvalidTopicError, KafkaError,
    RecordTooLargeError, SerializationError, TopicAuthorizationError,
)
from pyclient.plugins import Route
from pyclient.records import Headers, RecordMetadata
from pyclient.testing import Fail, FakeCluster
from tests.unit.buffers.accumulators import Clock, accumulator
from tests.waiting import eventually

TOPIC_AUTHORIZATION = 29
Outcome = tuple[RecordMetadata | None, Exception | None]


class Watching:
    """Records what it saw, and on which thread."""

    def __init__(self, name: str = "", log: list[Any] | None = None) -> None:
        self.name = name
        self.log: list[Any] = [] if log is None else log
        self.outcomes: list[Outcome] = []
        self.threads: set[str] = set()

    def on_send(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers]:
        self.log.append((self.name, topic, key, value, list(headers)))
        return key, f"{value}{self.name}", [*headers, (self.name, b"")]

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.outcomes.append((metadata, error))
        self.threads.add(threading.current_thread().name)

    def close(self) -> None:
        self.log.append((self.name, "closed", len(self.outcomes)))


class Raising(Watching):
    """Every method raises."""

    def on_send(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers]:
        raise LookupError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise LookupError("on_acknowledgement")

    def close(self) -> None:
        raise LookupError("close")


class ByName(Watching):
    """Named by a string and created without arguments; the instances are kept in `made`."""

    made: ClassVar[list[ByName]] = []

    def __init__(self) -> None:
        super().__init__("named")
        self.made.append(self)


def producing(cluster: FakeCluster, *interceptors: object, **options: Any) -> Producer:
    return Producer({}, bootstrap_servers=cluster.bootstrap_servers, interceptors=list(interceptors), linger_ms=0,
                    **{"value_serializer": "string", **options})


def stored(cluster: FakeCluster, topic: str = "t") -> list[tuple[bytes | None, list[tuple[str, bytes | None]]]]:
    return [(record.value, list(record.headers)) for record in cluster.records(topic)]


def test_each_interceptor_gets_the_record_from_the_previous_one_and_serializers_run_last(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    seen: list[Any] = []
    with producing(fake_cluster, Watching("a", seen), Watching("b", seen)) as producer:
        producer.send("t", 7, b"key", headers=[("h", None)])
        producer.flush()
        assert seen == [("a", "t", b"key", 7, [("h", None)]), ("b", "t", b"key", "7a", [("h", None), ("a", b"")])]
    assert stored(fake_cluster) == [(b"7ab", [("h", None), ("a", b""), ("b", b"")])]


@pytest.mark.parametrize("spec", [ByName, f"{__name__}:ByName", [f"{__name__}:ByName"]], ids=["class", "text", "list"])
def test_an_interceptor_is_given_as_object_class_or_name(fake_cluster: FakeCluster, spec: object) -> None:
    fake_cluster.create_topic("t")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=spec, value_serializer="string") as producer:
        producer.send("t", "x").result(20)
    assert stored(fake_cluster) == [(b"xnamed", [("named", b"")])]
    with Producer({"bootstrap.servers": fake_cluster.bootstrap_servers, "interceptor.classes": f"{__name__}:ByName"}, allow_imports=[__name__],
                  value_serializer="string") as producer:
        producer.send("t", "y").result(20)
    assert stored(fake_cluster)[1] == (b"ynamed", [("named", b"")])
    assert len(ByName.made[-1].outcomes) == 1


class OnlySends:
    def on_send(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers]:
        return key, value, [("seen", None)]


class OnlyOutcomes:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.outcomes.append((metadata, error))


class Misspelt(OnlySends):
    def on_acknowledgment(self, *outcome: object) -> None:
        """An e is missing."""


class NoMethod(OnlySends):
    on_acknowledgement = 1


def test_an_interceptor_needs_only_one_method(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    last = OnlyOutcomes()
    with producing(fake_cluster, OnlySends, last) as producer:
        sent = producer.send("t", "x").result(20)
        producer.send_many("t", ["y"]).result(20)
    assert stored(fake_cluster) == [(b"x", [("seen", None)]), (b"y", [("seen", None)])]
    assert last.outcomes[0] == (sent, None)
    assert len(last.outcomes) == 2


@pytest.mark.parametrize(("wrong", "said"), [(Misspelt(), "a method on_acknowledgment, .* did you mean on_acknowledgement"), (NoMethod(), "is an int, not a method"),
                                             (object(), "no method 'on_send' or 'on_acknowledgement'")])
def test_a_method_that_would_never_be_called_is_refused(wrong: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Producer(bootstrap_servers="localhost:1", interceptors=[wrong])


@pytest.mark.parametrize("wrong", [object(), "no.such.module:Class", "unregistered"])
def test_an_object_that_is_no_interceptor_is_refused_before_the_producer_opens(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r"interceptor"):
        Producer(bootstrap_servers="localhost:1", interceptors=[wrong])


def test_an_interceptors_exception_is_logged_with_its_name_and_the_record_is_sent_unchanged(
        fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    fake_cluster.create_topic("t")
    last = Watching("z")
    with caplog.at_level(logging.ERROR, "pyclient"), producing(fake_cluster, Watching("a"), Raising(), last) as producer:
        producer.send("t", "x").result(20)
    assert stored(fake_cluster) == [(b"xaz", [("a", b""), ("z", b"")])]
    assert [(metadata.offset if metadata else None, error) for metadata, error in last.outcomes] == [(0, None)]
    raised = [record for record in caplog.records if record.exc_info]
    assert [str(record.exc_info[1]) for record in raised if record.exc_info] == ["on_send", "on_acknowledgement", "close"]
    assert all(f"{__name__}.Raising" in record.getMessage() for record in raised)


def test_a_return_value_that_is_no_record_counts_as_an_exception(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    class Forgetful(Watching):
        def on_send(self, *record: Any) -> Any:
            return None

    fake_cluster.create_topic("t")
    with caplog.at_level(logging.ERROR, "pyclient"), producing(fake_cluster, Forgetful()) as producer:
        producer.send("t", "x").result(20)
    assert stored(fake_cluster) == [(b"x", [])]
    assert "Forgetful" in caplog.text


# ---- routes ---------------------------------------------------------------------------------------------------------


class Routing(Watching):
    """Gives each record the route of its value."""

    def __init__(self, routes: dict[str, Any], log: list[Any] | None = None) -> None:
        super().__init__("r", log)
        self.routes = routes

    def on_send(self, topic: str, key: Any, value: Any, headers: Headers) -> Any:
        self.log.append(topic)
        return key, value, headers, self.routes.get(value)


def by_send(cluster: FakeCluster, chain: list[object], topic: str, values: list[str], **where: Any) -> list[RecordMetadata | Exception]:
    def one(value: str) -> RecordMetadata | Exception:
        try:
            return producer.send(topic, value, **where).result(20)
        except Exception as error:  # noqa: BLE001 compared by the tests
            return error

    with producing(cluster, *chain) as producer:
        return [one(value) for value in values]


def by_send_many(cluster: FakeCluster, chain: list[object], topic: str, values: list[str], **where: Any) -> list[RecordMetadata | Exception]:
    with producing(cluster, *chain) as producer:
        return outcomes_of(producer.send_many(topic, values, partition=where.get("partition")))


def by_send_arrow(cluster: FakeCluster, chain: list[object], topic: str, values: list[str], **where: Any) -> list[RecordMetadata | Exception]:
    partitions = [where.get("partition")] * len(values)
    with producing(cluster, *chain) as producer:
        data = pyarrow.table({"value": values, "partition": pyarrow.array(partitions, "int32")})
        return outcomes_of(producer.send_arrow(topic, data, partition_column="partition"))


def by_async_send(cluster: FakeCluster, chain: list[object], topic: str, values: list[str], **where: Any) -> list[RecordMetadata | Exception]:
    async def one(producer: AsyncProducer, value: str) -> RecordMetadata | Exception:
        try:
            return await producer.send_and_wait(topic, value, **where)
        except Exception as error:  # noqa: BLE001 compared by the tests
            return error

    async def main() -> list[RecordMetadata | Exception]:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, interceptors=chain, value_serializer="string") as producer:
            return [await one(producer, value) for value in values]

    return asyncio.run(main())


def outcomes_of(bulk: Deliveries) -> list[RecordMetadata | Exception]:
    failed = bulk.exception(20)
    errors = {} if failed is None else failed.errors
    return [errors[at].__cause__ or errors[at] if at in errors else bulk[at].result(0) for at in range(len(bulk))]  # type: ignore[misc]


Way = Callable[..., list[Any]]
every_way = pytest.mark.parametrize("way", [by_send, by_async_send, by_send_many, by_send_arrow])


@every_way
def test_on_send_routes_a_record_to_another_topic_partition_and_time(fake_cluster: FakeCluster, way: Way) -> None:
    fake_cluster.create_topic("t")
    fake_cluster.create_topic("other", partitions=3)
    routing = Routing({"a": Route("other", 2, 1234), "b": Route("other", 1), "c": Route(timestamp=7), "d": None})
    done = way(fake_cluster, [routing], "t", ["a", "b", "c", "d"])
    assert [(each.topic, each.partition, each.offset) for each in done] == [("other", 2, 0), ("other", 1, 0), ("t", 0, 0), ("t", 0, 1)]
    assert [(record.partition, record.value, record.timestamp) for record in fake_cluster.records("other")][1] == (2, b"a", 1234)
    assert fake_cluster.records("t")[0].timestamp == 7
    assert sorted(routing.outcomes, key=str) == sorted([(each, None) for each in done], key=str)


@every_way
def test_the_partition_of_the_send_counts_for_its_own_topic_only(fake_cluster: FakeCluster, way: Way) -> None:
    fake_cluster.create_topic("t", partitions=6)
    fake_cluster.create_topic("other")
    routes = {"a": Route("other"), "b": Route(timestamp=7), "c": Route(partition=1), "d": Route("t", 0)}
    done = way(fake_cluster, [Routing(routes)], "t", ["a", "b", "c", "d"], partition=5)
    assert [(each.topic, each.partition) for each in done] == [("other", 0), ("t", 5), ("t", 1), ("t", 0)]


@every_way
def test_the_next_interceptor_sees_the_new_topic_and_may_route_again(fake_cluster: FakeCluster, way: Way) -> None:
    for topic in ("t", "u", "v"):
        fake_cluster.create_topic(topic, partitions=2)
    topics: list[str] = []
    first, second = Routing({"a": Route("u", 1), "b": Route("u", 1)}, topics), Routing({"a": Route(timestamp=7), "b": Route("v")}, topics)
    done = way(fake_cluster, [first, second], "t", ["a", "b"], partition=0)
    assert topics[:4] == ["t", "u", "t", "u"]
    assert [done[0].topic, done[0].partition, done[0].timestamp, done[1].topic] == ["u", 1, 7, "v"]


@every_way
def test_topics_are_looked_up_after_on_send(fake_cluster: FakeCluster, way: Way) -> None:
    fake_cluster.create_topic("t")
    done = way(fake_cluster, [Routing({"a": Route("t")})], "no such/topic", ["a", "b"])
    assert done[0].topic == "t"
    assert isinstance(done[1], InvalidTopicError)


@every_way
def test_a_route_is_checked_as_the_arguments_of_a_send_and_its_error_reported_once(fake_cluster: FakeCluster, way: Way) -> None:
    fake_cluster.create_topic("t")
    routes: dict[str, Any] = {"a": Route(partition="x"), "b": Route(timestamp=-5), "c": Route("no such/topic"), "d": Route("t", -1)}  # type: ignore[arg-type]
    routing = Routing(routes)
    done = way(fake_cluster, [routing], "t", ["a", "b", "c", "d", "e"])
    negative = ValueError if way in (by_send, by_async_send) else IndexError
    assert [type(each) for each in done] == [TypeError, ValueError, InvalidTopicError, negative, RecordMetadata]
    assert len(routing.outcomes) == 5
    assert sum(error is None for _, error in routing.outcomes) == 1


@every_way
@pytest.mark.parametrize("wrong", ["other", ("other", 0, None), Route(5)], ids=["text", "tuple", "no text"])  # type: ignore[arg-type]
def test_what_is_no_route_is_logged_and_the_record_is_sent_unchanged(
        fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture, way: Way, wrong: object) -> None:
    fake_cluster.create_topic("t")
    with caplog.at_level(logging.ERROR, "pyclient"):
        done = way(fake_cluster, [Routing({"a": wrong})], "t", ["a"])
    assert (done[0].topic, done[0].partition) == ("t", 0)
    assert "Route" in caplog.text


@pytest.mark.parametrize("commits", [True, False])
def test_a_routed_record_belongs_to_the_transaction(fake_cluster: FakeCluster, commits: bool) -> None:
    for topic in ("t", "u", "v"):
        fake_cluster.create_topic(topic)
    with producing(fake_cluster, Routing({"a": Route("u"), "b": Route("v")}), transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", "a")
        producer.send_many("t", ["b", "c"])
        producer.commit_transaction() if commits else producer.abort_transaction()
    assert [len(fake_cluster.records(topic)) for topic in ("t", "u", "v")] == [int(commits)] * 3


def test_metrics_count_a_routed_record_for_the_topic_that_it_went_to(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    fake_cluster.create_topic("u")
    with producing(fake_cluster, Routing({"a": Route("u")})) as producer:
        producer.send("t", "a")
        producer.send_many("t", ["a", "b"]).result(20)
        producer.flush()
        figures = producer.metrics()
    assert (figures["record-send-total{topic=t}"], figures["record-send-total{topic=u}"]) == (1, 2)


@pytest.mark.parametrize("way", [by_send_many, by_send_arrow])
def test_a_bulk_of_many_chunks_finds_each_new_topic(fake_cluster: FakeCluster, way: Way) -> None:
    for number in range(5):
        fake_cluster.create_topic(f"t{number}")
    values = [str(number) for number in range(3000)]
    done = way(fake_cluster, [Routing({each: Route(f"t{int(each) // 700}") for each in values})], "absent", values)
    assert [each.topic for each in done] == [f"t{number // 700}" for number in range(3000)]
    assert [len(fake_cluster.records(f"t{number}")) for number in range(5)] == [700, 700, 700, 700, 200]


# ---- outcomes -------------------------------------------------------------------------------------------------------


def test_P23_every_record_is_acknowledged_once_in_the_order_of_its_partition(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t", partitions=3)
    watching = Watching()
    with producing(fake_cluster, watching) as producer:
        sent = [producer.send("t", number, partition=number % 3) for number in range(3000)]
        producer.flush()
        expected = [each.result(0) for each in sent]
    acknowledged = [metadata for metadata, error in watching.outcomes if metadata is not None and error is None]
    assert len(acknowledged) == len(watching.outcomes) == 3000
    for partition in range(3):
        assert [each for each in acknowledged if each.partition == partition] == expected[partition::3]
    assert watching.threads == {"pyclient-callbacks"}


def test_on_acknowledgement_runs_before_the_records_own_callback(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    watching, counts = Watching(), list[int]()
    with producing(fake_cluster, watching) as producer:
        for _ in range(100):
            producer.send("t", "x", on_delivery=lambda _: counts.append(len(watching.outcomes)))
    assert counts == list(range(1, 101))


def test_an_interceptor_that_saw_a_failure_does_not_keep_flush_from_raising_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    watching = Watching()
    with producing(fake_cluster, watching) as producer, fake_cluster.intercept(Fail(TOPIC_AUTHORIZATION), "Produce"):
        producer.send("t", "x")
        producer.send("t", "y")
        with pytest.raises(DeliveryError, match="2 records"):
            producer.flush()
    assert [(metadata, type(error)) for metadata, error in watching.outcomes] == [(None, TopicAuthorizationError)] * 2


def unserializable(producer: Producer) -> None:
    producer.send("t", "x", object())


def too_large(producer: Producer) -> None:
    producer.send("t", "x" * 2_000_000)


def misplaced(producer: Producer) -> None:
    producer.send("t", "x", partition=-1)


@pytest.mark.parametrize(("send", "error"), [(unserializable, TypeError), (too_large, RecordTooLargeError), (misplaced, ValueError)])
def test_a_record_that_send_refuses_is_reported_once_with_its_error(
        fake_cluster: FakeCluster, send: Callable[[Producer], None], error: type[Exception]) -> None:
    fake_cluster.create_topic("t")
    watching = Watching()
    with producing(fake_cluster, watching) as producer:
        with pytest.raises(error) as caught:
            send(producer)
        producer.send("t", "fine").result(20)
    assert watching.outcomes[0] == (None, caught.value)
    assert [error for _, error in watching.outcomes[1:]] == [None]


def test_close_runs_once_after_the_last_outcome(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    watching = Watching("w")
    producer = producing(fake_cluster, watching)
    producer.partitions_for("t")
    fake_cluster.pause(1)
    for _ in range(10):
        producer.send("t", "x")
    with pytest.raises(DeliveryError):
        producer.close(0)
    producer.close()
    assert watching.log[10:] == [("w", "closed", 10)]
    assert {type(error) for _, error in watching.outcomes} == {ClientClosedError}
    with pytest.raises(ClientClosedError):
        producer.send("t", "late")
    assert len(watching.outcomes) == 10


def test_an_interceptor_may_close_the_producer_while_a_record_is_sent(fake_cluster: FakeCluster) -> None:
    class Closing(Watching):
        def on_send(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers]:
            if value == "last":
                producer.close()
            return key, value, headers

    fake_cluster.create_topic("t")
    watching = Closing()
    producer = producing(fake_cluster, watching)
    producer.send("t", "first")
    with pytest.raises(ClientClosedError):
        producer.send("t", "last")
    assert stored(fake_cluster) == [(b"first", [])]
    assert [type(error) for _, error in watching.outcomes] == [type(None), ClientClosedError]


def test_on_acknowledgement_may_close_the_producer_only_without_waiting(fake_cluster: FakeCluster) -> None:
    class Closing(Watching):
        def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
            super().on_acknowledgement(metadata, error)
            try:
                producer.close()
            except IllegalStateError as refused:
                self.log.append(refused)
            producer.close(0)

    fake_cluster.create_topic("t")
    watching = Closing("c")
    producer = producing(fake_cluster, watching)
    producer.send("t", "x")
    eventually(lambda: ("c", "closed", 1) in watching.log)
    producer.close()
    assert [type(entry) for entry in watching.log[1:]] == [IllegalStateError, tuple]
    with pytest.raises(ClientClosedError):
        producer.send("t", "y")


def test_an_async_producers_interceptors_run_on_its_loop(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    first, last = Watching("a"), Watching("b")

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=[first, Raising(), last],
                                 value_serializer="string", key_serializer="string") as producer:
            delivery: Delivery = await producer.send("t", "x", "k")
            await delivery
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", "x" * 2_000_000)
            with pytest.raises(SerializationError):
                await producer.send("t", "x", "\ud800")

    asyncio.run(main())
    assert stored(fake_cluster) == [(b"xab", [("a", b""), ("b", b"")])]
    assert [type(error) for _, error in last.outcomes] == [type(None), RecordTooLargeError, SerializationError]
    assert last.threads == {threading.main_thread().name}
    assert last.log[-1] == ("b", "closed", 3)


def test_a_cancelled_send_is_reported_as_not_queued(fake_cluster: FakeCluster) -> None:
    fake_cluster.pause(1)
    watching = Watching()

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=[watching]) as producer:
            sending = asyncio.create_task(producer.send("t", b"x"))
            await asyncio.wait([sending], timeout=0.01)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending

    asyncio.run(main())
    (metadata, error), = watching.outcomes
    assert metadata is None
    assert isinstance(error, KafkaError)
    assert "nothing was queued" in str(error)


def test_interceptors_see_each_record_of_a_bulk_before_it_is_serialized(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    seen: list[Any] = []
    with producing(fake_cluster, Watching("a", seen), Watching("b", seen)) as producer:
        producer.send_many("t", [7, 8], keys=[b"k", None], headers=[[("h", None)], None]).result(20)
        producer.send_arrow("t", pyarrow.table({"value": [9], "key": ["l"]})).result(20)
        assert seen[::2] == [("a", "t", b"k", 7, [("h", None)]), ("a", "t", None, 8, []), ("a", "t", b"l", 9, [])]
        assert seen[1::2] == [("b", "t", b"k", "7a", [("h", None), ("a", b"")]), ("b", "t", None, "8a", [("a", b"")]),
                              ("b", "t", b"l", "9a", [("a", b"")])]
    assert stored(fake_cluster) == [
        (b"7ab", [("h", None), ("a", b""), ("b", b"")]), (b"8ab", [("a", b""), ("b", b"")]), (b"9ab", [("a", b""), ("b", b"")])]


def test_on_send_gets_the_topic_of_each_row_also_an_unknown_one(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    fake_cluster.create_topic("u")
    watching = Watching()
    with producing(fake_cluster, watching) as producer:
        data = pyarrow.table({"value": ["a", "b", "c"], "to": ["u", None, "no such/topic"]})
        producer.send_arrow("t", data, topic_column="to").exception(20)
    assert [topic for _, topic, _, _, _ in watching.log[:3]] == ["u", "t", "no such/topic"]
    assert sorted(type(error).__name__ for _, error in watching.outcomes) == ["InvalidTopicError", "NoneType", "NoneType"]


def test_P23_every_record_of_a_bulk_is_acknowledged_once_in_order_and_before_the_bulk(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t", partitions=3)
    watching, counts = Watching(), list[int]()
    keys = [b"%d" % number for number in range(3000)]
    with producing(fake_cluster, watching, batch_size=1000) as producer:
        bulk = producer.send_many("t", range(3000), keys=keys, timestamps=range(3000))
        bulk.add_done_callback(lambda _: counts.append(len(watching.outcomes)))
        expected = list(bulk.result(20))
    assert counts == [3000]
    acknowledged = [metadata for metadata, error in watching.outcomes if metadata is not None and error is None]
    for partition in range(3):
        assert [each for each in acknowledged if each.partition == partition] == [each for each in expected if each.partition == partition]
    assert watching.threads == {"pyclient-callbacks"}


def test_a_refused_record_of_a_bulk_is_reported_once_with_its_error(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    watching = Watching()
    with producing(fake_cluster, watching) as producer:
        failed = producer.send_many("t", ["x", "x" * 2_000_000, "y"], keys=[b"k", b"l", object()]).exception(20)
        assert failed is not None
        assert sorted(failed.errors) == [1, 2]
        producer.flush()
    refused = [error for _, error in watching.outcomes if error is not None]
    assert sorted(map(type, refused), key=str) == sorted(map(type, failed.errors.values()), key=str)
    assert len(watching.outcomes) == 3


def test_P04_records_of_a_bulk_without_memory_are_reported_once_if_on_send_saw_them(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    watching = Watching()
    with producing(fake_cluster, watching, buffer_memory=40_000, batch_size=10_000, max_block_ms=1000) as producer:
        producer.partitions_for("t")
        fake_cluster.pause(1)
        bulk = producer.send_many("t", ["x" * 1_000] * 5_000)
        fake_cluster.resume(1)
        failed = bulk.exception(20)
    assert failed is not None
    refused = [error for _, error in watching.outcomes if isinstance(error, BufferExhaustedError)]
    assert len(watching.outcomes) == len(watching.log) - 1  # the last is the close
    assert len(watching.outcomes) - len(refused) == 5_000 - len(failed.errors)
    assert 0 < len(refused) < len(failed.errors)  # the records after them were neither intercepted nor queued


def test_a_cancelled_bulk_reports_the_records_that_on_send_saw_and_that_are_not_queued(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    watching = Watching()

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=[watching], buffer_memory=40_000,
                                 batch_size=10_000, value_serializer="string") as producer:
            await producer.partitions_for("t")
            fake_cluster.pause(1)
            sending = asyncio.create_task(producer.send_many("t", ["x" * 1_000] * 500))
            await asyncio.to_thread(eventually, lambda: producer._core.accumulator.pool.waiting == 1)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            fake_cluster.resume(1)

    asyncio.run(main())
    assert len(watching.outcomes) == len(watching.log) - 1 == 500
    assert sum("nothing was queued" in str(error) for _, error in watching.outcomes) == 500 - len(stored(fake_cluster))


def test_P20_P24_each_record_of_a_split_batch_is_reported_with_its_own_outcome() -> None:
    outcomes: list[Outcome] = []
    buffers = accumulator(Clock(), topic="t")
    buffers.on_outcome = lambda metadata, error: outcomes.append((metadata, error))
    queues = buffers.topic("t")
    assert queues is not None
    for _ in range(3):
        buffers.append(queues, 0, 7, None, b"x", None)
    (batch,) = buffers.flush_open()
    first, rest = batch.result.split([1, 2])
    rest.fail(KafkaError("its batch's"), {1: KafkaError("its own")})
    first.complete(40)
    assert outcomes[0] == (RecordMetadata("t", 0, 40, 7), None)
    assert [(metadata, str(error)) for metadata, error in outcomes[1:]] == [(None, "its batch's"), (None, "its own")]
