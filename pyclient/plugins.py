"""What users may replace: the Protocols of plugins, the plain values these see, and how one is found by name.

Decides nothing about records or groups; knows no client. A plugin is an object, a registered name (an entry point) or
``"package.module:Class"``, and `load_plugin` turns each into the object.
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
    """The type of `STICKY`, and of nothing else: a plain -1 is no wish but a slip of arithmetic, and is refused."""


STICKY: Final = Sticky(-1)
"""What a partitioner returns to leave the choice to the producer: the partition whose batch is being filled (KIP-794)."""


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
        """A number in ``range(len(partitions))``, or `STICKY`. Called once per record, by any thread: no I/O, no locks."""


@runtime_checkable
class HashesKeys(Protocol):
    """Optional power of a compiled partitioner: bulks choose the partitions of keyed records without calling Python."""

    def key_hash(self) -> object:
        """A capsule named `KEY_HASH` with ``unsigned int (*)(const unsigned char *key, Py_ssize_t size)``, callable without the
        GIL, or None for the slow way. A key goes to the hash modulo the number of partitions, no key to `STICKY`.

        It counts only where the same class defines ``partition``: who overrides that is asked for each record."""


@runtime_checkable
class SeesNewBatches(Protocol):
    """Optional power of a partitioner, looked up once: it is told when a batch was begun."""

    def on_new_batch(self, topic: str, partition: int) -> None:
        """A record began a new batch of *partition*. Called by the thread that sent it; what it raises is logged."""


class Serializer(Protocol):
    """Turns a key or value into bytes. ``headers`` may be left out of the signature."""

    def serialize(self, topic: str, value: Any, headers: Headers = (), /) -> bytes | None:
        """The bytes; None stays None (a tombstone). Called once per record, by any thread."""


class Deserializer(Protocol):
    """Turns bytes into a key or value. ``headers`` may be left out of the signature."""

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = (), /) -> Any:
        """The value; None stays None (a tombstone). Called once per record."""


Serialize: TypeAlias = Callable[[str, Any, Headers], bytes | None]
Deserialize: TypeAlias = Callable[[str, bytes | None, Headers], Any]


class ProducerInterceptor(Protocol):
    """Sees every record before it is serialized, and every outcome. What it raises is logged, never passed on.

    Several form a chain: each sees what the one before has made of the record. See `SeesClose` for the end.
    """

    def on_send(self, topic: str, key: Any, value: Any, headers: Headers, /) -> tuple[Any, Any, Headers]:
        """The key, value and headers to send in place of these. Called once per record, by the thread or task that sends it."""

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None, /) -> None:
        """The record was delivered (*metadata*), or failed or was refused by ``send`` or a bulk (*error*); once for each record of `on_send`.

        Called where delivery callbacks run, before the record's own, in the order of each partition: be quick, and block
        on nothing. That an interceptor was told of a failure does not keep ``flush`` and ``close`` from raising it.
        """


@runtime_checkable
class SeesClose(Protocol):
    """Optional power of an interceptor: it is told when its client was closed."""

    def close(self) -> None:
        """Every outcome, of a consumer every commit, was told; nothing comes any more."""


class ConsumerInterceptor(Protocol):
    """Sees records before they are handed out, and what was committed. What it raises is logged, never passed on.

    Several form a chain: each sees what the one before has left. It can leave records out; it cannot change, add or reorder them: records are
    views of what was fetched, and so are columns (`Records.to_arrow`), which show what the interceptors left. To change what is read,
    to decrypt it say, is a deserializer's work: it is told topic, bytes and headers. See `SeesClose` for the end.
    """

    def on_consume(self, records: Records, /) -> Records:
        """The records to hand out in place of these: *records* itself, or what `Records.filter`, `Records.select`, `Records.of` or a slice made of it.

        Anything else is logged, and the chain goes on with *records*. What is left out counts as consumed: positions and commits move over it, also
        if nothing is left. Called with at least one record, by the thread or task that polls or iterates; each record is shown once. Do not use
        the consumer here, and block on nothing that a poll must not wait for. A record that cannot be deserialized is not shown.
        """

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """These offsets were committed, by a call or automatically; never empty. Called by the thread or task that uses the consumer, which
        hears of commits it did not wait for in a later call; after the close's own commit, too. Do not use the consumer here."""


# ── consuming in a group ─────────────────────────────────────────────────────────────────────────────────────────────


