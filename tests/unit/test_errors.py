"""Errors: the table agrees with Java's, messages name the place and the way out, and every error survives pickling."""
from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

import pyclient
from pyclient import errors
from pyclient.errors import (
    ApplicationRecoverableError,
    AuthenticationError,
    AuthorizationError,
    BY_CODE,
    BootstrapError,
    BufferExhaustedError,
    ConfigurationError,
    DeliveryError,
    DisconnectError,
    IllegalTransitionError,
    InvalidConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RefreshRetriableError,
    ResponseTimeoutError,
    RetriableError,
    SerializationError,
    TransactionAbortableError,
    UnknownOptionError,
    UnknownServerError,
    error_for,
    sentence,
    with_article,
)
from pyclient.serializing import as_serializer
from pyclient.records import Node, TopicPartition

JAVA = Path(__file__).parents[1] / "data" / "errors-4.3.1.txt"
ORDERS = TopicPartition("orders", 3)
GROUPS: dict[str, type[KafkaError]] = {
    "Retriable": RetriableError,
    "RefreshRetriable": RefreshRetriableError,
    "TransactionAbortable": TransactionAbortableError,
    "ApplicationRecoverable": ApplicationRecoverableError,
    "InvalidConfiguration": InvalidConfigurationError,
    "Authentication": AuthenticationError,
    "Authorization": AuthorizationError,
}
NO_WAY_BACK = {"INVALID_TXN_STATE"}  # in no group of Java's, but its producer too must be closed
NAMED_OTHERWISE = {"REQUEST_TIMED_OUT"}  # TimeoutException: that would hide Python's own TimeoutError


class JavaError(NamedTuple):
    code: int
    name: str
    exception: str
    groups: set[str]


def java_errors() -> Iterator[JavaError]:
    for line in JAVA.read_text().splitlines()[1:]:
        code, name, exception, groups = line.split("\t")
        if code != "0":
            yield JavaError(int(code), name, exception, set(groups.split(",")) - {""})


def all_classes(base: type[KafkaError] = KafkaError) -> Iterator[type[KafkaError]]:
    for cls in base.__subclasses__():
        yield cls
        yield from all_classes(cls)


@pytest.mark.parametrize("java", list(java_errors()), ids=lambda java: java.name)
def test_every_broker_code_has_the_class_name_and_groups_of_java(java: JavaError) -> None:
    cls = BY_CODE[java.code]
    assert cls.name == java.name
    groups = {"ApplicationRecoverable"} if java.name in NO_WAY_BACK else java.groups - {"InvalidMetadata"}
    assert {group for group, base in GROUPS.items() if issubclass(cls, base)} == groups
    if java.name not in NAMED_OTHERWISE:
        assert cls.__name__ == java.exception.removesuffix("Exception") + "Error"


def test_there_is_no_code_that_kafka_does_not_have() -> None:
    assert set(BY_CODE) == {java.code for java in java_errors()}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.value != 0], ids=lambda code: code.name)
def test_what_may_be_retried_is_what_the_message_schemas_say(code: ErrorCode) -> None:
    assert BY_CODE[code.value].retriable == code.retriable
    assert BY_CODE[code.value].name.lower() == code.name


def test_each_class_is_importable_by_its_name() -> None:
    for cls in all_classes():
        if cls.__module__ == errors.__name__:
            assert getattr(errors, cls.__name__) is cls


def test_every_error_says_in_one_sentence_what_it_is_and_what_to_do() -> None:
    for cls in all_classes():
        assert len((cls.__doc__ or "").split()) >= 5, cls


def test_a_code_from_a_newer_broker_is_an_error_that_carries_its_number() -> None:
    error = error_for(999, "from the future")
    assert isinstance(error, UnknownServerError)
    assert error.code == 999
    assert "999" in str(error)
    assert "from the future" in str(error)
    assert error_for(-1).code == UnknownServerError.code == -1


@given(st.integers(-(2**15), 2**15 - 1).filter(bool), st.none() | st.text())
def test_any_code_and_text_a_broker_may_send_gives_an_error(code: int, text: str | None) -> None:
    assert error_for(code, text).code == code


def test_code_0_is_no_error() -> None:
    with pytest.raises(ValueError, match="success"):
        error_for(0)


def test_the_message_has_the_brokers_text_our_advice_and_kafkas_name() -> None:
    error = error_for(6, "the broker said so", topic_partition=ORDERS, node=Node(2, "kafka-2", 9092))
    assert isinstance(error, NotLeaderOrFollowerError)
    assert str(error).startswith("orders-3, kafka-2:9092 (node 2): the broker said so. ")
    assert "refresh metadata" in str(error)
    assert "NOT_LEADER_OR_FOLLOWER" in str(error)


def test_a_place_that_the_message_names_already_is_not_named_twice() -> None:
    assert str(KafkaError("orders-3 is gone", topic_partition=ORDERS, node=7)) == "node 7: orders-3 is gone"


