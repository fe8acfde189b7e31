"""The example of offsets in a database: each record is a row exactly once.

That holds wherever the program is killed, and with other members in the group.
"""
from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from examples.offsets_in_database import Database, OvertakenError, copy
from pyclient import Consumer, Record, TopicPartition
from pyclient.errors import OffsetOutOfRangeError
from pyclient.testing import FakeCluster
from tests.offsets import check, fill, killed
from tests.waiting import eventually

WHERE = TopicPartition("orders", 0)


def consumer(cluster: FakeCluster, **options: Any) -> Consumer:
    return Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="orders-to-sqlite", enable_auto_commit=False, auto_offset_reset="none",
                    **options)


def text(record: Record) -> str:
    return (record.value or b"").decode()


def copied(cluster: FakeCluster, path: Path, end: int, make: Any = text) -> list[int]:
    """The offsets of the rows, once reading has come to *end*."""
    database = Database(path)
    try:
        with consumer(cluster) as reader:
            copy(reader, ["orders"], database, make, lambda: database.position(WHERE) == end)
    finally:
        rows = [offset for _, _, offset, _ in database.rows()]
        database.close()
    return rows


@pytest.mark.parametrize("kind", ["broken", "mended"])
def test_killed_behind_every_line_it_has_each_row_once_and_goes_on_where_it_was(fake_cluster: FakeCluster, tmp_path: Path, kind: str) -> None:
    """A batch from 10095 to 10099 fails at 10098, and the next run continues there. Killed at every line."""
    fake_cluster.create_topic("orders")
    fill(fake_cluster.bootstrap_servers, "orders")
    reported = killed(fake_cluster.bootstrap_servers, "orders", tmp_path, kind)
    check(reported, kind)
    assert reported[-1]["how"] == ("refused" if kind == "broken" else "done")
    assert len(reported) > 40
    assert not fake_cluster.committed("orders-to-sqlite")


def test_a_run_that_fails_leaves_the_rows_before_and_the_next_begins_with_that_record(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    def fails(record: Record) -> str:
        if record.offset == 3:
            raise ValueError(text(record))
        return text(record)

    fake_cluster.create_topic("orders")
    for number in range(5):
        fake_cluster.produce("orders", b"%d" % number)
    for _ in range(2):
        with pytest.raises(ValueError, match="3"):
            copied(fake_cluster, tmp_path / "db", 5, fails)
    assert copied(fake_cluster, tmp_path / "db", 5) == [0, 1, 2, 3, 4]


def test_a_partition_that_the_database_does_not_know_begins_at_its_first_offset(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    fake_cluster.create_topic("orders")
    for number in range(5):
        fake_cluster.produce("orders", b"%d" % number)
    fake_cluster.advance_retention("orders", 0, 2)
    assert copied(fake_cluster, tmp_path / "db", 5) == [2, 3, 4]


def test_an_offset_that_the_log_has_not_any_more_is_an_error_and_no_guess(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    fake_cluster.create_topic("orders")
    for number in range(5):
        fake_cluster.produce("orders", b"%d" % number)
    database = Database(tmp_path / "db")
    database.begin_at(WHERE, 1)
    database.close()
    fake_cluster.advance_retention("orders", 0, 3)
    with pytest.raises(OffsetOutOfRangeError):
        copied(fake_cluster, tmp_path / "db", 5)


def test_who_was_overtaken_writes_nothing(tmp_path: Path) -> None:
    mine, other = Database(tmp_path / "db"), Database(tmp_path / "db")
    mine.begin_at(WHERE, 10)
    mine.begin_at(WHERE, 5)
    other.store(WHERE, [("orders", 0, 10, "a")], 10, 11)
    with pytest.raises(OvertakenError, match="orders-0 is no longer at offset 10 but at 11"):
        mine.store(WHERE, [("orders", 0, 10, "a")], 10, 11)
    mine.store(WHERE, [("orders", 0, 11, "b")], 11, 12)
    assert other.rows() == [("orders", 0, 10, "a"), ("orders", 0, 11, "b")]
    mine.close()
    other.close()


def test_rows_that_cannot_be_written_leave_the_position_where_it_was(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    database.begin_at(WHERE, 10)
    impossible: Any = object()
    with pytest.raises(sqlite3.Error):
        database.store(WHERE, [("orders", 0, 10, "a"), ("orders", 0, 11, impossible)], 10, 12)
    assert (database.position(WHERE), database.rows()) == (10, [])
    database.store(WHERE, [("orders", 0, 10, "a")], 10, 11)
    assert (database.position(WHERE), len(database.rows())) == (11, 1)
    database.close()


def test_members_that_come_and_go_store_each_record_once(fake_cluster: FakeCluster, tmp_path: Path) -> None:
    fake_cluster.create_topic("orders", partitions=4)
    sent: list[int] = []

    def produce(until: int) -> None:
        while len(sent) < until:
            fake_cluster.produce("orders", b"%d" % len(sent), partition=len(sent) % 4)
            sent.append(len(sent))

    def stored() -> int:
        database = Database(tmp_path / "db")
        try:
            return len(database.rows())
        finally:
            database.close()

    def member(ends: threading.Event) -> None:
        database = Database(tmp_path / "db")
        with consumer(fake_cluster, max_poll_records=3) as reader:
            copy(reader, ["orders"], database, text, ends.is_set)
        database.close()

    ends = [threading.Event(), threading.Event()]
    threads = [threading.Thread(target=member, args=(end,)) for end in ends]
    produce(40)
    threads[0].start()
    eventually(lambda: stored() > 10)
    threads[1].start()
    produce(80)
    eventually(lambda: len(fake_cluster.groups()["orders-to-sqlite"].members) == 2)
    eventually(lambda: stored() == 80)
    produce(100)
    ends[0].set()
    threads[0].join()
    produce(120)
    eventually(lambda: stored() >= 120)
    ends[1].set()
    threads[1].join()
    database = Database(tmp_path / "db")
    assert sorted(int(content) for *_, content in database.rows()) == list(range(120))
    for partition in range(4):
        offsets = [offset for _, number, offset, _ in database.rows() if number == partition]
        assert offsets == list(range(30))
    database.close()
