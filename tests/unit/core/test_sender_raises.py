"""An exception in the middle of the sender's turn (a defect, no memory, Ctrl-C) blocks no records permanently."""
from __future__ import annotations

import pytest

from pyclient.buffers.batch import Batch
from pyclient.core.cluster import Cluster
from tests.unit.core.test_sender import Producing
from tests.unit.core.test_sender import produced


def _settle(world: Producing, turns: int = 5) -> None:
    for _ in range(turns):
        for sent in world.turn():
            produced(sent)


def test_when_placing_a_queue_raises_the_next_turn_places_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Producing(1, 1, 1)
    deliveries = [world.send(partition) for partition in range(3)]

    def no_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(Cluster, "leader", no_memory)
        world.turn()
    _settle(world)
    assert all(delivery.done() for delivery in deliveries)


def test_batches_chosen_before_another_ones_sealing_raised_are_sent_by_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Producing(1, 1, 1)
    deliveries = [world.send(partition) for partition in range(3)]
    seal = world.sender._seal

    def interrupted(batch: Batch) -> None:
        seal(batch)
        if batch.queue.partition == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(world.sender, "_seal", interrupted)
        world.turn()
    _settle(world)
    assert all(delivery.done() for delivery in deliveries)
    assert world.sender.idle()
