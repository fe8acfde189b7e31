"""Methods, arguments and habits of other clients are answered with the line to write here."""
from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

from pyclient import Admin, AsyncConsumer, AsyncProducer, Consumer, Delivery, NewTopic, Producer, Records, TopicPartition
from pyclient.errors import ConfigurationError, RecordTooLargeError
from pyclient.foreign_call_table import AIOKAFKA, ARGUMENTS, CONFLUENT, HABITS, JAVA, KAFKA_PYTHON, METHODS, Argument, Habit, Method
from pyclient.foreign_calls import Foreign
from pyclient.records import RecordMetadata
from pyclient.testing import FakeCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by a deprecated function
    import kafka
    from kafka.admin import NewTopic as KafkaPythonsTopic
    from kafka.producer.future import FutureRecordMetadata

OURS = {"producer": Producer, "consumer": Consumer, "admin": Admin, "delivery": Delivery, "records": Records}
THEIRS: dict[tuple[str, str], type] = {
    (KAFKA_PYTHON, "producer"): kafka.KafkaProducer, (KAFKA_PYTHON, "consumer"): kafka.KafkaConsumer,
    (KAFKA_PYTHON, "admin"): kafka.KafkaAdminClient, (KAFKA_PYTHON, "delivery"): FutureRecordMetadata,
    (KAFKA_PYTHON, "NewTopic"): KafkaPythonsTopic, (KAFKA_PYTHON, "records"): dict, (AIOKAFKA, "records"): dict,
    (AIOKAFKA, "producer"): aiokafka.AIOKafkaProducer, (AIOKAFKA, "consumer"): aiokafka.AIOKafkaConsumer,
    (CONFLUENT, "producer"): confluent_kafka.Producer, (CONFLUENT, "consumer"): confluent_kafka.Consumer,
    (CONFLUENT, "admin"): confluent_kafka.admin.AdminClient, (CONFLUENT, "records"): confluent_kafka.Message,
    (CONFLUENT, "NewTopic"): confluent_kafka.admin.NewTopic,  # type: ignore[attr-defined]  # it is public
}
ROWS: list[Method | Argument | Habit] = [*METHODS.values(), *ARGUMENTS.values(), *HABITS.values()]
TP = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with FakeCluster() as cluster:
        cluster.create_topic("orders", 1)
        cluster.create_topic("tiny", 1, config={"max.message.bytes": "200"})
        yield cluster.bootstrap_servers


@pytest.fixture
def producer(servers: str) -> Iterator[Any]:
    with Producer(bootstrap_servers=servers) as producer:
        yield producer


