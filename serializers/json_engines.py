"""What reads and writes JSON: Python's own module, or orjson. Independent of topics and types of users."""
from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from pyclient.errors import ConfigurationError
from pyclient.redaction import in_one_line

EngineName: TypeAlias = Literal["json", "orjson"]
PLAIN: Final = frozenset({str, int, bool, type(None)})
BOM: Final = "\ufeff"
UNREADABLE: Final = (TypeError, ValueError, RecursionError)
"""What an engine raises for values that JSON cannot hold, and for what is not JSON."""


class Engine(NamedTuple):
    """A writer of values and a reader of data; both raise `UNREADABLE`."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


def json_engine(name: EngineName) -> Engine:
    """The engine of that name.

    Raises:
        ConfigurationError: there is none, or it is not installed.
    """
    if name == "json":
        return Engine(_write, _read)
    if name == "orjson":
        return _orjson()
    raise ConfigurationError(f"engine={name!r}: JSON is written by 'json' or 'orjson'", option="engine")


def path_of_not_finite(value: Any) -> str | None:
    """Where a float is NaN or infinite, which some writers turn into null; None if all are finite. The value itself has
    the path "value"."""
    if _plain_and_finite((value,)):
        return None
    for path, found in _floats(value, ()):
        if not math.isfinite(found):
            return path_text(path) or "value"
    return None


def path_text(path: Iterable[str | int]) -> str:
    """A path as errors show it, such as ``lines.[0].text``. The data may choose its texts, so it is cut and printable.
    """
    return in_one_line(".".join(f"[{step}]" if isinstance(step, int) else step for step in path), 300)


def _plain_and_finite(values: Iterable[Any]) -> bool:
    """Whether it needs no look at each path: the usual case, and ten times as fast."""
    for value in values:
        kind = type(value)
        if kind is float:
            if value - value != 0.0:
                return False
        elif kind is dict:
            if not _plain_and_finite(value.values()):
                return False
        elif kind is list:
            if not _plain_and_finite(value):
                return False
        elif kind not in PLAIN:
            return False
    return True


def _floats(value: Any, path: tuple[str | int, ...]) -> Iterable[tuple[tuple[str | int, ...], float]]:
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _floats(each, (*path, str(name)))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, each in enumerate(value):
            yield from _floats(each, (*path, index))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _floats(getattr(value, field.name, None), (*path, field.name))


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:64]} is too large for a float")
    return number


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER: Final = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)


def _write(value: Any) -> bytes:
    return _ENCODER.encode(value).encode("utf-8")


def _read(data: bytes) -> Any:
    """Only UTF-8: `json.loads` guesses UTF-16 and UTF-32, and lets halves of surrogates pass. A mark at the beginning,
    as Windows programs write it, is skipped."""
    return _DECODER.decode(data.decode("utf-8").removeprefix(BOM))


def _orjson() -> Engine:
    try:
        import orjson
    except ImportError as error:
        raise ConfigurationError(f"engine='orjson' needs that package ({error}): pip install orjson", option="engine") from error

    def write(value: Any) -> bytes:
        data = orjson.dumps(value)
        if b"null" in data and (path := path_of_not_finite(value)) is not None:
            raise ValueError(f"{path} is not finite, and orjson would write null")
        return data

    return Engine(write, lambda data: orjson.loads(data.removeprefix(BOM.encode())))
