"""The compiled path of send_arrow appends what the interpreted way would, and changes nothing for data it refuses."""
from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.deliveries import Deliveries
from pyclient.buffers.delivery import Observer
from pyclient.buffers.fast_arrow import ArrowPath
from pyclient.buffers.rows import CHUNK, Rows
from pyclient.codec.arrow_columns import PlainColumns
from pyclient.codec.arrow_input import Names, batches, plain_columns
from pyclient.errors import ClientClosedError, IllegalStateError
from tests.unit.buffers.accumulators import WALL_MS, Clock, accumulator
from tests.unit.buffers.bulks import rows_of
from tests.unit.buffers.test_bulk import KEY_HASH, written

NAMES: Final = Names("value", "key", "headers", "timestamp", None)
PARTITIONS: Final = 3
KINDS: Final = [pyarrow.binary(), pyarrow.string(), pyarrow.large_binary(), pyarrow.large_string()]
SIMPLE: Final = pyarrow.table({"value": [b"a", b"b"], "key": [b"k", None]})
RECORDS: Final = st.lists(st.tuples(st.none() | st.text(max_size=9), st.none() | st.text(max_size=30)), min_size=1, max_size=40)


def path_of(buffers: Accumulator, like: Any, names: Names = NAMES) -> ArrowPath:
    """A path that knows the schema of *like*."""
    path = ArrowPath(buffers, Observer(), KEY_HASH)
    path.learn(names[:4], plain_columns(like, names))
    return path


def send(path: ArrowPath, data: Any, names: Names = NAMES, topic: Any = "orders") -> Deliveries | Rows | None:
    return path.send(topic, data, *names)


def sent_by_the_other_way(data: Any, names: Names = NAMES) -> dict[int, list[bytes]]:
    buffers = accumulator(Clock(), partitions=PARTITIONS)
    for batch in batches(data, names):
        rows = rows_of(buffers, Observer(), KEY_HASH)
        rows.load_columns(0, 0, batch.rows, batch.value, batch.key, None, None, None, None, WALL_MS)
        assert buffers.append_rows(rows)
    return written(buffers)


def has_changed(buffers: Accumulator) -> bool:
    return buffers.unsettled > 0 or buffers.pool.used > 0


@given(records=RECORDS, keys=st.sampled_from(KINDS), values=st.sampled_from(KINDS), first=st.integers(0, 3), as_table=st.booleans(), has_keys=st.booleans())
def test_the_same_bytes_are_written_to_the_same_partitions(records: list[Any], keys: Any, values: Any, first: int, as_table: bool, has_keys: bool) -> None:
    columns = {"value": pyarrow.array([value for _, value in records], values)}
    if has_keys:
        columns["key"] = pyarrow.array([key for key, _ in records], keys)
    whole: Any = pyarrow.table(columns) if as_table else pyarrow.record_batch(columns)
    data = whole.slice(min(first, len(records) - 1))
    buffers = accumulator(Clock(), partitions=PARTITIONS)
    deliveries = send(path_of(buffers, whole), data)
    assert isinstance(deliveries, Deliveries)
    assert len(deliveries) == data.num_rows
    assert written(buffers) == sent_by_the_other_way(data)


def test_columns_are_found_by_the_names_that_the_call_gives() -> None:
    data = pyarrow.table({"other": [1], "body": [b"v"], "id": [b"k"]})
    names = NAMES._replace(value="body", key="id", headers=None)
    buffers = accumulator(Clock(), partitions=PARTITIONS)
    path = path_of(buffers, data, names)
    assert send(path, data) is None
    assert isinstance(send(path, data, names), Deliveries)
    assert written(buffers) == sent_by_the_other_way(data, names)


