"""The simulation's own invariants, one by one: each passes while its rule holds, and fails when the rule is broken."""
from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pyclient.errors import DisconnectError, IllegalTransitionError, KafkaTimeoutError, LogTruncationError
from pyclient.records import TopicPartition
from pyclient.testing.simulation.facts import Entry, Facts, Handed, Sent
from pyclient.testing.simulation.invariants import INVARIANTS, RULES_OF_ALL, InvariantError, Judge
from pyclient.testing.simulation.run import Run, errors_to, run_seed
from pyclient.testing.simulation.workload import ProducingService
from pyclient.testing.simulation.world import World
from tests.distribution import ROOT

WHERE = ("orders", 0)


@pytest.fixture
def judge() -> Judge:
    world = World(1)
    world.cluster.create_topic("orders")
    return Judge(world, Facts(), RULES_OF_ALL)


def breach(judge: Judge, event: str, *about: Any) -> str:
    """The rule and name of the invariant that breaks."""
    with pytest.raises(InvariantError) as broken:
        judge.after(event, *about)
    assert judge.broken is broken.value
    return broken.value.invariant


def acknowledged(offset: int) -> Sent:
    """A record that was acknowledged there."""
    delivery: Any = SimpleNamespace(topic="orders", partition=0)
    sent = Sent(name=b"a/1", producer="a", order=1, at=0.0, due_from=1.0, due=1.0, value=b"a/1", delivery=delivery)
    sent.offset = offset
    return sent


def test_every_invariant_proves_a_rule_of_the_page() -> None:
    rules = set(re.findall(r"^- \*\*([A-Z]\d\d)\*\* ", (ROOT / "docs" / "protocol-rules.md").read_text(), re.MULTILINE))
    assert {each.rule for each in INVARIANTS.values()} <= rules


def test_what_stands_behind_a_broken_invariant_is_not_counted_as_evaluated(judge: Judge) -> None:
    at_once = [each.name for each in INVARIANTS.values() if each.event == "consumed"]
    judge.facts.append(WHERE, 3, [b"a/1"], 2)
    breach(judge, "consumed", handed(judge, 3, 2, b"a/1"))
    judge.facts.watermarks[WHERE] = {2: 4}
    judge.after("consumed", handed(judge, 3, 2, b"a/1"))
    assert [judge.evaluated[name] for name in at_once] == [2, 2, 1]


def test_S02_callbacks_that_nothing_accounts_for_are_a_breach(judge: Judge) -> None:
    judge.facts.second.turns = 5_000
    judge.after("second")
    judge.facts.second.turns = 50_000
    assert breach(judge, "second") == "S02 no_loop_is_busy"
    judge.facts.second.requests = 1_000
    judge.after("second")


@pytest.mark.parametrize("fails", [
    lambda judge: judge.facts.errors.append("pyclient: it broke"),
    lambda judge: judge.world.loop.call_exception_handler({"message": "never looked at", "exception": ValueError()}),
])
def test_S03_a_logged_error_and_an_exception_left_to_the_loop_are_breaches(judge: Judge, fails: Callable[[Judge], None]) -> None:
    judge.after("turn")
    fails(judge)
    assert breach(judge, "turn") == "S03 no_error_is_hidden"


@pytest.mark.parametrize("what", ["tasks", "connections", "timers"])
def test_S04_what_is_left_after_close_is_a_breach(judge: Judge, what: str) -> None:
    nothing: dict[str, list[str]] = {"tasks": [], "connections": [], "timers": []}
    judge.after("closed", nothing)
    assert breach(judge, "closed", {**nothing, what: ["<something>"]}) == "S04 nothing_is_left_after_close"


def test_S05_an_error_that_is_not_kafkas_is_a_breach(judge: Judge) -> None:
    judge.after("refused", "producer-0", KafkaTimeoutError("late"))
    assert breach(judge, "refused", "producer-0", KeyError("broker")) == "S05 only_kafka_errors_are_raised"


def test_S06_an_acknowledgement_of_what_the_log_does_not_hold_is_a_breach(judge: Judge) -> None:
    judge.facts.append(WHERE, 7, [b"a/1"], 0)
    judge.after("acked", acknowledged(7))
    assert breach(judge, "acked", acknowledged(8)) == "S06 an_acknowledged_record_is_stored_at_its_offset"
    judge.facts.lost.add(b"a/1")
    judge.after("acked", acknowledged(8))


