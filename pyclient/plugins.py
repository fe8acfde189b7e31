"""Plugins: the Protocols that users may implement, the plain values they get, and how a plugin is found by name.

Decides nothing about records or groups; knows no client. A plugin is given as an object, a registered name (an entry
point) or ``"package.module:Class"``; `load_plugin` turns each into the object.
"""
from __future__ import annotations

import importlib
import inspect
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.records import NO_GENERATION, Headers, Node, OffsetAndMetadata, PartitionDescription, RecordMetadata, TopicPartition
from pyclient.redaction import HIDDEN

if TYPE_CHECKING:
    from pyclient.buffers.records_view import Records


class Sticky(int):
    """The type of `STICKY` alone: a plain -1 is a mistake in a partitioner's arithmetic, and is refused."""


STICKY: Final = Sticky(-1)
"""A partitioner returns this to leave the choice to the producer: the partition whose batch is being filled (KIP-794).
"""


KEY_HASH: Final = b"pyclient.key_hash"
"""The name in the capsule of a partitioner's `HashesKeys`."""


# ── producing ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Partitions(Protocol):
    """A topic's partitions as a partitioner sees them; their numbers are ``range(len(partitions))``."""

    def __len__(self) -> int: ...

    @property
    def available(self) -> Sequence[int]:
        """The partitions that have a leader now, in order; may be empty."""


class Partitioner(Protocol):
    """Chooses the partition of a record that names none."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions) -> int:
        """A number in ``range(len(partitions))``, or `STICKY`. Called once per record by any thread: no I/O, no locks.
        """


@runtime_checkable
class HashesKeys(Protocol):
    """Optional power of a compiled partitioner: bulks choose the partitions of keyed records without calling Python."""

    def key_hash(self) -> object:
        """A capsule named `KEY_HASH` with ``unsigned int (*)(const unsigned char *key, Py_ssize_t size)``, callable
        without the GIL; or None: then ``partition`` is called for each record.

        A key's partition is its hash modulo the number of partitions; without a key it is `STICKY`. The capsule is used
        only if the same class defines ``partition``: a subclass that overrides it is called for each record."""


@runtime_checkable
class SeesNewBatches(Protocol):
    """Optional power of a partitioner, looked up once: it is called when a batch was started."""

    def on_new_batch(self, topic: str, partition: int) -> None:
        """A record started a new batch of *partition*. Called by the thread that sent it; its errors are logged."""


class Serializer(Protocol):
    """Serializes a key or value. ``headers`` may be left out of the signature."""

    def serialize(self, topic: str, value: Any, headers: Headers = (), /) -> bytes | None:
        """The bytes; None stays None (a tombstone). Called once per record, by any thread."""


class Deserializer(Protocol):
    """Deserializes a key or value. ``headers`` may be left out of the signature."""

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = (), /) -> Any:
        """The value; None stays None (a tombstone). Called once per record."""


Serialize: TypeAlias = Callable[[str, Any, Headers], bytes | None]
Deserialize: TypeAlias = Callable[[str, bytes | None, Headers], Any]


class ProducerInterceptor(Protocol):
    """Sees every record before it is serialized, and its outcome. Its errors are logged, never raised.

    Several form a chain: each gets the record as the one before returned it. See also `SeesClose`.
    """

    def on_send(self, topic: str, key: Any, value: Any, headers: Headers, /) -> tuple[Any, Any, Headers]:
        """The key, value and headers to send instead. Called once per record, by the thread or task that sends it."""

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None, /) -> None:
        """The record was delivered (*metadata*), or it failed or was rejected (*error*). Called once for each
        `on_send`.

        Runs where delivery callbacks run, before the record's own callback, in the order of each partition. It must be
        quick and must not block. ``flush`` and ``close`` raise the failure even though an interceptor saw it.
        """


@runtime_checkable
class SeesClose(Protocol):
    """Optional power of an interceptor: it is called when its client was closed."""

    def close(self) -> None:
        """Called last, after every outcome, or every commit of a consumer, was reported."""


class ConsumerInterceptor(Protocol):
    """Sees records before poll returns them, and committed offsets. Its errors are logged, never raised.

    Several form a chain: each gets what the one before returned. An interceptor can leave records out, but not change,
    add or reorder them: records and columns (`Records.to_arrow`) are views of the fetched data. To change what is read,
    such as to decrypt it, use a deserializer: it gets topic, bytes and headers. See also `SeesClose`.
    """

    def on_consume(self, records: Records, /) -> Records:
        """The records to return instead: *records* itself, or the result of `Records.filter`, `Records.select`,
        `Records.of` or a slice of it. Any other result is logged, and the chain continues with *records*.

        Records that are left out count as consumed: positions and commits move past them, even if no record is left.
        Called with at least one record, by the thread or task that polls or iterates. Each record is passed once;
        records that cannot be deserialized are not. Do not use the consumer here, and do not block the poll.
        """

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """These offsets were committed, by a call or automatically; never empty.

        Called by the thread or task that uses the consumer: for a commit that it did not wait for, in a later call.
        Also called for the commit of ``close``. Do not use the consumer here."""


# ── consuming in a group ─────────────────────────────────────────────────────────────────────────────────────────────


class RebalanceListener(Protocol):
    """Called when partitions are assigned or revoked: within ``poll``, an iteration, ``unsubscribe`` or ``close``. It
    may commit and seek."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> None:
        """These were added, before any record of them is returned."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> None:
        """These will be given up; they are still owned, so commits succeed."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition], /) -> None:
        """These are lost already; another member may own them. By default it calls `on_partitions_revoked`."""
        self.on_partitions_revoked(partitions)


