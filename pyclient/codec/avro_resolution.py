"""How the columns of a writer's schema become those of a reader's: fields by name or alias, defaults, promotions.

Decides per pair of schemas, never per row. Where the outcome depends on the row (a null that the reader lacks, a symbol
that it does not know) or on fastavro's rules, there is no such plan, and rows are read one by one.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from pyclient.codec.avro_columns import AvroColumns
from pyclient.codec.avro_defaults import encoded_default
from pyclient.codec.avro_program import AvroNode, arrow_type, finished
from pyclient.errors import ConfigurationError

Change: TypeAlias = Callable[[Any], Any]
"""A column of the writer → that of the reader, with as many rows."""
PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",), "string": ("bytes",), "bytes": ("string",)}
NAMED: Final = ("record", "enum", "fixed")


class UnresolvedError(Exception):
    """Rows of these schemas must be read one by one."""


class Plan(NamedTuple):
    """Columns of *node* are read, and *change* makes the reader's of them; None: they are the reader's already."""

    node: AvroNode
    change: Change | None


def plan_of(writer: AvroNode, reader: AvroNode) -> Plan:
    """How data of *writer* becomes columns of *reader*.

    Raises:
        UnresolvedError: there is no plan that holds for every row.
    """
    if writer.kind == "null" and reader.null_branch >= 0:
        return Plan(writer, lambda array: import_module("pyarrow").nulls(len(array), arrow_type(reader)))
    if writer.null_branch >= 0 and reader.null_branch < 0 and reader.kind != "null":
        raise UnresolvedError(f"{reader.where} may be null only for the writer")
    kind, wanted = writer.schema["type"], reader.schema["type"]
    if kind != wanted:
        return _promoted(writer, reader)
    if kind in NAMED and not _is_same_name(writer.schema, reader.schema):
        raise UnresolvedError(f"{reader.where} has another name")
    return _PLANS.get(kind, _leaf)(writer, reader)


def _is_same_name(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> bool:
    return bool(writer["name"] == reader["name"])


def _leaf(writer: AvroNode, reader: AvroNode) -> Plan:
    """The bytes are the same: the reader's logical type counts."""
    if {writer.kind, reader.kind} & {"decimal", "decimal in fixed"} and _digits(writer) != _digits(reader):
        raise UnresolvedError(f"{reader.where} has another precision")
    if writer.schema.get("size") != reader.schema.get("size"):
        raise UnresolvedError(f"{reader.where} has another size")
    return Plan(attrs.evolve(reader, path=writer.path, null_branch=writer.null_branch), None)


def _digits(node: AvroNode) -> tuple[str, object, object]:
    return node.kind, node.schema.get("precision"), node.schema.get("scale", 0)


def _promoted(writer: AvroNode, reader: AvroNode) -> Plan:
    kind, wanted = writer.schema["type"], reader.schema["type"]
    if wanted not in PROMOTIONS.get(kind, ()) or reader.kind not in (wanted, "uuid") or (kind == "string" and reader.kind != "bytes"):
        raise UnresolvedError(f"{reader.where}: {kind} does not become {wanted}")
    if kind == "bytes":
        return Plan(attrs.evolve(reader, path=writer.path, null_branch=writer.null_branch), None)
    plain = AvroNode(kind, writer.path, {"type": kind}, writer.null_branch)
    # numbers first become the plain type, and a time of that
    through = arrow_type(AvroNode(wanted, (), {"type": wanted}, -1))
    return Plan(plain, lambda array: array.cast(through, safe=False).cast(arrow_type(reader)))


def _enum(writer: AvroNode, reader: AvroNode) -> Plan:
    old, new = writer.schema["symbols"], reader.schema["symbols"]
    if not set(old) <= set(new):
        raise UnresolvedError(f"{reader.where} has fewer symbols")
    if old == new:
        return Plan(writer, None)

    def change(array: Any) -> Any:
        arrow = import_module("pyarrow")
        codes = arrow.array([new.index(symbol) for symbol in old], arrow.int32()).take(array.indices)
        return arrow.DictionaryArray.from_arrays(codes, arrow.array(new, arrow.string()))

    return Plan(writer, change)


