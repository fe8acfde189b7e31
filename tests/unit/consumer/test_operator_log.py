"""What an operator reads in the log of a consumer, in virtual time: groups, brokers that are gone, closes that end."""
from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest

from pyclient import AsyncConsumer, TopicPartition
from pyclient.consumer.facade_base import CLOSE_TIMEOUT_MS
from pyclient.errors import KafkaError, UnknownTopicOrPartitionError
from pyclient.testing import Silence, World

TP = TopicPartition("t", 0)
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.INFO, "pyclient")
    with World(1) as made:
        made.cluster.create_topic("t", partitions=2)
        made.cluster.produce("t", b"x", partition=0)
        with made.inside("reader"):
            yield made


def member(world: World, **options: object) -> AsyncConsumer:
    return AsyncConsumer({"bootstrap_servers": world.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest", **options}, topics=["t"])


async def polls(consumer: AsyncConsumer, seconds: float) -> None:
    """Poll for so long, in pieces."""
    end = consumer._core.clock() + seconds
    while (rest := end - consumer._core.clock()) > 0:
        await consumer.poll(min(rest, 1.0))


def texts(caplog: pytest.LogCaptureFixture, part: str, level: int = logging.WARNING) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == level and part in each.getMessage()]


@PROTOCOLS
def test_a_member_that_lost_its_partitions_and_joined_again_is_two_warnings(world: World, caplog: pytest.LogCaptureFixture, protocol: str) -> None:
    async def main() -> None:
        async with member(world, group_protocol=protocol) as consumer:
            await polls(consumer, 10)
            world.cluster.expire_session("g", consumer.group_metadata().member_id)
            await polls(consumer, 30)
            assert len(consumer.assignment()) == 2

    world.run(main())
    assert len(texts(caplog, "lost its partitions and joins again")) == 1
    again, = texts(caplog, "joined again; assigned: ")
    assert "group 'g'" in again
    assert "t-0" in again


@PROTOCOLS
def test_a_member_that_joins_is_one_line_of_info_and_rebalances_without_a_change_none(
        world: World, caplog: pytest.LogCaptureFixture, protocol: str) -> None:
    async def main() -> None:
        async with member(world, group_protocol=protocol) as first:
            await polls(first, 10)
            with world.inside("other"):
                other = member(world, group_protocol=protocol)
            async with other:
                other.subscribe(["other"])  # it takes part in rebalances and takes none of the partitions
                for _ in range(20):
                    await polls(first, 0.5)
                    await polls(other, 0.5)
                assert other.assignment() == {TopicPartition("other", 0)}
            await polls(first, 10)
            assert len(first.assignment()) == 2

    world.cluster.create_topic("other")
    world.run(main())
    assert texts(caplog, "assigned: ", logging.INFO) == ["group 'g': joined; assigned: t-0, t-1", "group 'g': joined; assigned: other-0"]
    assert texts(caplog, "") == []


def test_brokers_that_are_lost_while_consuming_are_a_warning_and_another_when_they_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=world.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            assert await consumer.poll(10)
            for broker in (1, 2, 3):
                world.cluster.kill(broker)
            await polls(consumer, 10)
            assert len(texts(caplog, "It goes on trying.")) == 1
            for broker in (1, 2, 3):
                world.cluster.restart(broker)
            await polls(consumer, 30)

    world.run(main())
    assert len(texts(caplog, "It goes on trying.")) == 1
    assert len(texts(caplog, "consumer: brokers answer again, after")) == 1


@pytest.mark.parametrize("subscribed", [False, True])
def test_a_close_ends_in_five_seconds_though_no_broker_answers(world: World, subscribed: bool) -> None:
    async def main() -> float:
        consumer = AsyncConsumer(bootstrap_servers=world.bootstrap_servers, group_id="g", auto_offset_reset="earliest")
        async with consumer:
            if subscribed:
                consumer.subscribe(["t"])
            else:
                consumer.assign([TP])
            assert await consumer.poll(10)
            with world.cluster.intercept(Silence()):
                began = world.loop.time()
                with contextlib.suppress(KafkaError):  # the last commit
                    await consumer.close()
                return world.loop.time() - began

    assert world.run(main()) <= CLOSE_TIMEOUT_MS / 1000 + 0.2


@PROTOCOLS
@pytest.mark.parametrize("clean", [True, False])
def test_a_close_that_no_broker_confirms_is_one_warning(world: World, caplog: pytest.LogCaptureFixture, protocol: str, clean: bool) -> None:
    async def main() -> None:
        with contextlib.ExitStack() as mute, contextlib.suppress(ZeroDivisionError):
            async with member(world, group_protocol=protocol, auto_commit_interval_ms=60_000) as consumer:
                assert await consumer.poll(10)
                mute.enter_context(world.cluster.intercept(Silence()))
                if not clean:
                    raise ZeroDivisionError

    world.run(main())
    line, = texts(caplog, "")
    assert line.startswith("group 'g': ")
    assert ("records since the last commit are read again" in line) is clean
    assert "the group has not confirmed that the member leaves; other members get its partitions when its session has timed out: " in line


def test_a_close_that_fails_while_an_error_ends_the_block_is_a_note_of_that_error(world: World) -> None:
    async def main() -> None:
        with contextlib.ExitStack() as mute, pytest.raises(ZeroDivisionError) as ended:
            async with member(world) as consumer:
                assert await consumer.poll(10)
                mute.enter_context(pytest.MonkeyPatch.context()).setattr(consumer, "_close", fails)
                raise ZeroDivisionError
        assert ended.value.__notes__ == ["Closing the consumer failed too: no"]
        await consumer.close()

    async def fails(*_: object, **__: object) -> None:
        raise KafkaError("no")

    world.run(main())


def test_C13_polls_raise_that_an_assigned_topic_does_not_exist_and_read_it_when_it_does(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        missing = TopicPartition("later", 0)
        async with AsyncConsumer(bootstrap_servers=world.bootstrap_servers, auto_offset_reset="earliest", allow_auto_create_topics=False) as consumer:
            consumer.assign([missing])
            began = world.loop.time()
            with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic 'later'"):
                await consumer.poll()
            assert 2.0 <= world.loop.time() - began < 5.0
            world.cluster.create_topic("later")
            world.cluster.produce("later", b"x")
            assert await consumer.poll(10)

    world.run(main())
    assert len(texts(caplog, "topic 'later' does not exist (yet)")) <= 1
