"""Plugins: the Protocols that users may implement, and the plain values that plugins get.

Decides nothing about records or groups; independent of clients. `pyclient.plugin_loading` finds a plugin by its name.
Serializers of whole Arrow columns are in `pyclient.column_serializers`.
"""
from __future__ import annotations

import random
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from typing_extensions import TypeVar

from pyclient.descriptions.assignments import Assignment as Assignment
from pyclient.descriptions.assignments import ClusterView as ClusterView
from pyclient.descriptions.assignments import MemberView as MemberView
from pyclient.records import Headers, OffsetAndMetadata, RecordMetadata, TopicPartition
from pyclient.redaction import HIDDEN

if TYPE_CHECKING:
    from pyclient.buffers.records_view import Records

T_co = TypeVar("T_co", covariant=True, default=Any)
T_contra = TypeVar("T_contra", contravariant=True, default=Any)


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


class Serializer(Protocol[T_contra]):
    """Serializes keys or values of a type. ``headers`` may be left out of the signature. A plain function serves too;
    it is not called for None. Optional protocols, looked up once when the client is made: `KnowsItsRole`,
    `AddsHeaders`, `PreparesValues`."""

    def serialize(self, topic: str, value: T_contra, headers: Headers, /) -> bytes | None:
        """The bytes; None stays None (a tombstone). None for any other value is refused, unless the producer's
        ``allow_tombstones`` permits it. Called once per record, by any thread; in a `Producer` it may block the caller.
        """


class Deserializer(Protocol[T_co]):
    """Deserializes keys or values to a type. ``headers`` may be left out of the signature. Optional protocols, looked
    up once when the client is made: `KnowsItsRole`, `PreparesData`."""

    def deserialize(self, topic: str, data: bytes | None, headers: Headers, /) -> T_co:
        """The value; None stays None (a tombstone). Called once per record; in a `Consumer` it may block the caller."""


@runtime_checkable
class KnowsItsRole(Protocol):
    """Optional power of a serializer or deserializer: it knows whether it serves keys or values.

    The client configures a shallow copy (`copy.copy`), so one object may be given for keys and values, and to several
    clients. What the object refers to, such as a cache or a registry's client, is shared by the copies."""

    def configure(self, *, is_key: bool) -> None:
        """Called once, before anything else. Must not block. A method without the argument ``is_key`` is not called."""


class Serialized(NamedTuple):
    """What a serializer with `AddsHeaders` may return instead of bytes."""

    data: bytes | None
    headers: Headers = ()
    """Added to the record, after its own."""


class AddsHeaders(Protocol[T_contra]):
    """Optional power of a serializer: it may return `Serialized`, whose headers are added to the record."""

    adds_headers: bool
    """True; set by the class."""

    def serialize(self, topic: str, value: T_contra, headers: Headers, /) -> bytes | Serialized | None:
        """As `Serializer.serialize`. Neither the key's nor the value's serializer sees what the other adds."""


@runtime_checkable
class PreparesValues(Protocol):
    """Optional power of a serializer: an `AsyncProducer` lets it await, so that ``serialize`` need not block the loop.
    """

    async def prepare_async(self, topic: str, value: Any, /) -> None:
        """Awaited before each ``serialize(topic, value)``, on the producer's loop; for None too. Its errors are those
        of ``serialize``. Make it quick when nothing is to be done. It is cancelled, and the record refused, when
        ``max_block_ms`` is over."""


@runtime_checkable
class PreparesData(Protocol):
    """Optional power of a deserializer: an `AsyncConsumer` lets it await, so that ``deserialize`` need not block the
    loop."""

    async def prepare_deserialize_async(self, topic: str, data: bytes | None, headers: Headers, /) -> None:
        """Awaited in the task that polls, before ``deserialize`` of a record that is not `KnowsPrepared`. Its errors
        are those of ``deserialize``. Bound its waits: the poll's timeout does not."""


@runtime_checkable
class KnowsPrepared(Protocol):
    """Optional power beside `PreparesData`: whole batches are deserialized without a wait in between."""

    def is_prepared(self, topic: str, data: bytes | None, headers: Headers, /) -> bool:
        """Whether ``deserialize`` would not block now. Must not block. Called once per record."""


Serialize: TypeAlias = Callable[[str, Any, Headers], bytes | None]
Deserialize: TypeAlias = Callable[[str, bytes | None, Headers], Any]