class AsyncRebalanceListener(Protocol):
    """`RebalanceListener` for async consumers: the same, awaited."""

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> None:
        """These were added, before any record of them is returned."""

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> None:
        """These will be given up; they are still owned, so commits succeed."""

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition], /) -> None:
        """These are lost already. By default it calls `on_partitions_revoked`."""
        await self.on_partitions_revoked(partitions)


class ClusterView(NamedTuple):
    """What an assignor sees of the cluster: the partitions of every subscribed topic, and the brokers by node id.

    A subscribed topic that does not exist, or is not known yet, is not in ``topics``.
    """

    topics: Mapping[str, Sequence[PartitionDescription]]
    nodes: Mapping[int, Node] = {}

    def racks(self, partition: PartitionDescription) -> frozenset[str]:
        """The racks that hold a replica of *partition*, as far as brokers report their racks."""
        found = (self.nodes[replica].rack for replica in partition.replicas if replica in self.nodes)
        return frozenset(rack for rack in found if rack is not None)


class MemberView(NamedTuple):
    """What an assignor sees of one member: its topics, and what it owned in which generation (KIP-429, KIP-792).

    All of it comes from the member, which may be any client, so check it: topics may be unknown or repeated; partitions
    may have several owners, negative numbers, or no longer exist; ``user_data`` may be of another format. ``owned`` is
    empty in an eager rebalance. ``generation`` is -1 from clients that do not send it. ``instance_id`` is that of a
    static member (KIP-345), ``rack`` is the member's (KIP-881).
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


class Assignment(NamedTuple):
    """The partitions of one member; ``user_data`` is passed to it unchanged."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class Assignor(Protocol):
    """Assigns a group's partitions. The group's leader runs it for all members, in a worker thread.

    It must be a pure function of its arguments: the result does not depend on the leader or on the order of members.
    `pyclient.testing.check_assignor` checks one with many groups.
    """

    @property
    def name(self) -> str:
        """The name that all members must know it by, such as ``range``."""

    @property
    def protocols(self) -> Sequence[str]:
        """``eager``, ``cooperative`` or both, the preferred one first."""

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """An assignment for every member id, of partitions that exist and whose topic the member subscribes to.

        Usually each partition goes to one member. If it is given to several (a broadcast), each reads all of it, and
        they overwrite each other's committed offsets, which belong to the group. In a ``cooperative`` rebalance, a
        partition can move only after its owner has given it up: leave it out, and the next rebalance, which follows at
        once, shows it without an owner.
        """


@runtime_checkable
class SendsUserData(Protocol):
    """Optional power of an assignor: bytes that every member sends with its subscription."""

    def subscription_user_data(self, topics: Sequence[str], /) -> bytes | None:
        """The leader gets this as `MemberView.user_data`. Called before each rebalance with the member's own topics."""


@runtime_checkable
class SeesAssignment(Protocol):
    """Optional power of an assignor: it is called with the assignment of its member."""

    def on_assignment(self, assignment: Assignment, generation: int, /) -> None:
        """*assignment* is everything the member owns in *generation*, including what it owned before."""