def test_S06_an_acknowledged_record_that_is_gone_in_the_end_is_a_breach_unless_an_unclean_election_took_it(judge: Judge) -> None:
    judge.facts.accept(acknowledged(7))
    assert breach(judge, "end") == "S06 acknowledged_records_stay_stored"
    judge.facts.lost.add(b"a/1")
    judge.after("end")


def handed(judge: Judge, offset: int, epoch: int, name: bytes) -> Handed:
    """A record that a poll returned."""
    return judge.facts.handed("reader", WHERE, offset, Entry(name, epoch))


def test_S07_a_record_above_the_high_watermark_is_a_breach(judge: Judge) -> None:
    judge.facts.append(WHERE, 3, [b"a/1"], 2)
    judge.facts.watermarks[WHERE] = {1: 9, 2: 4}
    judge.after("consumed", handed(judge, 3, 2, b"a/1"))
    judge.facts.watermarks[WHERE][2] = 3  # what an earlier leader had committed says nothing of the later one's records
    assert breach(judge, "consumed", handed(judge, 3, 2, b"a/1")) == "S07 nothing_above_the_high_watermark_is_returned"


@pytest.fixture
def cut(judge: Judge) -> Judge:
    """A reader has read five records of epoch 0, of which the log keeps two; the third is another one now."""
    judge.facts.append(WHERE, 0, [b"a", b"b", b"c", b"d", b"e"], 0)
    judge.facts.watermarks[WHERE] = {0: 5, 1: 3}
    judge.facts.readings["reader", WHERE].begin(0, 0)
    for offset, name in enumerate((b"a", b"b", b"c", b"d")):
        judge.facts.read(handed(judge, offset, 0, name))
    judge.facts.lead(WHERE, {0: Entry(b"a", 0), 1: Entry(b"b", 0), 2: Entry(b"z", 1), 3: Entry(b"y", 1), 4: Entry(b"x", 1)}, start=0, clean=False)
    return judge


def test_C11_reading_on_in_a_log_that_was_cut_back_is_a_breach_and_going_back_is_none(cut: Judge) -> None:
    assert breach(cut, "consumed", handed(cut, 4, 1, b"x")).startswith(("C04", "S07"))
    cut.broken = None
    cut.after("consumed", handed(cut, 2, 1, b"z"))
    cut.facts.read(handed(cut, 2, 1, b"z"))
    assert cut.facts.readings["reader", WHERE].next == 3


def test_C11_what_was_cut_off_may_be_handed_out_until_the_reader_has_gone_back(cut: Judge) -> None:
    cut.after("consumed", handed(cut, 4, 0, b"e"))
    cut.facts.moved("reader", WHERE, 4)
    cut.facts.moved("reader", WHERE, 2)
    assert breach(cut, "consumed", handed(cut, 2, 0, b"c")) == "C04 a_record_is_what_the_log_holds"


def test_C01_who_has_read_nothing_of_a_log_that_was_cut_may_be_reset_to_anywhere(cut: Judge) -> None:
    reading = cut.facts.readings["reader", WHERE]
    reading.view.clear()
    reading.position = 4
    cut.after("position", "reader", WHERE, reading, 0)
    reading.knows = 1
    assert breach(cut, "position", "reader", WHERE, reading, 0) == "C01 a_position_never_goes_back"


@pytest.mark.parametrize(("position", "fits"), [(4, True), (2, True), (3, False), (5, False), (0, False)])
def test_C21_position_is_behind_what_was_returned_or_where_the_logs_part(cut: Judge, position: int, fits: bool) -> None:
    if fits:
        cut.after("returned", "reader", WHERE, position)
    else:
        assert breach(cut, "returned", "reader", WHERE, position) == "C21 the_position_is_behind_what_was_returned"


def test_C21_retention_moves_a_position_on(judge: Judge) -> None:
    judge.facts.readings["reader", WHERE].begin(4, 0)
    assert breach(judge, "returned", "reader", WHERE, 6) == "C21 the_position_is_behind_what_was_returned"
    judge.facts.begin(WHERE, 6)
    judge.after("returned", "reader", WHERE, 6)


def test_C11_a_position_goes_back_to_where_the_logs_part_and_no_further(cut: Judge) -> None:
    reading = cut.facts.readings["reader", WHERE]
    reading.position = 4
    cut.after("position", "reader", WHERE, reading, 2)
    assert breach(cut, "position", "reader", WHERE, reading, 1) == "C01 a_position_never_goes_back"


