"""Finds plugins by name.

A plugin is given as an object, a class, a registered name (an entry point) or ``"package.module:Class"``; `load_plugin`
turns each into the object. Independent of clients. What a plugin must have is in `pyclient.plugins`.
"""
from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient.errors import ConfigurationError, KafkaError, with_article

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class PluginKind(NamedTuple):
    """A kind of plugin: the entry point group of its names, and the methods of which every plugin has one."""

    group: str
    methods: tuple[str, ...]


KINDS: Final[Mapping[str, PluginKind]] = {
    "partitioner": PluginKind("pyclient.partitioners", ("partition",)),
    "assignor": PluginKind("pyclient.assignors", ("assign",)),
    "serializer": PluginKind("pyclient.serializers", ("serialize",)),
    "deserializer": PluginKind("pyclient.serializers", ("deserialize",)),
    "producer interceptor": PluginKind("pyclient.producer_interceptors", ("on_send", "on_acknowledgement")),
    "consumer interceptor": PluginKind("pyclient.consumer_interceptors", ("on_consume", "on_commit")),
    "sasl mechanism": PluginKind("pyclient.sasl_mechanisms", ("exchange",)),
}
OWN_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "pyclient.assignors": {
        "cooperative-sticky": "pyclient.assignors:CooperativeStickyAssignor",
        "range": "pyclient.assignors:RangeAssignor",
        "roundrobin": "pyclient.assignors:RoundRobinAssignor",
        "sticky": "pyclient.assignors:StickyAssignor",
    },
    "pyclient.partitioners": {
        "consistent": "pyclient.partitioners:ConsistentPartitioner",
        "consistent_random": "pyclient.partitioners:ConsistentRandomPartitioner",
        "explicit": "pyclient.partitioners:ExplicitPartitioner",
        "fnv1a": "pyclient.partitioners:Fnv1aPartitioner",
        "murmur2": "pyclient.partitioners:Murmur2Partitioner",
        "murmur2_random": "pyclient.partitioners:Murmur2Partitioner",
        "murmur3": "pyclient.partitioners:Murmur3Partitioner",
        "random": "pyclient.partitioners:RandomPartitioner",
        "round-robin": "pyclient.partitioners:RoundRobinPartitioner",
        "sticky": "pyclient.partitioners:StickyPartitioner",
    },
    "pyclient.sasl_mechanisms": {
        "AWS_MSK_IAM": "pyclient.sasl.msk_iam:MskIam",
        "GSSAPI": "pyclient.sasl.gssapi:Gssapi",
        "OAUTHBEARER": "pyclient.sasl.oauthbearer:OAuthBearer",
        "PLAIN": "pyclient.sasl.plain:Plain",
        "SCRAM-SHA-256": "pyclient.sasl.scram:ScramSha256",
        "SCRAM-SHA-512": "pyclient.sasl.scram:ScramSha512",
    },
    "pyclient.serializers": {
        "bytes": "pyclient.serializers.texts:BytesSerde",
        "double": "pyclient.serializers.numbers:DoubleSerde",
        "float": "pyclient.serializers.numbers:FloatSerde",
        "integer": "pyclient.serializers.numbers:IntegerSerde",
        "json": "pyclient.serializers.texts:JsonSerde",
        "long": "pyclient.serializers.numbers:LongSerde",
        "short": "pyclient.serializers.numbers:ShortSerde",
        "string": "pyclient.serializers.texts:StringSerde",
        "uuid": "pyclient.serializers.texts:UUIDSerde",
    },
}
"""The entry points of this package in pyproject.toml, by group: no other package may take their names in silence."""


def load_plugin(kind: str, spec: object) -> Any:
    """The plugin for *spec*: an object, a class (called without arguments), a registered name or
    "package.module:Class".

    Serializers and deserializers may also be plain functions, or types such as int.

    Raises:
        ConfigurationError: no such name, several packages register it, it raises while it loads, or the object lacks
            the kind's methods.
    """
    wanted = KINDS[kind]
    found = _named(kind, wanted, spec) if isinstance(spec, str) else spec
    plugin = _made(kind, found, spec) if inspect.isclass(found) and any(hasattr(found, each) for each in wanted.methods) else found
    if any(callable(getattr(plugin, each, None)) for each in wanted.methods) or (kind in ("serializer", "deserializer") and callable(plugin)):
        return plugin
    raise ConfigurationError(f"{spec!r} is not {with_article(kind)}: it has no method {' or '.join(map(repr, wanted.methods))}", option=kind)


