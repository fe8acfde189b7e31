"""Admin requests that several brokers answer: by leader of partitions, by broker."""
from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from pyclient.client.core import ClientCore
from pyclient.core.admin.cluster import describe_controllers_call
from pyclient.core.admin.routing import LeaderRounds, missing
from pyclient.core.admin.topics import metadata_call
from pyclient.core.calls import Call, Finish
from pyclient.core.cluster import Cluster
from pyclient.descriptions.cluster import ClusterDescription
from pyclient.errors import KafkaError, KafkaTimeoutError
from pyclient.reactor.tasks import Task, all_done, gather, sleep
from pyclient.records import TopicPartition

Key = TypeVar("Key", bound=Hashable)
ToLeader: TypeAlias = Callable[[int, Sequence[TopicPartition], Finish, float | None], Call]
"""Makes the request to a node about partitions that it leads; its result maps each to a value or a `KafkaError`."""
ToBroker: TypeAlias = Callable[[int | None, Sequence[Key], Finish, float | None], Call]
"""Makes the request to a broker (None: any) about some items; its result maps each to a value or a `KafkaError`."""

LEADERS_CHECKED_EVERY: Final = 1.0
"""Seconds between looks at the metadata while a leader does not answer."""


async def each(core: ClientCore, calls: Mapping[Key, Callable[[Finish, float | None], Call]], timeout: float | None) -> dict[Key, Any]:
    """Run several calls at once; the result or the `KafkaError` of each."""
    answers = await gather(core.reactor, [attempted(core, make, timeout) for make in calls.values()])
    return dict(zip(calls, answers, strict=True))


async def by_broker(core: ClientCore, nodes: Mapping[int | None, Sequence[Key]], make: ToBroker[Key], timeout: float | None) -> dict[Key, Any]:
    """Ask each node (None: any, of controllers the active one) about its items; the value or the `KafkaError` of each.

    Items of a broker that is not in the cluster, or of one that is no controller, get `BrokerNotAvailableError` at
    once.
    """
    deadline = None if timeout is None else core.clock() + timeout
    answers: dict[Key, Any] = {}
    if any(node is not None for node in nodes):
        answers = missing(nodes, await _known(core, timeout))
    calls = {node: _to_broker(make, node, items) for node, items in nodes.items() if items[0] not in answers}
    for node, answer in (await each(core, calls, _left(core, deadline))).items():
        answers.update(dict.fromkeys(nodes[node], answer) if isinstance(answer, KafkaError) else answer)
    return answers


async def _known(core: ClientCore, timeout: float | None) -> Collection[int]:
    """The ids of the nodes that there are now: brokers or controllers."""
    if core.of_controllers:
        found: ClusterDescription = await core.call(lambda finish, until: describe_controllers_call(operations=False, finish=finish, deadline=until), timeout)
        return [node.id for node in found.nodes]
    cluster: Cluster = await core.call(lambda finish, until: metadata_call([], finish=finish, deadline=until), timeout)
    return cluster.nodes


async def by_leader(core: ClientCore, partitions: Collection[TopicPartition], make: ToLeader, timeout: float | None, *,
                    what: str) -> dict[TopicPartition, Any]:
    """Ask the leader of each partition; moved leaders and retriable errors are retried until *timeout* (seconds).

    Returns the value or the `KafkaError` of each. *what* names the operation in the error of a timeout.
    """
    deadline = None if timeout is None else core.clock() + timeout
    rounds = LeaderRounds(partitions)
    while not rounds.finished:
        await _one_round(core, rounds, make, deadline)
        pause = core.backoff.after(rounds.rounds)
        if deadline is not None and core.clock() + pause >= deadline:
            rounds.give_up(KafkaTimeoutError(f"{what} did not finish within {timeout} s. Check the brokers, or use a longer timeout."))
        elif not rounds.finished:
            await sleep(core.reactor, pause)
    return rounds.answers


async def _one_round(core: ClientCore, rounds: LeaderRounds, make: ToLeader, deadline: float | None) -> None:
    cluster = await attempted(core, _metadata(rounds), _left(core, deadline))
    if isinstance(cluster, KafkaError):
        if not rounds.answers:
            raise cluster
        rounds.give_up(cluster)  # what is done already must be known
        return
    nodes = rounds.by_leader(cluster)
    left = _left(core, deadline)
    # A leader that hangs must not take all the time there is: another may be elected meanwhile.
    limit = core.request_timeout if left is None else min(core.request_timeout, left)
    asked = {node: Task(core.reactor, attempted(core, _to_leader(make, node, tps), limit)) for node, tps in nodes.items()}
    watch = Task(core.reactor, _drop_former_leaders(core, rounds, nodes, asked))
    try:
        for answer in asked.values():
            await all_done(core.reactor, [answer])
    finally:
        for task in (watch, *asked.values()):
            task.cancel()
    for node, answer in asked.items():
        if not answer.cancelled():
            found = answer.result()
            rounds.take(dict.fromkeys(nodes[node], found) if isinstance(found, KafkaError) else found)


async def _drop_former_leaders(core: ClientCore, rounds: LeaderRounds, nodes: Mapping[int, Sequence[TopicPartition]],
                               asked: Mapping[int, Task[Any]]) -> None:
    """Cancel requests to nodes that lead none of their partitions any more: one that was killed does not answer."""
    while True:
        await sleep(core.reactor, LEADERS_CHECKED_EVERY)
        cluster = await attempted(core, _metadata(rounds), core.request_timeout)
        if isinstance(cluster, Cluster):
            for node in rounds.former_leaders(nodes, cluster):
                asked[node].cancel()


def _metadata(rounds: LeaderRounds) -> Callable[[Finish, float | None], Call]:
    return lambda finish, deadline: metadata_call(rounds.topics, finish=finish, deadline=deadline)


def _to_leader(make: ToLeader, node: int, tps: Sequence[TopicPartition]) -> Callable[[Finish, float | None], Call]:
    return lambda finish, deadline: make(node, tps, finish, deadline)


def _to_broker(make: ToBroker[Key], node: int | None, items: Sequence[Key]) -> Callable[[Finish, float | None], Call]:
    return lambda finish, deadline: make(node, items, finish, deadline)


async def attempted(core: ClientCore, make: Callable[[Finish, float | None], Call], timeout: float | None) -> Any:
    """Run one call; its result or its `KafkaError`."""
    try:
        return await core.call(make, timeout)
    except KafkaError as error:
        return error


def _left(core: ClientCore, deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - core.clock())
