"""Connections by node and use before scripted peers: which is opened, when again, and what ends it."""
from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.config import AdminConfig
from pyclient.core.manager import NotSent, Outcome, Reply, Request, Unknown, Use
from pyclient.errors import DisconnectError, KafkaError, ResponseTimeoutError, SaslAuthenticationError
from pyclient.metrics import Metrics
from pyclient.records import Node
from pyclient.client.core import ClientCore
from pyclient.net.pool import ConnectionPool, PoolOptions, Waker
from pyclient.reactor.channels import Channel
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future
from pyclient.runtime.network import Endpoint, Network, SocketNetwork, SocketOptions
from tests.reactors import InSteps, open_portal
from tests.addresses import unused_address
from tests.unit.net.peers import Conversation, Peer, Script, broker, metadata, muted_after_introduction, silence, versions
from tests.unit.net.test_connection import Clock, until

LIMIT = 20.0
BOOTSTRAP = -2
MAX_IDLE = 540.0


def options(**changes: Any) -> PoolOptions:
    return PoolOptions(**{
        "client_id": "tests", "request_timeout": 30.0, "reconnect_backoff": 1.0, "reconnect_backoff_max": 8.0,
        "setup_timeout": 10.0, "setup_timeout_max": 30.0, "max_idle": MAX_IDLE, "max_frame": 1 << 20,
        "max_in_flight": {Use.CONTROL: 2}, "sockets": SocketOptions(), **changes})