NOT_SIMPLE: Final[dict[str, Callable[[], Any]]] = {
    "another schema": lambda: pyarrow.table({"value": [b"a"], "key": ["text"]}),
    "columns changed places": lambda: SIMPLE.select(["key", "value"]),
    "a timestamp": lambda: SIMPLE.append_column("timestamp", pyarrow.array([1, 2])),
    "several pieces": lambda: pyarrow.concat_tables([SIMPLE, SIMPLE]),
    "no rows": lambda: SIMPLE.slice(0, 0),
    "no pieces": SIMPLE.schema.empty_table,
    "many rows": lambda: pyarrow.table({"value": [b"a"] * (CHUNK + 1), "key": [b"k"] * (CHUNK + 1)}),
    "a reader": SIMPLE.to_reader,
    "a dict": lambda: {"value": [b"a"], "key": [b"k"]},
    "None": lambda: None,
}


@pytest.mark.parametrize("name", NOT_SIMPLE)
def test_other_data_is_left_to_the_other_way_and_changes_nothing(name: str) -> None:
    buffers = accumulator(Clock())
    assert send(path_of(buffers, SIMPLE), NOT_SIMPLE[name]()) is None
    assert not has_changed(buffers)


@attrs.frozen
class Lying:
    """A batch of one column, as pyarrow would show it to us, whose buffers do not hold what it says."""

    offsets: Sequence[int] = range(101)
    bitmap: bytes | None = None
    null_count: int = 0
    offset: int = 0
    rows: int = 100
    wide: bool = False
    num_rows = 100

    @property
    def schema(self) -> Any:
        return SIMPLE.schema

    @property
    def type(self) -> Any:
        return pyarrow.large_binary() if self.wide else pyarrow.binary()

    def column(self, _at: int) -> Lying:
        return self

    def buffers(self) -> list[Any]:
        packed = struct.pack(f"{len(self.offsets) + 2}{'q' if self.wide else 'i'}", 0, *self.offsets, 100)  # what is read beyond its ends is no help
        width = 8 if self.wide else 4
        offsets = pyarrow.py_buffer(packed).slice(width, len(packed) - 2 * width)
        return [self.bitmap and pyarrow.py_buffer(self.bitmap), offsets, pyarrow.py_buffer(bytes(100))]

    def __len__(self) -> int:
        return self.rows


def sent(data: Lying, buffers: Accumulator) -> object:
    place = 0, data.type.id, data.wide
    path = ArrowPath(buffers, Observer(), None)
    path.learn(NAMES[:4], PlainColumns(data.schema, place, None, (pyarrow.Table, Lying)))
    return send(path, data)


@pytest.mark.parametrize("data", [
    Lying([-1, *range(1, 101)]), Lying([*range(100), 101]), Lying([*range(100), 2**40], wide=True), Lying([5, *range(1, 100), 4]), Lying(offset=1), Lying(offset=1, wide=True),
    Lying(range(102), offset=-1), Lying(offset=2**62), Lying(rows=99), Lying(bitmap=b"\xff" * 12, null_count=1), Lying(bitmap=bytes(13), null_count=101)])
def test_buffers_that_do_not_hold_the_rows_are_left_to_the_other_way(data: Lying) -> None:
    buffers = accumulator(Clock())
    assert sent(data, buffers) is None
    assert not has_changed(buffers)


@pytest.mark.parametrize("data", [Lying(), Lying(wide=True), Lying(bitmap=b"\xff" * 13), Lying(bitmap=bytes(13), null_count=100), Lying([0, *range(101)], offset=1)])
def test_buffers_that_just_hold_the_rows_are_sent(data: Lying) -> None:
    assert isinstance(sent(data, accumulator(Clock())), Deliveries)


def test_a_column_of_another_type_than_the_schema_says_is_left_to_the_other_way() -> None:
    buffers = accumulator(Clock())
    path = ArrowPath(buffers, Observer(), None)
    path.learn(NAMES[:4], PlainColumns(SIMPLE.schema, (0, pyarrow.string().id, False), None, (pyarrow.Table, Lying)))
    assert send(path, Lying()) is None
    assert not has_changed(buffers)