def load_function(option: str, spec: object) -> Any:
    """The function for *spec*: a callable, or "package.module:function".

    Raises:
        ConfigurationError: it cannot be imported, or is not callable.
    """
    found = _function(option, spec) if isinstance(spec, str) else spec
    if not callable(found):
        raise ConfigurationError(f"{option}: expected a function, got {type(found).__name__}", option=option)
    return found


def _function(option: str, spec: str) -> object:
    """Errors do not show *spec*: it may be a token, given by mistake."""
    module = spec.partition(":")[0]
    try:
        return _imported(spec)
    except AttributeError:
        raise ConfigurationError(f"{option}: the module {module!r} has no function of that name", option=option) from None
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"{option}: the module {module!r} cannot be imported: {error}", option=option) from error


def available_plugins(kind: str) -> tuple[str, ...]:
    """The registered names of a kind, sorted."""
    return tuple(sorted({point.name for point in _installed(KINDS[kind].group)}))


def _named(kind: str, wanted: PluginKind, spec: str) -> object:
    registered = None if ":" in spec else _registered(kind, wanted, spec)
    try:
        if registered is not None:
            return registered.load()
        if ":" in spec:
            return _imported(spec)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{_described(kind, spec, registered)} cannot be loaded: {error}", option=kind) from error
    except Exception as error:
        raise ConfigurationError(f"{_described(kind, spec, registered)} cannot be loaded: its module raised {type(error).__name__}: {error}",
                                 option=kind) from error
    names = ", ".join(available_plugins(kind)) or "none is registered"
    raise ConfigurationError(
        f"no {kind} is called {spec!r}; registered: {names}. "
        f"Or give an object, 'package.module:Class', or register the name as an entry point of {wanted.group!r}.",
        option=kind,
    )


def _registered(kind: str, wanted: PluginKind, name: str) -> EntryPoint | None:
    """The entry point *name*. Two that differ are an error: the order of installed packages would choose one.

    Our own names count even if our own metadata are not found, as when the package is imported from an archive.
    """
    points = [point for point in _installed(wanted.group) if point.name == name]
    ours = OWN_NAMES.get(wanted.group, {}).get(name)
    if ours is not None and all(point.value != ours for point in points):
        from importlib.metadata import EntryPoint

        points.append(EntryPoint(name, ours, wanted.group))
    if len({point.value for point in points}) > 1:
        owners = " and ".join(sorted(f"{_distribution(point)} ({point.value})" for point in points))
        raise ConfigurationError(
            f"{kind} {name!r} is registered by {len(points)} installed packages: {owners}. "
            f"Give the one you want as 'package.module:Class' (such as {points[0].value!r}), or uninstall the other.", option=kind)
    return points[0] if points else None


def _installed(group: str) -> Iterable[EntryPoint]:
    """The entry points of all packages on the path.

    Reading every package's metadata takes longer than all else that a constructor does, so it is done again only when
    the path is another, or something was installed there.
    """
    return _read(group, tuple((place, _changed_at(place)) for place in sys.path), tuple(map(id, sys.meta_path)))


@functools.lru_cache(maxsize=2 * len(KINDS))
def _read(group: str, path: object, finders: object) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # here: few programs name plugins, and it loads a parser of e-mails

    return tuple(entry_points(group=group))


def _changed_at(place: str) -> int | None:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return None


def _distribution(point: EntryPoint) -> str:
    if point.dist is not None:
        return point.dist.name
    return "pyclient itself" if OWN_NAMES.get(point.group, {}).get(point.name) == point.value else "a package without a name"


def _imported(spec: str) -> object:
    module, _, path = spec.partition(":")
    if not module or not path:
        raise ValueError("write it as 'package.module:Class'")
    found: object = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
        if inspect.ismodule(found):  # what a module imported is not its own: allowing it would allow that too
            raise ValueError(f"{name!r} is a module there: name it before the colon")
    return found


def _described(kind: str, spec: object, point: EntryPoint | None) -> str:
    """The plugin with its package, module and class, as far as they are known."""
    return f"{kind} {spec!r}" if point is None else f"{kind} {spec!r} of package {_distribution(point)} ({point.value})"


def _made(kind: str, cls: type, spec: object) -> object:
    try:
        return cls()
    except KafkaError:
        raise
    except TypeError as error:
        raise ConfigurationError(
            f"{kind} {cls.__qualname__} cannot be made without arguments ({error}): pass an object of it", option=kind
        ) from error
    except Exception as error:
        point = _registered(kind, KINDS[kind], spec) if isinstance(spec, str) and ":" not in spec else None
        named = spec if isinstance(spec, str) else f"{cls.__module__}:{cls.__qualname__}"
        raise ConfigurationError(f"{_described(kind, named, point)} cannot be made: {cls.__qualname__}() raised {type(error).__name__}: {error}",
                                 option=kind) from error