# ── logging in ───────────────────────────────────────────────────────────────────────────────────────────────────────


class SaslMechanism(Protocol):
    """A SASL mechanism. One object serves all connections of a client, also at the same time."""

    @property
    def name(self) -> str:
        """The mechanism's SASL name, such as ``PLAIN``."""

    @property
    def blocking(self) -> bool:
        """Whether `exchange` computes or blocks for long (Kerberos, token endpoints): then it runs in a worker thread.
        """

    def exchange(self, config: Any, host: str, /) -> Generator[bytes | Awaitable[Any], Any, None]:
        """The messages of one login to *host*; *config* is the client's config object.

        The generator yields a message as bytes, receives the broker's answer as bytes, and returns when it accepts an
        answer. It may also yield an awaitable: that is awaited on the client's loop, and its result sent or its error
        thrown in. A refusal by the broker is thrown in as SaslAuthenticationError; raise another KafkaError to explain
        it. Answers may come from any peer: check every byte. Errors must not contain secrets.
        """


@runtime_checkable
class ChecksOptions(Protocol):
    """Optional power of a SASL mechanism: it checks the options when a client is created."""

    def check(self, config: Any, /) -> None:
        """Raise ConfigurationError, with ``option``, if an option that the mechanism needs is missing or wrong. Must
        not block."""


@runtime_checkable
class NamesOptions(Protocol):
    """Optional power of a SASL mechanism: errors name the options to check."""

    @property
    def options(self) -> Sequence[str]:
        """Names of the options that hold the credentials."""


@runtime_checkable
class HidesSecrets(Protocol):
    """Optional power of a SASL mechanism: it hides secrets that are not option values, such as tokens."""

    def hide(self, text: str, /) -> str:
        """*text*, such as a broker's message, without them."""


@runtime_checkable
class RenewsCredentials(Protocol):
    """Optional power of a SASL mechanism: its credentials change, so a refusal may be temporary."""

    @property
    def renews(self) -> bool:
        """Whether the client logs in again after a refusal; otherwise a refusal stops the client."""


class Surroundings(NamedTuple):
    """Clock and randomness of a SASL mechanism; a simulation passes its own."""

    wall: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """Milliseconds since the epoch."""
    token_bytes: Callable[[int], bytes] = secrets.token_bytes
    """Cryptographically secure random bytes."""
    random: Callable[[], float] = random.random
    """A random number in [0, 1), not for secrets."""


@runtime_checkable
class TakesSurroundings(Protocol):
    """Optional power of a SASL mechanism: it gets clock and randomness before its first use."""

    def run_in(self, surroundings: Surroundings, /) -> None:
        """Use this clock and this randomness."""


class OAuthToken:
    """A token with expiry and extensions (KIP-342), for token providers. Its ``repr`` hides the token.

    ``expires_at`` is in seconds since the epoch; None: read from the token if it is a JWT.
    """

    __slots__ = ("expires_at", "extensions", "value")

    def __init__(self, value: str, expires_at: float | None = None, extensions: Mapping[str, str] | None = None) -> None:
        self.value = value
        self.expires_at = expires_at
        self.extensions = dict(extensions or {})

    def __repr__(self) -> str:
        return f"OAuthToken({HIDDEN}, expires_at={self.expires_at!r}, extensions={sorted(self.extensions)!r})"


# ── loading ─────────────────────────────────────────────────────────────────────────────────────────────────────


class PluginKind(NamedTuple):
    """A kind of plugin: the entry point group of its names, and the method that every plugin has."""

    group: str
    method: str


KINDS: Final[Mapping[str, PluginKind]] = {
    "partitioner": PluginKind("pyclient.partitioners", "partition"),
    "assignor": PluginKind("pyclient.assignors", "assign"),
    "serializer": PluginKind("pyclient.serializers", "serialize"),
    "deserializer": PluginKind("pyclient.serializers", "deserialize"),
    "producer interceptor": PluginKind("pyclient.producer_interceptors", "on_send"),
    "consumer interceptor": PluginKind("pyclient.consumer_interceptors", "on_consume"),
    "sasl mechanism": PluginKind("pyclient.sasl_mechanisms", "exchange"),
}