@pytest.fixture
def consumer(servers: str) -> Iterator[Any]:
    with Consumer(bootstrap_servers=servers, group_id="billing") as consumer:
        yield consumer


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", [row for row in ROWS if row.here], ids=lambda row: row.there)
def test_the_line_to_write_fits_this_client(row: Method | Argument | Habit) -> None:
    """It is Python, and every call in it can be bound to the signature of the method."""
    for call in ast.walk(ast.parse(row.here)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            owner = OURS.get(call.func.value.id)
            if owner is not None:
                signature = inspect.signature(getattr(owner, call.func.attr))
                signature.bind(owner, *call.args, **{word.arg: word.value for word in call.keywords if word.arg})


@pytest.mark.parametrize("row", METHODS.values(), ids=lambda row: row.there)
def test_the_method_is_theirs_and_not_ours(row: Method) -> None:
    assert not hasattr(OURS[row.owner], row.name)
    assert all(hasattr(THEIRS[client, row.owner], row.name) for client in row.clients if client != JAVA)


def test_every_method_of_other_admin_clients_is_ours_or_answered() -> None:
    """Attributes that are no calls are left out, and what kafka-python keeps for itself."""
    for client in (KAFKA_PYTHON, CONFLUENT):
        theirs = {name for name in dir(THEIRS[client, "admin"]) if not name.startswith("_")} - {"DEFAULT_CONFIG"}
        assert [name for name in sorted(theirs) if not hasattr(Admin, name) and ("admin", name) not in METHODS] == []


@pytest.mark.parametrize("row", ARGUMENTS.values(), ids=lambda row: row.there)
def test_the_argument_is_theirs_and_not_ours(row: Argument) -> None:
    ours = NewTopic if row.owner == "NewTopic" else getattr(OURS[row.owner], row.method)
    assert row.name not in inspect.signature(ours).parameters
    for client in row.clients:
        theirs = THEIRS[client, row.owner]
        called = theirs if row.method == "__new__" else getattr(theirs, {"send": "produce"}.get(row.method, row.method) if client == CONFLUENT else row.method)
        if client == CONFLUENT:
            assert row.name in {"new_topics", "topics"} or row.name in str(called.__doc__)
        else:
            assert row.name in inspect.signature(called).parameters


# ── methods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", [row for row in METHODS.values() if row.owner in ("producer", "consumer")], ids=lambda row: row.there)
def test_a_foreign_method_is_answered_with_the_line_to_write(row: Method, producer: Any, consumer: Any) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr({"producer": producer, "consumer": consumer}[row.owner], row.name)
    assert row.here in str(caught.value)
    assert all(f"{client}'s" in str(caught.value) for client in row.clients)


def test_foreign_names_of_deliveries_and_of_polled_records_are_answered(producer: Any, consumer: Any) -> None:
    delivery = producer.send("orders", b"paid")
    with pytest.raises(AttributeError, match=r"kafka-python's: write delivery\.result\(timeout=10\)"):
        delivery.get(timeout=10)
    with pytest.raises(AttributeError, match=r"write delivery\.add_done_callback\("):
        delivery.add_callback(print)
    nothing: Any = Records()
    with pytest.raises(AttributeError, match="poll returns many records, and raises errors"):
        nothing.error()


@pytest.mark.parametrize("row", [row for row in METHODS.values() if row.owner == "delivery"], ids=lambda row: row.there)
def test_each_foreign_name_of_a_delivery_is_declared(row: Method) -> None:
    """An extension type's names are written by hand; without `__getattr__`, which doubles the time of each access."""
    assert isinstance(vars(Delivery)[row.name], Foreign)
    assert not hasattr(Delivery, "__getattr__")


def test_a_name_that_no_client_has_is_answered_as_python_does(producer: Any) -> None:
    with pytest.raises(AttributeError, match="'Producer' object has no attribute 'sendd'"):
        producer.sendd("orders", b"paid")
    with pytest.raises(AttributeError, match=r"Delivery' object has no attribute 'nothing'$"):
        producer.send("orders", b"paid").nothing  # noqa: B018 reading it is the test


def test_completion_does_not_show_foreign_names(producer: Any, consumer: Any) -> None:
    for client, owner, own in ((producer, "producer", "send"), (consumer, "consumer", "poll")):
        assert own in dir(client)
        assert not {row.name for row in METHODS.values() if row.owner == owner}.intersection(dir(client)) - {"poll"}
    assert "produce" not in dir(producer)
    assert {name for name in dir(producer.send("orders", b"paid")) if not name.startswith("_")} == {
        "add_done_callback", "cancelled", "done", "exception", "partition", "remove_done_callback", "result", "topic",
    }


@pytest.mark.parametrize("owner", [Consumer, AsyncConsumer])
def test_a_poll_refuses_unknown_arguments_itself_and_its_signature_does_not_show_that(owner: type, servers: str) -> None:
    """Ctrl-C behind a call around it would lose its records."""
    poll = vars(owner)["poll"]
    assert list(inspect.signature(poll).parameters) == ["self", "timeout", "max_records"]
    assert not hasattr(poll, "__wrapped__")
    called = poll.__get__(owner(bootstrap_servers=servers))
    with pytest.raises(TypeError, match=r"Consumer\.poll\(\) got an unexpected keyword argument 'limit'"):
        asyncio.run(called(limit=1)) if owner is AsyncConsumer else called(limit=1)
    if owner is Consumer:
        called.__self__.close()


def test_an_async_client_is_answered_with_the_awaited_line(servers: str) -> None:
    async def main() -> None:
        consumer: Any = AsyncConsumer(bootstrap_servers=servers)
        with pytest.raises(AttributeError, match=r"write for record in await consumer\.poll\("):
            _ = consumer.getmany
        with pytest.raises(AttributeError, match=r"aiokafka's: write record = await anext\(aiter\(consumer\)\);"):
            _ = consumer.getone
        with pytest.raises(TypeError, match=r"write await consumer\.poll\(timeout=1\.0\)"):
            await consumer.poll(timeout_ms=100)
        assert inspect.iscoroutinefunction(AsyncConsumer.poll)
        async with AsyncProducer(bootstrap_servers=servers) as opened:
            producer: Any = opened
            with pytest.raises(TypeError, match=r"timestamp_ms of producer\.send is .*: write await producer\.send\("):
                await producer.send("orders", b"paid", timestamp_ms=7)
            with pytest.raises(TypeError, match=r"timestamp_ms of producer\.send_and_wait is aiokafka's: write await producer\.send_and_wait\("):
                await producer.send_and_wait("orders", b"paid", timestamp_ms=7)

    asyncio.run(main())


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", ARGUMENTS.values(), ids=lambda row: row.there)
def test_a_foreign_argument_is_answered_with_the_line_to_write(row: Argument, producer: Any, consumer: Any, servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        owners: dict[str, Any] = {"producer": producer, "consumer": consumer, "admin": admin}
        call: Any = NewTopic if row.owner == "NewTopic" else getattr(owners[row.owner], row.method)
        with pytest.raises(TypeError, match=re.escape(row.here)):
            call(*(["orders"] if row.method == "send" else []), **{row.name: 100})


def test_confluents_callback_is_refused_at_once(producer: Any) -> None:
    def report(err: object, msg: object) -> None: ...

    class Reports:
        def report(self, err: object, msg: object) -> None: ...

    for callback in (report, Reports().report, lambda err, msg: None):
        with pytest.raises(TypeError, match=r"delivery callback \(err, msg\) is confluent-kafka's: write def on_delivery\(delivery\)"):
            producer.send("orders", b"paid", on_delivery=callback)
    with pytest.raises(TypeError, match="err, msg"):
        producer.send("orders", b"paid").add_done_callback(report)


@pytest.mark.parametrize("client", [Consumer, AsyncConsumer])
def test_a_listener_as_second_argument_of_subscribe_is_answered(client: type, servers: str) -> None:
    async def main() -> None:
        opened: Any = client(bootstrap_servers=servers, group_id="billing")
        with pytest.raises(TypeError, match=r"write consumer\.subscribe\(topics, rebalance_listener=listener\)"):
            opened.subscribe(["orders"], object())
        with pytest.raises(TypeError, match=r"write consumer\.subscribe\(topics, rebalance_listener=listener\)"):
            opened.subscribe(["orders"], None, object())
        if client is Consumer:
            opened.close()

    asyncio.run(main())


class Nothing:
    def __call__(self) -> None: ...

    def method(self) -> None: ...


def test_a_delivery_callback_that_takes_other_arguments_is_refused_at_once(producer: Any) -> None:
    for callback in (lambda: None, Nothing(), Nothing().method, lambda one, two, three: None, lambda delivery, *, name: None):
        for _ in range(2):
            with pytest.raises(TypeError, match=r"a delivery callback takes one argument, the Delivery"):
                producer.send("orders", b"paid", on_delivery=callback)
        with pytest.raises(TypeError, match="takes one argument"):
            producer.send("orders", b"paid").add_done_callback(callback)


def test_a_delivery_callback_that_would_have_to_be_awaited_is_refused_at_once(producer: Any) -> None:
    class Awaited:
        async def __call__(self, delivery: object) -> None: ...

    for _ in range(2):
        with pytest.raises(TypeError, match="async def"):
            producer.send("orders", b"paid", on_delivery=Awaited())


def test_a_commit_callback_that_takes_other_arguments_is_refused_at_once(consumer: Any) -> None:
    for callback in (lambda: None, lambda offsets: None, Nothing(), Nothing().method):
        with pytest.raises(TypeError, match=r"expected a plain function callback\(offsets, error\)"):
            consumer.commit_async(callback=callback)


@pytest.mark.parametrize("name", ["on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost"])
def test_a_listener_whose_method_takes_no_partitions_is_refused_at_once(consumer: Any, name: str) -> None:
    listener = type("Listener", (), {name: lambda self: None})()
    with pytest.raises(TypeError, match=rf"{name} of .* must take one argument, the list of partitions"):
        consumer.subscribe(["orders"], rebalance_listener=listener)


@pytest.mark.parametrize(("client", "methods", "wrong"), [
    (Producer, {"on_send": 4, "on_acknowledgement": 2}, "on_send"), (Producer, {"on_send": 4, "on_acknowledgement": 2}, "on_acknowledgement"),
    (Consumer, {"on_consume": 1, "on_commit": 1}, "on_consume"), (Consumer, {"on_consume": 1, "on_commit": 1}, "on_commit")])
def test_an_interceptor_whose_method_takes_other_arguments_is_refused_at_once(client: Any, methods: dict[str, int], wrong: str) -> None:
    functions: dict[int, Any] = {1: lambda self, one: one, 2: lambda self, one, two: None, 4: lambda self, one, two, three, four: None}
    right: dict[str, Any] = {name: functions[count] for name, count in methods.items()}
    for function, said in ((lambda self: None, f"must take {methods[wrong]} argument"), (Awaiting.method, "nothing awaits")):
        interceptor = type("Interceptor", (), {**right, wrong: function})()
        with pytest.raises(ConfigurationError, match=rf"{wrong} of .*{said}"):
            client(bootstrap_servers="localhost:1", interceptors=[interceptor])


class Awaiting:
    async def method(self, *given: object) -> None: ...


def test_callbacks_of_one_argument_are_taken(producer: Any) -> None:
    seen: list[object] = []

    class Counts:
        def count(self, delivery: object, extra: int = 1) -> None:
            seen.append(delivery)

        def __call__(self, delivery: object) -> None:
            seen.append(delivery)

    taken = (seen.append, Counts().count, lambda *all_of_it: seen.append(all_of_it), Counts(), functools.partial(Counts().count, extra=2))
    for callback in taken:
        producer.send("orders", b"paid", on_delivery=callback).result(10)
    producer.close()
    assert len(seen) == len(taken)


@pytest.mark.parametrize(("name", "of_stored", "of_refused"), [
    ("add_callback", RecordMetadata, None), ("add_errback", None, RecordTooLargeError), ("add_both", Delivery, Delivery),
])
def test_each_callback_of_kafka_pythons_future_has_a_line_that_does_the_same(
    name: str, of_stored: type | None, of_refused: type | None, servers: str,
) -> None:
    got: dict[str, list[Any]] = {"orders": [], "tiny": []}
    with Producer(bootstrap_servers=servers) as producer:
        for topic, called in got.items():
            delivery = producer.send(topic, bytes(1_000))
            eval(METHODS["delivery", name].here, {"delivery": delivery, "function": called.append})
            assert (delivery.exception(timeout=10) is None) == (topic == "orders")
    assert {topic: [type(each) for each in called] for topic, called in got.items()} == {
        "orders": [of_stored] if of_stored else [], "tiny": [of_refused] if of_refused else [],
    }


# ── habits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pattern_in_a_list_of_topics_is_answered_with_the_compiled_one(consumer: Any) -> None:
    with pytest.raises(ValueError, match=r"confluent-kafka's: write consumer\.subscribe\(re\.compile\("):
        consumer.subscribe(["^orders-.*"])


@pytest.mark.parametrize("send", [
    {"value": "text"}, {"value": b"", "key": "text"}, {"value": b"", "headers": {"trace": "7"}},
], ids=str)
def test_text_without_a_serializer_is_answered_with_the_ways_to_bytes(send: dict[str, Any], producer: Any) -> None:
    assert {"text", "text_in_headers"} <= set(HABITS)
    with pytest.raises(TypeError, match=r"is str, not bytes.*: encode it, or give the producer a|encode it first"):
        producer.send("orders", **send)


@pytest.mark.parametrize(("option", "value", "answer"), [("on_commit", print, "commit_async"), ("enable.partition.eof", True, r"lag\(\)")])
def test_events_that_are_options_of_confluent_are_answered_with_calls(option: str, value: object, answer: str, servers: str) -> None:
    with pytest.raises(ConfigurationError, match=answer):
        Consumer({"bootstrap.servers": servers, option: value})


def test_a_topic_as_first_argument_is_answered_with_topics() -> None:
    first: Any = "orders"
    with pytest.raises(ConfigurationError, match=r"write Consumer\(topics=\[\"orders\"\], bootstrap_servers=servers\)"):
        Consumer(first)


def test_numbers_and_truth_values_are_taken_as_topic_configs(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("logs", configs={"retention.ms": 3_600_000, "preallocate": True})], validate_only=True)
        wrong: Any = {"retention.ms": 1.5}
        with pytest.raises(TypeError, match=r"str, int or bool"):
            admin.create_topics([NewTopic("logs", configs=wrong)])


def test_the_line_to_write_awaits_before_it_indexes() -> None:
    with pytest.raises(AttributeError, match=r"\(await consumer\.committed\(\[partition\]\)\)\[partition\]\)"):
        _ = AsyncConsumer.seek_to_committed  # type: ignore[attr-defined]
