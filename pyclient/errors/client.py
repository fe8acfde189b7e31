"""Errors that the client finds itself: options, timeouts, wrong use, connections, records."""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pyclient.errors.base import InvalidConfigurationError, KafkaError, RetriableError, _summary
from pyclient.records import Node, TopicPartition

if TYPE_CHECKING:
    from pyclient.records.record import Record


class ConfigurationError(InvalidConfigurationError, ValueError):
    """An option has a wrong type or value, or conflicts with another one; ``option`` names it."""

    code, name = None, ""

    def __init__(self, message: str = "", *, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class UnknownOptionError(ConfigurationError):
    """No option has this name; ``nearest`` holds the most similar names."""

    def __init__(self, message: str = "", *, option: str | None = None, nearest: Iterable[str] = ()) -> None:
        super().__init__(message, option=option)
        self.nearest = tuple(nearest)


class UnsupportedFeatureError(ConfigurationError):
    """This release of the client does not support a feature of Kafka yet: the message names what to use instead."""


class TokenUnavailableError(RetriableError):
    """No OAuth token could be fetched: check ``sasl_token_provider`` or the token endpoint. The client retries with its
    next connection."""


class PasswordUnavailableError(RetriableError):
    """The function that is ``sasl_plain_password`` raised, or returned no password. The client calls it again with its
    next connection."""


class KafkaTimeoutError(RetriableError, TimeoutError):
    """A call did not finish within its timeout (the method's, or ``default_api_timeout_ms``)."""


class BootstrapError(KafkaTimeoutError):
    """None of ``bootstrap_servers`` answered as a Kafka broker; ``causes`` holds the error of each address."""

    def __init__(self, causes: Mapping[str, BaseException], *, waited_s: float | None = None) -> None:
        waited = "" if waited_s is None else f" within {waited_s:.1f} s"
        texts = {address: _cause_text(cause) for address, cause in causes.items()}
        tried = "; ".join(text if text.startswith(address) else f"{address}: {text}" for address, text in texts.items()) or "no address given"
        super().__init__(
            f"no broker answered{waited}. Tried {sentence(tried)} "
            "Check bootstrap_servers and security_protocol, and that the listener is reachable from this host."
        )
        self.causes = dict(causes)


class MetadataTimeoutError(KafkaTimeoutError):
    """The topic's metadata did not arrive in time: the topic does not exist yet, or no broker answers."""


class BufferExhaustedError(KafkaTimeoutError):
    """``buffer_memory`` stayed full for ``max_block_ms``. Nothing was queued: sending again is safe."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """The record was not acknowledged within ``delivery_timeout_ms``; it may or may not have been written."""


class DisconnectError(RetriableError, ConnectionError):
    """The connection closed before the answer arrived; the broker may or may not have carried out the request."""


class DeliveryError(KafkaError):
    """``count`` records failed and their results were never read; ``causes`` holds each partition's first error."""

    def __init__(self, count: int, causes: Mapping[TopicPartition, KafkaError]) -> None:
        listed = "; ".join(f"{_place(partition)}: {cause.message}" for partition, cause in list(causes.items())[:5])
        more = f"; and {counted(len(causes) - 5, 'more partition')}" if len(causes) > 5 else ""
        super().__init__(
            f"{counted(count, 'record')} could not be delivered ({listed}{more}). "
            "To handle failures one by one, read each Delivery: result(), exception() or a callback."
        )
        self.count = count
        self.causes = dict(causes)


def _place(tp: TopicPartition) -> str:
    """A record that was rejected before it was queued has no partition."""
    return str(tp) if tp.partition >= 0 else f"{tp.topic or 'no topic'}, not queued"


class IndexedErrors(Mapping[int, KafkaError]):
    """The error of each index, stored as ranges: a failed batch is one range, however many records it held."""

    def __init__(self, ranges: Iterable[tuple[int, int, KafkaError]]) -> None:
        self.ranges = tuple(ranges)
        """(first index, index after the last, error), in order."""
        self._starts = [start for start, _, _ in self.ranges]

    def __len__(self) -> int:
        return sum(stop - start for start, stop, _ in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for start, stop, _ in self.ranges:
            yield from range(start, stop)

    def __getitem__(self, index: int) -> KafkaError:
        place = bisect_right(self._starts, index) - 1
        if place < 0 or index >= self.ranges[place][1]:
            raise KeyError(index)
        return self.ranges[place][2]

    def __repr__(self) -> str:
        return f"<IndexedErrors of {len(self)} in {len(self.ranges)} ranges>"


class BulkDeliveryError(KafkaError):
    """Some records of a bulk failed and the others were delivered: ``errors`` maps each failed index to its error."""

    def __init__(self, total: int, errors: IndexedErrors) -> None:
        listed = "; ".join(f"{_range_text(start, stop)}: {cause}" for start, stop, cause in errors.ranges[:5])
        more = f"; and {counted(len(errors.ranges) - 5, 'more range')}" if len(errors.ranges) > 5 else ""
        super().__init__(f"{len(errors)} of {counted(total, 'record')} could not be delivered, the others were ({listed}{more}). "
                         "`errors` holds the error of each failed index: correct those records if needed and send them again.")
        self.errors = errors


def _range_text(start: int, stop: int) -> str:
    return f"{start}" if stop == start + 1 else f"{start} to {stop - 1}"


class RecordRejectedError(KafkaError):
    """A record of a bulk is invalid and was not queued: see ``__cause__``. The other records were sent."""


class ClientClosedError(KafkaError):
    """The client was closed; open a new one."""


class ClientForkedError(KafkaError):
    """The client was opened in the parent process: open one in each child, after the fork."""


class WrongEventLoopError(KafkaError):
    """An async client belongs to the event loop that entered it: open one per loop."""


class ConcurrentUseError(KafkaError):
    """Two threads used a consumer at once; only ``wakeup()`` may be called then. Use one consumer per thread."""


class WakeupError(KafkaError):
    """``wakeup()`` interrupted the call. The consumer stays usable."""


class PartialFailureError(KafkaError):
    """Some items of an admin call failed and the others were done: ``errors`` maps each failed item to its error.

    ``results`` maps each item that was done to its result, None for calls that return nothing.
    """

    def __init__(self, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any] | None = None) -> None:
        listed = "; ".join(cause.message for cause in list(errors.values())[:5])
        more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
        super().__init__(f"{len(errors)} item{'' if len(errors) == 1 else 's'} failed, the others were done ({listed}{more})")
        self.errors = dict(errors)
        self.results = dict(results or {})


class ProtocolError(KafkaError):
    """The peer's answer cannot be decoded: it is not a Kafka broker, a proxy is in between, or this is a defect."""

    def __init__(
        self, message: str = "", *, api: str | None = None, version: int | None = None, node: Node | int | None = None
    ) -> None:
        about = "" if api is None else f"{api} v{version}: " if version is not None else f"{api}: "
        super().__init__(about + message if message else about + _summary(type(self)), node=node)
        self.api = api
        self.version = version


class IllegalStateError(KafkaError):
    """The call is not allowed in the client's present state; the message names the call that must come first."""


class IllegalTransitionError(KafkaError):
    """An event is not allowed in the present state of a state machine: a defect of this client, please report it."""

    def __init__(self, state: object, event: object) -> None:
        super().__init__(
            f"{event!r} is impossible in state {state!r}. This is a defect of the client: "
            "please report it with the log of logger 'pyclient'."
        )
        self.state = repr(state)
        self.event = repr(event)


class SerializationError(KafkaError):
    """A key or value cannot be serialized or deserialized; ``__cause__`` is the serializer's error.

    Raised by a consumer, ``record`` is the record with key and value as bytes; otherwise it is None.
    """

    def __init__(self, message: str = "", *, topic_partition: TopicPartition | None = None, node: Node | int | None = None,
                 record: Record | None = None) -> None:
        super().__init__(message, topic_partition=topic_partition, node=node)
        self.record = record


class SchemaRegistryError(SerializationError):
    """The schema registry refused a request or its answer is not valid; ``status`` is HTTP's, ``error_code`` its own.

    The message names URL, status and subject. Repeating the request cannot help: check the request, the schema, the
    password or the certificates.
    """

    def __init__(self, message: str = "", *, status: int | None = None, error_code: int | None = None, subject: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.subject = subject

    @property
    def is_unknown_schema(self) -> bool:
        """The registry does not know the schema (HTTP 404), so data that names it cannot be read.

        All other errors of a registry say nothing about the data.
        """
        return self.status == HTTPStatus.NOT_FOUND


class SchemaRegistryUnavailableError(SchemaRegistryError, RetriableError):
    """No schema registry answered, or only with temporary errors (HTTP 5xx, 429). The client has tried all URLs."""


class CommitFailedError(KafkaError):
    """The offsets were not committed: this consumer has left the group, or no longer owns the partition.

    The partition's new owner starts at the last committed offset: records processed since then are read again.
    """


class NoOffsetForPartitionError(KafkaError):
    """The group has no committed offset, and ``auto_offset_reset=none``: seek, or set it to earliest or latest."""


def sentence(text: str) -> str:
    """*text* with a full stop at its end, for quoting it within a message."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def counted(count: int, noun: str) -> str:
    """The count with its noun: "1 record", "2 records"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def said_of(subject: str, error: BaseException) -> str:
    """The error's text in a line that begins with *subject*, which it does not repeat."""
    text = str(error).removeprefix(f"{subject} ").replace(f"{subject}: ", "").replace(f"{subject}. ", "")
    return text.replace(f" {subject} ", " it ")


def with_article(noun: str) -> str:
    """The noun with "a" or "an", as the names of types need it."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _cause_text(cause: BaseException) -> str:
    return str(cause) or type(cause).__name__