class Changes(Waker):
    """Calls *changed* with each event."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def wake(self) -> None:
        self._changed()

    def wake_data(self) -> None:
        self._changed()

    def wake_by(self, deadline: float) -> None:
        self._changed()


class Rig:
    """A pool with a clock that is moved by hand, and its events."""

    def __init__(self, connections: Callable[[Rig], InSteps], clock: Clock) -> None:
        self.clock = clock
        self.troubles: list[KafkaError] = []
        self.refusals: list[KafkaError] = []
        self.changes = self.silences = 0
        self.connections = connections(self)

    def changed(self) -> None:
        self.changes += 1

    def silent(self) -> None:
        self.silences += 1

    async def node(self, use: Use = Use.CONTROL) -> int:
        """Wait until any node is ready."""
        found: list[int] = []

        def look() -> bool:
            node = self.connections.least_loaded(use)
            found.extend([] if node is None else [node])
            return bool(found)

        await until(look)
        return found[0]

    async def slots(self, node: int, use: Use = Use.CONTROL) -> int:
        """Wait until this node is ready."""
        await until(lambda: self.connections.slots(node, use))
        return int(self.connections.slots(node, use))

    def ask(self, node: int, use: Use = Use.CONTROL, timeout: float = 30, *, answered: bool = True, **more: Any) -> asyncio.Future[Outcome]:
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        fields = {"topics": [], "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
                  "include_topic_authorized_operations": False}
        self.connections.send(Request(node=node, use=use, api=Api.METADATA, timeout=timeout, fields=lambda version: fields,
                                done=lambda now, result: outcome.set_result(result), answered=answered, **more))
        return outcome

    def pass_time(self, seconds: float) -> None:
        self.clock.ahead += seconds
        self.connections.tick(self.clock())

    @property
    def deadline(self) -> float | None:
        """Seconds until the connections want to be looked at again."""
        when = self.connections.next_deadline()
        return None if when is None else when - self.clock()


@asynccontextmanager
async def rig(*addresses: tuple[str, int], network: Network | None = None, clock: Clock | None = None, **changes: Any,
              ) -> AsyncIterator[Rig]:
    nodes = [Node(BOOTSTRAP - at, *address) for at, address in enumerate(addresses)]
    portal = await open_portal()
    made = Rig(lambda self: InSteps(portal, ConnectionPool(
        portal.reactor, options(**changes), network or SocketNetwork(), clock=self.clock, random=Random(7), bootstrap=nodes,
        metrics=Metrics(samples=2, window_s=30), waker=Changes(self.changed),
        on_failure=self.troubles.append, on_refused=self.refusals.append, on_silence=self.silent)), clock or Clock())
    try:
        yield made
    finally:
        await made.connections.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, LIMIT))


def at(peer: Peer, number: int = 1) -> Node:
    return Node(number, "127.0.0.1", peer.port)


class Book(SocketNetwork):
    """A resolver with its own book of names: the endpoints of each, which may change, or nothing at all."""

    def __init__(self, **names: list[int]) -> None:
        super().__init__()
        self.names = names
        self.asked = 0

    async def resolve(self, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
        self.asked += 1
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Endpoint(socket.AF_INET, ("127.0.0.1", each)) for each in self.names[host]]


# ---- which node -----------------------------------------------------------------------------------------------------


def test_M04_the_least_loaded_node_is_the_ready_one_with_the_fewest_requests_in_flight() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as first, Peer(muted_after_introduction) as second, rig() as here:
            here.connections.update_nodes({1: at(first, 1), 2: at(second, 2)})
            await here.slots(1)
            await here.slots(2)
            pending = here.ask(1)
            assert {here.connections.least_loaded(Use.CONTROL) for _ in range(10)} == {2}
            here.ask(2)
            assert {here.connections.least_loaded(Use.CONTROL) for _ in range(30)} == {1, 2}  # by chance among equals
            assert not pending.done()

    run(test())


def test_M04_the_node_whose_last_attempt_is_the_longest_ago_comes_next() -> None:
    async def test() -> None:
        async with rig() as here:
            here.connections.update_nodes({number: Node(number, *unused_address()) for number in (1, 2, 3)})
            for tried in range(1, 4):
                here.clock.ahead += 1
                here.connections.least_loaded(Use.CONTROL)
                await until(lambda tried=tried: len(here.connections.failures.by_address) == tried)  # type: ignore[misc]
            assert len(here.connections.failures.by_address) == 3

    run(test())


def test_M04_when_every_connection_is_muted_or_full_another_node_is_connected_to() -> None:
    """A node that is throttled or slow must not hold up what any node could answer."""
    async def test() -> None:
        async with Peer(muted_after_introduction) as full, Peer(broker) as other, rig() as here:
            here.connections.update_nodes({1: at(full, 1), 2: at(other, 2)})
            await here.slots(1)
            here.ask(1)
            here.ask(1)
            assert await here.node() == 2

    run(test())


def test_uses_have_connections_of_their_own() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1, Use.FETCH)
            here.ask(1, Use.FETCH)  # a long poll
            assert here.connections.slots(1, Use.FETCH) == 0
            assert await here.slots(1, Use.PRODUCE)
            assert await here.slots(1, Use.CONTROL) == 2
            assert peer.connections == 3

    run(test())


def test_M06_bootstrap_addresses_are_used_again_when_no_known_node_can_be_reached() -> None:
    async def test() -> None:
        async with Peer(broker) as bootstrap, rig(("127.0.0.1", bootstrap.port)) as here:
            assert await here.node() == BOOTSTRAP
            here.connections.update_nodes({1: Node(1, *unused_address())})
            assert here.connections.least_loaded(Use.CONTROL) is None
            await until(lambda: here.troubles)
            assert await here.node() == BOOTSTRAP
            assert bootstrap.connections == 2

    run(test())


def test_a_bootstrap_connection_is_retired_once_the_brokers_are_known() -> None:
    async def test() -> None:
        async with Peer(broker) as bootstrap, Peer(broker) as node, rig(("127.0.0.1", bootstrap.port)) as here:
            assert await here.node() == BOOTSTRAP
            here.connections.update_nodes({1: at(node)})
            await until(lambda: bootstrap.open == 0)
            assert await here.node() == 1

    run(test())


def test_only_bootstrap_servers_get_canonical_names() -> None:
    class Names(SocketNetwork):
        asked = 0

        async def canonical_name(self, reactor: Reactor, endpoint: Endpoint) -> str:
            self.asked += 1
            return "broker-1.example"

    async def test() -> None:
        names = Names()
        async with (Peer(broker) as bootstrap, Peer(broker) as node,
                    rig(("127.0.0.1", bootstrap.port), network=names, canonical_bootstrap=True) as here):
            assert await here.node() == BOOTSTRAP
            here.connections.update_nodes({1: at(node)})
            await here.slots(1)
            assert names.asked == 1

    run(test())


def test_a_request_for_a_node_without_a_connection_was_certainly_not_sent() -> None:
    async def test() -> None:
        async with rig() as here:
            assert isinstance(await here.ask(99), NotSent)

    run(test())


# ---- negotiation ----------------------------------------------------------------------------------------------------


def test_M08_a_peer_that_closes_on_ApiVersions_gets_version_0_at_once_on_a_new_connection() -> None:
    asked: list[int] = []

    async def hangs_up(conversation: Conversation) -> None:
        asked.append((await conversation.question()).version)

    async def old(conversation: Conversation) -> None:
        asked.append((await conversation.introduce()).version)
        await conversation.end()

    async def test() -> None:
        async with Peer(hangs_up, old) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)  # the clock stands: no back-off was waited for
            assert here.connections.failures.by_address == {}
            assert here.troubles == []

    run(test())
    assert asked == [4, 0]


def test_M08_a_broker_that_restarted_gets_the_newest_version_again() -> None:
    asked: list[int] = []

    async def going_down(conversation: Conversation) -> None:
        asked.append((await conversation.question()).version)

    async def back(conversation: Conversation) -> None:
        asked.append((await conversation.introduce()).version)
        await conversation.end()

    async def test() -> None:
        async with Peer(going_down, going_down, back) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})

            def failed() -> bool:
                here.connections.slots(1, Use.CONTROL)
                return bool(here.troubles)

            await until(failed)
            here.pass_time(2)
            await here.slots(1)

    run(test())
    assert asked == [4, 0, 4]


# ---- again, later ---------------------------------------------------------------------------------------------------


def test_M05_the_reconnect_back_off_grows_up_to_its_maximum_and_a_success_resets_it() -> None:
    async def test() -> None:
        where = unused_address()
        async with rig(where) as here:
            waits: list[float] = []
            for failures in range(1, 7):
                assert here.connections.least_loaded(Use.CONTROL) is None
                await until(lambda failures=failures: len(here.troubles) == failures)  # type: ignore[misc]
                assert here.connections.least_loaded(Use.CONTROL) is None  # wanted, not allowed
                wait = here.deadline
                assert wait is not None
                waits.append(wait)
                here.pass_time(wait * 0.9)
                here.connections.least_loaded(Use.CONTROL)
                assert len(here.troubles) == failures
                here.pass_time(wait * 0.1 + 0.01)
            for wait, expected in zip(waits, [1, 2, 4, 8, 8, 8], strict=True):
                assert expected * 0.75 <= wait <= min(expected * 1.2, 8)
            async with Peer(broker, port=where.port) as peer:
                assert await here.node() == BOOTSTRAP
                assert here.connections.failures.by_address == {}
                assert isinstance(await here.ask(BOOTSTRAP), Reply)
                await peer.stop()
                await until(lambda: not here.connections._connections())
                here.connections.least_loaded(Use.CONTROL)  # an idle connection went: no back-off
                await until(lambda: len(here.troubles) == 7)

    run(test())


class Unanswered(SocketNetwork):
    """Nothing answers the first *attempts* to connect."""

    def __init__(self, attempts: int) -> None:
        super().__init__()
        self.attempts = attempts

    async def open(self, reactor: Reactor, *endpoint: Any, **more: Any) -> Channel:
        self.attempts -= 1
        if self.attempts >= 0:
            await Future(reactor)
        return await super().open(reactor, *endpoint, **more)


def test_M05_the_set_up_timeout_grows_with_attempts_that_reach_nothing_and_a_success_resets_it() -> None:
    async def test() -> None:
        async with Peer(broker) as peer, rig(
                ("127.0.0.1", peer.port), network=Unanswered(2), setup_timeout=0.1, setup_timeout_max=5.0) as here:
            said = []
            for failures in (1, 2):
                here.connections.least_loaded(Use.CONTROL)
                await until(lambda failures=failures: len(here.troubles) == failures)  # type: ignore[misc]
                said.append(here.connections._bootstrap[BOOTSTRAP].reconnects.setup_timeout())
                here.pass_time(10)
            await here.node()
            assert here.connections._bootstrap[BOOTSTRAP].reconnects.setup_timeout() <= 0.125
            assert 0.15 <= said[0] <= 0.25
            assert 0.3 <= said[1] <= 0.5
            assert isinstance(here.troubles[0], ResponseTimeoutError)
            assert "not connected" in str(here.troubles[0])

    run(test())


def test_M05_a_peer_that_accepts_connections_and_hangs_gets_the_smaller_timeout_and_never_a_longer_one() -> None:
    async def test() -> None:
        async with Peer(silence, silence, broker) as peer, rig(
                ("127.0.0.1", peer.port), setup_timeout=10.0, setup_timeout_max=30.0, request_timeout=0.1) as here:
            for failures in (1, 2):
                here.connections.least_loaded(Use.CONTROL)
                await until(lambda failures=failures: len(here.troubles) == failures)  # type: ignore[misc]
                assert isinstance(here.troubles[-1], ResponseTimeoutError)
                assert str(here.troubles[-1]) == "connected, no answer to ApiVersions within 0.1 s"
                assert 8 <= here.connections._bootstrap[BOOTSTRAP].reconnects.setup_timeout() <= 12.5
                here.pass_time(10)
            await here.node()

    run(test())


def test_a_lost_connection_is_no_reason_for_a_longer_set_up_timeout() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            here.ask(1, timeout=4.0)
            here.pass_time(5)
            await until(lambda: here.troubles)
            assert 8 <= here.connections._nodes[1].reconnects.setup_timeout() <= 12.5

    run(test())


# ---- silence --------------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_answer_in_time_is_reported_each_turn_until_it_does() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            here.ask(1)
            here.pass_time(1.9)
            turn = here.clock() + 0.9
            assert here.connections.next_deadline(turn) == turn, "a look waits for a turn that comes soon"
            assert (here.silences, here.deadline) == (0, pytest.approx(0.1, abs=0.05))
            here.pass_time(0.2)
            here.pass_time(0.1)
            assert here.silences == 2
            here.connections.give_up(1, Use.CONTROL)
            await until(lambda: here.troubles)
            here.pass_time(2.0)
            assert here.silences <= 3

    run(test())


def test_a_node_that_may_hold_a_request_is_not_silent_meanwhile() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction, muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            here.ask(1, held=None)
            await here.slots(1, Use.FETCH)
            here.ask(1, Use.FETCH, held=10.0)
            here.pass_time(11.5)
            assert here.silences == 0
            here.pass_time(1.0)
            assert here.silences == 1

    run(test())


def test_an_attempt_to_connect_without_an_answer_is_silence_too() -> None:
    async def test() -> None:
        async with Peer(silence) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            here.connections.slots(1, Use.CONTROL)
            here.pass_time(1.9)
            assert here.silences == 0
            here.pass_time(0.2)
            assert here.silences == 1

    run(test())


def test_a_silence_ends_with_its_connection() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            here.ask(1)
            here.pass_time(2.1)
            assert here.silences == 1
            here.connections._nodes[1].connections[Use.CONTROL].close(DisconnectError("for the test"))
            await until(lambda: not here.connections._nodes[1].connections)
            for _ in range(5):
                here.pass_time(1.0)
            assert here.silences == 1, "the view of the cluster was refreshed again and again"

    run(test())


def test_a_silent_node_is_not_asked_while_others_can_be_and_is_when_all_are_silent() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as hung, Peer(broker) as alive, rig() as here:
            here.connections.update_nodes({1: at(hung, 1), 2: at(alive, 2)})
            await here.slots(1)
            here.ask(1)
            here.pass_time(2.1)
            assert here.connections.least_loaded(Use.CONTROL) is None, "another one is connected to first"
            assert await here.node() == 2
            assert {here.connections.least_loaded(Use.CONTROL) for _ in range(20)} == {2}
            here.connections.update_nodes({1: at(hung, 1)})
            assert here.connections.least_loaded(Use.CONTROL) == 1

    run(test())


def test_M04_nodes_that_have_answered_lately_come_first() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as idle, Peer(broker) as active, rig() as here:
            here.connections.update_nodes({1: at(idle, 1), 2: at(active, 2)})
            await here.slots(1)
            await here.slots(2)
            assert {here.connections.least_loaded(Use.CONTROL) for _ in range(30)} == {1, 2}
            here.pass_time(11)
            await here.ask(2)
            assert {here.connections.least_loaded(Use.CONTROL) for _ in range(30)} == {2}

    run(test())


def test_a_caller_that_waits_no_longer_gets_its_outcome_and_the_connection_stays() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            pending = here.ask(1, silence_timeout_s=1.0)
            here.pass_time(0.9)
            assert not pending.done()
            here.pass_time(0.2)
            outcome = await pending
            assert isinstance(outcome, Unknown)
            assert isinstance(outcome.cause, ResponseTimeoutError)
            assert "has not answered Metadata within 1.1 s" in str(outcome.cause)
            assert here.connections.slots(1, Use.CONTROL) == 1, "the request is still in flight"
            assert here.troubles == []

    run(test())


def test_a_long_silence_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Peer(broker) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            node = here.connections._nodes[1]
            here.ask(1)
            for _ in range(4):
                here.pass_time(2.1)
            await until(lambda: not node.connections[Use.CONTROL].in_flight)
            said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
            assert len(said) == 2
            assert f"127.0.0.1:{peer.port} (node 1) has answered nothing for 6 s" in said[0]
            assert "answers again, after" in said[1]

    run(test())


def test_M05_the_next_address_of_a_name_is_tried_when_the_first_refuses() -> None:
    async def test() -> None:
        async with Peer(broker) as live:
            network = Book(both=[unused_address().port, live.port])
            async with rig(("both", 9092), network=network) as here:
                assert await here.node() == BOOTSTRAP
                assert here.troubles == []

    run(test())


def test_M05_when_every_address_of_a_name_fails_the_error_has_the_reason_of_each() -> None:
    async def test() -> None:
        dead = [unused_address().port, unused_address().port]
        async with rig(("both", 9092), network=Book(both=dead)) as here:
            here.connections.least_loaded(Use.CONTROL)
            await until(lambda: here.troubles)
            said = str(here.connections.failure_report()["both:9092"])
            assert all(f"127.0.0.1:{port}: Connection refused" in said for port in dead)

    run(test())


def test_M05_a_name_is_resolved_again_for_each_attempt() -> None:
    async def test() -> None:
        async with Peer(broker) as before, Peer(broker) as after:
            network = Book(moved=[before.port])
            async with rig(("moved", 9092), network=network) as here:
                await here.node()
                network.names["moved"] = [after.port]
                await before.stop()
                await until(lambda: not here.connections._connections())
                await here.node()
                assert (after.connections, network.asked) == (1, 2)

    run(test())


def test_M14_an_unresolvable_name_is_tried_again_until_it_resolves() -> None:
    async def test() -> None:
        async with Peer(broker) as peer:
            network = Book()
            async with rig(("later", 9092), network=network) as here:
                here.connections.least_loaded(Use.CONTROL)
                await until(lambda: here.troubles)
                assert "'later' cannot be resolved: Name or service not known" in str(here.connections.failures.by_address["later:9092"])
                network.names["later"] = [peer.port]
                assert here.connections.least_loaded(Use.CONTROL) is None
                here.pass_time(here.deadline or 0)
                assert await here.node() == BOOTSTRAP

    run(test())


@pytest.mark.parametrize("moved", [True, False], ids=["to another port", "out of the cluster"])
def test_M05_connections_to_a_moved_or_removed_broker_are_closed_and_outcomes_unknown(moved: bool) -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as before, Peer(broker) as after, rig() as here:
            here.connections.update_nodes({1: at(before)})
            await here.slots(1)
            pending = here.ask(1)
            here.connections.update_nodes({1: at(after)} if moved else {2: at(after, 2)})
            outcome = await pending
            assert isinstance(outcome, Unknown)
            assert ("the broker moved to 127.0.0.1" if moved else "the broker left the cluster") in str(outcome.cause)
            assert await here.slots(1 if moved else 2)
            assert before.connections == 1

    run(test())


def test_M05_a_client_follows_a_broker_that_comes_back_on_another_port() -> None:
    """Through metadata: the bootstrap address returns the new port."""
    places: list[int] = []

    async def directory(conversation: Conversation) -> None:
        await conversation.introduce()
        while True:
            conversation.answer(await conversation.question(), **metadata((1, "127.0.0.1", places[-1])))

    async def test() -> None:
        async with Peer(directory) as bootstrap, Peer(directory) as before, Peer(directory) as after:
            places.append(before.port)
            portal = await open_portal()
            core = ClientCore(AdminConfig.parse(None, {"bootstrap_servers": bootstrap.address, "retry_backoff_ms": 1}), portal)
            await portal.call(core.start)
            try:
                await until(lambda: core.metadata.cluster.nodes)
                core.metadata.request_update()
                core.driver.wake()
                await until(lambda: before.connections)
                places.append(after.port)
                await before.stop()
                core.metadata.request_update()
                core.driver.wake()
                await until(lambda: core.metadata.cluster.nodes[1].port == after.port)
                core.metadata.request_update()
                core.driver.wake()
                await until(lambda: after.connections)
            finally:
                await portal.call(core.close)

    run(test())


# ---- idle and overdue -----------------------------------------------------------------------------------------------


def test_M13_an_idle_connection_is_closed_in_time_and_opened_again_when_wanted(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Peer(broker) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            assert isinstance(await here.ask(1), Reply)
            assert MAX_IDLE - 5 < (here.deadline or 0) <= MAX_IDLE
            here.pass_time(MAX_IDLE - 5)
            assert here.connections.slots(1, Use.CONTROL)
            here.pass_time(6)
            await until(lambda: peer.open == 0)
            assert await here.slots(1)
            assert (peer.connections, here.troubles) == (2, [])

    with caplog.at_level(logging.INFO, "pyclient"):
        run(test())
    assert not caplog.records


def test_M13_a_connection_with_a_request_in_flight_is_not_idle() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            pending = here.ask(1, timeout=10 * MAX_IDLE)
            here.pass_time(2 * MAX_IDLE)
            assert peer.open == 1
            assert not pending.done()

    run(test())


def test_M13_a_peer_that_closes_an_idle_connection_causes_no_error_and_no_back_off(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        bored = asyncio.Event()

        async def closes(conversation: Conversation) -> None:
            await conversation.introduce()
            conversation.answer(await conversation.question(), **metadata())
            await bored.wait()

        async with Peer(closes, broker) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            assert isinstance(await here.ask(1), Reply)
            bored.set()
            await until(lambda: not here.connections._connections())
            assert here.troubles == []
            assert await here.slots(1)

    with caplog.at_level(logging.INFO, "pyclient"):
        run(test())
    assert not caplog.records


@pytest.mark.parametrize("before", [True, False], ids=["before it is noticed to be ready", "after that"])
def test_M05_a_peer_that_closes_an_unused_connection_is_reconnected_after_a_back_off(before: bool) -> None:
    async def test() -> None:
        looked = asyncio.Event()

        async def closes(conversation: Conversation) -> None:
            await conversation.introduce()
            if not before:
                await looked.wait()

        async with Peer(closes, broker) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            here.connections.slots(1, Use.CONTROL)
            await until(lambda: here.connections.failures.by_address or here.connections._connections())
            looked.set()
            await until(lambda: here.connections.failures.by_address)
            here.connections.next_deadline()  # as at the end of a turn for all
            assert (here.connections.slots(1, Use.CONTROL), here.troubles, peer.connections) == (0, [], 1)  # an idle connection is closed so, too
            assert here.connections.due == 0, "who polls the manager of the records alone looks for the end of the back-off, too"
            assert 0.5 < (here.deadline or 0) <= 1.2
            here.pass_time(1.2)
            assert await here.slots(1)

    run(test())


def test_an_address_that_is_connected_and_has_not_answered_yet_is_in_the_report() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig(("127.0.0.1", peer.port)) as here:
            pending = here.ask(await here.node())
            assert {address: str(cause) for address, cause in here.connections.failure_report().items()} == {
                f"127.0.0.1:{peer.port}": "connected, no answer yet"}
            here.pass_time(31)
            await pending

    run(test())


def test_M10_an_overdue_response_closes_the_connection_and_reconnecting_waits() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            pending = here.ask(1)
            here.pass_time(29)
            assert not pending.done()
            here.pass_time(2)
            outcome = await pending
            assert isinstance(outcome, Unknown)
            assert isinstance(outcome.cause, ResponseTimeoutError)
            assert here.troubles == [outcome.cause]
            assert here.connections.slots(1, Use.CONTROL) == 0
            assert peer.connections == 1
            here.pass_time(2)
            assert await here.slots(1)

    run(test())


def test_M10_a_request_on_a_retired_connection_becomes_overdue_like_any_other() -> None:
    async def test() -> None:
        async with Peer(muted_after_introduction) as bootstrap, Peer(broker) as node, rig(("127.0.0.1", bootstrap.port)) as here:
            pending = here.ask(await here.node())
            here.connections.update_nodes({1: at(node)})  # the bootstrap connection is retired with the request in flight
            assert not pending.done()
            assert here.deadline is not None
            assert here.deadline <= 30
            here.pass_time(31)
            assert isinstance(await pending, Unknown)
            await until(lambda: bootstrap.open == 0)

    run(test())


def test_the_silence_of_a_retired_connection_wakes_the_client_no_more_before_its_request_is_overdue() -> None:
    """It is looked for at nodes' connections only: a deadline in the past made the client turn without end."""
    async def test() -> None:
        async with Peer(muted_after_introduction) as bootstrap, Peer(broker) as node, rig(("127.0.0.1", bootstrap.port)) as here:
            pending = here.ask(await here.node())
            here.connections.update_nodes({1: at(node)})
            here.pass_time(10)  # longer than the silence allowed of a connection that is in use
            assert here.deadline is not None
            assert here.deadline > 0
            here.pass_time(21)
            assert isinstance(await pending, Unknown)

    run(test())


