"""Records as values: cheap to keep, equal by content, safe to share."""
from __future__ import annotations

import copy
import gc
import pickle
import sys
import types
import weakref
from typing import Any

import pytest

from pyclient.codec.batches import read_batches
from pyclient.codec.encode import encode_batch
from pyclient.records import TimestampType
from pyclient.records.record import DecodedRecord, Record, decoded

FULL = Record("orders", 2, 17, 1_700_000_000_000, TimestampType.LOG_APPEND_TIME, b"k", b"v", [("h", None), ("é", b"x")], 4)
BARE = Record("orders", 0, 0, -1)


class Node:
    """Something a deserializer might make, that can be part of a cycle."""

    record: Any = None


def test_a_record_of_bytes_and_numbers_is_not_tracked_by_the_garbage_collector() -> None:
    assert not gc.is_tracked(FULL)
    assert not gc.is_tracked(BARE)
    (batch,) = read_batches(encode_batch([(1, b"k", b"v", [("h", b"x")]), (2, None, None, [])]))
    assert not any(map(gc.is_tracked, batch.records("t", 0)))


def test_a_record_takes_eighty_bytes_beside_its_content() -> None:
    assert sys.getsizeof(BARE) <= sys.getsizeof(object()) + 64  # the header is larger without a GIL


def test_a_decoded_record_in_a_cycle_is_collected() -> None:
    node = Node()
    node.record = decoded(FULL, None, node)
    gone = weakref.ref(node)
    assert gc.is_tracked(node.record)
    del node
    gc.collect()
    assert gone() is None


def test_a_decoded_record_keeps_the_bytes_beside_the_objects() -> None:
    record = decoded(FULL, {"id": 1}, [2])
    assert (record.key, record.value, record.raw_key, record.raw_value) == ({"id": 1}, [2], b"k", b"v")
    assert (record.topic, record.offset, record.headers, record.leader_epoch) == ("orders", 17, FULL.headers, 4)
    assert isinstance(record, Record)


@pytest.mark.parametrize("record", [FULL, BARE, decoded(FULL, 1, "two"), DecodedRecord(1, 2, "t", 0, 5, 6, raw_value=b"2")])
def test_a_record_pickles_and_copies_to_an_equal_one(record: Record) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(record, protocol))
        assert again == record
        assert type(again) is type(record)
        assert hash(again) == hash(record)
    assert copy.copy(record) == record == copy.deepcopy(record)


def test_a_deep_copy_of_a_decoded_record_has_its_own_value() -> None:
    record = decoded(FULL, None, [1])
    copy.deepcopy(record).value.append(2)
    assert record.value == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "other"}, {"partition": 3}, {"offset": 18}, {"timestamp": 0}, {"timestamp_type": TimestampType.CREATE_TIME},
        {"key": None}, {"value": b""}, {"headers": []}, {"leader_epoch": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_records_that_differ_in_one_field_are_not_equal(change: dict[str, Any]) -> None:
    fields = {name: getattr(FULL, name) for name in Record.__match_args__}
    assert Record(**fields) == FULL
    assert hash(Record(**fields)) == hash(FULL)
    assert Record(**(fields | change)) != FULL


def test_a_decoded_record_does_not_equal_the_record_it_was_made_of() -> None:
    assert decoded(FULL, b"k", b"v") != FULL
    assert decoded(FULL, 1, 2) == decoded(FULL, 1, 2) != decoded(FULL, 1, 3)


def test_a_change_to_the_headers_list_does_not_change_the_record() -> None:
    FULL.headers.append(("more", b""))
    BARE.headers.append(("more", b""))
    assert FULL.headers == [("h", None), ("é", b"x")]
    assert BARE.headers == []


@pytest.mark.parametrize("name", ["topic", "partition", "offset", "timestamp", "key", "value", "headers", "leader_epoch"])
def test_a_field_cannot_be_set(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(FULL, name, None)


@pytest.mark.parametrize("name", ["topic", "key", "value"])
def test_the_interpreter_reads_the_usual_fields_without_a_call(name: str) -> None:
    member = vars(Record)[name]
    assert isinstance(member, types.MemberDescriptorType)  # of these, its inline caches know the place
    assert member.__doc__
    record = Record("orders", 3, 17, 1, key=b"k", value=b"v")
    assert getattr(record, name) == {"topic": "orders", "key": b"k", "value": b"v"}[name]
    assert getattr(Record("orders", 3, 17, 1), name) == {"topic": "orders"}.get(name)


def test_a_record_is_matched_by_position() -> None:
    match FULL:
        case Record(topic, partition, offset):
            assert (topic, partition, offset) == ("orders", 2, 17)
        case _:
            pytest.fail("no match")


def test_a_records_repr_says_where_it_is_and_what_it_holds() -> None:
    assert repr(FULL) == "Record(orders-2@17, timestamp=1700000000000, key=b'k', value=b'v', headers=[('h', None), ('é', b'x')])"
    assert repr(decoded(BARE, 1, 2)) == "DecodedRecord(orders-0@0, timestamp=-1, key=1, value=2)"


def test_the_timestamp_type_is_a_member_of_the_enum() -> None:
    assert FULL.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": "text"}, "key is of type str"),
        ({"value": bytearray(b"x")}, "value is of type bytearray"),
        ({"headers": [("a", b""), (b"b", b"")]}, "header 1 is"),
        ({"headers": [("a", "text")]}, "header 0 is"),
    ],
)
def test_a_record_of_anything_but_bytes_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Record("t", 0, 0, 0, **fields)


def test_records_do_not_keep_the_response_they_were_read_from() -> None:
    data = bytearray(encode_batch([(1, b"k" * 40, b"v" * 40, [("h", b"x")])]))
    (batch,) = read_batches(data)
    records = batch.records("t", 0)
    with pytest.raises(BufferError):
        data.append(0)  # the batch still shares it
    del batch
    data.append(0)  # no export is left
    data[:] = bytes(len(data))
    assert records[0].value == b"v" * 40


def test_an_opened_compressed_batch_does_not_keep_the_response() -> None:
    data = bytearray(encode_batch([(1, None, b"v" * 400, [])], compression="zstd"))
    (batch,) = read_batches(data)
    batch.open()
    data.append(0)
    assert batch.records("t", 0)[0].value == b"v" * 400
