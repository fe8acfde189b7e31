"""What a worker of Spark has loaded is not visited by the collection of garbage after each task."""
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import pytest

from pyclient.integration.spark import garbage, producers
from tests.leaks import collect_leaks_of_earlier_tests


class Node:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


class Closable:
    """A client that counts nothing and only ends."""

    def close(self, timeout: float = 0) -> None:
        """End."""


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process passes for a worker; afterwards it keeps no client and its garbage is collected as before."""
    collect_leaks_of_earlier_tests()
    monkeypatch.setattr(garbage, "in_task", lambda: True)
    before = gc.get_freeze_count()
    assert before == 0, "something else has frozen objects: this file would thaw them"
    yield
    gc.unfreeze()
    producers._kept.clear()


@pytest.mark.parametrize("block", [producers.kept, producers.borrowed])
def test_what_is_there_when_a_client_has_been_made_is_not_visited_again(block: Callable[[Mapping[str, object], Callable[[], Closable]], AbstractContextManager[Closable]]) -> None:
    with block({"client": "one"}, Closable):
        assert gc.get_freeze_count() == 0, "modules may still be loaded by the task"
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    with block({"client": "one"}, Closable):
        later = Node()
    assert gc.get_freeze_count() <= frozen, "a task with the same client leaves nothing more out"
    assert any(each is later for each in gc.get_objects()), "what later tasks make is visited"


def test_what_became_garbage_after_it_was_left_out_is_collected_with_the_next_client() -> None:
    node = Node()
    gone = weakref.ref(node)
    garbage.leave_out_what_stays()
    del node
    gc.collect()
    assert gone() is not None, "it is not visited"
    with producers.kept({"client": "another"}, Closable):
        pass
    assert gone() is None


def test_a_task_without_a_client_leaves_out_what_is_loaded_once() -> None:
    garbage.leave_out_what_is_loaded()
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    later = Node()
    garbage.leave_out_what_is_loaded()
    assert any(each is later for each in gc.get_objects()), "one collection a process is enough"


def test_a_process_that_runs_no_task_collects_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with producers.borrowed({"client": "one"}, Closable):
        pass
    assert gc.get_freeze_count() == 0
