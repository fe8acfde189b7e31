"""Each mutant's target exists, so that a rename in the client is noticed here and not by the next `make proof`."""
from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyclient.core.fetching.positions import Position
from pyclient.records import TopicPartition
from tests.simulation.mutants import every_mutant, museum
from tests.simulation import rewritten
from tests.simulation.mutation import Mutant, Patch, Rewrite, StaleMutantError, applied, resolved
from tests.simulation.seen_by_unit_tests import EXEMPT
from tests.twins import needs_twins

ROOT = Path(__file__).parents[2]
AREAS = ("produce", "fetch", "followers", "sessions", "positions", "classic", "KIP-848", "commits", "transactions", "connections", "hung brokers", "logins", "metadata", "user",
         "reactor", "tasks", "channels", "portals")


@needs_twins
@pytest.mark.parametrize("mutant", every_mutant(), ids=lambda each: each.name)
def test_the_target_of_each_mutant_exists(mutant: Mutant) -> None:
    with applied(mutant):
        pass


def test_mutant_names_are_unique_and_every_area_has_two() -> None:
    names = Counter(each.name for each in every_mutant())
    assert max(names.values()) == 1
    areas = Counter(each.area for each in museum())
    assert areas.keys() == set(AREAS)
    assert all(count >= 2 for count in areas.values()), areas


def test_every_exempt_mutant_exists_and_its_unit_test_too() -> None:
    assert EXEMPT.keys() <= {each.name for each in every_mutant()}
    for file, _, name in {each.test.partition("[")[0].partition("::") for each in EXEMPT.values()}:
        assert f"def {name}(" in (ROOT / file).read_text(), name


@needs_twins
def test_a_mutant_is_taken_away_after_its_block() -> None:
    patches = [each.change for each in museum() if isinstance(each.change, Patch)]
    before = [resolved(patch.target)[2] for patch in patches]
    for mutant in museum():
        with applied(mutant):
            pass
    assert [resolved(patch.target)[2] for patch in patches] == before


@pytest.mark.parametrize("target", [
    "pyclient.core.no_module:Sender.poll", "pyclient.core.metadata:NoClass.poll", "pyclient.core.metadata:Metadata.no_method",
    "pyclient.core.group.classic:ClassicGroup.take_trouble"])
def test_a_target_that_does_not_exist_or_is_inherited_is_reported(target: str) -> None:
    with pytest.raises(StaleMutantError, match=target):
        resolved(target)


@needs_twins
def test_an_error_of_the_mutant_itself_is_not_taken_for_a_finding() -> None:
    broken = next(each for each in museum() if each.name == "the position moves one offset too far")
    no_batches: Any = None
    no_number: Any = "no number"
    position = Position(TopicPartition("orders", 0), 1)
    with applied(broken) as defects, pytest.raises(TypeError):
        position.read(no_batches, 1)
    assert defects == []  # raised by the client's own method
    with applied(broken) as defects, pytest.raises(TypeError):
        position.read([], no_number)
    assert "can only concatenate" in defects[0]


def _other(self: Any) -> None:
    self.never = True


def test_a_compiled_function_gets_another_body_and_keeps_its_own_parameters_and_decorators() -> None:
    target = "pyclient.reactor.tasks:Timeout._disarm"
    before, after = (ROOT / "pyclient/reactor/tasks.py").read_text(), rewritten.source_of(target, _other)
    assert "        self.never = True\n" in after
    assert after.count("def ") == before.count("def ")
    assert after.count("@cython.cfunc") == before.count("@cython.cfunc")
    assert "self._timer.cancel()" not in after


@pytest.mark.parametrize(("target", "said"), [
    ("pyclient.reactor.tasks:Timeout.no_method", "does not exist"), ("pyclient.reactor.tasks:NoClass.wake", "does not exist"),
    ("pyclient.reactor.tasks:Task.wake", "other parameters")])
def test_a_compiled_target_that_does_not_exist_or_takes_something_else_is_reported(target: str, said: str) -> None:
    with pytest.raises(StaleMutantError, match=said), applied(Mutant("a bug", "tasks", "", Rewrite(target, _other))):
        pass