def load_plugin(kind: str, spec: object) -> Any:
    """The plugin for *spec*: an object, a class (called without arguments), a registered name or
    "package.module:Class".

    Serializers and deserializers may also be plain functions, or types such as int.

    Raises:
        ConfigurationError: no such name, several packages register it, or the object lacks the kind's method.
    """
    wanted = KINDS[kind]
    found = _named(kind, wanted, spec) if isinstance(spec, str) else spec
    plugin = _made(kind, found) if inspect.isclass(found) and hasattr(found, wanted.method) else found
    if callable(getattr(plugin, wanted.method, None)) or (kind in ("serializer", "deserializer") and callable(plugin)):
        return plugin
    raise ConfigurationError(f"{spec!r} is not a {kind}: it has no method {wanted.method!r}", option=kind)


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
    return tuple(sorted({point.name for point in entry_points(group=KINDS[kind].group)}))


def _named(kind: str, wanted: PluginKind, spec: str) -> object:
    registered = None if ":" in spec else _registered(kind, wanted, spec)
    try:
        if registered is not None:
            return registered.load()
        if ":" in spec:
            return _imported(spec)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{kind} {spec!r} cannot be loaded: {error}", option=kind) from error
    names = ", ".join(available_plugins(kind)) or "none is registered"
    raise ConfigurationError(
        f"no {kind} is called {spec!r}; registered: {names}. "
        f"Or give an object, 'package.module:Class', or register the name as an entry point of {wanted.group!r}.",
        option=kind,
    )


def _registered(kind: str, wanted: PluginKind, name: str) -> EntryPoint | None:
    """The entry point *name*. Two that differ are an error: the order of installed packages would choose one."""
    points = list(entry_points(group=wanted.group, name=name))
    if len({point.value for point in points}) > 1:
        owners = " and ".join(sorted(f"{_distribution(point)} ({point.value})" for point in points))
        raise ConfigurationError(
            f"{kind} {name!r} is registered by {len(points)} installed packages: {owners}. "
            f"Give the one you want as 'package.module:Class' (such as {points[0].value!r}), or uninstall the other.", option=kind)
    return points[0] if points else None


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "a package without a name"


def _imported(spec: str) -> object:
    module, _, path = spec.partition(":")
    if not module or not path:
        raise ValueError("write it as 'package.module:Class'")
    found: object = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _made(kind: str, cls: type) -> object:
    try:
        return cls()
    except TypeError as error:
        raise ConfigurationError(
            f"{kind} {cls.__qualname__} cannot be made without arguments ({error}): pass an object of it", option=kind
        ) from error


# ── calling serializers ──────────────────────────────────────────────────────────────────────────────────────────────


def as_serializer(spec: object) -> Serialize:
    """``f(topic, value, headers) -> bytes | None`` of anything that serves as a serializer.

    That is a `Serializer` (with or without ``headers``), a function of the value, or a name (`load_plugin`). Its errors
    are raised as SerializationError, with the cause.
    """
    serialize = _guarded("serialize", _called(load_plugin("serializer", spec), "serialize"))
    return lambda topic, value, headers: _bytes_or_none(topic, serialize(topic, value, headers))


def as_deserializer(spec: object) -> Deserialize:
    """``f(topic, data, headers) -> value``, as `as_serializer`."""
    return _guarded("deserialize", _called(load_plugin("deserializer", spec), "deserialize"))


def _called(plugin: Any, method: str) -> Callable[[str, Any, Headers], Any]:
    function = getattr(plugin, method, None)
    if function is None:
        return lambda topic, value, headers: plugin(value)
    if _takes(function, 3):
        return function  # type: ignore[no-any-return]
    return lambda topic, value, headers: function(topic, value)


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # compiled functions may have no signature; ours do
        return True
    return True


def _guarded(verb: str, function: Callable[[str, Any, Headers], Any]) -> Callable[[str, Any, Headers], Any]:
    def guarded(topic: str, value: Any, headers: Headers) -> Any:
        try:
            return function(topic, value, headers)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(
                f"cannot {verb} a {type(value).__name__} of topic {topic!r}: {type(error).__name__}: {error}"
            ) from error

    return guarded


def _bytes_or_none(topic: str, data: Any) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise SerializationError(f"the serializer for topic {topic!r} gave a {type(data).__name__}; it must give bytes or None")
