"""Options of the consumer, and the rules between them."""
from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, ClassVar

import attrs

from pyclient.config.client import ClientConfig
from pyclient.config.declaration import NotYet, Rule, option
from pyclient.config.kinds import INT16_MAX, INT32_MAX, INT64_MAX, PLUGIN, Anything, Bool, Choice, Int, OffsetReset, Plugins, Text, duration_ms

NOT_YET = (
    NotYet("share_acknowledgement_mode", lambda _: True, "It belongs to share groups; leave it out."),
    NotYet("share_acquire_mode", lambda _: True, "It belongs to share groups; leave it out."),
)


def _plain_function(given: object) -> bool:
    """Coroutine functions are refused: no code would await them."""
    return callable(given) and not iscoroutinefunction(given) and not iscoroutinefunction(getattr(given, "__call__", None))  # noqa: B004


_FRAME_ROOM = 65_536  # what a Fetch answer holds besides records

RULES = (
    Rule(
        ("group_protocol", "group_remote_assignor"),
        lambda c: c.group_protocol == "consumer" or c.group_remote_assignor is None,
        "group_remote_assignor needs group_protocol=consumer: in a classic group a member assigns, see assignors",
    ),
    Rule(
        ("group_protocol", "assignors"),
        lambda c: c.group_protocol == "classic" or c.assignors is None,
        "group_protocol=consumer lets the broker assign: leave assignors out; group_remote_assignor names one of the broker's",
    ),
    Rule(
        ("group_protocol", "session_timeout_ms", "heartbeat_interval_ms"),
        lambda c: c.group_protocol == "classic" or c.given.isdisjoint({"session_timeout_ms", "heartbeat_interval_ms"}),
        "group_protocol=consumer leaves these to the broker (group.consumer.session.timeout.ms and others): leave them out",
    ),
    Rule(
        ("heartbeat_interval_ms", "session_timeout_ms"),
        lambda c: c.heartbeat_interval_ms < c.session_timeout_ms,
        "heartbeat_interval_ms must be less than session_timeout_ms, a third of it at most to survive a lost one",
        yields={
            "heartbeat_interval_ms": lambda c: max(c.session_timeout_ms // 3, 1),
            "session_timeout_ms": lambda c: min(c.heartbeat_interval_ms * 3, INT32_MAX),
        },
    ),
    Rule(
        ("fetch_min_bytes", "fetch_max_bytes"),
        lambda c: c.fetch_min_bytes <= c.fetch_max_bytes,
        "fetch_min_bytes must not exceed fetch_max_bytes: every fetch would wait its full time",
        yields={"fetch_max_bytes": lambda c: c.fetch_min_bytes},
    ),
    Rule(
        ("fetch_max_wait_ms", "request_timeout_ms"),
        lambda c: c.fetch_max_wait_ms < c.request_timeout_ms,
        "fetch_max_wait_ms must be less than request_timeout_ms: an idle partition would look like a dead broker",
        yields={"fetch_max_wait_ms": lambda c: c.request_timeout_ms // 2, "request_timeout_ms": lambda c: c.fetch_max_wait_ms * 2},
    ),
    Rule(
        ("receive_max_frame_bytes", "fetch_max_bytes"),
        lambda c: c.receive_max_frame_bytes >= min(c.fetch_max_bytes + _FRAME_ROOM, INT32_MAX),
        f"receive_max_frame_bytes must be at least fetch_max_bytes + {_FRAME_ROOM}",
        yields={
            "receive_max_frame_bytes": lambda c: min(c.fetch_max_bytes + _FRAME_ROOM, INT32_MAX),
            "fetch_max_bytes": lambda c: max(c.receive_max_frame_bytes - _FRAME_ROOM, c.fetch_min_bytes, 1),
        },
    ),
    Rule(
        ("enable_auto_commit", "group_id"),
        lambda c: not c.enable_auto_commit or c.group_id is not None,
        "enable_auto_commit needs group_id: offsets are committed for a group",
        yields={"enable_auto_commit": lambda _: False},
    ),
    Rule(
        ("group_instance_id", "group_id"),
        lambda c: c.group_instance_id is None or c.group_id is not None,
        "group_instance_id needs group_id: it names a member of a group",
    ),
)


@attrs.define(frozen=True, kw_only=True, repr=False)
class ConsumerConfig(ClientConfig):
    """Options of `Consumer` and `AsyncConsumer`."""

    ROLE: ClassVar[str] = "consumer"
    RULES: ClassVar[tuple[Rule, ...]] = RULES
    NOT_YET: ClassVar[tuple[NotYet, ...]] = NOT_YET

    key_deserializer: object | None = option(
        "0.8", None, PLUGIN, "Turns bytes into keys; None: keys stay bytes.", importance="high", explicit=True)
    value_deserializer: object | None = option(
        "0.8", None, PLUGIN, "Turns bytes into values; None: values stay bytes.", importance="high", explicit=True)
    on_deserialization_error: Callable[[Any, Any], object] | None = option(
        "pyclient", None,
        Anything("a plain function of a record and its error", _plain_function, "Callable[[Record, SerializationError], object]"),
        "Called with each record that cannot be deserialized; the record is skipped and the position moves past it. None: raise the error at that record. "
        "Failures of a schema registry are always raised.")
    interceptors: tuple[object, ...] = option(
        "0.10", (), Plugins(), "See or filter records before poll returns them, in this order; see what was committed.",
        dotted="interceptor.classes", importance="low", explicit=True)
    assignors: tuple[object, ...] | None = option(
        "0.8", None, Plugins(),
        "How a group's partitions are assigned, in order of preference. None: range, cooperative-sticky.",
        dotted="partition.assignment.strategy", explicit=True)

    group_id: str | None = option(
        "0.8", None, Text(empty=False, longest=INT16_MAX), "The consumer group: its members share the partitions, and offsets are committed for it.", importance="high")
    group_instance_id: str | None = option(
        "2.3", None, Text(empty=False, longest=INT16_MAX), "Makes this a static member: a restart within session_timeout_ms moves no partition (KIP-345).")
    group_protocol: str = option(
        "3.7", "classic", Choice(("classic", "consumer")), "Who assigns partitions: a member (classic) or the broker (consumer, KIP-848).",
        importance="high")
    group_remote_assignor: str | None = option(
        "3.7", None, Text(empty=False), "The broker's assignor for group_protocol=consumer; None: its default.")
    session_timeout_ms: int = option(
        "0.8", 45_000, Int(1), "A member that sends no heartbeat for so long loses its partitions.", importance="high")
    heartbeat_interval_ms: int = option(
        "0.9", 3_000, Int(1), "Time between heartbeats; if not set, lowered when session_timeout_ms is short.", importance="high")
    max_poll_interval_ms: int = option(
        "0.10", 300_000, Int(1), "A member that does not poll for so long loses its partitions.")

    enable_auto_commit: bool = option(
        "0.8", True, Bool(), "Commit consumed positions every auto_commit_interval_ms. Off without group_id.")
    enable_auto_offset_store: bool = option(
        "pyclient", True, Bool(),
        "Records that were returned count as consumed when the next poll begins. Off: only what done() or store_offsets() was given is committed.")
    auto_commit_interval_ms: int = option(
        "0.8", 5_000, Int(), "Time between automatic commits.", importance="low")
    auto_offset_reset: str = option(
        "0.8", "latest", OffsetReset(),
        "Where to start without a valid committed offset: earliest, latest, none (raise an error), or by_duration:PT1H before now.")
    isolation_level: str = option(
        "0.11", "read_uncommitted", Choice(("read_uncommitted", "read_committed")),
        "read_committed skips records of aborted and open transactions.")

    max_poll_records: int = option(
        "0.10", 500, Int(1), "Most records that one poll returns.", unit="")
    fetch_min_bytes: int = option(
        "0.8", 1, Int(), "A broker waits for so many bytes before it answers a fetch, at most fetch_max_wait_ms.", importance="high")
    fetch_max_wait_ms: int = option(
        "0.8", 500, Int(), "Longest time a broker waits for fetch_min_bytes.", importance="low")
    fetch_max_bytes: int = option(
        "0.10", 52_428_800, Int(1), "Largest answer to one fetch; a single larger batch is still returned.")
    max_partition_fetch_bytes: int = option(
        "0.9", 1_048_576, Int(1), "Most bytes of one partition in an answer; a single larger batch is still returned.",
        importance="high")
    fetch_buffer_memory: int = option(
        "pyclient", 67_108_864, Int(1, INT64_MAX), "Bytes fetched ahead of poll, over all partitions; when it is full, fetching pauses. "
        "Bytes of opened batches that one poll returns, also: it ends with the batch that passes it.",
        unit="B")
    decompression_limit_bytes: int = option(
        "pyclient", 67_108_864, Int(1), "Largest batch after decompression; a larger one raises an error before memory is used.", importance="low")
    check_crcs: bool = option(
        "0.9", True, Bool(), "Check every batch's CRC-32C.", importance="low")

    client_rack: str = option(
        "2.3", "", Text(), "The rack of this client: it reads from a replica in the same rack, if the brokers allow it (KIP-392).", importance="low")
    allow_auto_create_topics: bool = option(
        "2.3", True, Bool(), "Reading an unknown topic creates it, where brokers allow that.")
    exclude_internal_topics: bool = option(
        "0.10", True, Bool(), "A pattern does not match internal topics.")
    share_acknowledgement_mode: str = option(
        "4.1", "implicit", Choice(("implicit", "explicit")), "How a share consumer acknowledges records (KIP-932).")
    share_acquire_mode: str = option(
        "4.2", "batch_optimized", Choice(("batch_optimized", "record_limit")), "How strictly a share consumer limits a fetch (KIP-1206).")

    @property
    def reset_duration_ms(self) -> int | None:
        """The milliseconds of ``auto_offset_reset=by_duration:…``, else None."""
        word, _, duration = self.auto_offset_reset.partition(":")
        return duration_ms(duration) if word == "by_duration" else None
