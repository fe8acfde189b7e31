"""Arrow columns to send: each accepted type, in every layout, and the error for the others."""
from __future__ import annotations

import sys
from typing import Any

import pyarrow
import pytest

from pyclient.buffers.deliveries import Deliveries, finish
from pyclient.buffers.delivery import Observer
from pyclient.buffers.rows import Rows
from pyclient.codec.arrow_input import ROWS, Names, batches
from pyclient.codec.batches import read_batches
from tests.unit.buffers.accumulators import WALL_MS, Clock, accumulator
from tests.unit.buffers.bulks import no_conversion
from tests.unit.buffers.test_bulk import written
from tests.unit.codec.arrow_structures import ArrowArray, address_of

NAMES = Names("value", "key", "headers", "timestamp", None)
WORDS = [b"one", None, b"", b"a rather long word, longer than a view holds inline", b"five"]
TEXTS = [None if word is None else word.decode() for word in WORDS]
PAIR = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
Sent = tuple[int, bytes | None, bytes | None, Any]


def sent(data: Any, names: Names = NAMES, *, chunk: int = 1000) -> list[Sent]:
    """The records of *data*, as batches hold them."""
    buffers = accumulator(Clock(), memory=4_000_000, batch_size=100_000, partitions=1)
    deliveries, first = Deliveries(Observer()), 0
    topic = buffers.topic("orders")
    assert topic is not None
    for batch in batches(data, names):
        rows = Rows(deliveries, [topic], ["orders"], no_conversion)
        for start in range(0, batch.rows, chunk):
            stop = min(start + chunk, batch.rows)
            rows.load_columns(first + start, start, stop, batch.value, batch.key, batch.headers, batch.timestamp, batch.codes, batch.partition, WALL_MS)
            assert buffers.append_rows(rows)
        first += batch.rows
    finish(deliveries, first)
    return [(record.timestamp, record.key, record.value, list(record.headers)) for data in written(buffers).get(0, [])
            for read in read_batches(data) for record in read.records("orders", 0)]


def values(array: Any) -> list[bytes | None]:
    return [value for _, _, value, _ in sent(pyarrow.table({"value": array}))]


@pytest.mark.parametrize("kind", [
    pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view(), pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(),
    pyarrow.dictionary(pyarrow.int8(), pyarrow.binary()), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())], ids=str)
@pytest.mark.parametrize("part", ["value", "key"])
def test_bytes_and_text_of_every_layout_are_sent_as_they_are_nulls_and_slices_too(kind: Any, part: str) -> None:
    plain = pyarrow.types.is_dictionary(kind)
    words = TEXTS if "string" in str(kind) else WORDS
    array = pyarrow.array(words, kind.value_type).dictionary_encode().cast(kind) if plain else pyarrow.array(words, kind)
    at = 2 if part == "value" else 1
    assert [record[at] for record in sent(pyarrow.table({part: array}))] == WORDS
    assert [record[at] for record in sent(pyarrow.table({part: array.slice(1, 3)}))] == WORDS[1:4]
    chunked = pyarrow.concat_tables([pyarrow.table({part: each}) for each in (array, array.slice(3))])
    assert [record[at] for record in sent(chunked, chunk=2)] == WORDS + WORDS[3:]


def test_fixed_size_binary_and_null_columns_are_sent() -> None:
    assert values(pyarrow.array([b"ab", None], pyarrow.binary(2))) == [b"ab", None]
    assert values(pyarrow.nulls(3)) == [None] * 3
    assert values(pyarrow.array([b"", b""])) == [b"", b""], "empty is not null, also where there is no data at all"


@pytest.mark.parametrize(("kind", "moment"), [
    (pyarrow.timestamp("s"), 1_700_000_000), (pyarrow.timestamp("ms"), 1_700_000_000_000), (pyarrow.timestamp("us"), 1_700_000_000_000_999),
    (pyarrow.timestamp("ns", "UTC"), 1_700_000_000_000_999_999), (pyarrow.int64(), 1_700_000_000_000)], ids=str)
def test_timestamps_of_any_unit_are_milliseconds_and_null_is_now(kind: Any, moment: int) -> None:
    stamps = pyarrow.array([0, None, moment], pyarrow.int64()).cast(kind)
    data = pyarrow.table({"value": ["a", "b", "c"], "timestamp": stamps})
    assert [record[0] for record in sent(data)] == [0, WALL_MS, 1_700_000_000_000]
    assert [record[0] for record in sent(data.slice(2))] == [1_700_000_000_000]


@pytest.mark.parametrize("kind", [
    pyarrow.list_(PAIR), pyarrow.large_list(PAIR),
    pyarrow.list_(pyarrow.struct([("key", pyarrow.large_string()), ("value", pyarrow.string_view())]))], ids=["list", "large", "views"])