@pytest.mark.parametrize("other", [{"topic": "value"}, {"partition": "value"}, {"value": None}, {"value": ["unhashable"]}, {"key": b"key"}, {"timestamp": "other"}], ids=str)
def test_other_arguments_are_left_to_the_other_way(other: dict[str, Any]) -> None:
    buffers = accumulator(Clock())
    assert send(path_of(buffers, SIMPLE), SIMPLE, NAMES._replace(**other)) is None
    assert not has_changed(buffers)


@pytest.mark.parametrize("topic", ["unknown", None, b"orders", 1])
def test_a_topic_that_is_not_known_is_left_to_the_other_way(topic: Any) -> None:
    buffers = accumulator(Clock())
    assert send(path_of(buffers, SIMPLE), SIMPLE, topic=topic) is None
    assert not has_changed(buffers)


@pytest.mark.parametrize("data", [
    pyarrow.table({"value": pyarrow.array([b"a"], pyarrow.binary_view())}), pyarrow.table({"value": pyarrow.array([b"ab"], pyarrow.binary(2))}),
    pyarrow.table({"value": pyarrow.array(["a"]).dictionary_encode()}), pyarrow.table({"value": [b"a"], "headers": pyarrow.nulls(1)}),
    pyarrow.table({"value": [b"a"], "timestamp": [1]}), SIMPLE.to_reader()], ids=["views", "fixed", "dictionary", "headers", "timestamp", "reader"])
def test_what_Arrow_converts_is_not_plain(data: Any) -> None:
    assert plain_columns(data, NAMES) is None


def test_a_topic_by_row_is_not_plain() -> None:
    assert plain_columns(SIMPLE, NAMES._replace(topic="key", key=None)) is None


def test_a_column_that_is_not_sent_may_be_of_any_type() -> None:
    assert plain_columns(pyarrow.table({"value": [b"a"], "count": [1]}), NAMES) is not None


def test_a_gate_that_is_closed_leaves_all_to_the_other_way() -> None:
    buffers = accumulator(Clock())
    path = path_of(buffers, SIMPLE)
    buffers.set_gate(IllegalStateError("no transaction is open"))
    assert send(path, SIMPLE) is None


def test_rows_without_memory_are_left_for_the_other_way_to_append() -> None:
    buffers = accumulator(Clock(), memory=40_000, batch_size=16_384, partitions=1)
    data = pyarrow.table({"value": [b"x" * 1000] * 100})
    rows = send(path_of(buffers, data), data)
    assert isinstance(rows, Rows)
    assert rows.position == buffers.unsettled
    assert 20 < buffers.unsettled < 40


def test_a_row_that_can_never_fit_is_refused_alone() -> None:
    buffers = accumulator(Clock(), partitions=1, max_request_size=10_000)
    data = pyarrow.table({"value": [b"x", b"x" * 20_000, b"x"]})
    deliveries = send(path_of(buffers, data), data)
    assert isinstance(deliveries, Deliveries)
    assert list(deliveries.rejected()) == [1]
    assert buffers.unsettled == 2


def of_two_batches(when_the_first_is_full: Callable[[Accumulator], object]) -> Callable[[], Deliveries | Rows | None]:
    """A call whose rows fill one batch and some of another."""
    buffers = accumulator(Clock(), partitions=1)
    data = pyarrow.table({"value": [b"x" * 1000] * 20})
    path = path_of(buffers, data)
    buffers.on_ready = lambda: when_the_first_is_full(buffers)
    return lambda: send(path, data)


def test_rows_behind_a_close_are_refused_by_index() -> None:
    deliveries = of_two_batches(lambda buffers: buffers.close())()
    assert isinstance(deliveries, Deliveries)
    refused = deliveries.rejected()
    assert 0 < len(refused) < 20
    assert list(refused) == list(range(20 - len(refused), 20))
    assert all(isinstance(error, ClientClosedError) for error in refused.values())


def test_an_interrupt_notes_the_index_that_was_reached() -> None:
    def strike(_buffers: Accumulator) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        of_two_batches(strike)()
    [note] = stopped.value.__notes__
    assert "The bulk was interrupted at the record at index 1" in note
