"""No error code, however long brokers answer with it, makes a client send requests at the network's speed.

In virtual time. PYCLIENT_EVERY_ERROR=1 (`make proof`) takes every error of every request; otherwise each request has
all retriable errors and a fourth of the others, another fourth than the request before it.
"""
from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

import pytest

from pyclient import AsyncConsumer
from pyclient.codec.apis import Api
from pyclient.errors import BY_CODE, KafkaError, RetriableError
from pyclient.testing import Fail, World

SECONDS: Final = 8
MOST: Final = 10 * SECONDS
"""Requests that are refused: as many as pauses of ``retry_backoff_ms`` (100 ms) leave room for."""
CODES: Final = (*sorted(BY_CODE), 9999)

Work: TypeAlias = Callable[[World], Coroutine[Any, Any, None]]


async def each_second(step: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """What programs do that do not give up."""
    for _ in range(SECONDS):
        with contextlib.suppress(KafkaError):
            await step()
        await asyncio.sleep(1)


async def produce(world: World) -> None:
    with contextlib.suppress(KafkaError):  # what failed unseen is reported at the end
        async with world.producer("writer", request_timeout_ms=1000, delivery_timeout_ms=5000, max_block_ms=2000) as producer:
            await each_second(lambda: producer.send("orders", b"value"))


def consume(protocol: str) -> Work:
    async def work(world: World) -> None:
        with contextlib.suppress(KafkaError):
            async with world.consumer("reader", group_id="g", group_protocol=protocol, auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["orders"])
                await each_second(lambda: poll_and_commit(consumer))

    return work


async def poll_and_commit(consumer: AsyncConsumer) -> None:
    await consumer.poll(1.0)
    await consumer.commit(timeout=2.0)


CLASSIC: Final = (Api.FIND_COORDINATOR, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.OFFSET_FETCH, Api.OFFSET_COMMIT,
                  Api.LIST_OFFSETS, Api.FETCH, Api.METADATA)
CASES: Final[list[tuple[Api, str, Work]]] = [
    *((api, "producer", produce) for api in (Api.PRODUCE, Api.INIT_PRODUCER_ID, Api.METADATA)),
    *((api, "classic", consume("classic")) for api in CLASSIC),
    *((api, "consumer", consume("consumer")) for api in (Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_FETCH, Api.OFFSET_COMMIT)),
]


def codes_for(number: int) -> list[int]:
    """The errors that the case of this number takes."""
    others = [code for code in CODES if not issubclass(BY_CODE.get(code, KafkaError), RetriableError)]
    taken = {*CODES} if os.environ.get("PYCLIENT_EVERY_ERROR") == "1" else {*CODES} - {*others} | {*others[number % 4::4]}
    return sorted(taken)


def refused(api: Api, code: int, work: Work) -> int:
    """How many requests were refused while a program did its work."""
    with World(1, brokers=1) as world:
        world.cluster.create_topic("orders")
        rule = world.cluster.intercept(Fail(code), api)
        world.run(work(world))
        return rule.hits


@pytest.mark.parametrize(
    ("api", "work", "codes"), [(api, work, codes_for(number)) for number, (api, _, work) in enumerate(CASES)],
    ids=[f"{api.name}-{who}" for api, who, _ in CASES])
def test_M01_no_error_is_met_at_the_networks_speed(api: Api, work: Work, codes: list[int]) -> None:
    counts = {code: refused(api, code, work) for code in codes}
    assert any(counts.values())
    assert not {BY_CODE[code].__name__ if code in BY_CODE else code: count for code, count in counts.items() if count > MOST}
