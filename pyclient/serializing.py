"""Makes one kind of function of all that serves as serializer or deserializer, and looks up its optional protocols.

Independent of clients and formats. Rule: protocols are looked up once, when a client is made; one that a plugin does
not have costs nothing per record.
"""
from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import attrs

from pyclient.errors import ConfigurationError, KafkaError, SerializationError, with_article
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import (
    AddsHeaders, Deserialize, Deserializer, KnowsItsRole, KnowsPrepared, PreparesData, PreparesValues, Serialize, Serialized, Serializer,
)
from pyclient.records import Headers
from pyclient.signatures import is_async, takes

KEY: Final = "key"
Prepare: TypeAlias = Callable[..., Awaitable[None]]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class SerializesWithoutHeaders(Protocol[T_contra]):
    """A `Serializer` whose signature leaves ``headers`` out."""

    def serialize(self, topic: str, value: T_contra, /) -> bytes | Serialized | None:
        """As `Serializer.serialize`, or `AddsHeaders.serialize`."""


class DeserializesWithoutHeaders(Protocol[T_co]):
    """A `Deserializer` whose signature leaves ``headers`` out."""

    def deserialize(self, topic: str, data: bytes | None, /) -> T_co:
        """As `Deserializer.deserialize`."""


class PluginName(Protocol[T_contra]):
    """A ``str``, as type checkers are to see it: what a plugin makes does not follow from its name, so it is Any.

    They infer that from ``%``, which takes anything. A plain ``str`` would leave the type to its default, bytes."""

    def __mod__(self, value: T_contra, /) -> str:
        """As ``str``'s."""


AnySerializer: TypeAlias = (
    Serializer[T] | AddsHeaders[T] | SerializesWithoutHeaders[T] | type[Serializer[T]] | type[SerializesWithoutHeaders[T]]
    | Callable[[T], bytes | bytearray | memoryview | None] | str)
"""What a producer takes as serializer of a *T*: an object, a class, a function, or a name."""
AnyDeserializer: TypeAlias = (
    Deserializer[T] | DeserializesWithoutHeaders[T] | type[Deserializer[T]] | type[DeserializesWithoutHeaders[T]]
    | Callable[[bytes], T] | PluginName[T])
"""What a consumer takes as deserializer to a *T*: an object, a class, a function, or a name."""


@attrs.frozen
class LoadedSerializer:
    """A serializer with its protocols."""

    serialize: Callable[[str, Any, Headers], bytes | Serialized | None]
    """(topic, value, headers) → bytes or None; `Serialized` only if it *adds_headers*."""
    adds_headers: bool = False
    prepare: Prepare | None = None
    """(topic, value); awaited by an async producer before ``serialize``."""


@attrs.frozen
class LoadedDeserializer:
    """A deserializer with its protocols."""

    deserialize: Deserialize
    prepare: Prepare | None = None
    """(topic, data, headers); awaited by an async consumer before ``deserialize``, unless *is_prepared*."""
    is_prepared: Callable[[str, bytes | None, Headers], bool] = lambda topic, data, headers: False


def load_serializer(spec: object, what: str = "value", *, may_drop: bool = False) -> LoadedSerializer:
    """What serves as a serializer of *what* ("key" or "value"): a `Serializer` (with or without ``headers``), a
    function of the value, or a name (`load_plugin`).

    Errors of ``serialize`` and ``prepare`` are raised as SerializationError, with the cause. So is None for a *what*
    that is not None, unless it *may_drop* that: a forgotten ``return`` would delete what readers know of the key. A
    function is not called for None.
    """
    plugin = _in_role("serializer", load_plugin("serializer", spec), what)
    serialize = _guarded("serialize", _called("serializer", plugin, "serialize"))
    adds_headers = getattr(plugin, "adds_headers", False) is True
    prepare = _guarded_async("serialize", plugin.prepare_async) if isinstance(plugin, PreparesValues) else None

    def bytes_or_none(topic: str, value: Any, headers: Headers) -> bytes | None:
        data = serialize(topic, value, headers)
        return data if type(data) is bytes else checked(topic, value, data)

    def checked(topic: str, value: Any, data: Any) -> bytes | None:
        if data is None and value is not None and not may_drop:
            raise _dropped(what, topic, value)
        return _bytes_or_none(topic, data)

    def with_headers(topic: str, value: Any, headers: Headers) -> bytes | Serialized | None:
        data = serialize(topic, value, headers)
        if isinstance(data, Serialized):
            return Serialized(checked(topic, value, data.data), data.headers)
        return checked(topic, value, data)

    return LoadedSerializer(with_headers if adds_headers else bytes_or_none, adds_headers, prepare)