class RebalanceListener(Protocol):
    """Told, inside ``poll`` (an iteration too), ``unsubscribe`` or ``close``, which partitions come and go; may commit and seek."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> None:
        """These were added, before any record of them is returned."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> None:
        """These are about to go; still owned here, so commits count."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition], /) -> None:
        """These are gone already, another member may have them. Inherited, it does what `on_partitions_revoked` does."""
        self.on_partitions_revoked(partitions)


class AsyncRebalanceListener(Protocol):
    """`RebalanceListener` for async consumers: the same, awaited."""

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> None:
        """These were added, before any record of them is returned."""

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> None:
        """These are about to go; still owned here, so commits count."""

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition], /) -> None:
        """These are gone already. Inherited, it does what `on_partitions_revoked` does."""
        await self.on_partitions_revoked(partitions)


class ClusterView(NamedTuple):
    """What an assignor sees of the cluster: the partitions of every subscribed topic, and the brokers by node id.

    A topic that somebody subscribed to and that is not there, or not known yet, is not in ``topics``.
    """

    topics: Mapping[str, Sequence[PartitionDescription]]
    nodes: Mapping[int, Node] = {}

    def racks(self, partition: PartitionDescription) -> frozenset[str]:
        """The racks that hold a replica of *partition*, as far as brokers tell."""
        found = (self.nodes[replica].rack for replica in partition.replicas if replica in self.nodes)
        return frozenset(rack for rack in found if rack is not None)


class MemberView(NamedTuple):
    """What an assignor sees of one member: what it subscribes to, and what it owned in which generation (KIP-429, KIP-792).

    All of it is the member's own word, whatever client that is: topics may be unknown or named twice, partitions may be owned by
    several, have negative numbers or be gone, ``user_data`` may be anybody's. ``owned`` is empty in an eager rebalance, ``generation``
    -1 from clients that do not tell; ``instance_id`` is that of a static member (KIP-345), ``rack`` where it runs (KIP-881).
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


class Assignment(NamedTuple):
    """What one member is to read; ``user_data`` reaches it unread."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class Assignor(Protocol):
    """Shares a group's partitions out. The group's leader runs it for all members, apart from its loop.

    A pure function of its arguments: the same group gets the same answer whoever leads it, in whatever order the members are given.
    `pyclient.testing.check_assignor` tries one with many groups.
    """

    @property
    def name(self) -> str:
        """The name that all members must know it by, such as ``range``."""

    @property
    def protocols(self) -> Sequence[str]:
        """``eager``, ``cooperative`` or both, the preferred one first."""

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        """An assignment for every member id, of partitions that are there and whose topic the member subscribes to.

        Each partition goes to one member, unless the group is meant to read it several times: a partition may be given to several members
        (a broadcast), who then each read all of it, and overwrite each other's committed offsets, which are the group's.
        In a ``cooperative`` rebalance a partition that a member owns may be given to another one only when the owner has given it up: leave
        it out, and the rebalance that follows at once shows it free.
        """


@runtime_checkable
class SendsUserData(Protocol):
    """Optional power of an assignor: bytes that every member sends along with its subscription."""

    def subscription_user_data(self, topics: Sequence[str], /) -> bytes | None:
        """What the leader will see as `MemberView.user_data`. Asked before each rebalance, with the member's own topics."""


@runtime_checkable
class SeesAssignment(Protocol):
    """Optional power of an assignor: it is told what its member got."""

    def on_assignment(self, assignment: Assignment, generation: int, /) -> None:
        """The member was given *assignment* in *generation*: all that it has now, what it had before included."""


# ── logging in ───────────────────────────────────────────────────────────────────────────────────────────────────────


class SaslMechanism(Protocol):
    """One way to log in. One object serves all connections of a client, one after the other and at the same time."""

    @property
    def name(self) -> str:
        """The mechanism as brokers call it, such as ``PLAIN``."""

    @property
    def blocking(self) -> bool:
        """Whether `exchange` computes or waits for long: its steps run in a worker thread then (Kerberos, token endpoints)."""

    def exchange(self, config: Any, host: str, /) -> Generator[bytes | Awaitable[Any], Any, None]:
        """The messages of one login to *host*; *config* is the client's config object.

        Yields a message as bytes and is sent the broker's answer to it as bytes; returns when it is content with an answer. An awaitable that
        it yields is awaited on the client's loop, and its result sent, or its failure thrown in. A refusal is thrown in as
        SaslAuthenticationError, and may be explained by raising another KafkaError. The answers may be anybody's: trust none of their bytes.
        No secret belongs into what is raised.
        """


