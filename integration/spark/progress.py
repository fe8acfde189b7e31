"""How far streaming queries are behind Kafka: Spark's reports as lag per partition, for logs, alerts and lag tools.

Spark's checkpoint holds a query's positions, so Kafka's tools do not see it. `LagListener` runs in the driver, after
each batch, and asks no broker for the lag: the source has reported the ends of the logs with the batch.
"""
from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.streaming.listener import StreamingQueryListener
from typing_extensions import Unpack

from pyclient.config import AdminConfig
from pyclient.errors import ConfigurationError, KafkaError
from pyclient.integration.spark.offsets import Offsets, from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent, StreamingQueryProgress

    from pyclient.admin.facade import Admin
    from pyclient.option_types import AdminOptions

log = logging.getLogger(__name__)

COMMIT_S: Final = 10.0
"""Longest wait for a group's coordinator. Spark's reports wait meanwhile, its batches do not."""


@attrs.frozen
class QueryLag:
    """A query after one of its batches."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    rows: int
    """Read by this batch."""
    positions: Offsets
    """The offset of each partition that the next batch begins at."""
    lags: Offsets
    """Records of each partition that were in the log when the batch was planned, and that no batch has read."""
    observed: Mapping[str, Mapping[str, Any]]
    """What ``df.observe(name, …)`` has counted in this batch, by name."""

    @property
    def total(self) -> int:
        """The lag of all partitions."""
        return sum(self.lags.values())

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> QueryLag:
        """From Spark's report; sources other than Kafka topics are left out."""
        positions: Offsets = {}
        lags: Offsets = {}
        for source in progress.sources:
            ends, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
            positions.update(ends)
            lags.update({tp: max(0, latest[tp] - end) for tp, end in ends.items() if tp in latest})
        observed = {name: row.asDict() for name, row in (progress.observedMetrics or {}).items()}
        return cls(str(progress.id), str(progress.runId), progress.name, progress.batchId, progress.numInputRows or 0, positions, lags, observed)


class LagListener(StreamingQueryListener):
    """Logs the lag of the session's streaming queries after each batch: ``spark.streams.addListener(LagListener())``.

    *on_batch* is called with each `QueryLag`. *groups* names a consumer group for a query by its ``queryName``: the
    listener stores the query's positions as offsets of that group, for tools that show lag, in the cluster of *config*
    and *options* (those of `pyclient.Admin`). Use a group that has no members and that no other query has. Queries do
    not read these offsets: their checkpoint says where they go on.

    Raises:
        ConfigurationError: an option is wrong, or *groups* is given without ``bootstrap_servers``.
    """

    def __init__(self, on_batch: Callable[[QueryLag], object] | None = None, config: Mapping[str, object] | None = None, /, *,
                 groups: Mapping[str, str] | None = None, **options: Unpack[AdminOptions]) -> None:
        self._on_batch = on_batch
        self._groups = dict(groups or {})
        self._client: dict[str, Any] = {**(config or {}), **options}
        self._admin: Admin | None = None
        if not AdminConfig.parse(config, {**options}).bootstrap_servers and self._groups:
            raise ConfigurationError('groups need the cluster that keeps them: LagListener(groups=..., bootstrap_servers="host:9092")', option="bootstrap_servers")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Log the start."""
        log.info("query %s (%s), run %s: started", event.id, event.name, event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log the lag, hand it on, store the positions. Errors are logged: a query does not fail with its reports."""
        try:
            lag = QueryLag.of(event.progress)
            _log_lag(lag)
            self._store(lag)
            if self._on_batch is not None:
                self._on_batch(lag)
        except Exception:  # also those of the user's function
            log.exception("the report of a batch was not handled")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Log the end, and the error if there was one."""
        log.info("query %s, run %s: ended%s", event.id, event.runId, f": {event.exception}" if event.exception else "")

    def close(self) -> None:
        """Close the client that stores offsets; remove the listener from the session first. Idempotent."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _store(self, lag: QueryLag) -> None:
        group = self._groups.get(lag.name or "")
        if group is None or not lag.positions:
            return
        try:
            self._open().alter_group_offsets(group, lag.positions, timeout=COMMIT_S)
        except KafkaError as error:
            log.warning("query %s, batch %d: its positions were not stored for the group %s: %s", lag.query_id, lag.batch_id, group, error)

    def _open(self) -> Admin:
        if self._admin is None:
            from pyclient.admin.facade import Admin

            self._admin = Admin(**self._client)
        return self._admin


def _log_lag(lag: QueryLag) -> None:
    behind = ", ".join(f"{tp}: {records}" for tp, records in sorted(lag.lags.items()) if records)
    log.info("query %s (%s), batch %d: %d rows read, %d records behind%s", lag.query_id, lag.name, lag.batch_id, lag.rows, lag.total,
             f" ({behind})" if behind else "")


def _offsets(text: str | None) -> Offsets:
    """Offsets in Spark's form for Kafka; none if it is another source's."""
    try:
        return from_json(json.loads(text or "null"))
    except (ValueError, TypeError, AttributeError):
        return {}
