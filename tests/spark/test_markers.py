"""What the exactly-once sink decides, and a model in which drivers, tasks and zombies meet in any order."""
from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyclient.errors import ConfigurationError, IllegalStateError
from pyclient.integration.spark.markers import Batch, Marker, Tally, check_replay, claim, is_written, slots_of

QUERY = "q"


def batch(number: int, run: str = "r", query: str = QUERY) -> Batch:
    return Batch(query, run, number)


def marker(number: int, slots: int = 2, *, run: str = "r", query: str = QUERY) -> Marker:
    return Marker(query=query, run=run, batch=number, slots=slots)


def decided(markers: Sequence[Marker | None], number: int, wanted: int = 2, *, accept: bool = False) -> int:
    return slots_of(markers, batch(number), wanted, accept=accept)


# ---- the table ------------------------------------------------------------------------------------------------------


@given(st.builds(Marker, query=st.text(), run=st.text(), batch=st.integers(-1), slots=st.integers(1),
                 tally=st.builds(Tally, st.integers(0), st.integers(0, 2**64 - 1))))
def test_a_marker_is_read_as_it_was_written(given: Marker) -> None:
    assert Marker.from_bytes(given.to_bytes()) == given


@pytest.mark.parametrize("value", [None, b"", b"{}", b"[]", b"null", b"\xff", b'{"format":2}', json.dumps({"format": 1, "query": "q"}).encode()])
def test_a_record_that_is_no_marker_is_refused(value: bytes | None) -> None:
    with pytest.raises(IllegalStateError, match="no marker of this release"):
        Marker.from_bytes(value)


@pytest.mark.parametrize(("markers", "number", "wanted", "slots"), [
    ([], 0, 3, 3),
    ([None, None], 0, 2, 2),
    ([marker(-1), None], 0, 5, 5),  # a first start that was cut off
    ([marker(4), marker(4)], 5, 7, 7),  # a clean boundary: the number may change
    ([marker(5, 2), marker(4, 3), marker(4, 3)], 5, 9, 2),  # cut off: as it was begun
    ([marker(5), marker(5)], 5, 9, 2),  # written whole, and Spark does not know
    ([marker(4), marker(4), marker(1, 3)], 5, 2, 2),  # a slot that took no part since the number fell
])
def test_a_batch_has_the_slots_it_was_begun_with(markers: list[Marker | None], number: int, wanted: int, slots: int) -> None:
    assert decided(markers, number, wanted) == slots


@pytest.mark.parametrize(("markers", "number", "complaint"), [
    ([marker(7), marker(7)], 5, "has batch 7 already.*restored from an older copy"),
    ([marker(3), marker(3)], 5, "batch 3 is the last that has one"),
    ([marker(4), None], 5, r"batch 4 has none in slots \[1\]"),
    ([marker(5), marker(3)], 5, r"batch 4 has none in slots \[1\]"),
    ([marker(5, 2), marker(5, 3), marker(4, 3)], 5, "disagree about the number of slots"),
])
def test_markers_that_fit_no_state_are_refused(markers: list[Marker | None], number: int, complaint: str) -> None:
    with pytest.raises(IllegalStateError, match=complaint):
        decided(markers, number)


