"""While one address takes long to connect, another is tried: one that drops packets delays no request."""
from __future__ import annotations

import pytest

from pyclient.core.connection import STAGGER
from pyclient.core.manager import Use
from pyclient.core.silence import LONGEST_SILENCE_S
from tests.unit.net.peers import Peer, broker, silence
from tests.unit.net.test_connection import Clock, run, until
from tests.addresses import unused_address
from tests.unit.net.test_pool import BOOTSTRAP, Book, at, rig


class StoppedClock(Clock):
    """Time passes only on command."""

    def __call__(self) -> float:
        return 100.0 + self.ahead


def test_M04_a_request_for_any_node_connects_to_one_and_to_no_second_before_the_stagger() -> None:
    async def test() -> None:
        async with Peer(silence) as first, Peer(silence) as second, rig(clock=StoppedClock()) as here:
            here.connections.update_nodes({1: at(first, 1), 2: at(second, 2)})
            for _ in range(5):
                assert here.connections.least_loaded(Use.CONTROL) is None
            await until(lambda: first.connections + second.connections)
            here.pass_time(STAGGER * 0.9)
            assert here.connections.least_loaded(Use.CONTROL) is None
            assert sum(bool(host.tasks) for host in here.connections._all_nodes()) == 1

    run(test())


def test_M04_while_one_node_takes_long_to_connect_another_is_connected_to() -> None:
    async def test() -> None:
        async with Peer(silence) as swallows, Peer(broker) as other, rig(clock=StoppedClock()) as here:
            here.connections.update_nodes({1: at(swallows, 1)})
            assert here.connections.least_loaded(Use.CONTROL) is None
            here.connections.update_nodes({1: at(swallows, 1), 2: at(other, 2)})
            assert here.connections.least_loaded(Use.CONTROL) is None
            assert here.deadline == pytest.approx(STAGGER)
            here.pass_time(STAGGER)
            assert await here.node() == 2
            assert here.connections._nodes[1].tasks

    run(test())


def test_M04_connecting_to_one_more_node_is_a_deadline_only_while_wanted_and_possible() -> None:
    async def test() -> None:
        async with Peer(silence) as first, Peer(silence) as second, rig(clock=StoppedClock()) as here:
            here.connections.update_nodes({1: at(first, 1), 2: at(second, 2)})
            here.connections.least_loaded(Use.CONTROL)
            assert here.deadline == pytest.approx(STAGGER)
            here.connections.tick(here.clock())
            assert here.deadline == pytest.approx(LONGEST_SILENCE_S)  # no caller in this turn; is it silent?
            here.pass_time(STAGGER)
            here.connections.least_loaded(Use.CONTROL)
            assert (here.deadline or 0) > STAGGER  # both are tried

    run(test())


def test_M04_attempts_to_bootstrap_addresses_are_cancelled_once_the_brokers_are_known() -> None:
    async def test() -> None:
        async with Peer(silence) as bootstrap, Peer(broker) as node, rig(("127.0.0.1", bootstrap.port)) as here:
            here.connections.least_loaded(Use.CONTROL)
            await until(lambda: bootstrap.open)
            here.connections.update_nodes({1: at(node)})
            await until(lambda: not bootstrap.open)
            assert not here.connections._connector.tasks

    run(test())


def test_M05_an_address_that_drops_packets_costs_one_stagger_and_leaves_no_task() -> None:
    async def test() -> None:
        async with Peer(silence) as swallows, Peer(broker) as live, rig(
                ("both", 9092), network=(book := Book())) as here:
            book.names["both"] = [swallows.port, live.port]
            assert await here.node() == BOOTSTRAP
            assert here.troubles == []
            await until(lambda: not swallows.open)
            await until(lambda: not here.connections._connector.tasks and not here.connections._closing)

    run(test())


def test_M05_a_timeout_names_the_stage_of_each_address() -> None:
    async def test() -> None:
        dead = unused_address().port
        async with Peer(silence) as mute, rig(("both", 9092), network=Book(both=[dead, mute.port]), setup_timeout=0.2) as here:
            here.connections.least_loaded(Use.CONTROL)
            await until(lambda: here.troubles)
            said = str(here.connections.failure_report()["both:9092"])
            assert f"127.0.0.1:{dead}: Connection refused; 127.0.0.1:{mute.port}: connected, no answer to ApiVersions within" in said

    run(test())