def test_P22_a_connection_closed_after_acks_0_requests_is_a_failure() -> None:
    async def refuses(conversation: Conversation) -> None:
        await conversation.introduce()
        await conversation.question()

    async def test() -> None:
        async with Peer(refuses) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            outcome = here.ask(1, answered=False)
            assert isinstance(outcome.result(), Reply)
            await until(lambda: here.troubles)

    run(test())


# ---- listeners that want a login ------------------------------------------------------------------------------------


def wants_login(error_code: int, *mechanisms: str) -> Script:
    """Answers ApiVersions and SaslHandshake, and disconnects on any other request."""
    async def script(conversation: Conversation) -> None:
        await conversation.introduce()
        question = await conversation.question()
        if question.api is Api.SASL_HANDSHAKE:
            conversation.answer(question, error_code=error_code, mechanisms=mechanisms)
            await conversation.end()
    return script


def test_M16_a_listener_that_closes_on_the_first_request_is_asked_whether_it_requires_a_login() -> None:
    async def test() -> None:
        async with Peer(wants_login(33, "PLAIN", "SCRAM-SHA-512")) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            assert isinstance(await here.ask(1), Unknown)
            here.pass_time(60)
            assert here.connections.slots(1, Use.CONTROL) == 0
            await until(lambda: here.refusals)
            refusal, = here.refusals
            assert isinstance(refusal, SaslAuthenticationError)
            assert "requires a login, and no login is configured. It offers PLAIN, SCRAM-SHA-512:" in str(refusal)
            assert peer.connections == 2

    run(test())