@pytest.mark.parametrize(("markers", "complaint"), [
    ([marker(9, query="old"), None], r"another query: old \(last batch 9\)"),
    ([None, None], "no marker, but the query is at batch 5"),
])
def test_a_new_checkpoint_is_refused_until_the_user_accepts_it(markers: list[Marker | None], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        decided(markers, 5)
    assert refused.value.option == "new_checkpoint"
    assert decided(markers, 5, accept=True) == 2


def test_an_accepted_start_that_was_cut_off_can_be_accepted_again() -> None:
    assert decided([marker(4), None, marker(9, query="old")], 5, wanted=3, accept=True) == 3


def test_a_restored_checkpoint_cannot_be_accepted() -> None:
    with pytest.raises(IllegalStateError, match="restored"):
        decided([marker(9), marker(9)], 5, accept=True)


def test_a_task_of_another_run_or_query_writes_nothing() -> None:
    with pytest.raises(IllegalStateError, match="belongs to run new"):
        is_written(marker(4, run="new"), batch(5, run="old"), 0)
    with pytest.raises(IllegalStateError, match="of query other now"):
        is_written(marker(4, query="other"), batch(5), 0)


def test_a_task_whose_marker_is_gone_or_wrong_writes_nothing() -> None:
    with pytest.raises(IllegalStateError, match="slot 3 has none any more"):
        is_written(None, batch(5), 3)
    with pytest.raises(IllegalStateError, match="slot 3 is at batch 2"):
        is_written(marker(2), batch(5), 3)


def test_the_order_of_rows_does_not_change_a_tally_and_other_rows_do() -> None:
    seen = Tally().plus(2, 2**64 - 1).plus(1, 5)
    check_replay(attrs.evolve(marker(1), tally=Tally().plus(1, 5).plus(2, 2**64 - 1)), seen, 0)
    with pytest.raises(IllegalStateError, match="3 rows now, 4 then. Rows may be lost"):
        check_replay(attrs.evolve(marker(1), tally=Tally(4, 4)), seen, 0)
    with pytest.raises(IllegalStateError, match="3 rows now, 3 then, with other contents"):
        check_replay(attrs.evolve(marker(1), tally=Tally(3, 3)), seen, 0)


# ---- the model ------------------------------------------------------------------------------------------------------


class FencedError(Exception):
    """Another producer has the slot's transactional id."""


class Log:
    """What Kafka holds: for each slot the epoch of its id, its last marker, and every committed row."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.markers: dict[int, Marker] = {}
        self.rows: list[tuple[int, int]] = []
        """(batch, row)."""


class Actor:
    """A program with one producer. Steps are taken one at a time: other programs act between any two of them."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.epochs: dict[int, int] = {}

    def fence(self, slot: int) -> None:
        self.log.epochs[slot] = self.log.epochs.get(slot, 0) + 1
        self.epochs[slot] = self.log.epochs[slot]

    def marker(self, slot: int) -> Marker | None:
        return self.log.markers.get(slot)

    def commit(self, slot: int, marker: Marker, rows: Sequence[tuple[int, int]] = ()) -> None:
        if self.epochs.get(slot) != self.log.epochs.get(slot):
            raise FencedError
        self.log.markers[slot] = marker
        self.log.rows += rows


ROWS = range(7)


def task(log: Log, slot: int, given: Batch, slots: int) -> Iterator[None]:
    """As `write_slot`: fence, then read, then decide, then commit rows and marker at once."""
    actor = Actor(log)
    actor.fence(slot)
    yield
    found = actor.marker(slot)
    yield
    if not is_written(found, given, slot):
        own = [(given.number, row) for row in ROWS if row % slots == slot]
        yield
        actor.commit(slot, Marker(query=given.query, run=given.run, batch=given.number, slots=slots), own)


class Driver:
    """Spark and the sink's driver: runs batches of a query from its checkpoint, until it is cut off."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.done = -1
        """The last batch in the checkpoint's commit log."""
        self.partitions = 0
        self.runs = 0
        self.zombies: list[Iterator[None]] = []
        self.calm = False
        """Nothing is cut off any more."""

    def run(self, batches: int, wanted: int, draw: st.DataObject) -> None:
        """Up to so many batches; cut off at a step that is drawn, leaving its tasks behind where they were."""
        self.runs += 1
        self.partitions = max(self.partitions, wanted)
        for number in range(self.done + 1, self.done + 1 + batches):
            given = Batch(QUERY, str(self.runs), number)
            try:
                slots = claim(Interleaved(self, draw), self.partitions, given, wanted, accept=False)
            except FencedError:
                return  # the query fails, and is started again
            tasks = [task(self.log, slot, given, slots) for slot in range(slots)]
            lost = -1 if self.calm else draw.draw(st.integers(-1, slots - 1))
            if lost >= 0:  # its executor does not answer: Spark starts the task again, and the first attempt goes on
                stepped(tasks[lost])
                self.zombies.append(tasks[lost])
                tasks[lost] = task(self.log, lost, given, slots)
            if not self._finish(tasks, draw):
                self.zombies += tasks
                return
            self.done = number

    def _finish(self, tasks: list[Iterator[None]], draw: st.DataObject) -> bool:
        waiting = list(tasks)
        while waiting:
            choice = draw.draw(st.integers(0 if self.calm else -1, len(waiting) - 1))
            if choice < 0 and draw.draw(st.integers(0, 9)) == 0:
                return False
            self.disturb(draw)
            if stepped(waiting[choice]):
                continue
            del waiting[choice]
        return all(self._written(each) for each in range(len(tasks)))

    def _written(self, slot: int) -> bool:
        found = self.log.markers.get(slot)
        return found is not None and found.batch == self.done + 1

    def disturb(self, draw: st.DataObject) -> None:
        """A zombie takes a step, perhaps."""
        if self.zombies and not self.calm and draw.draw(st.booleans()):
            stepped(draw.draw(st.sampled_from(self.zombies)))


class Interleaved(Actor):
    """The driver's slots; zombies act between its steps."""

    def __init__(self, driver: Driver, draw: st.DataObject) -> None:
        super().__init__(driver.log)
        self._driver, self._draw = driver, draw

    def fence(self, slot: int) -> None:
        self._driver.disturb(self._draw)
        super().fence(slot)

    def marker(self, slot: int) -> Marker | None:
        self._driver.disturb(self._draw)
        return super().marker(slot)

    def commit(self, slot: int, marker: Marker, rows: Sequence[tuple[int, int]] = ()) -> None:
        self._driver.disturb(self._draw)
        super().commit(slot, marker, rows)


def stepped(task: Iterator[None]) -> bool:
    """One step of a task; False when it has ended, well or not."""
    try:
        next(task)
    except (StopIteration, FencedError, IllegalStateError):
        return False
    return True


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_every_row_is_committed_exactly_once_wherever_runs_are_cut_off_and_however_many_slots_there_are(data: st.DataObject) -> None:
    log = Log()
    driver = Driver(log)
    for _ in range(data.draw(st.integers(1, 6))):
        driver.run(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4)), data)
    before, driver.calm = driver.done, True
    driver.run(2, data.draw(st.integers(1, 4)), data)
    assert driver.done == before + 2
    rows = [row for row in log.rows if row[0] <= driver.done]
    assert sorted(rows) == [(number, row) for number in range(driver.done + 1) for row in ROWS]
    assert len(set(log.rows)) == len(log.rows)
