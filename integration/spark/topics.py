"""What a query's driver asks the cluster: which partitions there are, and where their logs begin and end.

Decides nothing about batches. The client is opened when first needed, and lives as long as this does.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from pyclient.admin import ListedOffset, OffsetSpec
from pyclient.admin.facade import Admin
from pyclient.config import AdminConfig, ConsumerConfig
from pyclient.errors import ConfigurationError, NoOffsetForPartitionError
from pyclient.integration.spark.offsets import EARLIEST, LATEST, Offsets, complete
from pyclient.integration.spark.options import Bound, SourceOptions
from pyclient.records import TopicPartition


class Topics:
    """The topics that *options* name, as they are now. Waits at most ``kafka.default.api.timeout.ms`` in each call."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: Admin | None = None

    def partitions(self) -> list[TopicPartition]:
        """Every partition to read, in order.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            ConfigurationError: an assigned partition does not exist.
        """
        options = self._options
        names = {tp.topic for tp in options.partitions} or self._names()
        described = self._open_admin().describe_topics(sorted(names)) if names else {}
        found = [TopicPartition(name, each.partition) for name, topic in described.items() for each in topic.partitions]
        if not options.partitions:
            return sorted(found)
        missing = sorted(set(options.partitions) - set(found))
        if missing:
            raise ConfigurationError(f"assign names {', '.join(map(str, missing))}, which does not exist", option="assign")
        return list(options.partitions)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first offset of each log."""
        return _known(self._offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The end offset of each log; with ``isolation.level=read_committed``, its last stable offset."""
        return _known(self._offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)))

    def at(self, bound: Bound, partitions: list[TopicPartition], *, side: str) -> Offsets:
        """Where *bound* is in each partition; *side* (starting or ending) names the option in errors.

        Raises:
            ConfigurationError: offsets or times do not name exactly the partitions that are read.
            NoOffsetForPartitionError: no record is as late as the starting time.
        """
        if bound.time is not None:
            return self._at_times(dict.fromkeys(partitions, bound.time), side)
        if bound.times is not None:
            return self._at_times(complete(f"{side}OffsetsByTimestamp", bound.times, partitions), side)
        if bound.offsets is None:
            return self.earliest(partitions) if bound.otherwise == EARLIEST else self.latest(partitions)
        given = complete(f"{side}Offsets", bound.offsets, partitions)
        early = self.earliest(tp for tp, offset in given.items() if offset == EARLIEST)
        late = self.latest(tp for tp, offset in given.items() if offset == LATEST)
        return {**given, **early, **late}

    def close(self) -> None:
        """Close the client. Idempotent; the next call opens it again."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _names(self) -> set[str]:
        pattern = self._options.pattern
        if pattern is None:
            return set(self._options.topics)
        return {name for name in self._open_admin().list_topics() if re.fullmatch(pattern, name)}

    def _at_times(self, times: Mapping[TopicPartition, int], side: str) -> Offsets:
        found = self._offsets(times)
        late = [tp for tp, answer in found.items() if answer is None]
        if late and side == "starting" and not self._options.late_start_is_latest:
            raise NoOffsetForPartitionError(
                f"no record of {', '.join(map(str, late))} is as late as the starting time asks: choose an earlier one, "
                "or begin there at the end with startingOffsetsByTimestampStrategy=latest")
        return {**_known(found), **self.latest(late)}

    def _offsets(self, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset | None]:
        if not specs:
            return {}
        level: Any = ConsumerConfig.parse(None, self._options.client).isolation_level
        return self._open_admin().list_offsets(specs, isolation_level=level)

    def _open_admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(**_shared(self._options.client))
        return self._admin


def _known(found: Mapping[TopicPartition, ListedOffset | None]) -> Offsets:
    return {tp: answer.offset for tp, answer in found.items() if answer is not None}


def _shared(client: Mapping[str, str]) -> dict[str, Any]:
    """The options of a consumer that an admin client has too: where the cluster is, security, timeouts."""
    config = ConsumerConfig.parse(None, client)
    known = {option.name for option in AdminConfig.fields()}
    return {option.name: value for option, value in config if option.name in known and option.name in config.given}