def test_M16_a_broker_that_has_answered_before_is_not_asked_whether_it_requires_a_login() -> None:
    asked: list[Api] = []

    async def answers_once(conversation: Conversation) -> None:
        await conversation.introduce()
        question = await conversation.question()
        asked.append(question.api)
        if question.api is Api.SASL_HANDSHAKE:
            conversation.answer(question, error_code=34, mechanisms=["PLAIN"])
            question = await conversation.question()
        conversation.answer(question, **metadata((1, *conversation.here)))
        await conversation.question()

    async def test() -> None:
        async with Peer(wants_login(34), answers_once) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            assert isinstance(await here.ask(1), Unknown)
            for connections in (2, 3):
                here.pass_time(60)
                await here.slots(1)
                assert isinstance(await here.ask(1), Reply)
                assert isinstance(await here.ask(1), Unknown)
                await until(lambda: not here.connections._connector.tasks and not peer.open)
                assert (here.refusals, peer.connections) == ([], connections)
        assert asked[0] is Api.SASL_HANDSHAKE
        assert Api.SASL_HANDSHAKE not in asked[1:]

    run(test())


# ---- the end --------------------------------------------------------------------------------------------------------


def answers_nothing(peers: Iterable[Peer]) -> dict[int, Node]:
    return {number: at(peer, number) for number, peer in enumerate(peers, 1)}


