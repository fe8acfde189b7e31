"""Exactly once into a database: rows, and the offset to go on with, are written in one transaction, and reading begins where that says.

Kafka's own commits are not used: a crash between the database's commit and Kafka's would double rows or lose some. The group still decides
which member reads which partition; who is given one seeks to the offset in the database.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyclient import Consumer, Record, Records, TopicPartition
from pyclient.plugins import RebalanceListener

__all__ = ["Database", "Overtaken", "SeeksWhatIsStored", "copy"]

Row = tuple[str, int, int, str]
"""Topic, partition and offset, which say where a row is from, and what was made of the record."""


class Overtaken(Exception):
    """Another member has stored records of this partition meanwhile: it is not ours any more, and nothing was written."""


class Database:
    """Rows, and for each partition the offset to go on with."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("CREATE TABLE IF NOT EXISTS rows (topic TEXT, partition INTEGER, offset INTEGER, content TEXT)")
        self._connection.execute("CREATE TABLE IF NOT EXISTS positions (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition))")

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def begin_at(self, where: TopicPartition, offset: int) -> None:
        """Where a partition begins of which nothing is known yet."""
        self._connection.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, ?)", (*where, offset))

    def position(self, where: TopicPartition) -> int | None:
        """The offset to go on with; None for a partition of which nothing is known yet."""
        found = self._connection.execute("SELECT next FROM positions WHERE topic = ? AND partition = ?", where).fetchone()
        return None if found is None else int(found[0])

    def rows(self) -> list[Row]:
        """All rows, in the order they were written."""
        return self._connection.execute("SELECT topic, partition, offset, content FROM rows ORDER BY rowid").fetchall()

    def store(self, where: TopicPartition, rows: Sequence[Row], begin: int, end: int) -> None:
        """Write rows that were made of the records from *begin* to before *end*, and that reading goes on at *end*: all of it, or nothing.

        Raises:
            Overtaken: reading does not stand at *begin* any more.
        """
        with self._transaction():
            moved = self._connection.execute(
                "UPDATE positions SET next = ? WHERE topic = ? AND partition = ? AND next = ?", (end, *where, begin))
            if moved.rowcount != 1:
                raise Overtaken(f"{where} is not at offset {begin} any more but at {self.position(where)}")
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


class SeeksWhatIsStored(RebalanceListener):
    """Reading of a partition that the group gives us begins at the offset in the database, before any record of it is returned."""

    def __init__(self, consumer: Consumer, database: Database) -> None:
        self._consumer = consumer
        self._database = database
        self.positions: dict[TopicPartition, int] = {}
        """How far we have stored each partition."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition], /) -> None:
        """Seek."""
        for where in partitions:
            self.positions[where] = self._stored(where)
            self._consumer.seek(where, self.positions[where])

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition], /) -> None:
        """What was returned is stored already."""
        for where in partitions:
            self.positions.pop(where, None)

    def _stored(self, where: TopicPartition) -> int:
        known = self._database.position(where)
        if known is not None:
            return known
        first = self._consumer.beginning_offsets([where])[where]
        self._database.begin_at(where, first)
        return first


def copy(consumer: Consumer, topics: Iterable[str], database: Database, make: Callable[[Record], str], until: Callable[[], bool] = lambda: False) -> None:
    """Store what *make* makes of every record, as a member of the consumer's group, *until* it is enough.

    A record that *make* raises for ends it, once the records before it are stored: the next run begins with that record. The consumer
    has ``enable_auto_commit=False`` and ``auto_offset_reset="none"``, so that nothing but the database says where reading begins.
    """
    listener = SeeksWhatIsStored(consumer, database)
    consumer.subscribe(topics, rebalance_listener=listener)
    while not until():
        for where, records in consumer.poll(1.0).by_partition():
            _store(records, where, listener.positions, database, make)


def _store(records: Records, where: TopicPartition, positions: dict[TopicPartition, int], database: Database, make: Callable[[Record], str]) -> None:
    rows: list[Row] = []
    end = positions[where]
    try:
        for record in records:
            rows.append((record.topic, record.partition, record.offset, make(record)))
            end = record.offset + 1
        end = records.positions()[where]  # behind what lies after the last record and is never returned
    finally:
        database.store(where, rows, positions[where], end)
        positions[where] = end
