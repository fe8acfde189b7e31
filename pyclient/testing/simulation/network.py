"""A network that delays, cuts and drops: names, addresses and connections between clients and the fake cluster.

Bytes of one direction of a connection keep their order; everything else may be reordered at random. Clients have
sockets (`pyclient.testing.simulation.sockets`), brokers have asyncio's transports.
"""
from __future__ import annotations

import asyncio
import enum
import errno
import functools
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final

import attrs

from pyclient.net.connection import Connection
from pyclient.reactor.channels import Channel, PlainChannel, connected
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import sleep
from pyclient.reactor.tls_channel import Tls
from pyclient.runtime.network import Endpoint, SocketOptions, secured
from pyclient.testing.fake.model.request import Request
from pyclient.testing.fake.wire import Front
from pyclient.testing.common.tls import BrokerTls
from pyclient.testing.simulation.loop import SimulationLoop
from pyclient.testing.simulation.sockets import SEND_BUFFER, Buffer, SimulatedSocket, part

LOW_WATER: Final = SEND_BUFFER // 4
SLOW_S: Final = 0.05
"""Longer delays count as unusual (`Link.late_until`)."""
SYN_AGAIN_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""How long TCP waits before it asks again for a connection: who was cut off gets one when that is over."""


@attrs.define
class Latency:
    """Seconds one way: at least *base*, plus an exponential tail of mean *spread*."""

    base: float = 0.0002
    spread: float = 0.0005

    def draw(self, random: Random) -> float:
        """One delay."""
        return self.base + random.expovariate(1 / self.spread)


class Cut(enum.Enum):
    """Where a connection breaks."""

    BEFORE_WRITE = "what was written last is lost"
    BEFORE_ANSWER = "what was written last arrives, its answer does not"
    MID_FRAME = "half of what was written arrives"


class SimulatedTransport(asyncio.Transport):
    """One end of a connection. Give it its other end and its protocol before use."""

    def __init__(self, link: Link, name: tuple[str, int]) -> None:
        super().__init__()
        self.link = link
        self._name = name
        self._protocol: asyncio.BaseProtocol | None = None
        self._other: SimulatedTransport | None = None
        self._written: deque[list[Buffer]] = deque()
        self._arrives = 0.0
        self._unsent = 0
        self._paused = False
        self._mute = False
        self._closing = False
        self._gone = False

    def connect(self, protocol: asyncio.BaseProtocol, other: SimulatedTransport) -> None:
        """Hand the connection to its protocol."""
        self._protocol = protocol
        self._other = other
        protocol.connection_made(self)

    # ---- out ---------------------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        """Send bytes; they arrive later."""
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send bytes; the buffers are read only on arrival."""
        pieces = list(list_of_data)
        if self._closing or self._mute:
            return
        self._written.append(pieces)
        self._unsent += sum(map(len, pieces))
        self._in_order(self._deliver)
        if self is not self.link.near and self.link.throttled_for:
            self.link.be_silent(self._arrives)
        if self._unsent >= SEND_BUFFER and not self._paused and isinstance(self._protocol, asyncio.BaseProtocol):
            self._paused = True
            self._protocol.pause_writing()

    def _in_order(self, event: Callable[[], None]) -> None:
        loop = self.link.network.loop
        self._arrives = max(self._arrives, loop.time() + self.link.delay())
        if self._arrives > loop.time() + SLOW_S:
            self.link.late_until = self._arrives
        loop.call_at(self._arrives, event)

    def _deliver(self) -> None:
        if self._written and not self.link.frozen:
            data = b"".join(self._written.popleft())
            at = part(self.link.network.random, len(data))
            if at < len(data):
                self._written.appendleft([data[at:]])
                self.link.network.loop.call_soon(self._deliver)  # whichever event comes first takes what is first
                data = data[:at]
            self._arrive(data)

    def _arrive(self, data: bytes) -> None:
        self._unsent -= len(data)
        assert self._other is not None
        self._other.receive(data)
        if self._other._gone and not self._gone:  # as systems answer what comes to a closed socket
            self.link.network.loop.call_later(self.link.delay(), self.lost, ConnectionResetError("Connection reset by peer"))
        if self._paused and self._unsent <= LOW_WATER and not self._gone and self._protocol is not None:
            self._paused = False
            self._protocol.resume_writing()

    def _deliver_eof(self) -> None:
        if not self.link.frozen and self._other is not None:
            self.deliver_now()
            self._other.receive_end()
            self.lost(None)

    def deliver_now(self, *, half: bool = False) -> None:
        """Let everything written arrive at once, or the first half of it."""
        data = b"".join(piece for pieces in self._written for piece in pieces)
        self.lose_written()
        if half:
            data = data[:len(data) // 2]
        if data and self._other is not None:
            self._other.receive(data)

    def lose_written(self) -> None:
        """Drop everything that has not arrived."""
        self._written.clear()
        self._unsent = 0

    # ---- in ----------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Pass arrived bytes to the protocol."""
        if self._gone or self._closing:
            return
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            self._fill(self._protocol, data)
        elif isinstance(self._protocol, asyncio.Protocol):
            self._protocol.data_received(data)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        """TLS of brokers is one."""
        at = 0
        while at < len(data) and not self._closing:
            room = memoryview(protocol.get_buffer(len(data) - at))
            count = min(len(room), len(data) - at)
            room[:count] = data[at:at + count]
            at += count
            protocol.buffer_updated(count)

    def receive_end(self) -> None:
        """Pass EOF to the protocol and, as asyncio does, close unless the protocol keeps its side open."""
        if not self._gone and not self._closing and not self._protocol.eof_received():  # type: ignore[union-attr]
            self.close()

    # ---- the end -----------------------------------------------------------------------------------------------------

    def write_end(self) -> None:
        """Write nothing more; what is read is passed on."""
        if not self._closing and not self._mute:
            self._in_order(self._deliver_half)
            self._mute = True

    def _deliver_half(self) -> None:
        if not self.link.frozen and not self._gone and self._other is not None:
            self.deliver_now()
            self._other.receive_end()

    def close(self) -> None:
        """Close after everything written has arrived."""
        if not self._closing:
            self._closing = True
            self._in_order(self._deliver_eof)

    def abort(self) -> None:
        """Close at once; bytes that have not arrived are lost."""
        self._force_close(None)

    def _force_close(self, error: Exception | None) -> None:
        """The same with a cause; asyncio's TLS calls it on its transport."""
        if not self._gone:
            self.lose_written()
            self.lost(error)
            if self._other is not None and not self.link.frozen:
                other = self._other
                self.link.network.loop.call_later(
                    self.link.delay(), lambda: other.lost(ConnectionResetError("Connection reset by peer")))

    def lost(self, error: Exception | None) -> None:
        """Notify the protocol, once, that the connection is gone."""
        if not self._gone:
            self._gone = self._closing = True
            self.lose_written()
            self.link.ended()
            if isinstance(self._protocol, SimulatedSocket):
                self._protocol.connection_lost(error)  # at once: what has just arrived may be lost
            elif self._protocol is not None:
                self.link.network.loop.call_soon(self._protocol.connection_lost, error)

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the connection was lost."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """Bytes that have not arrived."""
        return self._unsent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The peer's address."""
        return self._other._name if name == "peername" and self._other is not None else default

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol of this end."""
        assert self._protocol is not None
        return self._protocol

    @property
    def unsent(self) -> int:
        """Bytes that have not arrived."""
        return self._unsent


class Link:
    """A connection between a client and a broker."""

    def __init__(self, network: SimulatedNetwork, client: str, broker: int, address: tuple[str, int]) -> None:
        self.network = network
        self.client = client
        self.broker = broker
        self.continued = False
        """Whether the client's last write went on with what the one before it had left."""
        self.served: asyncio.BaseProtocol | None = None
        """The broker's protocol, behind TLS if there is any."""
        self.frozen = False
        """Half-open: nothing arrives any more, and neither side notices."""
        self.throttled_for = 0.0
        """Throttle time of the next response, in seconds."""
        self.late_until = 0.0
        """When the last delayed bytes arrived, or will arrive."""
        self.silent = (0.0, 0.0)
        """Begin and end of the client's last throttle."""
        self.reactor: Reactor | None = None
        self.channel: PlainChannel | None = None
        """The client's, and its reactor, once it knows that it is connected."""
        self.near = SimulatedTransport(self, ("10.1.0.1", 50_000))
        self.far = SimulatedTransport(self, address)

    @property
    def client_protocol(self) -> Any:
        """The client's connection, behind TLS if there is any; None while it only probes what the listener speaks."""
        owner = getattr(self.channel.on_events, "__self__", None) if self.channel is not None else None
        return owner if isinstance(owner, Connection) else None

    def __repr__(self) -> str:
        return f"<{self.client} to broker {self.broker}>"

    @property
    def busy(self) -> bool:
        """Whether bytes are in transit."""
        return bool(self.near.unsent or self.far.unsent)

    def delay(self) -> float:
        """One-way latency in seconds, drawn for each use."""
        return self.network.latency.draw(self.network.random) * self.network.slowness.get(self.broker, 1.0)

    def cut(self, at: Cut) -> None:
        """Break the connection: both ends are notified."""
        if at is Cut.BEFORE_ANSWER:
            self.near.deliver_now()
        elif at is Cut.MID_FRAME:
            self.near.deliver_now(half=True)
            self.far.deliver_now(half=True)
        error = ConnectionResetError("Connection reset by peer")
        self.far.lost(error)
        self.near.lost(error)

    def be_silent(self, since: float) -> None:
        """The throttling response arrives at this time."""
        self.silent, self.throttled_for = (since, since + self.throttled_for), 0.0

    def close_half(self) -> None:
        """The broker's side ends what it writes, behind what it has written, and still reads; as some proxies do."""
        self.far.write_end()

    def freeze(self) -> None:
        """Make it half-open."""
        self.frozen = True

    def ended(self) -> None:
        """One end has closed."""
        if self.network.links.pop(self, self) is None:
            self.network.half_closed[self] = None
            self.network.on_ended(self)
        else:
            self.network.half_closed.pop(self, None)


class SimulatedNetwork:
    """Every name, address and connection of a simulated world; gives each client its `Network`."""

    def __init__(self, loop: SimulationLoop, random: Random, front: Front, tls: ssl.SSLContext | None = None) -> None:
        self.loop = loop
        self.reactors: dict[Reactor, None] = {}
        """Of its clients."""
        loop.inner = lambda: sum(each.calls for each in self.reactors)
        self.tls = tls
        """The TLS context of the brokers' listeners, or None."""
        self.random = random
        self.front = front
        self.latency = Latency()
        self.links: dict[Link, None] = {}
        self.slowness: dict[int, float] = {}
        """Broker → factor by which its network is slower."""
        self.unreachable: set[int] = set()
        """Brokers to which new connections are never answered."""
        self.cut_off: set[str] = set()
        """Clients whose new connections are never answered."""
        self.names: dict[str, list[str]] = {}
        """Host → addresses; a host that is missing here cannot be resolved."""
        self.addresses: dict[tuple[str, int], int] = {}
        """(Address, port) → broker."""
        self.armed: list[Callable[[Link], bool]] = []
        """Called at each write of a client, until they return True."""
        self.throttled: dict[Request, float] = {}
        """Request → throttle time of its response, in seconds."""
        self.half_closed: dict[Link, None] = {}
        """Connections with one end closed, whose other end is not notified yet; of half-open ones it never is."""
        self.on_ended: Callable[[Link], object] = lambda _: None
        """Called when the first end of a connection closes."""
        self.connects = 0
        self.look_ups = 0
        front.kafka.listeners.append(self._on_event)
        for broker in front.kafka.brokers.values():
            self.set_addresses(broker.id, f"10.0.0.{broker.id}")

    def set_addresses(self, broker: int, *addresses: str) -> None:
        """Give a broker and its host name these addresses; its old addresses no longer answer."""
        node = self.front.kafka.brokers[broker]
        self.addresses = {address: owner for address, owner in self.addresses.items() if owner != broker}
        self.addresses.update(((address, node.port), broker) for address in addresses)
        self.names[node.host] = list(addresses)

    def written(self, link: Link, *, continued: bool) -> None:
        """A client wrote something; *continued*: the rest of something, perhaps."""
        link.continued = continued
        connection = link.client_protocol
        if self.armed and (connection is None or connection._channel is not None):  # else it is what TLS says at the end
            self.armed = [each for each in self.armed if not each(link)]

    def connect(self, client: str, sock: SimulatedSocket, address: tuple[str, int]) -> None:
        """Connect a client's socket to what is at *address*, a little later."""
        self.connects += 1
        self.loop.call_later(2 * self.latency.draw(self.random), self._accept, client, sock, address, iter(SYN_AGAIN_S))

    def _accept(self, client: str, sock: SimulatedSocket, address: tuple[str, int], again: Iterator[float]) -> None:
        if client in self.cut_off and (seconds := next(again, None)) is not None:
            self.loop.call_later(seconds, self._accept, client, sock, address, again)
            return
        broker = self.addresses.get(address)
        if sock.fileno() < 0 or client in self.cut_off or broker is None or broker in self.unreachable:
            return  # no answer: the client's set-up timeout ends it
        node = self.front.kafka.brokers[broker]
        if not self.front.listens(node):
            sock.refused(errno.ECONNREFUSED)
            return
        link = Link(self, client, node.id, address)
        self.links[link] = None
        link.served = self.front.connection(node.id)
        link.far.connect(link.served if self.tls is None else BrokerTls(link.served, self.tls, _unobserved(self.loop)), link.near)
        link.near.connect(sock, link.far)
        sock.connected(link)

    def _on_event(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "response" and self.throttled and (seconds := self.throttled.pop(facts["request"], 0.0)):
            link = self.served_by(facts["request"].connection)
            if link is not None:
                link.throttled_for = seconds

    def served_by(self, connection: object) -> Link | None:
        """The open connection whose broker side this is."""
        return next((link for link in self.links if link.served is connection), None)

    def disarm(self, strike: Callable[[Link], bool]) -> None:
        """Remove it from `armed`."""
        self.armed = [each for each in self.armed if each is not strike]

    def of(self, client: str) -> ClientNetwork:
        """The network as one client sees it."""
        return ClientNetwork(self, client)

    def reset_half_open(self) -> None:
        """Reset half-open connections, as a device between the two ends that has no state for them."""
        for link in list(self.links):
            if link.frozen:
                link.cut(Cut.BEFORE_WRITE)

    def close_remaining(self) -> None:
        """Close all remaining connections."""
        for link in [*self.links, *self.half_closed]:
            link.cut(Cut.BEFORE_WRITE)

    def of_broker(self, broker: int) -> list[Link]:
        """The connections to a broker, in the order they were made."""
        return [link for link in self.links if link.broker == broker]

    def of_client(self, client: str) -> list[Link]:
        """A client's connections, in the order they were made."""
        return [link for link in self.links if link.client == client]


class ClientNetwork:
    """Implements `pyclient.runtime.network.Network` on a simulated network."""

    def __init__(self, network: SimulatedNetwork, client: str) -> None:
        self._network = network
        self._client = client

    async def resolve(self, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
        """The addresses of a name."""
        network = self._network
        network.reactors[reactor] = None
        network.look_ups += 1
        await sleep(reactor, network.latency.draw(network.random))
        found = network.names.get(host)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Endpoint(socket.AF_INET, (address, port)) for address in found]

    async def canonical_name(self, reactor: Reactor, endpoint: Endpoint) -> str:
        """The first name of an address."""
        address = endpoint.address[0]
        return next((name for name, addresses in self._network.names.items() if address in addresses), address)

    async def open(self, reactor: Reactor, endpoint: Endpoint, options: SocketOptions, tls: Tls | None = None) -> Channel:
        """Connect to the broker at this address."""
        network = self._network
        network.reactors[reactor] = None
        sock: Any = SimulatedSocket(network.loop, network.random, functools.partial(network.connect, self._client))
        plain = await connected(reactor, sock, endpoint.address)
        sock.link.reactor, sock.link.channel = reactor, plain
        return plain if tls is None else await secured(reactor, plain, tls)

    def drop(self) -> None:
        """There is no fork in a simulation."""


def _unobserved(loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
    """No caller awaits a broker's side of a handshake."""
    future = loop.create_future()
    future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return future