def test_closing_the_pool_closes_connections_in_any_state_and_delivers_every_outcome() -> None:
    async def test() -> None:
        async with Peer(silence) as connecting, Peer(muted_after_introduction) as busy, Peer(broker) as idle, rig() as here:
            here.connections.update_nodes(answers_nothing([connecting, busy, idle]))
            here.connections.slots(1, Use.CONTROL)
            await here.slots(2)
            await here.slots(3)
            await until(lambda: connecting.connections)
            pending = here.ask(2)
            await here.connections.close()
            assert isinstance(pending.result(), Unknown)
            assert "closed" in str(pending.result())
            await until(lambda: connecting.open + busy.open + idle.open == 0)
            assert not here.connections._connector.tasks
            assert here.connections.least_loaded(Use.CONTROL) is None
            assert here.connections.slots(3, Use.CONTROL) == 0

    run(test())


def test_a_broker_whose_versions_do_not_fit_is_ready_for_what_does() -> None:
    async def picky(conversation: Conversation) -> None:
        await conversation.introduce(**versions(produce=(90, 91)))
        await conversation.end()

    async def test() -> None:
        async with Peer(picky) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            versions_of_1 = here.connections._nodes[1].connections[Use.CONTROL].versions
            assert not versions_of_1.usable(Api.PRODUCE)
            assert versions_of_1.choose(Api.METADATA) == 13

    run(test())
