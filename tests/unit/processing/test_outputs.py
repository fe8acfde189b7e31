"""`Output` as a value, and the compiled way of the usual record of a loop."""
from __future__ import annotations

import pickle
from typing import Any

import pytest

from pyclient.errors import KafkaError, RecordTooLargeError, SerializationError
from pyclient.processing import Output
from pyclient.processing.outputs import send_each

FULL = ("out", b"value", b"key", 2, 1234, (("name", b"header"),))


class Sent:
    """A producer's ``send``, and what a loop gets that is not sent."""

    def __init__(self, *raises: Exception) -> None:
        self.raises = list(raises)
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.others: list[tuple[Any, Any, Exception | None]] = []

    def send(self, *fields: Any, **named: Any) -> None:
        if self.raises:
            raise self.raises.pop(0)
        self.calls.append((fields, named))

    def otherwise(self, record: Any, given: Any, error: Exception | None) -> None:
        self.others.append((record, given, error))

    def of(self, transform: Any, records: Any) -> int:
        return send_each(records, transform, self.send, self.otherwise)


def test_an_output_has_the_fields_of_send_by_position_or_name_and_their_defaults() -> None:
    output = Output(*FULL)
    assert (output.topic, output.value, output.key, output.partition, output.timestamp, output.headers) == FULL
    assert Output("out", key=b"key", value=b"value", headers=FULL[5], timestamp=1234, partition=2) == output
    least = Output("out")
    assert (least.value, least.key, least.partition, least.timestamp, least.headers) == (None, None, None, None, ())


def test_an_output_compares_hashes_prints_and_pickles_by_value() -> None:
    output = Output(*FULL)
    assert output == Output(*FULL)
    assert hash(output) == hash(Output(*FULL))
    assert pickle.loads(pickle.dumps(output)) == output
    assert repr(output) == "Output(topic='out', value=b'value', key=b'key', partition=2, timestamp=1234, headers=(('name', b'header'),))"
    for place in range(len(FULL)):
        other = list(FULL)
        other[place] = None
        assert output != Output(*other), place  # type: ignore[arg-type]
    assert output != FULL


def test_an_output_matches_by_position() -> None:
    match Output("out", b"value"):
        case Output(topic, value):
            assert (topic, value) == ("out", b"value")


def test_an_output_cannot_be_changed() -> None:
    output: Any = Output("out")
    with pytest.raises(AttributeError):
        output.topic = "other"


def test_one_output_is_sent_by_position_unless_it_has_more_than_key_and_value() -> None:
    sent = Sent()
    outputs = {1: Output("out", b"1"), 2: Output("out", b"2", b"k"), 3: Output(*FULL), 4: Output("out", partition=0), 5: Output("out", headers=[])}
    assert sent.of(outputs.__getitem__, [1, 2, 3, 4, 5]) == 5
    assert sent.calls == [
        (("out", b"1", None), {}), (("out", b"2", b"k"), {}), (FULL[:3], {"partition": 2, "timestamp": 1234, "headers": FULL[5]}),
        (("out", None, None), {"partition": 0, "timestamp": None, "headers": ()}),
        (("out", None, None), {"partition": None, "timestamp": None, "headers": []}),
    ]
    assert sent.others == []


def test_no_output_is_none_and_everything_else_is_left_to_the_loop_in_order() -> None:
    sent = Sent()
    one = Output("out")

    def transform(record: Any) -> Any:
        if isinstance(record, Exception):
            raise record
        return record

    failure = LookupError("no")
    assert sent.of(transform, [None, one, [one], failure, "text", one]) == 2
    assert sent.others == [([one], [one], None), (failure, None, failure), ("text", "text", None)]


@pytest.mark.parametrize("error", [SerializationError("no"), RecordTooLargeError("no"), TypeError("no"), ValueError("no")])
def test_an_output_that_cannot_be_sent_is_left_to_the_loop_and_the_next_one_sent(error: Exception) -> None:
    sent = Sent(error)
    outputs = {1: Output("out", b"1"), 2: Output("out", b"2")}
    assert sent.of(outputs.__getitem__, [1, 2]) == 1
    assert sent.others == [(1, outputs[1], error)]
    assert [fields[1] for fields, _ in sent.calls] == [b"2"]


def test_what_ends_the_transaction_is_raised() -> None:
    class Stop(BaseException):
        pass

    def stops(_record: object) -> Output:
        raise Stop

    with pytest.raises(KafkaError, match="abort"):
        Sent(KafkaError("abort")).of(lambda _: Output("out"), [1])
    with pytest.raises(Stop):
        Sent().of(stops, [1])


def test_a_subclass_of_an_output_is_one() -> None:
    class Mine(Output):
        pass

    sent = Sent()
    assert sent.of(lambda _: Mine("out", b"1"), [1]) == 1
    assert Mine("out") != Output("out")