SAMPLES: list[KafkaError] = [
    *(error_for(code, "text", topic_partition=ORDERS, node=4) for code in [*BY_CODE, 999]),
    BootstrapError({"a:1": ConnectionRefusedError("refused"), "b:2": KafkaTimeoutError("silent")}, waited_s=3.0),
    DeliveryError(2, {ORDERS: DisconnectError("gone", node=1)}),
    UnknownOptionError("no such", option="x", nearest=("y",)),
    ConfigurationError("wrong", option="linger_ms"),
    ProtocolError("too short", api="Metadata", version=13, node=5),
    IllegalTransitionError("OUT", "Joined"),
    BufferExhaustedError("full"),
    ResponseTimeoutError("late", node=2),
    errors.LogTruncationError(ORDERS, offset=9, divergent_offset=5, leader_epoch=2),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: f"{type(error).__name__}-{error.code}")
@pytest.mark.parametrize("clone", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],
                         ids=["pickle", "copy", "deepcopy"])
def test_an_error_keeps_class_text_and_attributes_when_copied(error: KafkaError, clone: object) -> None:
    assert callable(clone)
    again = clone(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    plain = {key: value for key, value in vars(error).items() if key != "causes"}
    assert {key: vars(again)[key] for key in plain} == plain
    assert [str(cause) for cause in getattr(again, "causes", {}).values()] == [
        str(cause) for cause in getattr(error, "causes", {}).values()
    ]


def test_the_errors_of_a_bulk_are_a_mapping_by_index_with_a_bounded_message_that_pickles() -> None:
    causes = errors.IndexedErrors((at * 10, at * 10 + 3, KafkaError(f"cause {at}")) for at in range(100))
    assert len(causes) == 300
    assert [*causes][:4] == [0, 1, 2, 10]
    assert str(causes[992]) == "cause 99"
    assert not {3, 9, 993, -1} & causes.keys()
    error = errors.BulkDeliveryError(1_000, causes)
    assert str(error).startswith("300 of 1000 records could not be delivered, the others were (0 to 2: cause 0; ")
    assert "; and 95 more ranges" in str(error)
    assert len(str(error)) < 400
    again = pickle.loads(pickle.dumps(error))
    assert [*again.errors] == [*causes]
    assert str(again) == str(error)


def test_every_class_of_the_client_can_be_made_from_a_message_alone_or_says_what_it_needs() -> None:
    ours = {cls for cls in all_classes() if cls.__module__ == errors.__name__}
    for cls in ours - {BootstrapError, DeliveryError, errors.BulkDeliveryError, IllegalTransitionError, errors.PartialFailureError, errors.LogTruncationError}:
        assert str(cls("what happened")) == "what happened"
        assert str(cls())


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (KafkaTimeoutError, TimeoutError), (BufferExhaustedError, TimeoutError), (MetadataTimeoutError, TimeoutError),
        (BootstrapError, TimeoutError), (ResponseTimeoutError, TimeoutError), (DisconnectError, ConnectionError),
        (ConfigurationError, ValueError),
    ],
)
def test_errors_are_also_pythons_own_where_python_has_one(cls: type, builtin: type) -> None:
    assert issubclass(cls, builtin)


def test_errors_found_by_the_client_have_no_code() -> None:
    assert ConfigurationError("x").code is None
    assert ResponseTimeoutError("x").code is None
    assert BootstrapError({}).code is None


def test_a_failed_bootstrap_lists_each_address_with_its_cause() -> None:
    error = BootstrapError({"a:1": ConnectionRefusedError("refused"), "b:2": TimeoutError()}, waited_s=3.0)
    assert "a:1: refused" in str(error)
    assert "b:2: TimeoutError" in str(error)
    assert "3.0 s" in str(error)
    assert set(error.causes) == {"a:1", "b:2"}


@pytest.mark.parametrize("cause", ["refused", "refused.", "is this a listener?"])
def test_other_peoples_words_end_as_one_sentence(cause: str) -> None:
    ended = {"refused": "refused."}.get(cause, cause)
    assert sentence(cause) == ended
    assert f"Tried a:1: {ended} Check" in str(BootstrapError({"a:1": ConnectionRefusedError(cause)}))


def test_failed_deliveries_are_counted_and_the_first_partitions_named() -> None:
    causes: dict[TopicPartition, KafkaError] = {TopicPartition("t", n): DisconnectError(f"lost {n}") for n in range(7)}
    error = DeliveryError(70, causes)
    assert "70 records" in str(error)
    assert "t-0: lost 0" in str(error)
    assert "2 more partitions" in str(error)
    assert error.causes == causes


def test_the_article_fits_the_name_of_a_type() -> None:
    assert [with_article(name) for name in ("int", "str", "AsyncConsumer", "Record")] == ["an int", "a str", "an AsyncConsumer", "a Record"]


def test_no_message_has_a_fixed_article_before_the_name_of_a_type() -> None:
    """``a {type(value).__name__}`` becomes "a int"."""
    package = Path(pyclient.__file__).parent
    folders = [package, *(link.resolve() for link in package.iterdir() if link.is_symlink())]  # rglob follows no link
    wrong = [f"{path}:{number}" for folder in folders for path in sorted(folder.rglob("*.py"))
             for number, line in enumerate(path.read_text().splitlines(), 1) if re.search(r"\b[Aa] \{type\(", line)]
    assert wrong == []


def test_a_serializer_that_raises_is_reported_with_the_type_of_the_value() -> None:
    with pytest.raises(SerializationError, match="cannot serialize an int of topic 't'"):
        as_serializer(len)("t", 7, ())
