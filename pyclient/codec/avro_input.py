"""Arrow data of many types in the few that `AvroRows` encodes, by a schema's tree.

Only such types become one another as hold the same values; what would lose digits or time is refused. An error names
the field. Independent of topics.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyclient.codec.avro_program import AvroNode, arrow_type
from pyclient.codec.avro_resolution import UnresolvedError, default_row, repeated

if TYPE_CHECKING:
    from pyclient.codec.avro_rows import Buffers


class MisfitError(Exception):
    """The data does not fit the schema. The message names the field."""


class AvroInput:
    """An array whose types fit a schema.

    Attributes:
        buffers: of each node, in the program's order, as `AvroRows` takes them; they live as long as this object.

    Raises:
        MisfitError: a field is missing, has a type that does not fit, or values that do not.
    """

    def __init__(self, node: AvroNode, array: Any, *, strict: bool) -> None:
        self._arrow = import_module("pyarrow")
        self._strict = strict
        self._kept: list[Any] = []
        self.buffers: list[Buffers] = []
        self._add(node, array)

    def _add(self, node: AvroNode, array: Any) -> None:
        if self._arrow.types.is_null(array.type) and node.kind != "null":
            array = self._arrow.nulls(len(array), arrow_type(node))
        if node.kind == "record":
            self._add_record(node, array)
        elif node.kind in ("array", "map"):
            self._add_items(node, array)
        else:
            self._add_leaf(node, array)

    def _keep(self, array: Any, *, offsets: int = 0, data: int = 0, high: int = 0) -> None:
        self._kept.append(array)
        valid = array.buffers()[0] if array.null_count else None
        self.buffers.append((_address(valid), offsets, data, array.offset, high))

    def _add_record(self, node: AvroNode, array: Any) -> None:
        if not self._arrow.types.is_struct(array.type):
            raise MisfitError(f"{node.where} is {array.type}, not a struct")
        names = [array.type.field(at).name for at in range(array.type.num_fields)]
        wanted = [child.path[-1] for child in node.children]
        extra = [name for name in names if name not in wanted]
        if extra and self._strict:
            raise MisfitError(f"{node.where} has the field {extra[0]!r}, which the schema does not have; strict=False leaves it out")
        if len(set(names)) < len(names):
            raise MisfitError(f"{node.where} has two fields of one name")
        self._keep(array)
        # below a null struct Arrow may hold anything: flatten makes it null
        columns = array.flatten() if array.null_count else [array.field(at) for at in range(len(names))]
        for schema, child in zip(node.schema["fields"], node.children, strict=True):
            self._add(child, columns[names.index(child.path[-1])] if child.path[-1] in names else _missing(schema, child, len(array)))

    def _add_items(self, node: AvroNode, array: Any) -> None:
        """An array's or a map's; offsets count within all items, also those before a slice."""
        types, kind = self._arrow.types, array.type
        if node.kind == "map":
            if not types.is_map(kind):
                raise MisfitError(f"{node.where} is {kind}, not a map")
            within = [array.keys, array.items]
        else:
            if types.is_large_list(kind) or types.is_fixed_size_list(kind):
                array = self._cast(node, array, self._arrow.list_(kind.value_type))
            if not types.is_list(array.type):
                raise MisfitError(f"{node.where} is {kind}, not a list")
            within = [array.values]
        self._keep(array, offsets=_address(array.buffers()[1]), high=min(map(len, within)))
        for child, items in zip(node.children, within, strict=True):
            self._add(child, items)

    def _add_leaf(self, node: AvroNode, array: Any) -> None:
        if node.kind == "null":
            if array.null_count < len(array):
                raise MisfitError(f"{node.where} is {array.type} with values, and null in the schema")
            self._keep(array)
            return
        array = self._codes(node, array) if node.kind == "enum" else self._fitted(node, array)
        buffers = array.buffers()
        has_offsets = node.kind in ("bytes", "string", "uuid")
        data = buffers[-1]
        self._keep(array, offsets=_address(buffers[1]) if has_offsets else 0, data=_address(data), high=0 if data is None else data.size)

    def _codes(self, node: AvroNode, array: Any) -> Any:
        """Symbols as their numbers."""
        arrow, compute = self._arrow, import_module("pyarrow.compute")
        array = array.dictionary_decode() if arrow.types.is_dictionary(array.type) else array
        if not _is_text(arrow, array.type):
            raise MisfitError(f"{node.where} is {array.type}, not strings, which the enum's symbols are")
        array = self._cast(node, array, arrow.string())
        codes = compute.index_in(array, value_set=arrow.array(node.schema["symbols"], arrow.string()))
        unknown = compute.and_(compute.is_null(codes), compute.is_valid(array))
        if compute.any(unknown).as_py():
            raise MisfitError(f"{node.where} has {array.filter(unknown)[0].as_py()!r}, which is no symbol of the enum")
        return codes

    def _fitted(self, node: AvroNode, array: Any) -> Any:
        kind = arrow_type(node)
        if array.type == kind:
            return array
        if self._arrow.types.is_dictionary(array.type):
            return self._fitted(node, array.dictionary_decode())
        if not _fits(self._arrow, array.type, kind):
            raise MisfitError(f"{node.where} is {array.type}, not {kind}: cast it first")
        return self._cast(node, array, kind)

    def _cast(self, node: AvroNode, array: Any, kind: Any) -> Any:
        try:
            made = array.cast(kind)
        except self._arrow.ArrowException as error:
            raise MisfitError(f"{node.where} is {array.type}, and does not fit {kind}: {error}") from error
        if node.kind == "float" and self._is_beyond(array, made):
            raise MisfitError(f"{node.where} is {array.type}, with a number beyond a float of 32 bits")
        return made

    def _is_beyond(self, array: Any, made: Any) -> bool:
        """Whether a finite number became infinite, which Arrow's cast allows."""
        compute = import_module("pyarrow.compute")
        return bool(compute.any(compute.and_(compute.is_inf(made), compute.is_finite(array))).as_py())


def _missing(schema: Any, child: AvroNode, rows: int) -> Any:
    try:
        return repeated(default_row(schema, child), rows)
    except UnresolvedError:
        raise MisfitError(f"{child.where} is missing, and has no default") from None


def _fits(arrow: Any, kind: Any, wanted: Any) -> bool:
    """Whether the values of a type are of the other one's kind; a cast then checks each."""
    types = arrow.types
    if types.is_integer(kind):
        return bool(types.is_integer(wanted) or types.is_floating(wanted))
    if types.is_timestamp(kind):
        return bool(types.is_timestamp(wanted)) and (kind.tz is None) == (wanted.tz is None)
    for is_kind in (types.is_floating, types.is_decimal, types.is_date, types.is_time):
        if is_kind(kind):
            return bool(is_kind(wanted))
    if _is_text(arrow, kind):
        return bool(types.is_string(wanted))
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind)
    return bool(is_bytes and (types.is_binary(wanted) or types.is_fixed_size_binary(wanted)))


def _is_text(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind))


def _address(buffer: Any) -> int:
    return 0 if buffer is None else int(buffer.address)
