"""Serdes of dataclasses, pydantic and msgspec models: what they write and read, and what their errors say."""
from __future__ import annotations

import dataclasses
import enum
import json
import math
import sys
import tracemalloc
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st

from pyclient import Consumer, Producer
from pyclient.errors import ConfigurationError, SerializationError
from pyclient.serializers import JsonSerde
from pyclient.serializers.dataclass import DataclassSerde
from pyclient.serializers.msgspec import MsgspecSerde
from pyclient.serializers.pydantic import PydanticSerde
from pyclient.testing import FakeCluster

Cents = NewType("Cents", int)


@dataclasses.dataclass
class Line:
    text: str
    more: list[Line] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Order:
    total: int
    lines: list[Line]
    weight: float = 1.0


class LineStruct(msgspec.Struct):
    text: str
    more: list[LineStruct] = []


class OrderStruct(msgspec.Struct):
    total: int
    lines: list[LineStruct]
    weight: float = 1.0


class LineModel(pydantic.BaseModel):
    text: str
    more: list[LineModel] = []


class OrderModel(pydantic.BaseModel):
    total: int
    lines: list[LineModel]
    weight: float = 1.0


class Kind(NamedTuple):
    """A serde, and how to make its objects, wrong ones too."""

    serde: Any
    order: Any
    line: Any


