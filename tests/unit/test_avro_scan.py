"""One rule says what Avro data is, by record and in columns: every schema's data is scanned before anything is made."""
from __future__ import annotations

import copy
import datetime
import decimal
import fractions
import io
import pickle
import struct
import time
import tracemalloc
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.avro_columns import AvroColumns
from pyclient.codec.avro_defaults import number
from pyclient.codec.avro_program import node_of
from pyclient.codec.avro_scan_program import ScanProgram
from pyclient.errors import SerializationError
from pyclient.serializers.avro import AvroSerde
from pyclient.serializers.avro_arrow import AvroEncoder
from pyclient.serializers.avro_schema import AvroSchema
from tests.unit.test_avro_columns import LOGICAL, outcome, outcomes
from tests.unit.test_avro_values import fitting, schema_of, schemas

DECIMAL: dict[str, Any] = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}
LIST: dict[str, Any] = {"type": "record", "name": "List", "fields": [
    {"name": "v", "type": ["int", "string", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]}, {"name": "next", "type": ["null", "List"]}]}


class Damaged(Exception):  # noqa: N818 a name of this file
    """The data is not of the schema."""


class Oracle:
    """What data of a schema must be, value by value, as the specification has it."""

    def __init__(self, parsed: Any) -> None:
        self._parsed = parsed
        self._named: dict[str, Any] = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}

    def is_valid(self, data: bytes) -> bool:
        source = io.BytesIO(data)
        try:
            self._value(self._parsed, source)
        except (Damaged, UnicodeDecodeError, RecursionError):
            return False
        return source.tell() == len(data)

    def _long(self, source: io.BytesIO) -> int:
        value, shift, byte = 0, 0, 0x80
        while shift < 70:
            (byte,) = self._bytes(source, 1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if shift == 70 and (byte >= 0x80 or value >> 64):
            raise Damaged
        return (value >> 1) ^ -(value & 1)

    def _number(self, source: io.BytesIO, low: int, high: int) -> int:
        value = self._long(source)
        if not low <= value < high:
            raise Damaged
        return value

    def _bytes(self, source: io.BytesIO, size: int) -> bytes:
        data = source.read(size) if size >= 0 else b""
        if size < 0 or len(data) < size:
            raise Damaged
        return data

    def _value(self, schema: Any, source: io.BytesIO) -> None:
        if isinstance(schema, list):
            self._value(schema[self._number(source, 0, len(schema))], source)
            return
        if not isinstance(schema, dict):
            schema = self._named.get(schema, {"type": schema})
        kind, logical = schema["type"], schema.get("logicalType")
        if not isinstance(kind, str) or (kind in self._named and kind != schema.get("name")):
            self._value(kind, source)
        elif kind == "record":
            self._named.setdefault(schema["name"], schema)
            for field in schema["fields"]:
                self._value(field["type"], source)
        elif kind in ("array", "map"):
            self._items(schema, source)
        elif kind == "enum":
            self._named.setdefault(schema["name"], schema)
            self._number(source, 0, len(schema["symbols"]))
        elif kind in ("int", "long"):
            day = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}.get(logical)
            self._number(source, *((0, day) if day else (-2**31, 2**31) if kind == "int" else (-2**63, 2**63)))
        else:
            self._sized(schema, source)

    def _sized(self, schema: Any, source: io.BytesIO) -> None:
        kind, logical = schema["type"], schema.get("logicalType")
        if kind == "fixed":
            self._named.setdefault(schema["name"], schema)
        sizes = {"null": 0, "boolean": 1, "float": 4, "double": 8, "fixed": schema.get("size")}
        data = self._bytes(source, sizes[kind] if kind in sizes else self._long(source))
        if kind == "string":
            text = data.decode()
            groups = text.split("-")
            if logical == "uuid" and not ([*map(len, groups)] == [8, 4, 4, 4, 12] and all(each in "0123456789abcdefABCDEF" for each in "".join(groups))):
                raise Damaged
        if logical == "decimal" and abs(int.from_bytes(data, "big", signed=True)) >= 10 ** schema["precision"]:
            raise Damaged

    def _items(self, schema: Any, source: io.BytesIO) -> None:
        while (count := self._long(source)) != 0:
            if count < 0:
                count = -count
                self._long(source)
            start = source.tell()
            for done in range(count):
                if schema["type"] == "map":
                    self._bytes(source, self._long(source)).decode()
                self._value(schema["items" if schema["type"] == "array" else "values"], source)
                if source.tell() == start and done > 65_536:
                    raise Damaged


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Data with a few bytes changed, cut or added; often with a number that no type has."""
    at = draw(st.integers(0, len(whole)))
    new = draw(st.binary(max_size=6) | st.sampled_from([b"\x01", b"\x80\x80\x80\x80\x80\x40", b"\x7f\xff", b"\xff" * 9 + b"\x01", b"\x80\x80\x80\x80\x10"]))
    return whole[:at] + new + whole[draw(st.integers(at, min(len(whole), at + 4))):]


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_data_of_any_schema_is_read_by_record_exactly_if_it_is_valid(data: st.DataObject) -> None:
    """Unions of several types, types inside themselves and logical types too."""
    source = data.draw(schemas([]))
    schema = schema_of(source)
    if schema is None:
        return
    try:
        whole = AvroSerde(source).serialize("t", data.draw(fitting(schema.parsed, {}))) or b""
    except SerializationError:
        whole = data.draw(st.binary(max_size=10))
    scan, oracle = ScanProgram(schema.parsed).scan(), Oracle(schema.parsed)
    for each in (whole, data.draw(damaged(whole))):
        assert (scan.wrong(each) == "") == oracle.is_valid(each), scan.wrong(each)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_damaged_logical_types_are_read_or_refused_by_record_and_in_columns_alike(data: st.DataObject) -> None:
    # dates and timestamps are left out: columns hold such as Python's types do not
    names = data.draw(st.lists(st.sampled_from([name for name in sorted(LOGICAL) if "date" not in name and "timestamp" not in name]), min_size=1, max_size=3))
    parts = [data.draw(st.sampled_from([LOGICAL[name][0], ["null", LOGICAL[name][0]]])) for name in names if name != "decimal in fixed"]
    serde = AvroSerde({"type": "record", "name": "R", "fields": [{"name": f"f{at}", "type": part} for at, part in enumerate(parts)]})
    row = serde.serialize("t", {f"f{at}": data.draw(LOGICAL[name][1]) for at, name in enumerate(each for each in names if each != "decimal in fixed")}) or b""
    rows: list[bytes | None] = [row, *(data.draw(damaged(row)) for _ in range(4))]
    assert outcomes(serde, rows) == [outcome(serde, each) for each in rows]


@pytest.mark.parametrize(("data", "why"), [
    (b"\x01\x00\x00", "v: branch -1 of a union that has 3"), (b"\x06\x00\x00", "v: branch 3 of a union that has 3"),
    (b"\x04\x01\x00", "v: symbol -1 of an enum that has 2"), (b"\x00" + number(2**40) + b"\x00", "v: 1099511627776 does not fit an int of 32 bits"),
    (b"\x00\x02\x02\x02\x05ab\x00", "next.v: a length of -3 B, with 3 B left"), (b"\x00\x02\x00\x00", "1 B follow the value's end")])
def test_what_is_wrong_is_said_also_of_unions_and_types_inside_themselves(data: bytes, why: str) -> None:
    with pytest.raises(SerializationError) as caught:
        AvroSerde(LIST).deserialize("t", data)
    assert caught.value.message == f"topic 't': not valid Avro data of List: {why}"


@pytest.mark.parametrize("precision", [1, 4, 9, 18, 19, 38, 39, 76, 77, 100])
@pytest.mark.parametrize("size", [None, 60])
def test_a_decimal_has_at_most_the_digits_of_its_precision(precision: int, size: int | None) -> None:
    kind: dict[str, Any] = {"logicalType": "decimal", "precision": precision, "scale": 1}
    kind |= {"type": "bytes"} if size is None else {"type": "fixed", "name": "F", "size": size}
    scan = ScanProgram(AvroSchema(kind).parsed).scan()
    largest = 10**precision - 1
    for value, is_valid in ((largest, True), (-largest, True), (0, True), (-1, True), (largest + 1, False), (-largest - 1, False), (256**45, False), (-256**45, False)):
        for width in ((value.bit_length() // 8 + 1, 60) if size is None else (60,)):
            content = value.to_bytes(width, "big", signed=True)
            assert (scan.wrong(number(width) + content if size is None else content) == "") is is_valid, (value, width)


def test_a_decimal_of_many_bytes_is_refused_without_making_a_number_of_it() -> None:
    """Python makes decimal digits of a megabyte in minutes."""
    began = time.process_time()
    with pytest.raises(SerializationError, match="more digits than its precision"):
        AvroSerde(DECIMAL).deserialize("t", number(1_000_000) + b"\x7f" * 1_000_000)
    assert time.process_time() - began < 5


def test_a_row_whose_nulls_exceed_the_memory_limit_takes_none() -> None:
    wide = {"type": "record", "name": "W", "fields": [{"name": f"f{at}", "type": "double"} for at in range(250)]}
    columns = AvroColumns(node_of(AvroSchema({"type": "array", "items": ["null", wide]}).parsed).program(), 2**30)
    hostile = number(1_000_000) + b"\0" * 1_000_001  # 2 GB of doubles
    tracemalloc.start()
    try:
        assert not columns.add(hostile)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert "memory_limit_bytes" in columns.fault
    assert columns.add(number(1) + b"\0\0")
    assert columns.rows == 1


def test_a_union_of_null_and_a_record_that_takes_no_bytes_leaves_other_uses_of_it_bounded() -> None:
    empty: dict[str, Any] = {"type": "record", "name": "E", "fields": []}
    serde = AvroSerde({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", empty]}, {"name": "b", "type": {"type": "array", "items": "E"}}]})
    assert serde.deserialize("t", b"\x00\x06\x00") == {"a": None, "b": [{}, {}, {}]}
    with pytest.raises(SerializationError, match=r"b: more than 65536 items that take no bytes"):
        serde.deserialize("t", b"\x00" + number(65_537) + b"\x00")


def test_records_inside_each_other_are_bounded_only_where_the_schema_does_not_bound_them() -> None:
    kind: Any = "int"
    for at in range(130):
        kind = {"type": "record", "name": f"T{at}", "fields": [{"name": "f", "type": kind}]}
    assert ScanProgram(AvroSchema(kind).parsed).scan().wrong(b"\x02") == ""


# --- what is written --------------------------------------------------------------------------------------------------

MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 10_001, datetime.UTC)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}


def record_of(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, **more}]}


@pytest.mark.parametrize("is_nullable", [False, True])
@pytest.mark.parametrize(("kind", "value", "why"), [
    ("float", 1e300, r"R\.f is 1e\+300, beyond a float of 32 bits"), ("float", -3.5e38, "beyond a float of 32 bits"),
    ("float", 2**128, "beyond a float of 32 bits"), ("float", -2**1100, "beyond a float of 32 bits"),
    (MILLIS, MOMENT, r"R\.f has microseconds \(2024-05-06 07:08:09.010001\+00:00\), which timestamp-millis would cut"),
    ({**MILLIS, "logicalType": "local-timestamp-millis"}, MOMENT.replace(tzinfo=None), "which local-timestamp-millis would cut"),
    ({"type": "int", "logicalType": "time-millis"}, MOMENT.time(), "which time-millis would cut"),
    ({"type": "int", "logicalType": "time-millis"}, -1, "the time -1 is not within a day"), (DATE, "hi", "is a str"),
    (DECIMAL, decimal.Decimal("1E+3"), "more digits than its precision"), ({"type": "string", "logicalType": "uuid"}, "7", "no UUID")])
def test_what_would_be_changed_or_not_read_again_is_not_written(kind: Any, value: Any, why: str, is_nullable: bool) -> None:
    with pytest.raises(SerializationError, match=why):
        AvroSerde(record_of(["null", kind] if is_nullable else kind)).serialize("t", {"f": value})


def test_a_number_beyond_a_float_is_not_written_from_columns_either() -> None:
    encoder = AvroEncoder(AvroSerde(record_of("float")))
    encoder.prepare("t", is_key=False)
    sound = [{"f": each} for each in (0.1, float("inf"), 3.4e38)]
    assert len(encoder.encode(pyarrow.array(sound), topics=["t"], places=None, first=0, is_key=False)) == 3
    with pytest.raises(SerializationError, match="column 'value', row 13: f is double, with a number beyond a float of 32 bits"):
        encoder.encode(pyarrow.array([*sound, {"f": 1e300}]), topics=["t"], places=None, first=10, is_key=False)


@pytest.mark.parametrize(("kind", "value", "data"), [
    ("float", float("inf"), b"\x00\x00\x80\x7f"), (["float", "double"], 1e300, b"\x02" + struct.pack("<d", 1e300)), (MILLIS, MOMENT.replace(microsecond=5000), None),
    ([DATE, "string"], "hi", b"\x02\x04hi"), ([DATE, "string"], "1970-01-02", b"\x00\x02"), (["float", "string"], "1e300", b"\x02\x0a1e300"), (["null", "float"], 0.5, b"\x02\x00\x00\x00\x3f")])
def test_what_a_type_of_a_union_takes_is_written_unchanged(kind: Any, value: Any, data: bytes | None) -> None:
    found = AvroSerde(record_of(kind)).serialize("t", {"f": value})
    assert data is None or found == data
    assert data is not None or AvroSerde(record_of(kind)).deserialize("t", found) == {"f": value}


@pytest.mark.parametrize(("kind", "default", "value"), [
    ("bytes", "\u00ff", b"\xff"), ({"type": "fixed", "name": "F", "size": 2}, "\u00ffa", b"\xffa"), (DECIMAL, "\u0001", decimal.Decimal("0.1")), (DATE, 1, datetime.date(1970, 1, 2)),
    (["bytes", "null"], "a", b"a"), ({"type": "array", "items": "bytes"}, ["\u00fe"], [b"\xfe"]), ("float", 0.5, 0.5),
    ({"type": "record", "name": "S", "fields": [{"name": "x", "type": "bytes"}]}, {"x": "\u00ff"}, {"x": b"\xff"})])
def test_a_missing_field_gets_its_default_of_any_type(kind: Any, default: Any, value: Any) -> None:
    for strict, validate in ((True, True), (False, False)):
        serde = AvroSerde(record_of(kind, default=default), strict=strict, validate=validate)
        written = serde.serialize("t", {})
        assert written == serde.serialize("t", {"f": value})
        assert serde.deserialize("t", written) == {"f": value}


UUID: dict[str, Any] = {"type": "string", "logicalType": "uuid"}


@pytest.mark.parametrize(("kind", "default", "value"), [
    (UUID, "", "5f1c2f4e-9d0b-4f7e-8c3a-000000000001"), (MILLIS, 253_402_300_800_000, MOMENT.replace(microsecond=0)), (DATE, 2**31 - 1, datetime.date(1970, 1, 2))])
def test_a_default_that_is_no_value_of_its_logical_type_concerns_only_records_that_need_it(kind: Any, default: Any, value: Any) -> None:
    serde = AvroSerde(record_of(kind, default=default))
    assert str(serde.deserialize("t", serde.serialize("t", {"f": value}))["f"]) == str(value)


def test_a_precision_beyond_all_numbers_costs_nothing() -> None:
    kind = {**DECIMAL, "precision": 2**31 - 1}
    began = time.process_time()
    serde = AvroSerde(record_of(kind))
    assert serde.deserialize("t", serde.serialize("t", {"f": decimal.Decimal("12.5")})) == {"f": decimal.Decimal("12.5")}
    assert time.process_time() - began < 5


@pytest.mark.parametrize("other", [bytearray, memoryview])
def test_what_is_bytes_in_another_type_is_read(other: Any) -> None:
    serde = AvroSerde(LIST)
    data = serde.serialize("t", {"v": "abc", "next": None})
    assert data is not None
    assert serde.deserialize("t", other(data)) == {"v": "abc", "next": None}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda serde: pickle.loads(pickle.dumps(serde))], ids=["copied", "pickled"])
def test_a_scan_can_be_copied_to_another_process(copied: Any) -> None:
    scan = copied(ScanProgram(AvroSchema(LIST).parsed).scan())
    assert scan.wrong(b"\x01\x00\x00") == "v: branch -1 of a union that has 3"


def test_containers_inside_each_other_are_bounded_and_called_so() -> None:
    kind: Any = "Deep"
    for _ in range(20):
        kind = {"type": "array", "items": kind}
    deep = {"type": "record", "name": "Deep", "fields": [{"name": "f", "type": kind}]}
    assert "more than 1000 records, arrays and maps inside each other" in ScanProgram(AvroSchema(deep).parsed).scan().wrong(b"\x02" * 3000)


@pytest.mark.parametrize("wrap", [lambda kind: kind, lambda kind: ["null", kind], lambda kind: {"type": "array", "items": kind}, lambda kind: {"type": "map", "values": ["null", kind]}])
@given(st.data())
@settings(deadline=None, max_examples=25)
def test_integers_become_the_nearest_float_by_record_and_in_columns_alike(wrap: Any, data: st.DataObject) -> None:
    """Rounded once, as Java does it: through a double, 2^60 + 2^36 + 1 would be rounded twice."""
    kind, bits = data.draw(st.sampled_from([("int", 31), ("long", 63)]))
    wanted = data.draw(st.sampled_from(["float", "double"]))
    near = data.draw(st.integers(0, bits - 1))
    value = min(2**bits - 1, max(-2**bits, data.draw(st.sampled_from([-1, 1])) * (2**near + 2 ** max(0, near - 24) + data.draw(st.integers(-1, 1)))))
    shown = [value] if isinstance(wrap(kind), dict) and "items" in wrap(kind) else {"k": value} if isinstance(wrap(kind), dict) else value
    row = AvroSerde(record_of(wrap(kind))).serialize("t", {"f": shown})
    serde = AvroSerde(record_of(wrap(wanted)), written_with=record_of(wrap(kind)))
    found = outcome(serde, row)
    assert outcomes(serde, [row]) == [found]
    assert str(nearest(value, wanted)) in str(found)


def nearest(value: int, kind: str) -> float:
    """By exact fractions: of the floats around the one that Python finds, the nearest, and of two the even one."""
    if kind == "double":
        return float(value)
    (bits,) = struct.unpack("<i", struct.pack("<f", value))
    around = [(abs(fractions.Fraction(one) - value), each & 1, one) for each in (bits - 1, bits, bits + 1) if (one := struct.unpack("<f", struct.pack("<i", each))[0]) == one]
    return float(min(around)[2])
