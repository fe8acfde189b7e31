"""The driver's half of the exactly-once sink: who asks, which slots, and a batch's rows to the tasks that write them.

Spark repeats a batch with the same number and the same rows until it is written. `markers` decides what that means for
each slot; tasks write in `slots`.
"""
from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import tenacity

from pyclient.admin import ConfigResource
from pyclient.admin.facade import Admin
from pyclient.config import AdminConfig
from pyclient.descriptions.topics import NewPartitions, NewTopic
from pyclient.errors import AuthorizationError, ConfigurationError, KafkaError, TopicExistsError, UnknownTopicOrPartitionError
from pyclient.integration.spark.context import QUERY_ID, RUN_ID, property_of
from pyclient.integration.spark.markers import ACCEPT, Batch, claim
from pyclient.integration.spark.rows import used_columns
from pyclient.integration.spark.slots import SlotClients, SlotOptions, SlotTask, shared_options, write_slot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

RESULT: Final = "slot int, rows bigint, written boolean"


class ExactlyOnce:
    """Writes each batch of one query exactly once."""

    def __init__(self, options: SlotOptions, slots: int, new_checkpoint: str) -> None:
        self._options = options
        self._wanted = slots
        self._accept = new_checkpoint == ACCEPT
        self._next: Batch | None = None
        """The batch for which this run has claimed the slots already."""

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write one batch; what foreachBatch calls, on the driver."""
        batch = batch_of(frame, number)
        check_plan(batch)
        slots = self._wanted if self._next == batch else self._claim(batch)
        self._next = None
        columns = used_columns(frame.columns, self._options.sink)
        task = SlotTask(self._options, batch, slots)
        results = divided(frame.select(*columns), slots).mapInArrow(task, RESULT).collect()
        self._write_missing(batch, slots, {each.slot for each in results})
        if slots == self._wanted:  # else the next batch has another number of slots, some of which have no marker yet
            self._next = Batch(batch.query, batch.run, number + 1)
        log.info("query %s, batch %d: %d records written by %d tasks, %d skipped, which were written before", batch.query, number, sum(each.rows for each in results if each.written),
                 len(results), sum(each.rows for each in results if not each.written))

    def _claim(self, batch: Batch) -> int:
        count = ensure_marker_topic(self._options, self._wanted)
        if self._accept:
            log.warning("new_checkpoint=%r: markers of other queries of the prefix %s are replaced by those of query %s from batch %d on. Take the "
                        "argument out again.", ACCEPT, self._options.prefix, batch.query, batch.number)
        with SlotClients(self._options) as clients:
            slots = claim(clients, count, batch, self._wanted, accept=self._accept)
        self._accept = False
        if slots != self._wanted:
            log.warning("batch %d was begun with %d slots and cut off; it is written with as many again, the next one with %d", batch.number, slots,
                        self._wanted)
        return slots

    def _write_missing(self, batch: Batch, slots: int, done: set[int]) -> None:
        """Spark leaves out the stage when a batch has no rows at all; its slots get their markers all the same."""
        missing = [slot for slot in range(slots) if slot not in done]
        if missing:
            with SlotClients(self._options) as clients:
                for slot in missing:
                    write_slot(clients, slot, iter(()), batch, slots)


def divided(frame: DataFrame, slots: int) -> DataFrame:
    """*frame* with each row in the partition of its slot: the same in every repetition, however Spark holds the rows.

    Rows of one key are in one slot, and so in one transaction. Rows without a key are divided by their values. Tasks
    compute the same (`row_hash`): a column with the slot would be written, shuffled and sent to Python with each row.
    """
    from pyspark.sql import functions as fn

    chosen = fn.xxhash64("value")
    if "key" in frame.columns:
        chosen = fn.when(fn.col("key").isNotNull(), fn.xxhash64("key")).otherwise(chosen)
    return frame.repartitionById(slots, fn.pmod(chosen, fn.lit(slots).cast("long")).cast("int"))


def batch_of(frame: DataFrame, number: int) -> Batch:
    """Which batch of which run of which query this is.

    Raises:
        ConfigurationError: this is no batch of a streaming query, or one of Spark Connect, which does not say.
    """
    session: Any = frame.sparkSession
    query, run = property_of(frame, QUERY_ID), property_of(frame, RUN_ID)
    if query is None or run is None:
        raise ConfigurationError("exactly-once delivery belongs to one streaming query: give the sink to df.writeStream.foreachBatch(sink), in a session "
                                 "that is not Spark Connect's. For tables and in Spark Connect use at-least-once.", option="delivery")
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise ConfigurationError("spark.speculation=true starts tasks twice, and of two tasks of a slot one ends the other: switch it off for this query",
                                 option="delivery")
    return Batch(query, run, number)


def check_plan(batch: Batch) -> None:
    """Refuse a query whose rows are others when Spark repeats it, as far as its plan shows.

    Raises:
        ConfigurationError: it is such a query.
    """
    plan = _plan(batch)
    if plan is not None and not plan.deterministic():
        raise ConfigurationError(
            "this query gives other rows each time it runs (rand, uuid, a function marked as nondeterministic), but a batch that is repeated must be the "
            "same: take such columns from the source, or derive them from a record's topic, partition and offset", option="delivery")


def _plan(batch: Batch) -> Any:
    """The query's logical plan; None where Spark does not show it."""
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()  # not the batch's: that one is a copy, which knows no query
    try:
        query: Any = session.streams.get(batch.query) if session is not None else None
        execution = query._jsq.streamingQuery().lastExecution() if query is not None else None
        return execution.logical() if execution is not None else None
    except (Py4JError, TypeError):  # inner names of Spark, which another release may change
        return None