class Route(NamedTuple):
    """Where a `ProducerInterceptor` sends a record, and its time; None leaves what `send` was given.

    With a *topic*, the partition that `send` was given does not count, for it is one of another topic: *partition* is
    one of this topic, None lets the partitioner choose. *timestamp* is in ms since the epoch.
    """

    topic: str | None = None
    partition: int | None = None
    timestamp: int | None = None


class ProducerInterceptor(Protocol):
    """Sees every record before it is serialized, and its outcome. Its errors are logged, never raised.

    It needs only one of the two methods. Several form a chain: each gets the record as the one before returned it. See
    also `SeesClose`.
    """

    def on_send(self, topic: str, key: Any, value: Any, headers: Headers, /) -> tuple[Any, Any, Headers] | tuple[Any, Any, Headers, Route | None]:
        """The key, value and headers to send instead, and perhaps a `Route`. Called once per record, by the thread or
        task that sends it.

        What it returns is checked as the arguments of `send`: a topic that does not exist, a negative partition or a
        value that cannot be serialized is an error of the send. Topics are looked up after this method, so `send` may
        be given one that does not exist.
        """

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

    It needs only one of the two methods. Several form a chain: each gets what the one before returned. An interceptor
    can leave records out, but not change, add or reorder them: records and columns (`Records.to_arrow`) are views of
    the fetched data. To change what is read, such as to decrypt it, use a deserializer: it gets topic, bytes and
    headers. See also `SeesClose`.
    """

    def on_consume(self, records: Records[Any, Any], /) -> Records[Any, Any]:
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


class OnPartitionsAssigned(Protocol):
    """A part of `RebalanceListener`: a listener need not have all of them."""

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> None:
        """As `RebalanceListener.on_partitions_assigned`."""


class OnPartitionsRevoked(Protocol):
    """A part of `RebalanceListener`."""

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> None:
        """As `RebalanceListener.on_partitions_revoked`."""


class OnPartitionsLost(Protocol):
    """A part of `RebalanceListener`."""

    def on_partitions_lost(self, partitions: list[TopicPartition], /) -> None:
        """As `RebalanceListener.on_partitions_lost`."""


class OnPartitionsAssignedAsync(Protocol):
    """A part of `AsyncRebalanceListener`; it may also be a plain function."""

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """As `RebalanceListener.on_partitions_assigned`."""


class OnPartitionsRevokedAsync(Protocol):
    """A part of `AsyncRebalanceListener`; it may also be a plain function."""

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """As `RebalanceListener.on_partitions_revoked`."""


class OnPartitionsLostAsync(Protocol):
    """A part of `AsyncRebalanceListener`; it may also be a plain function."""

    def on_partitions_lost(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """As `RebalanceListener.on_partitions_lost`."""


AnyRebalanceListener: TypeAlias = OnPartitionsAssigned | OnPartitionsRevoked | OnPartitionsLost
"""What a `Consumer` takes: an object with some of the methods of `RebalanceListener`."""
AnyAsyncRebalanceListener: TypeAlias = OnPartitionsAssignedAsync | OnPartitionsRevokedAsync | OnPartitionsLostAsync
"""What an `AsyncConsumer` takes: the methods may be coroutine functions or plain ones."""


class RebalanceListener(Protocol):
    """Called when partitions are assigned or revoked: within ``poll``, an iteration, ``unsubscribe`` or ``close``. It
    may commit and seek."""

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> None:
        """These were added, before any record of them is returned."""

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> None:
        """These will be given up; they are still owned, so commits succeed."""

    def on_partitions_lost(self, partitions: list[TopicPartition], /) -> None:
        """These are lost already; another member may own them. By default it calls `on_partitions_revoked`."""
        self.on_partitions_revoked(partitions)


class AsyncRebalanceListener(Protocol):
    """`RebalanceListener` for async consumers: the same, awaited."""

    async def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> None:
        """These were added, before any record of them is returned."""

    async def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> None:
        """These will be given up; they are still owned, so commits succeed."""

    async def on_partitions_lost(self, partitions: list[TopicPartition], /) -> None:
        """These are lost already. By default it calls `on_partitions_revoked`."""
        await self.on_partitions_revoked(partitions)


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
        answer. It may also yield an awaitable: an async client's loop awaits it, and its result is sent or its error
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
