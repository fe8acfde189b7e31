"""Avro's types as Spark's, and as the Arrow types that travel between Spark and tasks.

Where Spark has no such type, a column has the Avro value below it: times of a day and nanoseconds are whole numbers.
Knows neither registries nor data.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType, BinaryType, BooleanType, DataType, DateType, DecimalType, DoubleType, FloatType, IntegerType, LongType, MapType, NullType, StringType,
    StructField, StructType, TimestampNTZType, TimestampType,
)

from pyclient.codec.avro_program import AvroNode, arrow_type
from pyclient.errors import ConfigurationError

MOST_DIGITS: Final = 38
PLAIN: Final[dict[str, type[DataType]]] = {
    "bool": BooleanType, "int32": IntegerType, "int64": LongType, "float": FloatType, "double": DoubleType, "string": StringType, "binary": BinaryType,
    "date32[day]": DateType, "timestamp[us, tz=UTC]": TimestampType, "timestamp[us]": TimestampNTZType, "null": NullType,
}
"""Arrow's name of a type → Spark's."""


def spark_type(node: AvroNode) -> DataType:
    """The type of a schema's column in Spark.

    Raises:
        ConfigurationError: Spark has none, for a decimal of more than 38 digits.
    """
    if node.kind == "record":
        return StructType([StructField(child.path[-1], spark_type(child)) for child in node.children])
    if node.kind == "array":
        return ArrayType(spark_type(node.children[0]))
    if node.kind == "map":
        return MapType(StringType(), spark_type(node.children[1]))
    kind: Any = arrow_in_spark(arrow_type(node))
    if node.kind not in ("decimal", "decimal in fixed"):
        return PLAIN[str(kind)]()
    if kind.precision > MOST_DIGITS:
        raise ConfigurationError(f"{node.where} is a decimal of {kind.precision} digits, and Spark's decimals have at most {MOST_DIGITS}")
    return DecimalType(kind.precision, kind.scale)


def arrow_in_spark(kind: Any) -> Any:
    """The Arrow type that Spark takes in place of *kind*, and that every value of it can be cast to."""
    pa = import_module("pyarrow")

    match kind:
        case pa.StructType():
            return pa.struct([pa.field(each.name, arrow_in_spark(each.type)) for each in kind])
        case pa.ListType():
            return pa.list_(arrow_in_spark(kind.value_type))
        case pa.MapType():
            return pa.map_(pa.string(), arrow_in_spark(kind.item_type))
        case pa.DictionaryType():
            return pa.string()
        case pa.Decimal128Type() | pa.Decimal256Type():  # a kind of fixed size, for Arrow
            return kind
        case pa.FixedSizeBinaryType():
            return pa.binary()
        case pa.Time32Type():
            return pa.int32()
        case pa.Time64Type():
            return pa.int64()
        case pa.TimestampType():
            return pa.int64() if kind.unit == "ns" else pa.timestamp("us", kind.tz)
        case _:
            return kind


def arrow_from_spark(kind: Any, node: AvroNode) -> Any:
    """The type to cast Spark's *kind* to, so that whole numbers are again the times that the schema says."""
    pa = import_module("pyarrow")

    match kind, node.kind:
        case pa.StructType(), "record":
            children = {child.path[-1]: child for child in node.children}
            return pa.struct([each.with_type(arrow_from_spark(each.type, children[each.name])) if each.name in children else each for each in kind])
        case (pa.ListType() | pa.LargeListType()), "array":
            return pa.list_(arrow_from_spark(kind.value_type, node.children[0]))
        case pa.MapType(), "map":
            return pa.map_(kind.key_type, arrow_from_spark(kind.item_type, node.children[1]))
        case _, ("record" | "array" | "map"):
            return kind
    wanted = arrow_type(node)
    return wanted if arrow_in_spark(wanted) == kind and pa.types.is_integer(kind) else kind
