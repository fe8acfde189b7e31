"""A simulated world: one loop, one fake cluster, one network, any number of clients, all decided by one seed."""
from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from random import Random
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from pyclient.consumer.async_facade import AsyncConsumer
from pyclient.producer.facade import AsyncProducer
from pyclient.runtime.environment import ASSIGNOR_THREAD, SEAL_INLINE_BYTES, Environment, using
from pyclient.testing.fake.model.request import Request
from pyclient.testing.fake.control import Control
from pyclient.testing.fake.controls import Controls
from pyclient.testing.fake.model.kafka import Broker, Kafka
from pyclient.testing.fake.model.profiles import NEWEST, PROFILES
from pyclient.testing.fake.model.settings import Settings
from pyclient.testing.fake.wire import Front
from pyclient.testing.simulation.faults import FOR_SERVICES, KINDS, Fault, Strike, planned
from pyclient.testing.simulation.journal import Journal
from pyclient.testing.simulation.loop import SimulationLoop
from pyclient.testing.simulation.network import SimulatedNetwork

if TYPE_CHECKING:
    from pyclient.testing.simulation.protection import TokenService

T = TypeVar("T")
P = ParamSpec("P")
EPOCH_MS: Final = 1_767_225_600_000
"""The wall clock when a world begins: 2026-01-01."""
PORT: Final = 9092
CLOSE_S: Final = 1.0
"""Virtual time for cancelled tasks to end."""
QUIET: Final = frozenset({"request", "response", "high watermark"})
"""Events that the journal does not describe: there are too many."""

WORK_PER_S: Final = 1000.0
"""Average number of jobs that a client's workers finish per second."""