def test_headers_are_lists_of_pairs(kind: Any) -> None:
    rows: list[Any] = [[("a", b"1"), ("b", None)], [], None, [("", b"")], [("x", b"2")] * 3]
    text = "view" in str(kind)
    array = pyarrow.array(
        [row and [{"key": name, "value": value.decode() if text and value is not None else value} for name, value in row] for row in rows], kind)
    expected = [row or [] for row in rows]
    data = pyarrow.table({"value": [b"v"] * 5, "headers": array})
    assert [record[3] for record in sent(data)] == expected
    assert [record[3] for record in sent(data.slice(1, 4), chunk=2)] == expected[1:]
    assert [record[3] for record in sent(pyarrow.concat_tables([data.slice(4), data.slice(0, 1)]))] == [expected[4], expected[0]]


def test_more_rows_than_are_converted_at_a_time_come_in_order() -> None:
    count = ROWS + 7
    data = pyarrow.table({"value": [b"%d" % at for at in range(count)], "headers": pyarrow.array([[]] * count, pyarrow.list_(PAIR))})
    assert [record[2] for record in sent(data, chunk=1024)] == [b"%d" % at for at in range(count)]


def test_a_record_batch_and_anything_with_a_stream_are_taken() -> None:
    class Stream:
        def __init__(self, table: Any) -> None:
            self.table = table

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.table.__arrow_c_stream__(requested_schema)

    batch = pyarrow.record_batch({"value": [b"a", b"b"]})
    assert [record[2] for record in sent(batch)] == [b"a", b"b"]
    assert [record[2] for record in sent(Stream(pyarrow.table(batch)))] == [b"a", b"b"]


@pytest.mark.parametrize(("column", "array", "message"), [
    ("value", pyarrow.array([1]), "column 'value' is int64; keys and values are binary or string"),
    ("key", pyarrow.array([1.5]), "column 'key' is double"),
    ("timestamp", pyarrow.array(["now"]), "column 'timestamp' is string; timestamps are"),
    ("timestamp", pyarrow.array([1], pyarrow.int32()), "column 'timestamp' is int32"),
    ("partition", pyarrow.array(["1"]), "column 'partition' is string; partitions are integers"),
    ("partition", pyarrow.array([1], pyarrow.uint64()), "column 'partition' is uint64; partitions are integers of at most int64"),
    ("partition", pyarrow.array([1.0]), "column 'partition' is double"),
    ("headers", pyarrow.array(["a"]), "column 'headers' is string; headers are list<struct<key: string, value: binary>>"),
    ("headers", pyarrow.array([["a"]]), "column 'headers' is list"),
    ("headers", pyarrow.array([[{"name": "a", "value": b""}]]), "column 'headers' is list<.*name"),
])
def test_a_type_that_cannot_be_sent_is_named_with_its_column(column: str, array: Any, message: str) -> None:
    data = pyarrow.table({"value": [b"a"], "key": [b"k"]}).to_pydict() | {column: array}
    with pytest.raises(TypeError, match=message):
        batches(pyarrow.table(data), NAMES._replace(partition="partition" if column == "partition" else None))


def test_a_column_that_was_named_must_be_there_once() -> None:
    data = pyarrow.table([pyarrow.array([b"a"]), pyarrow.array([b"b"])], names=["body", "body"])
    with pytest.raises(ValueError, match="no column 'text' for the records' value; it has 'body', 'body'"):
        batches(data, NAMES._replace(value="text"))
    with pytest.raises(ValueError, match="2 columns named 'body'"):
        batches(data, NAMES._replace(value="body"))
    with pytest.raises(ValueError, match="neither a column 'value' of values nor 'key' of keys"):
        batches(data, NAMES)


class Shifted:
    """A record batch by the C interface whose column *number* says that it starts a row before its memory."""

    def __init__(self, batch: Any, number: int) -> None:
        self._batch, self._number = batch, number

    def __arrow_c_array__(self, schema: Any = None) -> Any:
        shape, made = self._batch.__arrow_c_array__(schema)
        array = ArrowArray.from_address(address_of(made))
        array.children[self._number].contents.offset = -1
        return shape, made


@pytest.mark.parametrize(("number", "name"), [(0, "value"), (1, "timestamp"), (2, "headers"), (3, "key"), (4, "partition")])
def test_B09_a_column_that_starts_before_its_memory_is_refused(number: int, name: str) -> None:
    headers = pyarrow.array([[("a", b"b")]] * 3, pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])))
    keys = pyarrow.array(["x", "y", "x"]).dictionary_encode()
    columns: dict[str, Any] = {"value": [b"a", b"b", b"c"], "timestamp": [1, 2, 3], "headers": headers, "key": keys, "partition": pyarrow.array([0, 0, 0], pyarrow.int32())}
    batch = pyarrow.record_batch(columns)
    with pytest.raises(ValueError, match=f"column '{name}' is damaged: it starts before its memory"):
        next(batches(Shifted(batch, number), NAMES._replace(partition="partition")))


def test_data_other_than_arrow_is_rejected() -> None:
    with pytest.raises(TypeError, match="list is no Arrow data"):
        batches([b"a"], NAMES)


def test_without_pyarrow_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'pyclient-kafka\[arrow\]'"):
        batches([b"a"], NAMES)
