"""Kinds of option values: what is allowed, and how text from a properties file is converted.

Each option is declared with a kind. A kind raises ValueError for a value it does not accept; the caller adds the
option's name, and never shows the value of a secret.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from pyclient.config.addresses import Address, parse_addresses

INT16_MAX: Final = 2**15 - 1
"""Also the most bytes of a name in a request."""
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_TRUTH: Final[Mapping[str, bool]] = {"true": True, "false": False}
_DURATION: Final = re.compile(r"P(?:(?P<d>\d+)D)?(?:T(?=\d)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?")


class Kind:
    """A kind of value: ``expected`` completes the sentence "expected …", ``accepts`` is the type in signatures."""

    accepts: str = "object"
    imports: bool = False
    """A text may name code to import, as "package.module:Class"."""

    @property
    def expected(self) -> str:
        raise NotImplementedError

    def convert(self, value: object) -> object:
        raise NotImplementedError

    def shown(self, value: object) -> object:
        """A value as a user would write it."""
        return value

    def wrong(self) -> ValueError:
        return ValueError(f"expected {self.expected}")


def _span(low: float | None, high: float | None) -> str:
    if low is not None and high is not None and high not in (INT32_MAX, INT64_MAX):
        return f" from {low} to {high}"
    if low is not None:
        return f" of {low} or more"
    return "" if high is None else f" up to {high}"


@attrs.define(frozen=True)
class Int(Kind):
    """A whole number in a range; ``or_else`` lists values outside of it that mean something special."""

    low: int | None = 0
    high: int | None = INT32_MAX
    or_else: tuple[int, ...] = ()
    accepts = "int"

    @property
    def expected(self) -> str:
        special = "".join(f" or {value}" for value in self.or_else)
        return f"a whole number{_span(self.low, self.high)}{special}"

    def convert(self, value: object) -> int:
        number = self._number(value)
        inside = (self.low is None or number >= self.low) and (self.high is None or number <= self.high)
        if inside or number in self.or_else:
            return number
        raise self.wrong()

    def _number(self, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,30}\s*", value, re.ASCII):
            return int(value)
        raise self.wrong()


@attrs.define(frozen=True)
class Float(Kind):
    """A number in a range, whole or not."""

    low: float | None = 0.0
    high: float | None = None
    accepts = "float"

    @property
    def expected(self) -> str:
        return f"a number{_span(self.low, self.high)}"

    def convert(self, value: object) -> float:
        number = self._number(value)
        if (self.low is None or number >= self.low) and (self.high is None or number <= self.high):
            return number
        raise self.wrong()  # also for NaN: every comparison with it is false

    def _number(self, value: object) -> float:
        if not isinstance(value, (int, float, str)) or isinstance(value, bool):
            raise self.wrong()
        try:
            return float(value)
        except (ValueError, OverflowError):
            raise self.wrong() from None


@attrs.define(frozen=True)
class Bool(Kind):
    """True or False, also as text."""

    accepts = "bool"

    @property
    def expected(self) -> str:
        return "True or False"

    def convert(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        word = _TRUTH.get(value.strip().lower()) if isinstance(value, str) else None
        if word is None:
            raise self.wrong()
        return word


@attrs.define(frozen=True)
class Text(Kind):
    """A text. ``empty`` allows "", ``longest`` limits it in bytes of UTF-8."""

    empty: bool = True
    longest: int | None = None
    accepts = "str"

    @property
    def expected(self) -> str:
        some = "a text" if self.empty else "a text that is not empty"
        return some if self.longest is None else f"{some}, of at most {self.longest} B in UTF-8"

    def convert(self, value: object) -> str:
        if isinstance(value, str) and (self.empty or value) and self._fits(value):
            return value
        raise self.wrong()

    def _fits(self, value: str) -> bool:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:  # a lone surrogate: no request can carry it
            return False
        return self.longest is None or size <= self.longest


@attrs.define(frozen=True)
class TextOrFunction(Text):
    """A text, or a function that returns it when it is needed."""

    accepts = "Callable[[], object] | str"

    @property
    def expected(self) -> str:
        return "a text, or a function that returns it"

    def convert(self, value: object) -> Any:
        return value if callable(value) else super().convert(value)


@attrs.define(frozen=True)
class PluginName(Text):
    """A registered name, or "package.module:Class"."""

    imports = True


@attrs.define(frozen=True)
class ProxyUrl(Kind):
    """The address of a proxy."""

    accepts = "str"

    @property
    def expected(self) -> str:
        return "a URL as socks5://host:1080, socks5h://…, socks4://… or http://…, with host and port"

    def convert(self, value: object) -> str:
        if isinstance(value, str) and self._is_complete(value):
            return value
        raise self.wrong()

    def _is_complete(self, value: str) -> bool:
        try:
            parts = urlsplit(value)
            return parts.scheme in ("socks4", "socks5", "socks5h", "http") and bool(parts.hostname and parts.port) and parts.path in ("", "/") and not parts.query
        except ValueError:
            return False


@attrs.define(frozen=True)
class FilePath(Kind):
    """The path of a file. PEM content is refused: it may be a key, and messages show paths."""

    accepts = "str | PathLike[str]"

    @property
    def expected(self) -> str:
        return "a path"

    def convert(self, value: object) -> str:
        path = value.__fspath__() if isinstance(value, PathLike) else value
        if not isinstance(path, str) or "\0" in path:
            raise self.wrong()
        if holds_pem(path):
            raise ValueError("this is PEM text itself: write it to a file, or give it to "
                             "ssl_truststore_certificates, ssl_keystore_certificate_chain or ssl_keystore_key")
        return _NAME.convert(path)


_NAME: Final = Text(empty=False)


def holds_pem(value: object) -> bool:
    """Whether it is PEM text, and so possibly a key, in whichever option."""
    return isinstance(value, str) and "-----BEGIN" in value


@attrs.define(frozen=True)
class Choice(Kind):
    """One of a few words, in upper or lower case; converted to the canonical spelling."""

    values: tuple[str, ...]

    @property
    def accepts(self) -> str:  # type: ignore[override]
        return f"Literal[{', '.join(repr(value) for value in self.values)}]".replace("'", '"')

    @property
    def expected(self) -> str:
        return f"one of {', '.join(value or 'empty' for value in self.values)}"

    def convert(self, value: object) -> str:
        wanted = value.strip().lower() if isinstance(value, str) else None
        for known in self.values:
            if wanted == known.lower():
                return known
        raise self.wrong()


@attrs.define(frozen=True)
class ByTopic(Kind):
    """Values by topic: a mapping, or one text ``topic:value,...``. Converted to pairs, so that configs are hashable."""

    value: Kind

    @property
    def accepts(self) -> str:  # type: ignore[override]
        return f"str | Mapping[str, {self.value.accepts}]"

    @property
    def expected(self) -> str:
        return f"a mapping of topics to {self.value.expected}, or one text 'topic:value,...'"

    def convert(self, value: object) -> tuple[tuple[str, object], ...]:
        pairs = _pairs(value) if isinstance(value, str) else value
        if isinstance(pairs, Mapping):
            pairs = pairs.items()
        elif not isinstance(pairs, tuple):
            raise self.wrong()
        return tuple(self._pair(pair) for pair in pairs)

    def _pair(self, pair: object) -> tuple[str, object]:
        match pair:
            case (str(topic), value) if topic.strip():
                return topic.strip(), self.value.convert(value)
        raise self.wrong()


def _pairs(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(part.split(":", 1)) for part in text.split(",") if part.strip())


@attrs.define(frozen=True)
class Names(Kind):
    """Several texts: a list, or one text with commas."""

    accepts = "str | Sequence[str]"

    @property
    def expected(self) -> str:
        return "a list of texts, or one text with commas between them"

    def convert(self, value: object) -> tuple[str, ...]:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Iterable) or isinstance(items, (bytes, Mapping)):
            raise self.wrong()
        found = [item.strip() if isinstance(item, str) else self._refuse() for item in items]
        return tuple(item for item in found if item)

    def _refuse(self) -> str:
        raise self.wrong()


@attrs.define(frozen=True)
class Addresses(Kind):
    """Broker addresses, see `parse_addresses`."""

    accepts = "str | Sequence[str | tuple[str, int]]"

    @property
    def expected(self) -> str:
        return "'host:port', several separated by commas or in a list"

    def convert(self, value: object) -> tuple[Address, ...]:
        return parse_addresses(value)

    def shown(self, value: object) -> object:
        is_converted = isinstance(value, tuple) and all(isinstance(each, Address) for each in value)
        return ",".join(map(str, value)) if is_converted else value  # type: ignore[call-overload]  # a tuple


@attrs.define(frozen=True)
class Acks(Kind):
    """The required acknowledgements as the protocol's number: -1 (all), 0 or 1."""

    accepts = 'Literal["all", "-1", "0", "1", -1, 0, 1]'

    @property
    def expected(self) -> str:
        return "'all' (the same as -1), 0 or 1"

    def convert(self, value: object) -> int:
        word = str(value).strip().lower() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        number = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(word)
        if number is None:
            raise self.wrong()
        return number


