"""How long a producer that was collected as garbage goes on delivering: delivery_timeout_ms, in virtual time."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pyclient import AsyncProducer, Delivery
from pyclient.errors import KafkaError
from pyclient.producer.callbacks import ThreadObserver
from pyclient.producer.shutdown import EXIT_FLUSH, ProducerShutdown
from pyclient.testing import Fail, World
from pyclient.runtime.portals import LoopPortal
from tests.reactors import idle_portal

DELIVERY_TIMEOUT_S = 30.0
NOT_ENOUGH_REPLICAS = 19


class LoopOfTheWorld:
    """What a collected producer does last runs here, in place of its thread."""

    def __init__(self, portal: LoopPortal) -> None:
        self._portal = portal
        self.last: asyncio.Task[Any] | None = None

    def stop_after(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self.last = asyncio.ensure_future(self._portal.call(last))


async def collected(world: World, *, refused_s: float) -> tuple[AsyncProducer, Delivery, float]:
    """A producer is collected with one record that its leader refuses for so long; gives the seconds until it ended."""
    producer = world.producer("p", linger_ms=0, delivery_timeout_ms=round(1000 * DELIVERY_TIMEOUT_S), request_timeout_ms=5000)
    portal = LoopOfTheWorld(producer._portal)
    await producer.__aenter__()
    rule = world.cluster.intercept(Fail(NOT_ENOUGH_REPLICAS), "Produce")
    delivery, began = await producer.send("t", b"x"), world.loop.time()
    world.loop.call_later(refused_s, rule.remove)
    ProducerShutdown(producer._core, portal, ThreadObserver("callbacks", idle_portal().reactor)).forget()  # type: ignore[arg-type]
    assert portal.last is not None
    await asyncio.wait([portal.last])
    if portal.last.exception() is not None:
        assert isinstance(portal.last.exception(), KafkaError)
    return producer, delivery, world.loop.time() - began


@pytest.fixture
def world() -> World:
    made = World(1)
    made.cluster.create_topic("t")
    return made


def test_it_delivers_what_can_be_delivered_within_the_delivery_timeout_and_ends_then(world: World) -> None:
    refused_s = DELIVERY_TIMEOUT_S - 3
    assert refused_s > EXIT_FLUSH
    with world:
        producer, delivery, seconds = world.run(collected(world, refused_s=refused_s))
        assert delivery.exception() is None
        assert [each.value for each in world.cluster.records("t")] == [b"x"]
        assert producer._core.closed is not None
        assert refused_s <= seconds < DELIVERY_TIMEOUT_S


def test_it_ends_at_the_delivery_timeout_whatever_is_left(world: World) -> None:
    with world:
        producer, delivery, seconds = world.run(collected(world, refused_s=10 * DELIVERY_TIMEOUT_S))
        assert delivery.exception() is not None
        assert producer._core.closed is not None
        assert DELIVERY_TIMEOUT_S - 0.1 < seconds < DELIVERY_TIMEOUT_S + 1