def as_serializer(spec: object, what: str = "value", *, may_drop: bool = False) -> Serialize:
    """``f(topic, value, headers) -> bytes | None`` of `load_serializer`; headers that it adds are left out."""
    loaded = load_serializer(spec, what, may_drop=may_drop)

    def data_only(topic: str, value: Any, headers: Headers) -> bytes | None:
        made = loaded.serialize(topic, value, headers)
        return made.data if isinstance(made, Serialized) else made

    return data_only


def load_deserializer(spec: object, what: str = "value") -> LoadedDeserializer:
    """What serves as a deserializer of *what*; as `load_serializer`."""
    plugin = _in_role("deserializer", load_plugin("deserializer", spec), what)
    deserialize = _guarded("deserialize", _called("deserializer", plugin, "deserialize"))
    if not isinstance(plugin, PreparesData):
        return LoadedDeserializer(deserialize)
    prepare = _guarded_async("deserialize", plugin.prepare_deserialize_async)
    if not isinstance(plugin, KnowsPrepared):
        return LoadedDeserializer(deserialize, prepare)
    return LoadedDeserializer(deserialize, prepare, _guarded("deserialize", plugin.is_prepared))


def as_deserializer(spec: object, what: str = "value") -> Deserialize:
    """``f(topic, data, headers) -> value`` of `load_deserializer`."""
    return load_deserializer(spec, what).deserialize


def unpack(made: bytes | Serialized | None, headers: Headers) -> tuple[bytes | None, Headers]:
    """The bytes that a serializer *made*, and *headers* with those that it added."""
    if isinstance(made, Serialized):
        return made.data, ((*headers, *made.headers) if made.headers else headers)
    return made, headers


def _in_role(kind: str, plugin: Any, what: str) -> Any:
    """*plugin*, or a copy of it that knows its role: one object may serve keys and values."""
    if inspect.isclass(plugin) or not isinstance(plugin, KnowsItsRole) or not _takes_role(plugin.configure):
        return plugin
    role = copy.copy(plugin)
    try:
        role.configure(is_key=what == KEY)
    except KafkaError:
        raise
    except Exception as error:
        raise ConfigurationError(f"the {what} {kind} {type(plugin).__qualname__}.configure raised {type(error).__name__}: {error}",
                                 option=f"{what}_{kind}") from error
    return role


def _takes_role(configure: Callable[..., object]) -> bool:
    try:
        inspect.signature(configure).bind(is_key=True)
    except (TypeError, ValueError):
        return False
    return True


def _called(kind: str, plugin: Any, method: str) -> Callable[[str, Any, Headers], Any]:
    function = getattr(plugin, method, None)
    called = plugin if function is None else function
    if is_async(called):
        raise ConfigurationError(f"the {kind} must be a plain function: nothing awaits an `async def` function", option=kind)
    if function is None:
        return lambda topic, value, headers: None if value is None else plugin(value)
    if takes(function, 3):
        return function  # type: ignore[no-any-return]
    return lambda topic, value, headers: function(topic, value)


def _guarded(verb: str, function: Callable[[str, Any, Headers], Any]) -> Callable[[str, Any, Headers], Any]:
    def guarded(topic: str, value: Any, headers: Headers) -> Any:
        try:
            return function(topic, value, headers)
        except SerializationError:
            raise
        except Exception as error:
            raise _failed(verb, topic, value, error) from error

    return guarded


def _guarded_async(verb: str, prepare: Prepare) -> Prepare:
    async def guarded(topic: str, value: Any, *headers: Any) -> None:
        try:
            await prepare(topic, value, *headers)
        except SerializationError:
            raise
        except Exception as error:
            raise _failed(verb, topic, value, error) from error

    return guarded


def _failed(verb: str, topic: str, value: Any, error: Exception) -> SerializationError:
    return SerializationError(f"cannot {verb} {with_article(type(value).__name__)} of topic {topic!r}: {type(error).__name__}: {error}")


def _dropped(what: str, topic: str, value: object) -> SerializationError:
    meant = "send None for a tombstone, or set allow_tombstones=True" if what == "value" else "send None for a record without a key"
    return SerializationError(
        f"the {what}_serializer returned None for {with_article(type(value).__name__)} of topic {topic!r}; nothing was queued. "
        f"Does it lack a `return`? If it is meant, {meant}.")


def _bytes_or_none(topic: str, data: Any) -> bytes | None:
    if data is None:
        return None
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise SerializationError(f"the serializer for topic {topic!r} gave {with_article(type(data).__name__)}; it must give bytes or None")