def ensure_marker_topic(options: SlotOptions, slots: int) -> int:
    """Create the marker topic, or give it more partitions; returns how many it has, at least *slots*.

    Raises:
        ConfigurationError: it deletes old markers.
    """
    name = options.marker_topic
    with Admin(**shared_options(options.sink.client, AdminConfig)) as admin:
        with contextlib.suppress(TopicExistsError):
            # Compacted: the last marker of each slot is kept for as long as the topic is, however long the query rests.
            admin.create_topics([NewTopic(name, slots, configs={"cleanup.policy": "compact"})])
        known = _partitions(admin, name)
        _check_policy(admin, name)
        if known < slots:
            log.warning("the marker topic %s gets %d partitions, it had %d: one for each slot", name, slots, known)
            admin.create_partitions({name: NewPartitions(slots)})
        return max(known, slots)


def _check_policy(admin: Admin, name: str) -> None:
    try:
        policy = _policy(admin, name)
    except AuthorizationError:
        log.warning("cannot check that the marker topic %s keeps its markers: the right DESCRIBE_CONFIGS is missing. Its cleanup.policy must be compact, "
                    "alone.", name)
        return
    if policy != "compact":
        raise ConfigurationError(
            f"the marker topic {name} has cleanup.policy={policy}, so the markers of a query that rests are deleted, and with them the knowledge of what it "
            f"has written. Set it: kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config cleanup.policy=compact. Or name another "
            "topic in marker_topic.", option="marker_topic")


@tenacity.retry(stop=tenacity.stop_after_delay(30), wait=tenacity.wait_fixed(0.1), retry=tenacity.retry_if_exception_type(UnknownTopicOrPartitionError),
                reraise=True)
def _policy(admin: Admin, name: str) -> str | None:
    topic = ConfigResource.topic(name)
    return admin.describe_configs([topic], names=["cleanup.policy"])[topic]["cleanup.policy"].value


@tenacity.retry(stop=tenacity.stop_after_delay(30), wait=tenacity.wait_fixed(0.1), retry=tenacity.retry_if_exception_type(KafkaError), reraise=True)
def _partitions(admin: Admin, name: str) -> int:
    # A broker may learn of a new topic a little later than the controller that has answered.
    return len(admin.describe_topics([name])[name].partitions)