KINDS = {
    "dataclass": Kind(DataclassSerde(Order), Order, Line),
    "dataclass with orjson": Kind(DataclassSerde(Order, engine="orjson"), Order, Line),
    "msgspec": Kind(MsgspecSerde(OrderStruct), OrderStruct, LineStruct),
    "msgspec of a dataclass": Kind(MsgspecSerde(Order), Order, Line),
    "pydantic": Kind(PydanticSerde(OrderModel), OrderModel.model_construct, LineModel.model_construct),
    "pydantic of a dataclass": Kind(PydanticSerde(Order), Order, Line),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def order(kind: Kind, **changed: Any) -> Any:
    return kind.order(**{"total": 5, "lines": [kind.line(text="one", more=[]), kind.line(text="two", more=[])], "weight": 1.5, **changed})


@each_kind
def test_an_object_is_written_as_json_and_read_as_an_equal_one(kind: Kind) -> None:
    data = kind.serde.serialize("t", order(kind))
    assert json.loads(data) == {"total": 5, "lines": [{"text": "one", "more": []}, {"text": "two", "more": []}], "weight": 1.5}
    again = kind.serde.deserialize("t", data)
    assert type(again) is type(order(kind))
    assert again == order(kind)


@each_kind
def test_null_stays_None(kind: Kind) -> None:
    assert kind.serde.serialize("t", None) is None
    assert kind.serde.deserialize("t", None) is None


@each_kind
def test_fields_of_newer_writers_are_left_out_and_those_of_older_ones_get_defaults(kind: Kind) -> None:
    assert kind.serde.deserialize("t", b'{"total":5,"newer":{"a":[1]},"lines":[]}') == order(kind, lines=[], weight=1.0)


@each_kind
def test_the_error_of_data_names_topic_and_path(kind: Kind) -> None:
    for data, path in {
        b'{"total":"x","lines":[]}': "total",
        b'{"total":5,"lines":[{"text":"one"},{"text":[]}]}': r"lines\.\[1\]\.text",
        b'{"total":5,"lines":[{"text":"one","more":[{"text":5}]}]}': r"lines\.\[0\]\.more\.\[0\]\.text",
    }.items():
        with pytest.raises(SerializationError, match=rf"^topic 'orders': {path}: "):
            kind.serde.deserialize("orders", data)


@each_kind
def test_the_error_of_a_missing_field_names_it(kind: Kind) -> None:
    with pytest.raises(SerializationError, match="lines"):
        kind.serde.deserialize("t", b'{"total":5}')


@each_kind
def test_a_value_of_a_wrong_type_is_not_written_and_the_error_has_its_path(kind: Kind) -> None:
    wrong = order(kind, lines=[kind.line(text="one", more=[]), kind.line(text=5, more=[])])
    with pytest.raises(SerializationError, match=r"^topic 'orders': lines\.\[1\]\.text: "):
        kind.serde.serialize("orders", wrong)


@each_kind
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_not_written_as_null(kind: Kind, number: float) -> None:
    with pytest.raises(SerializationError, match=r"^topic 't': weight: .*not finite"):
        kind.serde.serialize("t", order(kind, weight=number))


@each_kind
def test_an_object_of_another_class_is_not_written(kind: Kind) -> None:
    for other in ({"total": 5}, object(), Cents(5), "text"):
        with pytest.raises(SerializationError, match="topic 't'"):
            kind.serde.serialize("t", other)


DEEP = 100_000
DEEPER_THAN_A_STACK = 1_000_000
"""Since Python 3.14 a stack's bytes bound what is ignored, not its depth: a level takes some forty of eight million."""
HOSTILE = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "cut": b'{"total":5,"lines":[{"text":"o',
    "more behind the end": b'{"total":5,"lines":[]} {}',
    "not UTF-8": b'{"total":5,"lines":[{"text":"\xff"}]}',
    "half of a surrogate": b'{"total":5,"lines":[{"text":"\xed\xa0\x80"}]}',
    "UTF-16": '{"total":5,"lines":[]}'.encode("utf-16"),
    "open lists": b"[" * DEEP,
    "lists": b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"total":5,"lines":' + b'[{"text":"","more":' * DEEP + b"[]" + b"}]" * DEEP + b"}",
    "ignored objects": b'{"total":5,"lines":[],"other":' + b'{"a":' * DEEPER_THAN_A_STACK + b"1" + b"}" * DEEPER_THAN_A_STACK + b"}",
    "a number of many digits": b'{"total":' + b"9" * DEEP + b',"lines":[]}',
    "a text as number": b'{"total":"' + b"9" * DEEP + b'","lines":[]}',
}


@each_kind
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_data_raises_the_documented_error_within_bounded_memory(kind: Kind, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(SerializationError, match="topic 't'") as failed:
            kind.serde.deserialize("t", data)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000 + 50 * len(data)
    finally:
        tracemalloc.stop()
    assert len(failed.value.message) < 2000


@pytest.mark.parametrize("kind", [name for name in KINDS if "pydantic" not in name])  # its models say whether they take infinity
@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999", b"1" + b"0" * 400])
def test_a_number_that_no_float_holds_is_not_read(kind: str, number: bytes) -> None:
    with pytest.raises(SerializationError, match="topic 't'"):
        KINDS[kind].serde.deserialize("t", b'{"total":5,"lines":[],"weight":' + number + b"}")


@pytest.mark.parametrize("make", [DataclassSerde, MsgspecSerde, PydanticSerde])
def test_a_key_that_the_data_chose_cannot_fill_or_forge_the_log(make: Any) -> None:
    @dataclasses.dataclass
    class Counts:
        counts: dict[str, int]

    forged = {"counts": {"\nERROR forged\x1b[2J" + "x" * 100_000: "y"}}
    with pytest.raises(SerializationError, match="topic 't': counts") as failed:
        make(Counts).deserialize("t", json.dumps(forged).encode())
    assert failed.value.message.isprintable()
    assert len(failed.value.message) < 1000


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Everything:
    flag: bool
    cents: Cents
    ratio: float
    note: str | None
    when: datetime
    day: date
    at: time
    id: UUID
    price: Decimal
    blob: bytes
    colour: Colour
    level: Level
    mode: Literal["a", 1, True]
    points: tuple[Point, ...]
    corner: tuple[int, str]
    tags: frozenset[str]
    spots: set[Point]
    counts: dict[str, int | list[int]]
    either: int | str | Point | None
    named: Annotated[list[str], "some"]


points = st.builds(Point, st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
texts = st.text(st.characters(codec="utf-8"))
numbers = st.integers(-2**63, 2**63)
everything = st.builds(
    Everything, flag=st.booleans(), cents=numbers.map(Cents), ratio=st.floats(allow_nan=False, allow_infinity=False), note=st.none() | texts,
    when=st.datetimes(timezones=st.just(timezone.utc)), day=st.dates(), at=st.times(), id=st.uuids(),
    price=st.decimals(allow_nan=False, allow_infinity=False), blob=st.binary(), colour=st.sampled_from(Colour), level=st.sampled_from(Level),
    mode=st.sampled_from(["a", 1, True]), points=st.lists(points).map(tuple), corner=st.tuples(numbers, texts), tags=st.frozensets(texts),
    spots=st.sets(points), counts=st.dictionaries(texts, numbers | st.lists(numbers)), either=numbers | texts | points | st.none(),
    named=st.lists(texts))


@given(everything)
def test_a_dataclass_of_every_supported_type_comes_back(value: Everything) -> None:
    serde = DataclassSerde(Everything)
    again = serde.deserialize("t", serde.serialize("t", value))
    assert again == value
    assert again is not None
    assert type(again.mode) is type(value.mode)


@dataclasses.dataclass
class Shared:
    """The types that msgspec has too."""

    flag: bool
    ratio: float
    note: str | None
    when: datetime
    day: date
    id: UUID
    price: Decimal
    blob: bytes
    colour: Colour
    level: Level
    points: tuple[Point, ...]
    corner: tuple[int, str]
    tags: frozenset[str]
    counts: dict[str, int | list[int]]
    either: int | str | Point | None


shared = everything.map(lambda value: Shared(**{field.name: getattr(value, field.name) for field in dataclasses.fields(Shared)}))


@given(shared)
def test_msgspec_reads_what_a_dataclass_serde_writes_and_the_other_way_round(value: Shared) -> None:
    ours, theirs = DataclassSerde(Shared), MsgspecSerde(Shared)
    assert theirs.deserialize("t", ours.serialize("t", value)) == value
    assert ours.deserialize("t", theirs.serialize("t", value)) == value


@pytest.mark.parametrize(("field", "wrong", "problem"), [
    ("flag", 1, "a boolean is needed, not a whole number"),
    ("cents", True, "a whole number is needed, not a boolean"),
    ("cents", 5.0, "a whole number is needed, not a number"),
    ("ratio", "1", "a number is needed, not a text"),
    ("note", 5, "a text is needed, not a whole number"),
    ("when", "yesterday", "'yesterday' is not the text of a datetime"),
    ("day", 20250101, "the text of a date is needed, not a whole number"),
    ("id", "x", "'x' is not the text of a UUID"),
    ("price", "1,5", "'1,5' is not the text of a Decimal"),
    ("blob", "?", "'?' is not the text of bytes in base64"),
    ("colour", "green", "one of 'red', 'blue' is needed, not 'green'"),
    ("level", True, "one of 1, 2 is needed, not 'True'"),
    ("mode", [], "one of 'a', 1, True is needed, not '[]'"),
    ("points.[1].x", {"y": 1.0}, "the field is missing; Point needs it"),
    ("corner", [1], "a list of 2 is needed, not a list of 1"),
    ("corner.[1]", 5, "a text is needed, not a whole number"),
    ("counts.a", "x", "a text is not one of the types that it may be"),
    ("either", True, "a boolean is not one of the types that it may be"),
    ("either.x", "1", "a number is needed, not a text"),
])
def test_a_dataclass_serde_says_what_is_needed_where(field: str, wrong: Any, problem: str) -> None:
    name = field.partition(".")[0]
    good: dict[str, Any] = {"flag": True, "cents": 1, "ratio": 1, "note": None, "when": "2025-01-01T00:00:00Z", "day": "2025-01-01", "at": "10:00", "id": str(UUID(int=1)),
            "price": "1.5", "blob": "", "colour": "red", "level": 1, "mode": "a", "points": [{"x": 1}], "corner": [1, "a"], "tags": [], "spots": [],
            "counts": {}, "either": None, "named": []}
    broken = {"points.[1].x": [{"x": 1}, wrong], "corner.[1]": [1, wrong], "counts.a": {"a": wrong}, "either.x": {"x": wrong}}.get(field, wrong)
    serde = DataclassSerde(Everything)
    assert serde.deserialize("t", json.dumps(good).encode()) is not None
    with pytest.raises(SerializationError) as failed:
        serde.deserialize("t", json.dumps({**good, name: broken}).encode())
    assert failed.value.message == f"topic 't': {field}: {problem}"


def test_a_subclass_is_not_written_without_its_fields() -> None:
    @dataclasses.dataclass
    class More(Line):
        extra: int = 1

    with pytest.raises(SerializationError, match=r"a Line is needed, not a .*More"):
        DataclassSerde(Line).serialize("t", More("text"))


def test_what_post_init_raises_is_the_documented_error_with_the_path() -> None:
    @dataclasses.dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise LookupError("negative")

    @dataclasses.dataclass
    class Holder:
        inner: list[Any]

    Holder.__annotations__["inner"] = list[Positive]
    with pytest.raises(SerializationError, match=r"inner\.\[0\]: .*Positive refuses it: LookupError: negative"):
        DataclassSerde(Holder).deserialize("t", b'{"inner":[{"number":-1}]}')


@pytest.mark.parametrize(("kind", "problem"), [
    (complex, r"Bad\.field: complex cannot be converted"),
    (list[complex], r"Bad\.field: complex cannot be converted"),
    (dict[int, str], r"Bad\.field: dict\[int, str\] cannot be converted"),
    (Line | Point, "JSON does not say which of these an object is"),
    (list[int] | set[int], "JSON does not say which of these a list is"),
    ("Missing", "cannot be evaluated"),
])
def test_a_field_that_cannot_be_converted_is_refused_when_the_serde_is_made(kind: Any, problem: str) -> None:
    bad = dataclasses.make_dataclass("Bad", [("field", kind)])
    with pytest.raises(ConfigurationError, match=problem):
        DataclassSerde(bad)


@pytest.mark.parametrize(("make", "kind"), [(DataclassSerde, int), (MsgspecSerde, list[int] | set[int]), (PydanticSerde, memoryview)])
def test_a_type_that_cannot_be_converted_is_refused_when_the_serde_is_made(make: Any, kind: Any) -> None:
    with pytest.raises(ConfigurationError):
        make(kind)


def test_pydantic_writes_aliases_and_reads_them() -> None:
    class Aliased(pydantic.BaseModel):
        total: int = pydantic.Field(alias="Total")

    serde = PydanticSerde(Aliased)
    assert serde.serialize("t", Aliased(Total=5)) == b'{"Total":5}'
    assert serde.deserialize("t", b'{"Total":5}') == Aliased(Total=5)


def test_what_a_validator_raises_is_the_documented_error() -> None:
    class Raising(pydantic.BaseModel):
        total: int

        @pydantic.field_validator("total")
        @classmethod
        def check(cls, total: int) -> int:
            raise LookupError("no")

    with pytest.raises(SerializationError, match="topic 't': LookupError: no"):
        PydanticSerde(Raising).deserialize("t", b'{"total":5}')


def test_msgspec_writes_without_a_check_when_validate_is_false() -> None:
    assert MsgspecSerde(LineStruct, validate=False).serialize("t", LineStruct(text=5)) == b'{"text":5,"more":[]}'  # type: ignore[arg-type]


def test_models_go_through_a_topic(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    serde = MsgspecSerde(OrderStruct)
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, key_serializer=DataclassSerde(Point), value_serializer=serde) as producer:
        producer.send("t", OrderStruct(5, []), Point(1.0))
        producer.send("t", None, Point(2.0))
        with pytest.raises(SerializationError, match="total: Expected `int`"):
            producer.send("t", OrderStruct("5", []))  # type: ignore[arg-type]
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, topics=["t"], group_id="g", auto_offset_reset="earliest",
                  key_deserializer=DataclassSerde(Point), value_deserializer=serde) as consumer:
        assert [(record.key, record.value) for record in consumer.poll(20)] == [(Point(1.0), OrderStruct(5, [])), (Point(2.0), None)]


# ---- engines of JSON ------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner))


@given(values.filter(lambda value: value is not None))
def test_each_engine_reads_what_the_other_writes(value: Any) -> None:
    ours, theirs = JsonSerde(), JsonSerde(engine="orjson")
    assert theirs.deserialize("t", ours.serialize("t", value)) == value
    assert ours.deserialize("t", theirs.serialize("t", value)) == value


@pytest.mark.parametrize("engine", ["json", "orjson"])
def test_hostile_json_raises_the_documented_error(engine: Any) -> None:
    serde = JsonSerde(engine)
    for data in [each for name, each in HOSTILE.items() if name in ("nothing", "cut", "more behind the end", "not UTF-8", "half of a surrogate", "UTF-16", "open lists")] \
            + [b"NaN", b"[-Infinity]", b"1e999", b"1" + b"0" * 400 + b".5"]:
        with pytest.raises(SerializationError, match="topic 't'"):
            serde.deserialize("t", data)
    with pytest.raises(SerializationError, match="topic 't'"):
        serde.serialize("t", {"a": [None, {"b": math.nan}]})


@pytest.mark.parametrize("engine", ["json", "orjson"])
def test_a_byte_order_mark_before_json_is_skipped(engine: Any) -> None:
    assert JsonSerde(engine).deserialize("t", b'\xef\xbb\xbf{"a":1}') == {"a": 1}


@pytest.mark.parametrize(("package", "make", "remedy"), [
    ("orjson", lambda: JsonSerde("orjson"), "pip install orjson"),
    ("msgspec", lambda: MsgspecSerde(OrderStruct), r"pip install 'pyclient-kafka\[msgspec\]'"),
    ("pydantic", lambda: PydanticSerde(OrderModel), r"pip install 'pyclient-kafka\[pydantic\]'"),
])
def test_a_package_that_is_missing_is_named_with_the_command(package: str, make: Any, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=remedy):
        make()


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'json' or 'orjson'"):
        JsonSerde("simdjson")  # type: ignore[arg-type]
