"""A quick check of values before fastavro writes them: it writes a number out of range, or 1.5 as 1, without an error.

`quick_check` accepts only values that are certainly right; what it does not accept gets fastavro's whole validation,
which takes longer than writing. Types for which the writer itself raises an error need no check.
"""
from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

Check = Callable[[Any], bool]
_MISSING: Final = object()


def quick_check(parsed: Any) -> Check | None:
    """The check for a schema as fastavro parsed it; None: nothing to check."""
    named = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
    return _Checks(named).of(parsed)


def _is_int(value: Any) -> bool:
    return type(value) is int and -2147483648 <= value <= 2147483647


def _is_long(value: Any) -> bool:
    return type(value) is int and -9223372036854775808 <= value <= 9223372036854775807


def _is_real(value: Any) -> bool:
    return type(value) is float or type(value) is int


def _is_bool(value: Any) -> bool:
    return type(value) is bool


def _is_null(value: Any) -> bool:
    return value is None


def _unsure(_value: Any) -> bool:
    return False


PLAIN: Final[Mapping[str, Check | None]] = {
    "null": _is_null, "boolean": _is_bool, "int": _is_int, "long": _is_long, "float": _is_real, "double": _is_real,
    "string": None, "bytes": None, "enum": None, "fixed": None,
}


LOGICAL: Final[Mapping[str, type]] = {
    "date": datetime.date, "timestamp-micros": datetime.datetime, "timestamp-millis": datetime.datetime, "uuid": uuid.UUID,
}
"""Types of Python that fastavro converts; another value, such as a number, gets the whole validation."""


class _Checks:
    """Makes the checks of one schema's parts."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._open: set[str] = set()

    def of(self, schema: Any) -> Check | None:
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and "logicalType" in schema:
            return _of_type(LOGICAL.get(schema["logicalType"], type(None)))
        if isinstance(kind, (dict, list)):
            return self.of(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return _array(self.of(schema["items"]))
        if kind == "map":
            return _map(self.of(schema["values"]))
        return PLAIN[kind] if kind in PLAIN else self._reference(kind)

    def _reference(self, name: str) -> Check | None:
        """A type inside itself is left to the whole validation."""
        return _unsure if name in self._open or name not in self._named else self.of(self._named[name])

    def _record(self, schema: Any) -> Check:
        self._named.setdefault(schema["name"], schema)
        self._open.add(schema["name"])
        made = [(field["name"], self.of(field["type"])) for field in schema["fields"]]
        self._open.discard(schema["name"])
        return _record([(name, check) for name, check in made if check is not None])

    def _union(self, branches: list[Any]) -> Check:
        """Null and one plain type are certain; of several others the writer chooses one."""
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1 or len(branches) != 2 or not isinstance(others[0], str):
            return _unsure
        check = {"string": _is_text, "bytes": _is_bytes}.get(others[0]) or self.of(others[0])
        return _unsure if check is None else lambda value: value is None or check(value)


def _of_type(kind: type) -> Check:
    return _unsure if kind is type(None) else lambda value: type(value) is kind


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _record(checks: list[tuple[str, Check]]) -> Check:
    def check(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name, each in checks:  # noqa: SIM110 a generator takes twice as long
            if not each(value.get(name, _MISSING)):
                return False
        return True
    return check


def _array(item: Check | None) -> Check:
    return lambda value: type(value) is list and (item is None or all(map(item, value)))


def _map(item: Check | None) -> Check:
    return lambda value: type(value) is dict and (item is None or all(map(item, value.values())))