class World:
    """One loop with virtual time, one fake cluster, one network, any number of async clients, all decided by one seed.

    ``config``, ``version``, ``features`` and ``sasl`` are those of `FakeCluster`; brokers have the ids 1 to *brokers*.
    `run` runs a program, `inside` puts clients into the world, `cluster` has the cluster's controls, `strike` schedules
    faults. The same seed and the same program give the same run: ``journal.digest`` proves it, ``journal.timeline()``
    shows its last events. Times are virtual seconds since the world began. ``with`` closes it. Sync clients have
    threads, so they cannot be in it.

    With ``tls``, a server context, brokers speak TLS. Take keys whose signatures have one size, or a seed gives several
    runs: ``CertificateAuthority(key="ed25519").server_context("broker-1", …)``.
    """

    def __init__(self, seed: int, *, brokers: int = 3, config: Mapping[str, object] | None = None, version: str = NEWEST,
                 features: Mapping[str, int] | None = None, tls: ssl.SSLContext | None = None, sasl: Mapping[str, str] | None = None) -> None:
        self.seed = seed
        self.loop = SimulationLoop(self.random("order"))  # type: ignore[abstract] # no loop is abstract when it runs
        self.journal = Journal(self.loop.time)
        self.wall_skew_ms = 0
        """How far the wall clock is ahead."""
        nodes = [Broker(number, f"broker-{number}", PORT, rack=f"rack-{number}") for number in range(1, brokers + 1)]
        self.kafka = Kafka(nodes, clock=self.loop.time, wall=self.wall, random=self.random("cluster"),
                           settings=Settings.parse(config or {}), profile=PROFILES[version].with_features(features or {}), users=sasl)
        self.control = Control()
        self.front = Front(self.kafka, self.control)
        if tls is not None:
            tls.num_tickets = 0  # their sizes depend on the real clock
        self.network = SimulatedNetwork(self.loop, self.random("network"), self.front, tls)
        self.kafka.listeners.append(self._on_event)
        self.seal_inline_bytes = SEAL_INLINE_BYTES
        """Larger batches are compressed by the clients' worker threads."""
        self.assignments_per_s = WORK_PER_S
        """Average number of assignments that group leaders compute per second."""
        self.security: Mapping[str, Any] = {}
        """Security options of this world's clients."""
        self.tokens: TokenService | None = None
        """The token service, if clients log in with tokens and faults may hit it."""
        self.clients: list[str] = []
        """Names of the clients made so far."""
        self.groups: list[str] = []
        """Consumer groups that faults choose from; empty: all."""
        self.next_generation = False
        """Whether its groups use the consumer protocol (KIP-848)."""
        self.raising: list[Callable[[], None]] = []
        """Each entry makes one of the next delivery callbacks raise, after calling the entry."""

    def random(self, part: str) -> Random:
        """A generator that only this part of the world draws from."""
        return Random(f"{self.seed}/{part}")

    def wall(self) -> int:
        """Milliseconds since the epoch, by this world's wall clock."""
        return EPOCH_MS + round(self.loop.time() * 1000) + self.wall_skew_ms

    def run(self, steps: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in virtual time; returns its result.

        Raises:
            SimulationStuckError: it still waits, but no callback or timer is left.
            BusyLoopError: callbacks follow each other without end while time stands still.
        """
        result: T = self.loop.run_until_complete(steps)
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the world: remaining tasks are cancelled. Calling again does nothing."""
        if self.loop.is_closed():
            return
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until(self.loop.time() + CLOSE_S)
        self.network.close_remaining()
        self.loop.run_until(self.loop.time())
        self.loop.close()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{each.host}:{each.port}" for each in self.kafka.brokers.values())

    @functools.cached_property
    def cluster(self) -> Controls:
        """The controls of a `FakeCluster`: topics, records, groups, brokers, and the requests since its first use."""
        return SimulatedCluster(self.front)

    # ---- faults ------------------------------------------------------------------------------------------------------

    def plan(self, count: int = 10, *, begin: float = 1.0, end: float = 25.0, kinds: Sequence[str] = FOR_SERVICES) -> list[Fault]:
        """*count* faults of these kinds, at times between *begin* and *end*; a seed always draws the same ones."""
        return planned(self.random("faults"), fewest=count, most=count, begin=begin, end=end, kinds=kinds)

    def strike(self, faults: Sequence[Fault]) -> list[str]:
        """Schedule these faults. The returned list grows by a line for each effect they have.

        A fault without a target does nothing. Half-open connections are reset when the last fault is over.

        Raises:
            ValueError: there is no such kind of fault.
        """
        hits: list[str] = []
        for fault in faults:
            if fault.kind not in KINDS:
                raise ValueError(f"there is no fault {fault.kind!r}; known are {', '.join(KINDS)}")
            strike = Strike(self, fault, lambda fault, what: hits.append(f"{self.loop.time():.3f} s  {fault.kind}: {what}"))
            self.loop.call_at(fault.at, KINDS[fault.kind], strike)
        self.loop.call_at(max((each.over for each in faults), default=0.0), self.network.reset_half_open)
        return hits

    # ---- clients -----------------------------------------------------------------------------------------------------

    def environment(self, client: str) -> Environment:
        """The environment of a client of this world."""
        return Environment(
            network=lambda: self.network.of(client), clock=self.loop.time, wall=self.wall, defers=False,
            random=lambda: self.random(f"client {client}"), token_bytes=self.random(f"logins {client}").randbytes,
            seal_inline_bytes=self.seal_inline_bytes,
            workers=lambda name: LateExecutor(
                self.loop, self.random(f"workers {client}"), lambda: self.assignments_per_s if name == ASSIGNOR_THREAD else WORK_PER_S))

    @contextlib.contextmanager
    def inside(self, client: str) -> Iterator[None]:
        """Clients created in the block belong to this world, also those that a service under test creates."""
        if client not in self.clients:
            self.clients.append(client)
        with using(self.environment(client)):
            yield

    def producer(self, name: str, **options: Any) -> AsyncProducer:
        """A producer of this world."""
        with self.inside(name):
            return AsyncProducer(**{"bootstrap_servers": self.bootstrap_servers, "client_id": name, **self.security, **options})

    def consumer(self, name: str, **options: Any) -> AsyncConsumer:
        """A consumer of this world."""
        with self.inside(name):
            return AsyncConsumer(**{"bootstrap_servers": self.bootstrap_servers, "client_id": name, **self.security, **options})

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        self.journal.count(event)
        asked = facts.get("request")
        if isinstance(asked, Request):
            verb = "asks" if event == "request" else "is answered"
            self.journal.note(asked.client_id or "?", f"{verb} {asked.api.title} v{asked.version} of broker {asked.broker}")
        elif event not in QUIET:
            self.journal.note("cluster", f"{event} " + " ".join(f"{name}={value}" for name, value in facts.items()))


class SimulatedCluster(Controls):
    """The controls of a world's cluster: changes apply at once, on the only thread."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._entrance = front
        front.kafka.listeners.append(self._remember)

    @property
    def _front(self) -> Front:
        return self._entrance

    def _do(self, work: Callable[[Kafka], T]) -> T:
        return work(self._entrance.kafka)


class LateExecutor(Executor):
    """Runs jobs on the simulated loop after a random delay, in place of a worker thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random, per_s: Callable[[], float]) -> None:
        self._loop = loop
        self._random = random
        self._per_s = per_s
        self._pending: dict[Future[Any], Callable[[], Any]] = {}

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Schedule a job."""
        future: Future[T] = Future()
        self._pending[future] = lambda: fn(*args, **kwargs)
        self._loop.call_later(self._random.expovariate(self._per_s()), self._run, future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Run the remaining jobs now."""
        for future in list(self._pending):
            self._run(future)

    def _run(self, future: Future[Any]) -> None:
        work = self._pending.pop(future, None)
        if work is None or not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 it belongs to the waiting caller
            future.set_exception(error)