@attrs.define(frozen=True)
class OffsetReset(Kind):
    """earliest, latest, none, or by_duration:<ISO 8601 duration> (KIP-1106)."""

    accepts = "str"

    @property
    def expected(self) -> str:
        return "earliest, latest, none, or by_duration:<ISO 8601 duration> such as by_duration:PT1H"

    def convert(self, value: object) -> str:
        word = value.strip() if isinstance(value, str) else ""
        if word.lower() in ("earliest", "latest", "none"):
            return word.lower()
        if word.lower().startswith("by_duration:"):
            duration = word[len("by_duration:") :].upper()
            duration_ms(duration)
            return f"by_duration:{duration}"
        raise self.wrong()


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration in days, hours, minutes and seconds; ValueError if it is not one."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not an ISO 8601 duration, such as PT1H or P7D")
    days, hours, minutes, seconds = (float(part or 0) for part in match.group("d", "h", "m", "s"))
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


@attrs.define(frozen=True)
class Plugins(Kind):
    """Several plugins, in order: objects, classes, registered names or "package.module:Class"."""

    accepts = "object"
    imports = True

    @property
    def expected(self) -> str:
        return "a list of objects, registered names, or 'package.module:Class'"

    def convert(self, value: object) -> tuple[object, ...]:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)


@attrs.define(frozen=True)
class Anything(Kind):
    """An object that is checked where it is used, such as a plugin; ``expected`` is given in words."""

    expected_: str = "an object"
    check: Callable[[object], bool] = lambda _: True
    accepts: str = "object"
    imports: bool = False

    @property
    def expected(self) -> str:
        return self.expected_

    def convert(self, value: object) -> object:
        if not self.check(value):
            raise self.wrong()
        return value


PLUGIN: Final = Anything("an object, a registered name, or 'package.module:Class'", imports=True)
