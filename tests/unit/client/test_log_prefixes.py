"""Log lines of typical lives, in virtual time: none says its prefix, an address or its group twice."""
from __future__ import annotations

import contextlib
import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import AsyncConsumer, AsyncProducer, TopicPartition
from pyclient.errors import KafkaError
from pyclient.testing import Fail, Silence, World

TP = TopicPartition("t", 0)
NAMED = re.compile(r"bootstrap server [\w.:]+|\d+\.\d+\.\d+\.\d+:\d+(?: \(node \d+\))?(?: for \w+)?|group '\w+'|\b[a-z]+-\d+\b(?= was)|member [\w-]{20,}")
"""What a line is about: connections, groups, partitions, members."""
UNKNOWN_SERVER_ERROR, NOT_COORDINATOR, UNKNOWN_MEMBER, GROUP_AUTHORIZATION_FAILED, OFFSET_METADATA_TOO_LARGE = -1, 16, 25, 30, 12


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.DEBUG, "pyclient")
    with World(1) as made:
        made.cluster.create_topic("t", partitions=2)
        made.cluster.produce("t", b"x", partition=0)
        with made.inside("client"):
            yield made


async def polls(consumer: AsyncConsumer, seconds: float) -> None:
    end = consumer._core.clock() + seconds
    while (rest := end - consumer._core.clock()) > 0:
        with contextlib.suppress(KafkaError):
            await consumer.poll(min(rest, 1.0))


def repeated(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Lines that name something twice, or begin twice."""
    lines = list(dict.fromkeys(caplog.messages))
    assert lines
    return [line for line in lines if max(Counter(NAMED.findall(line)).values(), default=0) > 1 or begins_twice(line)]


def begins_twice(line: str) -> bool:
    parts = line.split(": ")
    return any(one == other for one, other in itertools.pairwise(parts))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_no_line_of_a_member_names_anything_twice(world: World, caplog: pytest.LogCaptureFixture, protocol: Any) -> None:
    async def main() -> None:
        heartbeat = "Heartbeat" if protocol == "classic" else "ConsumerGroupHeartbeat"
        async with AsyncConsumer(bootstrap_servers=world.bootstrap_servers, group_id="g", topics=["t"], group_protocol=protocol,
                                 auto_offset_reset="earliest", auto_commit_interval_ms=100) as consumer:
            await polls(consumer, 5)
            for code in (UNKNOWN_SERVER_ERROR, NOT_COORDINATOR, UNKNOWN_MEMBER, GROUP_AUTHORIZATION_FAILED):
                for api in (heartbeat, "OffsetCommit", "JoinGroup"):
                    with world.cluster.intercept(Fail(code), api, times=1):
                        world.cluster.produce("t", b"x", partition=0)
                        await polls(consumer, 5)
            world.cluster.expire_session("g", consumer.group_metadata().member_id)
            await polls(consumer, 10)
            for broker in (1, 2, 3):
                world.cluster.kill(broker)
            await polls(consumer, 10)
            for broker in (1, 2, 3):
                world.cluster.restart(broker)
            await polls(consumer, 20)
            if TP in consumer.assignment():
                consumer.seek(TP, 1_000_000)
            await polls(consumer, 5)
            world.cluster.produce("t", b"x", partition=0)
            await polls(consumer, 2)
            with world.cluster.intercept(Silence()):
                await consumer.close()

    world.run(main())
    assert repeated(caplog) == [], chr(10).join(repeated(caplog))


def test_no_line_of_a_producer_names_anything_twice(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=world.bootstrap_servers, delivery_timeout_ms=10_000, request_timeout_ms=2000, linger_ms=0,
                                 max_block_ms=5000) as producer:
            await producer.send_and_wait("t", b"x")
            with contextlib.suppress(KafkaError):
                await producer.send_and_wait("missing", b"x")
            with world.cluster.intercept(Silence(), "Produce"), contextlib.suppress(KafkaError):
                await producer.send_and_wait("t", b"x")
            with world.cluster.intercept(Fail(UNKNOWN_SERVER_ERROR), "Produce"), contextlib.suppress(KafkaError):
                await producer.send_and_wait("t", b"x")
            for broker in (1, 2, 3):
                world.cluster.kill(broker)
            with contextlib.suppress(KafkaError):
                await producer.send_and_wait("t", b"x")

    world.run(main())
    assert repeated(caplog) == [], chr(10).join(repeated(caplog))
