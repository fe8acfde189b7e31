"""Exactly once into a database: one transaction stores the rows and the next offset; reading starts at the stored one.

Offsets are not committed to Kafka: a crash between the database's commit and Kafka's would duplicate or lose rows. The
group still assigns the partitions; a member that gets one seeks to the offset in the database.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyclient import Consumer, Record, Records, TopicPartition
from pyclient.plugins import RebalanceListener

__all__ = ["Database", "OvertakenError", "SeekToStored", "copy"]

Row = tuple[str, int, int, str]
"""Topic, partition and offset of the record, and the content made of it."""


class OvertakenError(Exception):
    """Another member has stored records of this partition, so it now owns the partition; nothing was written."""


class Database:
    """Rows, and the next offset of each partition."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("CREATE TABLE IF NOT EXISTS rows (topic TEXT, partition INTEGER, offset INTEGER, content TEXT)")
        self._connection.execute("CREATE TABLE IF NOT EXISTS positions (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition))")

    def close(self) -> None:
        self._connection.close()

    def begin_at(self, tp: TopicPartition, offset: int) -> None:
        """Set the first offset of a partition that has none yet."""
        self._connection.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, ?)", (*tp, offset))

    def position(self, tp: TopicPartition) -> int | None:
        """The next offset; None for an unknown partition."""
        found = self._connection.execute("SELECT next FROM positions WHERE topic = ? AND partition = ?", tp).fetchone()
        return None if found is None else int(found[0])

    def rows(self) -> list[Row]:
        """All rows, in the order they were written."""
        return self._connection.execute("SELECT topic, partition, offset, content FROM rows ORDER BY rowid").fetchall()

    def store(self, tp: TopicPartition, rows: Sequence[Row], begin: int, end: int) -> None:
        """Write the rows of the records from *begin* to before *end*, and *end* as the next offset: all or nothing.

        Raises:
            OvertakenError: the stored offset is no longer *begin*.
        """
        with self._transaction():
            moved = self._connection.execute(
                "UPDATE positions SET next = ? WHERE topic = ? AND partition = ? AND next = ?", (end, *tp, begin))
            if moved.rowcount != 1:
                raise OvertakenError(f"{tp} is no longer at offset {begin} but at {self.position(tp)}")
            self._connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


class SeekToStored(RebalanceListener):
    """Seeks to the offset in the database when the group assigns a partition, before any of its records is returned."""

    def __init__(self, consumer: Consumer, database: Database) -> None:
        self._consumer = consumer
        self._database = database
        self.positions: dict[TopicPartition, int] = {}
        """The next offset of each partition, as we have stored it."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> None:
        for tp in partitions:
            self.positions[tp] = self._stored(tp)
            self._consumer.seek(tp, self.positions[tp])

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> None:
        """Returned records are stored already."""
        for tp in partitions:
            self.positions.pop(tp, None)

    def _stored(self, tp: TopicPartition) -> int:
        known = self._database.position(tp)
        if known is not None:
            return known
        first = self._consumer.beginning_offsets([tp])[tp]
        self._database.begin_at(tp, first)
        return first


def copy(consumer: Consumer, topics: Iterable[str], database: Database, make: Callable[[Record], str],
         until: Callable[[], bool] = lambda: False) -> None:
    """Store *make*'s result of every record, as a member of the consumer's group, until *until* returns True.

    If *make* raises, the records before that one are stored and the run ends; the next run starts with that record.
    The consumer has ``enable_auto_commit=False`` and ``auto_offset_reset="none"``: only the database decides where
    reading starts.
    """
    listener = SeekToStored(consumer, database)
    consumer.subscribe(topics, rebalance_listener=listener)
    while not until():
        for tp, records in consumer.poll(1.0).by_partition():
            _store(records, tp, listener.positions, database, make)


def _store(records: Records, tp: TopicPartition, positions: dict[TopicPartition, int], database: Database,
           make: Callable[[Record], str]) -> None:
    rows: list[Row] = []
    end = positions[tp]
    try:
        for record in records:
            rows.append((record.topic, record.partition, record.offset, make(record)))
            end = record.offset + 1
        end = records.positions()[tp]  # past control batches and aborted records, which are never returned
    finally:
        database.store(tp, rows, positions[tp], end)
        positions[tp] = end
