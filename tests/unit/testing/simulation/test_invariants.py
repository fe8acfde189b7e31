"""The invariants that are the simulation's own, one by one: each holds while its rule does, and is broken when the rule is."""
from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pyclient.errors import KafkaTimeout
from pyclient.testing.simulation.facts import Facts, Sent
from pyclient.testing.simulation.invariants import INVARIANTS, Broken, Judge
from pyclient.testing.simulation.run import Run, run_seed
from pyclient.testing.simulation.workload import ProducingService
from pyclient.testing.simulation.world import World
from tests.distribution import ROOT

WHERE = ("orders", 0)


@pytest.fixture
def judge() -> Judge:
    world = World(1)
    world.cluster.create_topic("orders")
    return Judge(world, Facts())


def breach(judge: Judge, event: str, *about: Any) -> str:
    """The rule and name of the invariant that breaks."""
    with pytest.raises(Broken) as broken:
        judge.after(event, *about)
    assert judge.broken is broken.value
    return broken.value.invariant


def acknowledged(offset: int) -> Sent:
    """A record that was acknowledged there."""
    delivery: Any = SimpleNamespace(topic="orders", partition=0)
    sent = Sent(name=b"a/1", producer="a", order=1, at=0.0, due=1.0, value=b"a/1", delivery=delivery)
    sent.offset = offset
    return sent


def test_every_invariant_proves_a_rule_of_the_page() -> None:
    rules = set(re.findall(r"^- \*\*([A-Z]\d\d)\*\* ", (ROOT / "docs" / "protocol-rules.md").read_text(), re.MULTILINE))
    assert {each.rule for each in INVARIANTS.values()} <= rules


def test_S02_callbacks_that_nothing_accounts_for_are_a_breach(judge: Judge) -> None:
    judge.facts.second.turns = 5_000
    judge.after("second")
    judge.facts.second.turns = 50_000
    assert breach(judge, "second") == "S02 no_loop_is_busy"
    judge.facts.second.requests = 1_000
    judge.after("second")


@pytest.mark.parametrize("fails", [
    lambda judge: judge.facts.errors.append("pyclient: it broke"),
    lambda judge: judge.world.loop.call_exception_handler({"message": "nobody looked", "exception": ValueError()}),
])
def test_S03_a_logged_error_and_an_exception_left_to_the_loop_are_breaches(judge: Judge, fails: Callable[[Judge], None]) -> None:
    judge.after("turn")
    fails(judge)
    assert breach(judge, "turn") == "S03 nothing_fails_unseen"


@pytest.mark.parametrize("what", ["tasks", "connections", "timers"])
def test_S04_what_is_left_after_close_is_a_breach(judge: Judge, what: str) -> None:
    nothing: dict[str, list[str]] = {"tasks": [], "connections": [], "timers": []}
    judge.after("closed", nothing)
    assert breach(judge, "closed", {**nothing, what: ["<something>"]}) == "S04 nothing_is_left"


def test_S05_an_error_that_is_not_kafkas_is_a_breach(judge: Judge) -> None:
    judge.after("refused", "producer-0", KafkaTimeout("late"))
    assert breach(judge, "refused", "producer-0", KeyError("broker")) == "S05 only_kafkas_errors_are_raised"


def test_S06_an_acknowledgement_of_what_the_log_does_not_hold_is_a_breach(judge: Judge) -> None:
    judge.facts.append(WHERE, 7, [b"a/1"])
    judge.after("acked", acknowledged(7))
    assert breach(judge, "acked", acknowledged(8)) == "S06 an_acknowledged_record_is_stored_where_told"
    judge.facts.lost.add(b"a/1")
    judge.after("acked", acknowledged(8))


def test_S06_an_acknowledged_record_that_is_gone_in_the_end_is_a_breach_unless_an_unclean_election_took_it(judge: Judge) -> None:
    judge.facts.accept(acknowledged(7))
    assert breach(judge, "end") == "S06 what_was_acknowledged_stays"
    judge.facts.lost.add(b"a/1")
    judge.after("end")


def test_S07_a_record_above_the_high_watermark_is_a_breach(judge: Judge) -> None:
    record = SimpleNamespace(topic="orders", partition=0, offset=3)
    judge.facts.append(WHERE, 3, [b"a/1"])
    judge.facts.watermark[WHERE] = 4
    judge.after("consumed", "reader", record, b"a/1")
    judge.facts.watermark[WHERE] = 3
    assert breach(judge, "consumed", "reader", record, b"a/1") == "S07 nothing_above_the_high_watermark_is_returned"


def test_S08_a_commit_ahead_of_what_was_handed_out_is_a_breach(judge: Judge) -> None:
    judge.facts.readings["reader", WHERE].handed = 5
    judge.after("committed", "reader", WHERE, 5)
    assert breach(judge, "committed", "reader", WHERE, 6) == "S08 no_commit_is_ahead_of_what_was_handed_out"


@pytest.mark.parametrize("ends", [asyncio.Event().wait, lambda: asyncio.wait_for(asyncio.sleep(9), 5)])
def test_S09_whoever_never_comes_to_an_end_is_a_breach(monkeypatch: pytest.MonkeyPatch, ends: Callable[[], Any]) -> None:
    async def stand_still(_self: Run) -> None:
        await ends()
    monkeypatch.setattr(Run, "_play", stand_still)
    outcome = run_seed(1, [])
    assert outcome.invariant == "S09 nobody_waits_for_ever"


def test_S10_a_call_that_raises_what_it_does_not_promise_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: ProducingService) -> None:
        raise ValueError("not promised")
    monkeypatch.setattr(ProducingService, "run", fail)
    outcome = run_seed(1, [])
    assert outcome.invariant == "S10 users_see_no_other_error"
    assert "not promised" in (outcome.broken or "")