@pytest.mark.parametrize(("at", "fits"), [(2, True), (1, False), (3, False)])
def test_C11_a_loss_is_reported_where_the_logs_part(cut: Judge, at: int, fits: bool) -> None:
    error = LogTruncationError(TopicPartition(*WHERE), offset=4, divergent_offset=at, leader_epoch=0)
    if fits:
        cut.after("truncated", "reader", error)
    else:
        assert breach(cut, "truncated", "reader", error) == "C11 only_real_truncations_are_reported"


def test_C11_a_reader_below_the_cut_is_not_logged_of_one(cut: Judge) -> None:
    cut.facts.readings["reader", WHERE].stands(1)
    error = LogTruncationError(TopicPartition(*WHERE), offset=4, divergent_offset=2, leader_epoch=0)
    assert breach(cut, "truncated", "reader", error) == "C11 only_real_truncations_are_reported"


def test_S08_a_commit_ahead_of_what_was_handed_out_is_a_breach(judge: Judge) -> None:
    judge.facts.readings["reader", WHERE].handed = 5
    judge.after("committed", "reader", WHERE, 5, None)
    assert breach(judge, "committed", "reader", WHERE, 6, None) == "S08 no_commit_is_ahead_of_the_returned_records"


@pytest.mark.parametrize("epoch", [None, 0, 2])
def test_C11_a_commit_under_another_epoch_than_that_of_the_record_before_it_is_a_breach(judge: Judge, epoch: int | None) -> None:
    reading = judge.facts.readings["reader", WHERE]
    reading.handed = reading.next = 5
    reading.view = {4: Entry(b"a", 1)}
    judge.after("committed", "reader", WHERE, 5, 1)
    assert breach(judge, "committed", "reader", WHERE, 5, epoch) == "C11 a_commit_names_the_epoch_of_the_record_before_it"


@pytest.mark.parametrize("ends", [asyncio.Event().wait, lambda: asyncio.wait_for(asyncio.sleep(9), 5)])
def test_S09_a_run_that_never_ends_is_a_breach(monkeypatch: pytest.MonkeyPatch, ends: Callable[[], Any]) -> None:
    async def stand_still(_self: Run) -> None:
        await ends()
    monkeypatch.setattr(Run, "_simulate", stand_still)
    outcome = run_seed(1, [])
    assert outcome.invariant == "S09 no_call_waits_forever"


def test_S10_a_call_that_raises_what_it_does_not_promise_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: ProducingService) -> None:
        raise ValueError("not promised")
    monkeypatch.setattr(ProducingService, "run", fail)
    outcome = run_seed(1, [])
    assert outcome.invariant == "S10 users_see_no_other_error"
    assert "not promised" in (outcome.broken or "")


def test_a_run_leaves_logging_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pyclient")
    logger = logging.getLogger("pyclient.core.fetching")
    assert logger.isEnabledFor(logging.INFO)
    with errors_to([]):
        assert not logger.isEnabledFor(logging.INFO)
    assert logger.isEnabledFor(logging.INFO)
    assert logging.getLogger("pyclient").propagate


def test_a_defect_is_an_error_wherever_the_client_logs_it() -> None:
    logged: list[str] = []
    with errors_to(logged):
        logging.getLogger("pyclient.consumer.facade").warning("committing failed: %s", DisconnectError("gone"))
        logging.getLogger("pyclient.consumer.facade").warning("committing failed: %s", IllegalTransitionError("a", "b"))
    assert len(logged) == 1
    assert "is impossible in state" in logged[0]


def test_C13_a_failed_partition_that_is_fetched_before_its_rest_is_over_is_a_breach(judge: Judge) -> None:
    tp = TopicPartition(*WHERE)
    position = SimpleNamespace(generation=1)
    judge.facts.fetchers["reader"] = SimpleNamespace(in_flight=[tp], positions={tp: position})
    link = SimpleNamespace(client="reader", client_protocol=SimpleNamespace(requests=[]), silent=(0.0, 0.0))
    now = judge.world.loop.time()
    judge.facts.rests["reader"][tp] = 1, now
    judge.after("written", link)
    judge.facts.rests["reader"][tp] = 0, now + 1
    judge.after("written", link)  # it was sought meanwhile
    judge.facts.rests["reader"][tp] = 1, now + 1
    assert breach(judge, "written", link) == "C13 a_failed_partition_is_not_fetched_before_its_rest_is_over"
