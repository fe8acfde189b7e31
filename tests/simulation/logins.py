"""A connection of a simulated world whose cluster wants a login, and what a test does with it."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pyclient.codec.apis import SPOKEN, Api
from pyclient.core.connection import State
from pyclient.core.handshake import ClientInfo
from pyclient.core.manager import Outcome, Reply, Request, Use
from pyclient.errors import KafkaError
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import Surroundings
from pyclient.net.connection import AnswerListener, Connection
from pyclient.net.sasl_login import SaslClient
from pyclient.runtime.environment import loop_reactor, using
from pyclient.runtime.network import SocketOptions
from pyclient.runtime.portals import LoopPortal
from pyclient.testing.simulation.world import World
from tests.reactors import InSteps
from tests.unit.sasl.exchanges import options

T = TypeVar("T")
USERS = {"anna": "anna's marker-secret", "bert": "bert's marker-secret"}
ANNA = {"sasl_plain_username": "anna", "sasl_plain_password": USERS["anna"]}
TIMEOUT = 10.0
HOST = "broker-1"


def world(seed: int = 1, users: Mapping[str, str] | None = USERS, config: Mapping[str, object] | None = None) -> World:
    """One broker."""
    return World(seed, brokers=1, sasl=users, config=config)


class Client:
    """A connection, and what it reported. Make it in a task of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        with using(world.environment("client")):
            self.portal = LoopPortal("client", loop_reactor())
        self.portal.start()
        self.network = world.network.of("client")
        self.lost: list[KafkaError] = []
        self.changes = 0
        self.was_ready = False  # at the last change
        self.outcomes: list[Outcome] = []
        self._connection = Connection(
            "the broker", "client", reactor=self.portal.reactor, clock=world.loop.time, max_frame=1 << 20, on_change=self._changed, on_quiet=self._changed,
            on_lost=lambda link, cause: self.lost.append(cause), answers=AnswerListener())
        self.link: Any = InSteps(self.portal, self._connection)

    def _changed(self) -> None:
        self.changes += 1
        self.was_ready = self._connection.accepts_requests()

    async def introduce(self, *, logs_in: bool = True) -> None:
        await self.portal.call(lambda: self._introduce(logs_in=logs_in))

    async def _introduce(self, *, logs_in: bool) -> None:
        endpoint, *_ = await self.network.resolve(self.portal.reactor, HOST, 9092)
        self._connection.attach(await self.network.open(self.portal.reactor, endpoint, SocketOptions()))
        await self._connection.introduce(ClientInfo("pyclient", "1"), SPOKEN[Api.API_VERSIONS].high, TIMEOUT, logs_in=logs_in)

    async def log_in(self, logins: SaslClient, timeout: float = TIMEOUT) -> None:
        await self.link.authenticate(logins.login(HOST), timeout)

    def ask(self, timeout: float = 30.0) -> asyncio.Future[Outcome]:
        """A Metadata request; its outcome."""
        outcome_of: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        fields = {"topics": [], "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}

        def done(_now: float, outcome: Outcome) -> None:
            self.outcomes.append(outcome)
            outcome_of.set_result(outcome)

        self.link.send(Request(node=1, use=Use.CONTROL, api=Api.METADATA, timeout=timeout, fields=lambda version: fields, done=done))
        return outcome_of

    async def answered(self) -> bool:
        return isinstance(await self.ask(), Reply)

    def asked(self) -> list[str]:
        """What the broker was asked so far, in order."""
        return [each.api.title for each in self.world.cluster.requests()]


def logins(client: Client, mechanism: str | Any = "SCRAM-SHA-512", **given: Any) -> SaslClient:
    """As a client of the world would have them."""
    made = load_plugin("sasl mechanism", mechanism)
    environment = client.world.environment("client")
    random = environment.random()
    if hasattr(made, "run_in"):
        made.run_in(Surroundings(environment.wall, environment.token_bytes, random.random))
    return SaslClient(made, options(**{**ANNA, **given}), environment, client.portal, random)


async def turns(condition: Callable[[], object], limit: float = 60.0) -> None:
    """Until it holds, in virtual time."""
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110 any condition, and time is virtual
            await asyncio.sleep(0.001)


def run(world: World, test: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Run it with a client that is introduced."""
    async def steps() -> T:
        client = Client(world)
        await client.introduce()
        result = await test(client)
        if client.link.state is not State.CLOSED:
            client.link.retire()
            await turns(lambda: client.link.state is State.CLOSED)
        return result

    with world:
        world.cluster.requests()
        return world.run(steps())