@runtime_checkable
class ChecksOptions(Protocol):
    """Optional power of a SASL mechanism: it is asked about the options when a client is made."""

    def check(self, config: Any, /) -> None:
        """Raises ConfigurationError, with ``option``, when an option that the mechanism needs is missing or wrong. Must not wait."""


@runtime_checkable
class NamesOptions(Protocol):
    """Optional power of a SASL mechanism: errors tell users which options to look at."""

    @property
    def options(self) -> Sequence[str]:
        """Names of the options that hold the credentials."""


@runtime_checkable
class HidesSecrets(Protocol):
    """Optional power of a SASL mechanism: it knows secrets that no option holds, such as tokens. Secret options are hidden anyway."""

    def hide(self, text: str, /) -> str:
        """The text, a broker's words say, without them."""


@runtime_checkable
class RenewsCredentials(Protocol):
    """Optional power of a SASL mechanism: what was refused once may be accepted later, since the credentials change."""

    @property
    def renews(self) -> bool:
        """Whether a client goes on and logs in again after a refusal; without this, a refusal ends it."""


class Surroundings(NamedTuple):
    """What a SASL mechanism takes from outside; a simulation has its own."""

    wall: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """Milliseconds since the epoch."""
    token_bytes: Callable[[int], bytes] = secrets.token_bytes
    """Random bytes that nobody can guess."""
    random: Callable[[], float] = random.random
    """A number in [0, 1), for what need not be secret."""


@runtime_checkable
class TakesSurroundings(Protocol):
    """Optional power of a SASL mechanism: it is told where it runs, before anything else."""

    def run_in(self, surroundings: Surroundings, /) -> None:
        """Take time and chance from here."""


class OAuthToken:
    """What a token provider may return instead of a text: the token, when it ends, and extensions (KIP-342). Its ``repr`` hides the token.

    ``expires_at`` is in seconds since the epoch; None is read from the token if that is a JWT.
    """

    __slots__ = ("expires_at", "extensions", "value")

    def __init__(self, value: str, expires_at: float | None = None, extensions: Mapping[str, str] | None = None) -> None:
        self.value = value
        self.expires_at = expires_at
        self.extensions = dict(extensions or {})

    def __repr__(self) -> str:
        return f"OAuthToken({HIDDEN}, expires_at={self.expires_at!r}, extensions={sorted(self.extensions)!r})"


# ── finding them ─────────────────────────────────────────────────────────────────────────────────────────────────────


class PluginKind(NamedTuple):
    """A sort of plugin: where names of it are registered, and the method that makes an object one."""

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
    """The plugin that *spec* means: an object, a class (made without arguments), a registered name, "package.module:Class".

    Plain functions, and types such as int, serve as serializers and deserializers too.

    Raises:
        ConfigurationError: nothing of that name, or not what the kind needs; says what is there.
    """
    wanted = KINDS[kind]
    found = _named(kind, wanted, spec) if isinstance(spec, str) else spec
    plugin = _made(kind, found) if inspect.isclass(found) and hasattr(found, wanted.method) else found
    if callable(getattr(plugin, wanted.method, None)) or (kind in ("serializer", "deserializer") and callable(plugin)):
        return plugin
    raise ConfigurationError(f"{spec!r} is no {kind}: it has no method {wanted.method!r}", option=kind)


def load_function(option: str, spec: object) -> Any:
    """The function that *spec* means: itself, or what "package.module:function" names.

    Raises:
        ConfigurationError: it cannot be imported, or is no function.
    """
    found = _function(option, spec) if isinstance(spec, str) else spec
    if not callable(found):
        raise ConfigurationError(f"{option} is no function, but a {type(found).__name__}", option=option)
    return found


def _function(option: str, spec: str) -> object:
    """Its name is not repeated in errors: it may be a token, given by mistake."""
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
        f"no {kind} is called {spec!r}; there are: {names}. "
        f"Else give an object, 'package.module:Class', or register the name as an entry point of {wanted.group!r}.",
        option=kind,
    )


def _registered(kind: str, wanted: PluginKind, name: str) -> EntryPoint | None:
    """The entry point called *name*. Two that differ are an error: the order of installed packages would decide between them."""
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

    That is a `Serializer` (with or without ``headers``), a function of the value, or a name (`load_plugin`). What it raises
    comes out as SerializationError, with the cause.
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
    except ValueError:  # compiled functions may not tell; ours do
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
