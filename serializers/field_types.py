"""Converts JSON's values to the annotated types of dataclasses and back. Independent of JSON text and topics.

Types are looked at once, when a serde is made: what cannot be converted is refused there. Rule: the cost of any data
is linear in its size, so a union has at most one type that may be a list, and one that may be an object.
"""
from __future__ import annotations

import base64
import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Union
from uuid import UUID

from pyclient.errors import ConfigurationError, with_article
from pyclient.serializers.json_engines import path_text

Convert: TypeAlias = Callable[[Any], Any]
MISSING: Final = dataclasses.MISSING
SCALARS: Final = frozenset({bool, int, float, str})
NAMES: Final = {type(None): "null", bool: "a boolean", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "an object"}


class WrongValueError(Exception):
    """A value does not fit its type. *path* leads to it from the inside out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str | int] = []

    def inside(self, step: str | int) -> WrongValueError:
        """The same, seen from the object or list that has it at *step*."""
        self.path.append(step)
        return self

    def __str__(self) -> str:
        return ": ".join(filter(None, [path_text(reversed(self.path)), super().__str__()]))


class Converter(NamedTuple):
    """Both ways of one type; they raise `WrongValueError`."""

    read: Convert
    write: Convert
    kinds: frozenset[type]
    """The types of JSON's values that it writes."""


class Converters:
    """The converters of the dataclasses that one type leads to. *models* may refer to each other and to themselves."""

    def __init__(self) -> None:
        self._models: dict[type, Converter] = {}

    def of(self, kind: Any) -> Converter:
        """The converter of a type.

        Raises:
            ConfigurationError: there is none; the message has the path of the field.
        """
        kind = _plain(kind)
        if (scalar := SIMPLE.get(kind)) is not None:
            return scalar
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self._model(kind)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _members(kind, [(each.value, each) for each in kind])
        origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
        if origin is Literal:
            return _members(kind, [(each, each) for each in arguments])
        if origin in (Union, types.UnionType):
            return _union([self.of(each) for each in arguments], kind)
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            return _fixed_tuple([self.of(each) for each in arguments])
        if origin in LISTS:
            return _list(LISTS[origin], self.of(arguments[0] if arguments else Any))
        if origin in (dict, Mapping) and (not arguments or _plain(arguments[0]) is str):
            return _dict(self.of(arguments[1] if arguments else Any))
        raise ConfigurationError(f"{_named(kind)} cannot be converted to JSON")

    def _model(self, model: type) -> Converter:
        """The converter of a dataclass; within itself, one that finds it later."""

        def read(data: Any) -> Any:
            return self._models[model].read(data)

        def write(value: Any) -> Any:
            return self._models[model].write(value)

        if model not in self._models:
            self._models[model] = Converter(read, write, frozenset({dict}))
            self._models[model] = self._made(model)
        return self._models[model]

    def _made(self, model: Any) -> Converter:
        try:
            hints = typing.get_type_hints(model, include_extras=True)
        except (NameError, TypeError) as error:
            raise ConfigurationError(f"the annotations of {model.__qualname__} cannot be evaluated: {error}") from error
        fields: dict[str, Converter] = {}
        for field in dataclasses.fields(model):
            try:
                if field.init:
                    fields[field.name] = self.of(hints[field.name])
            except ConfigurationError as error:
                raise ConfigurationError(f"{model.__qualname__}.{field.name}: {error}") from error
        return _object(model, fields)


def _plain(kind: Any) -> Any:
    """*kind* without its names and notes."""
    while True:
        if typing.get_origin(kind) is typing.Annotated:
            kind = kind.__origin__
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind


def _named(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


def _needed(what: str, value: object) -> WrongValueError:
    return WrongValueError(f"{what} is needed, not {NAMES.get(type(value)) or with_article(type(value).__name__)}")


# ---- single values --------------------------------------------------------------------------------------------------


def _exact(kind: type) -> Converter:
    def checked(value: Any) -> Any:
        if type(value) is not kind:
            raise _needed(NAMES[kind], value)
        return value

    return Converter(checked, checked, frozenset({kind}))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _needed(NAMES[str], value)
    return value


def _number(value: Any) -> float:
    if type(value) not in (float, int):
        raise _needed(NAMES[float], value)
    try:
        number = float(value)
    except OverflowError:
        raise WrongValueError("the number is too large for a float") from None
    if not math.isfinite(number):
        raise WrongValueError(f"{number} is not finite, and JSON has no such number")
    return number


def _of_text(kind: type, what: str, parse: Callable[[str], Any], show: Callable[[Any], str]) -> Converter:
    def read(text: Any) -> Any:
        if type(text) is not str:
            raise _needed(f"the text of {what}", text)
        try:
            return parse(text)
        except (ValueError, ArithmeticError):
            raise WrongValueError(f"{text[:64]!r} is not the text of {what}") from None

    def write(value: Any) -> str:
        if not isinstance(value, kind) or (kind is date and isinstance(value, datetime)):
            raise _needed(what, value)
        return show(value)

    return Converter(read, write, frozenset({str}))


def _members(kind: Any, members: list[tuple[Any, Any]]) -> Converter:
    """An enum or a Literal: the value that JSON has of each member. Types count: True is not 1."""
    kinds = frozenset(type(value) for value, _ in members)
    if not kinds <= SCALARS:
        raise ConfigurationError(f"{_named(kind)} has values that JSON does not have")
    read = {(type(value), value): member for value, member in members}
    written = {(type(member), member): value for value, member in members}
    allowed = ", ".join(repr(value) for value, _ in members)

    def found(known: Mapping[tuple[type, Any], Any], value: Any) -> Any:
        try:
            return known[type(value), value]
        except (KeyError, TypeError):
            raise WrongValueError(f"one of {allowed} is needed, not {str(value)[:64]!r}") from None

    return Converter(lambda value: found(read, value), lambda member: found(written, member), kinds)


def _unchanged(value: Any) -> Any:
    return value


SIMPLE: Final[Mapping[Any, Converter]] = {
    **{kind: _exact(kind) for kind in (type(None), bool, int)},
    None: _exact(type(None)),
    str: Converter(_text, _text, frozenset({str})),
    float: Converter(_number, _number, frozenset({float, int})),
    Any: Converter(_unchanged, _unchanged, frozenset(NAMES)),
    object: Converter(_unchanged, _unchanged, frozenset(NAMES)),
    datetime: _of_text(datetime, "a datetime", datetime.fromisoformat, datetime.isoformat),
    date: _of_text(date, "a date", date.fromisoformat, date.isoformat),
    time: _of_text(time, "a time", time.fromisoformat, time.isoformat),
    UUID: _of_text(UUID, "a UUID", UUID, str),
    Decimal: _of_text(Decimal, "a Decimal", Decimal, str),
    bytes: _of_text(bytes, "bytes in base64", lambda text: base64.b64decode(text, validate=True), lambda data: base64.b64encode(data).decode()),
}


# ---- values of values -----------------------------------------------------------------------------------------------

LISTS: Final[Mapping[Any, Any]] = {list: list, Sequence: list, tuple: tuple, set: set, frozenset: frozenset}
"""Types that JSON writes as lists, and what reading makes of each."""


def _each(convert: Convert, values: Any) -> list[Any]:
    made: list[Any] = []
    try:
        for value in values:
            made.append(convert(value))  # noqa: PERF401 if one is wrong, their number is its index
    except WrongValueError as wrong:
        raise wrong.inside(len(made)) from None
    return made


def _list(kind: type, item: Converter) -> Converter:
    def read(values: Any) -> Any:
        if type(values) is not list:
            raise _needed(NAMES[list], values)
        made = _each(item.read, values)
        try:
            return made if kind is list else kind(made)
        except TypeError as error:
            raise WrongValueError(f"these do not fit into {with_article(kind.__name__)}: {error}") from None

    def write(values: Any) -> list[Any]:
        if not isinstance(values, (list, tuple) if kind is list else kind):
            raise _needed(with_article(kind.__name__), values)
        return _each(item.write, values)

    return Converter(read, write, frozenset({list}))


def _fixed_tuple(items: list[Converter]) -> Converter:
    def paired(values: Sequence[Any]) -> Iterable[tuple[Converter, Any]]:
        if len(values) != len(items):
            raise WrongValueError(f"a list of {len(items)} is needed, not a list of {len(values)}")
        return zip(items, values, strict=True)

    def read(values: Any) -> tuple[Any, ...]:
        if type(values) is not list:
            raise _needed(NAMES[list], values)
        return tuple(_each(lambda pair: pair[0].read(pair[1]), paired(values)))

    def write(values: Any) -> list[Any]:
        if not isinstance(values, tuple):
            raise _needed("a tuple", values)
        return _each(lambda pair: pair[0].write(pair[1]), paired(values))

    return Converter(read, write, frozenset({list}))


def _dict(item: Converter) -> Converter:
    def converted(convert: Convert, values: Any) -> dict[str, Any]:
        made = {}
        for name, value in values.items():
            try:
                made[_text(name)] = convert(value)
            except WrongValueError as wrong:
                raise wrong.inside(str(name)) from None
        return made

    def read(values: Any) -> dict[str, Any]:
        if type(values) is not dict:
            raise _needed(NAMES[dict], values)
        return converted(item.read, values)

    def write(values: Any) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise _needed("a mapping", values)
        return converted(item.write, values)

    return Converter(read, write, frozenset({dict}))


def _object(model: Any, fields: Mapping[str, Converter]) -> Converter:
    """A dataclass. Fields that the data has and the class lacks are left out, so that newer writers can be read."""
    required = [each.name for each in dataclasses.fields(model) if each.init and each.default is MISSING and each.default_factory is MISSING]

    def read(values: Any) -> Any:
        if type(values) is not dict:
            raise _needed(f"{NAMES[dict]} ({model.__qualname__})", values)
        for name in required:
            if name not in values:
                raise WrongValueError(f"the field is missing; {model.__qualname__} needs it").inside(name)
        found = {}
        for name, value in values.items():
            if (field := fields.get(name)) is not None:
                try:
                    found[name] = field.read(value)
                except WrongValueError as wrong:
                    raise wrong.inside(name) from None
        return _called(model, found)

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not model:
            raise _needed(with_article(model.__qualname__), value)
        made = {}
        for name, field in fields.items():
            try:
                made[name] = field.write(getattr(value, name))
            except WrongValueError as wrong:
                raise wrong.inside(name) from None
        return made

    return Converter(read, write, frozenset({dict}))


def _called(model: Any, fields: dict[str, Any]) -> Any:
    try:
        return model(**fields)
    except RecursionError:
        raise
    except Exception as error:  # of its __post_init__
        raise WrongValueError(f"{model.__qualname__} refuses it: {type(error).__name__}: {error}") from error


def _union(members: list[Converter], kind: Any) -> Converter:
    for what in (list, dict):
        if sum(what in member.kinds for member in members) > 1:
            raise ConfigurationError(f"{_named(kind)}: JSON does not say which of these {NAMES[what]} is")
    not_null = [member for member in members if member.kinds != {type(None)}]
    kinds = frozenset().union(*(member.kinds for member in members))
    if len(not_null) == 1 and len(members) == 2:
        return _optional(not_null[0], kinds)
    by_kind = {each: [member.read for member in members if each in member.kinds] for each in NAMES}
    writers = [member.write for member in members]
    return Converter(lambda value: _first(by_kind[type(value)], value), lambda value: _first(writers, value), kinds)


def _optional(member: Converter, kinds: frozenset[type]) -> Converter:
    return Converter(lambda value: None if value is None else member.read(value), lambda value: None if value is None else member.write(value), kinds)


def _first(converts: list[Convert], value: Any) -> Any:
    """What the first one makes that takes *value*; if none does, the error that is the deepest."""
    wrongs: list[WrongValueError] = []
    for convert in converts:
        try:
            return convert(value)
        except WrongValueError as wrong:
            wrongs.append(wrong)
    if not wrongs:
        raise WrongValueError(f"{NAMES[type(value)]} is not one of the types that it may be")
    raise max(wrongs, key=lambda wrong: len(wrong.path))
