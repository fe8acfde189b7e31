"""The invariants of logins, one by one: each holds while its rule does, and is broken when the rule is."""
from __future__ import annotations

import asyncio
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.core.connection import State
from pyclient.errors import DisconnectError, TokenUnavailableError
from pyclient.reactor.tls_channel import Tls
from pyclient.runtime.environment import loop_reactor, using
from pyclient.runtime.network import Endpoint, SocketOptions
from pyclient.runtime.portals import LoopPortal
from pyclient.testing.fake.model.sasl import Phase, Session
from pyclient.testing.simulation.facts import Facts
from pyclient.testing.simulation.faults import _go_on
from pyclient.testing.simulation.invariants import InvariantError, Judge
from pyclient.testing.simulation.login_invariants import LOGINS_PER_SECOND, RULES_OF_LOGINS
from pyclient.testing.simulation.protection import FEWEST_FAULTS, LOGS_IN, MOST_FAULTS, SECURED, drawn
from pyclient.testing.simulation.run import Run
from pyclient.testing.simulation.world import PORT, World


@pytest.fixture
def judge() -> Judge:
    return Judge(World(1, sasl={"anna": "secret"}), Facts(), RULES_OF_LOGINS)


def breach(judge: Judge, event: str, *about: Any) -> str:
    with pytest.raises(InvariantError) as broken:
        judge.after(event, *about)
    return broken.value.invariant.split()[1]


def link(judge: Judge, *apis: Api, state: State = State.READY, lives: tuple[float, float] | None = None, cause: Exception | None = None) -> Any:
    """A connection that has just written these."""
    session = Session(judge.world.kafka)
    session._phase = Phase.LOGGED_IN
    session.granted_at, session.ends_at = lives or (None, None)
    protocol = SimpleNamespace(requests=[SimpleNamespace(api=api, sent_at=judge.world.loop.time()) for api in apis], state=state, _cause=cause)
    return SimpleNamespace(client_protocol=protocol, served=SimpleNamespace(session=session))


def test_M11_a_login_is_alone_on_its_connection(judge: Judge) -> None:
    judge.after("written", link(judge, Api.SASL_HANDSHAKE, state=State.REAUTHENTICATING))
    judge.after("written", link(judge, Api.FETCH, Api.PRODUCE))
    assert breach(judge, "written", link(judge, Api.FETCH, Api.SASL_HANDSHAKE, state=State.REAUTHENTICATING)) == "a_login_is_alone"
    assert breach(judge, "written", link(judge, Api.FETCH, state=State.REAUTHENTICATING)) == "a_login_is_alone"


def test_M11_nothing_is_written_when_a_renewal_should_have_begun(judge: Judge) -> None:
    judge.after("written", link(judge, Api.FETCH, lives=(-94.0, 6.0)))
    assert breach(judge, "written", link(judge, Api.FETCH, lives=(-96.0, 4.0))) == "a_session_is_renewed_in_time"
    judge.after("written", link(judge, Api.SASL_HANDSHAKE, state=State.REAUTHENTICATING, lives=(-96.0, 4.0)))


def test_M11_a_connection_that_is_ready_when_its_renewal_should_have_begun_is_a_breach(judge: Judge) -> None:
    network: Any = judge.world.network
    network.links = [link(judge, lives=(-94.0, 6.0)), link(judge, state=State.REAUTHENTICATING, lives=(-96.0, 4.0)), link(judge)]
    judge.after("second")
    network.links.append(link(judge, lives=(-96.0, 4.0)))
    assert breach(judge, "second") == "a_renewal_does_not_wait_for_the_end_of_the_session"


def test_M11_a_session_outlives_a_renewal_that_found_no_token(judge: Judge) -> None:
    judge.after("ended", link(judge, lives=(-1.0, 9.0), cause=DisconnectError("cut")))
    judge.after("ended", link(judge, lives=(-9.0, -1.0), cause=TokenUnavailableError("none")))
    assert breach(judge, "ended", link(judge, lives=(-1.0, 9.0), cause=TokenUnavailableError("none"))) == "a_session_outlives_a_failed_renewal"


def test_M05_logins_in_a_loop_are_a_breach(judge: Judge) -> None:
    judge.facts.second.logins["a"] = 5
    judge.after("second")
    judge.facts.second.logins["a"] = 50
    assert breach(judge, "second") == "logins_are_bounded"


def test_M05_each_life_of_a_client_logs_in_on_its_own_connections(judge: Judge) -> None:
    judge.facts.second.logins["a"] = 2 * LOGINS_PER_SECOND
    assert breach(judge, "second") == "logins_are_bounded"
    judge.facts.second.starts["a"] = 1  # and one that began before
    judge.after("second")
    judge.facts.second.logins["a"] += 1
    assert breach(judge, "second") == "logins_are_bounded"


def test_M11_a_connection_does_not_log_in_twice_within_a_second(judge: Judge) -> None:
    asked: Any = SimpleNamespace(connection=object(), client_id="a")
    judge.after("login begins", asked)
    assert breach(judge, "login begins", asked) == "logins_of_a_connection_are_spaced"


def test_a_probe_of_what_a_listener_speaks_is_no_connection_of_the_client() -> None:
    run = Run(next(seed for seed in range(1, 100) if (each := drawn(seed)).mechanism is not None and not each.tls), faults=[])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def probe() -> None:
        run._watch()
        with using(run.world.environment("producer-0")):
            portal = LoopPortal("producer", loop_reactor())
        portal.start()
        async with asyncio.timeout(5):
            await portal.call(lambda: run.world.network.of("producer-0").open(
                portal.reactor, Endpoint(socket.AF_INET, ("10.0.0.1", PORT)), SocketOptions(), Tls(context, "broker-1", 1.0, lambda: None)))

    with pytest.raises(OSError, match="reset"):  # the listener has no TLS
        run.world.run(probe())
    assert (run.judge.broken, run.world.loop.defects) == (None, [])
    run.world.close()


# ---- which seeds -----------------------------------------------------------------------------------------------------


def test_a_fifth_of_the_seeds_log_in_some_over_tls_by_every_mechanism() -> None:
    seeds = {seed: drawn(seed) for seed in range(1, 501)}
    assert sum(each.mechanism is not None for each in seeds.values()) == 500 // LOGS_IN
    assert sum(each.tls and each.mechanism is not None for each in seeds.values()) == sum(each.tls and each.mechanism is None for each in seeds.values()) == 500 // SECURED
    assert {each.mechanism for each in seeds.values()} == {None, "PLAIN", "OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512"}


def test_faults_of_logins_are_planned_for_those_only_who_log_in_and_can_survive_them() -> None:
    for seed in range(1, 60):
        run = Run(seed)
        wrong = [each.kind for each in run.faults if each.kind.startswith(("login", "token"))]
        assert len(wrong) in (range(FEWEST_FAULTS, MOST_FAULTS + 1) if run.protection.mechanism else (0,))
        assert set(wrong) <= set(run.protection.login_faults)
        run.world.close()


def test_a_token_that_a_hung_broker_reads_late_is_not_late_by_the_clients_fault() -> None:
    world = World(1)
    delayed: Any = SimpleNamespace(late_until=0.0)
    world.network.of_broker = lambda broker: [delayed] if broker == 2 else []  # type: ignore[method-assign]
    world.front.pause(2)
    world.loop.call_later(3.0, _go_on, world, 2)
    world.run(asyncio.sleep(4.0))
    assert delayed.late_until == 3.0