def _array(writer: AvroNode, reader: AvroNode) -> Plan:
    """Arrays and maps: their items change, their offsets stay."""
    plans = [plan_of(*pair) for pair in zip(writer.children, reader.children, strict=True)]
    node = attrs.evolve(writer, children=tuple(plan.node for plan in plans))
    change = plans[-1].change
    if change is None:
        return Plan(node, None)

    def changed(array: Any) -> Any:
        arrow, kind = import_module("pyarrow"), arrow_type(reader)
        bits, offsets = array.buffers()[:2]
        if reader.kind == "array":
            return arrow.Array.from_buffers(kind, len(array), [bits, offsets], children=[change(array.values)])
        entries = arrow.Array.from_buffers(arrow.struct([kind.key_field, kind.item_field]), len(array.keys), [None],
                                           children=[array.keys, change(array.items)])
        return arrow.Array.from_buffers(kind, len(array), [bits, offsets], children=[entries])

    return Plan(node, changed)


class _Field(NamedTuple):
    """A field of the reader: the writer's at *place*, changed; or *default*, one row that is repeated."""

    place: int
    change: Change | None
    default: Any


def _record(writer: AvroNode, reader: AvroNode) -> Plan:
    places = {child.path[-1]: place for place, child in enumerate(writer.children)}
    nodes = list(writer.children)
    fields: list[_Field] = []
    used: set[int] = set()
    for schema, child in zip(reader.schema["fields"], reader.children, strict=True):
        place = next((places[name] for name in (schema["name"], *schema.get("aliases", ())) if name in places), -1)
        if place < 0:
            fields.append(_Field(place, None, default_row(schema, child)))
        elif place in used:
            raise UnresolvedError(f"{child.where} is of a field that another one is of")
        else:
            used.add(place)
            nodes[place], change = plan_of(writer.children[place], child)
            fields.append(_Field(place, change, None))
    node = attrs.evolve(writer, children=tuple(nodes))
    if len(nodes) == len(fields) and all(field.place == place and field.change is None for place, field in enumerate(fields)) and (
            [each.path[-1] for each in nodes] == [each.path[-1] for each in reader.children]):
        return Plan(node, None)
    return Plan(node, lambda array: _changed_record(array, fields, arrow_type(reader)))


def _changed_record(array: Any, fields: list[_Field], kind: Any) -> Any:
    arrow = import_module("pyarrow")

    def column(field: _Field) -> Any:
        if field.place < 0:
            return repeated(field.default, len(array))
        return array.field(field.place) if field.change is None else field.change(array.field(field.place))

    return arrow.Array.from_buffers(kind, len(array), [array.buffers()[0]], children=[column(field) for field in fields])


_PLANS: Final = {"enum": _enum, "array": _array, "map": _array, "record": _record}


# --- defaults -------------------------------------------------------------------------------------------------------


def default_row(schema: Mapping[str, Any], node: AvroNode) -> Any:
    """One row with the default of a field.

    Raises:
        UnresolvedError: it has none.
        ConfigurationError: it is not of the field's type.
    """
    if "default" not in schema:
        raise UnresolvedError(f"{node.where} has no default")
    columns = AvroColumns(node.program(), 1 << 30)
    if not columns.add(encoded_default({**schema, "type": node.plain_schema}, {})):
        raise ConfigurationError(f"Avro schema: the default of {node.where} is not of its type: {columns.fault}")
    return finished(node, columns)


def repeated(row: Any, rows: int) -> Any:
    """A column of *rows* rows like this one."""
    arrow = import_module("pyarrow")
    return row.take(arrow.nulls(rows, arrow.int32()).fill_null(0))
