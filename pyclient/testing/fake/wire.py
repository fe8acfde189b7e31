"""One connection to one broker: frames to requests, responses to frames, one request at a time as in Kafka."""
from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import RequestHead, decode_request, encode_response, read_head
from pyclient.errors import ProtocolError
from pyclient.testing.fake.model.request import Request, Fields, Row
from pyclient.testing.fake.control import Answer, Bytes, Change, Control, Cut, Delay, Drop, Fail, Silence, Throttle, Verdict
from pyclient.testing.fake.handlers import HANDLERS
from pyclient.testing.fake.model.kafka import Broker, Kafka
from pyclient.testing.fake.model.sasl import Session

_log = logging.getLogger(__name__)
HEAD: Final = 4
LARGEST_REQUEST: Final = 100 * 1024 * 1024
"""``socket.request.max.bytes``."""
LARGEST_OF_A_LOGIN: Final = 512 * 1024
"""``sasl.server.max.receive.size``."""
APIS: Final = {int(api): api for api in Api}
NO_VERSIONS: Final = VersionRange(0, -1)


class Front:
    """The server side of a cluster. `connection` is the protocol factory of one broker's listener."""

    def __init__(self, kafka: Kafka, control: Control, rows: Mapping[Api, Row] = HANDLERS) -> None:
        self.kafka = kafka
        self.control = control
        self.rows = rows
        self.connections: dict[BrokerConnection, None] = {}
        self.paused: set[int] = set()
        self._closed = False
        kafka.profile = kafka.profile.limited_to(rows)
        kafka.listeners.append(self._on_event)

    def connection(self, broker: int) -> BrokerConnection:
        """The protocol of a new connection."""
        return BrokerConnection(self, self.kafka.brokers[broker])

    def listens(self, broker: Broker) -> bool:
        """Whether the broker accepts connections: one that hangs does. It may have ended just after it accepted one."""
        return (broker.alive or broker.fenced) and not self._closed

    def close(self) -> None:
        """Cut every connection, also those that are just being accepted."""
        self._closed = True
        for connection in list(self.connections):
            connection.cut()

    def pause(self, broker: int) -> None:
        """Hold back requests and responses of this broker until `resume`."""
        self.paused.add(broker)

    def resume(self, broker: int) -> None:
        """Let it go on where it stopped."""
        self.paused.discard(broker)
        for connection in self._of(broker):
            connection.go_on()

    def _of(self, broker: object) -> list[BrokerConnection]:
        return [each for each in self.connections if each.broker.id == broker]

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        if event == "broker killed":
            for connection in self._of(facts["broker"]):
                connection.cut()


class BrokerConnection(asyncio.Protocol):
    """The broker's side of a connection."""

    def __init__(self, front: Front, broker: Broker) -> None:
        self.broker = broker
        self._front = front
        self._kafka = front.kafka
        self.session = Session(front.kafka)
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._frames: deque[memoryview] = deque()
        self._held_back: list[bytes] = []
        self._working: asyncio.Task[None] | None = None
        self._unbegun: list[Coroutine[Any, Any, Any]] = []
        """What the task is to await, before its first step."""
        self._peer = ""

    def __repr__(self) -> str:
        return f"<connection of {self._peer or 'an unknown peer'} to broker {self.broker.id}>"

    # ---- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._front.connections[self] = None
        if not self._front.listens(self.broker):
            self.cut()

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request."""
        self._received += data
        while (size := self._whole_frame()) is not None:
            self._frames.append(memoryview(bytes(self._received[HEAD:HEAD + size])))
            del self._received[:HEAD + size]
        self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client disconnected; its unanswered requests are dropped."""
        self._transport = None
        self._frames.clear()
        if self._working is not None:
            self._working.cancel()
            self._forget_unbegun()
        self._front.connections.pop(self, None)

    def cut(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def go_on(self) -> None:
        """The broker was paused and is not any more."""
        held_back, self._held_back = self._held_back, []
        for data in held_back:
            self._write(data)
        self._work()

    @property
    def _paused(self) -> bool:
        return self.broker.id in self._front.paused

    def _whole_frame(self) -> int | None:
        """The size of the next frame when all of it is here."""
        if len(self._received) < HEAD:
            return None
        size = int.from_bytes(self._received[:HEAD], "big", signed=True)
        if not 0 <= size <= (LARGEST_REQUEST if self.session.logged_in else LARGEST_OF_A_LOGIN):
            _log.debug("%r announces a request of %d B: cut", self, size)
            self._received.clear()
            self.cut()
            return None
        return size if len(self._received) >= HEAD + size else None

    # ---- one request after the other ---------------------------------------------------------------------------------

    def _work(self) -> None:
        """Answer what can be answered at once; while a request waits in its task, the next ones wait behind it."""
        while self._frames and self._working is None and self._transport is not None and not self._paused:
            frame = self._frames.popleft()
            try:
                self._take(frame)
            except ProtocolError as error:
                _log.debug("%r: %s: cut", self, error)
                self.cut()
            except Exception as defect:  # noqa: BLE001 reported when the cluster ends; the client sees a cut
                self._defect(defect)

    def _take(self, frame: memoryview) -> None:
        head = read_head(frame)
        api = APIS.get(head.api_key)
        offered = self._kafka.profile.apis.get(api, NO_VERSIONS) if api is not None else NO_VERSIONS
        if api is Api.API_VERSIONS and head.version not in offered:
            self._refuse_version(head)
            return
        if api is None or head.version not in offered:
            raise ProtocolError(f"API {head.api_key} v{head.version} is not offered by {self._kafka.profile.name}")
        admitted = self.session.admits(api)
        if not admitted:
            self._kafka.report("not admitted", api=api.title, connection=self)
        if not admitted and not self.session.explains:
            raise ProtocolError(f"{api.title} is not admitted: {self.session!r}")
        request = Request(broker=self.broker.id, api=api, version=head.version, client_id=head.client_id,
                      body=decode_request(api, head.version, frame), peer=self._peer, connection=self)
        if not admitted:
            self.session.end()
            self._reply(head, request, self._front.rows[api].refuse(request, ErrorCode.illegal_sasl_state))
            return
        self._kafka.report("request", request=request)
        verdict = self._front.control.verdict(request)
        waiting = self._delayed(head, request, verdict) if isinstance(verdict, Delay) else self._apply(head, request, verdict)
        if waiting is not None:
            self._unbegun.append(waiting)
            self._working = asyncio.get_running_loop().create_task(self._finish(waiting))

    async def _finish(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Await a request that could not be answered at once, then continue with the next ones."""
        self._unbegun.clear()
        try:
            await waiting
        except Exception as defect:  # noqa: BLE001 reported when the cluster ends; the client sees a cut
            self._defect(defect)
        self._working = None
        self._work()

    def _forget_unbegun(self) -> None:
        """Close coroutines of a task cancelled before its first step: Python would warn that none was awaited."""
        for each in self._unbegun:
            each.close()
        self._unbegun.clear()

    async def _delayed(self, head: RequestHead, request: Request, delay: Delay) -> None:
        await asyncio.sleep(delay.seconds)
        waiting = self._apply(head, request, None)
        self._unbegun.clear()
        if waiting is not None:
            await waiting

    def _refuse_version(self, head: RequestHead) -> None:
        """Answer an unknown version of ApiVersions in version 0, with the supported ones."""
        request = Request(broker=self.broker.id, api=Api.API_VERSIONS, version=0, client_id=head.client_id, body=None,
                      peer=self._peer, connection=self)
        self._reply(head, request, self._front.rows[Api.API_VERSIONS].refuse(request, ErrorCode.unsupported_version))

    def _apply(self, head: RequestHead, request: Request, verdict: Verdict | None) -> Coroutine[Any, Any, None] | None:
        """Carry out the verdict, or let the model answer; returns what to await."""
        match verdict:
            case None:
                return self._handle(head, request, verdict)
            case Answer(fields):
                self._reply(head, request, fields)
            case Fail(code):
                self._reply(head, request, self._front.rows[request.api].refuse(request, code))
            case Bytes(data, framed):
                self._write(_frame(head.correlation_id.to_bytes(4, "big", signed=True) + data) if framed else data)
            case Drop(applied=False):
                self.cut()
            case Silence(applied=False):
                self._stall()
            case _:
                return self._handle(head, request, verdict)
        return None

    def _handle(self, head: RequestHead, request: Request, verdict: Verdict | None) -> Coroutine[Any, Any, None] | None:
        answer = self._front.rows[request.api].handle(self._kafka, request)
        if not isinstance(answer, dict) and inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                self._unbegun.append(answer)
            return self._awaited(head, request, verdict, answer)
        self._end(head, request, verdict, answer)
        return None

    async def _awaited(self, head: RequestHead, request: Request, verdict: Verdict | None, answer: Awaitable[Fields | None]) -> None:
        self._end(head, request, verdict, await answer)

    def _end(self, head: RequestHead, request: Request, verdict: Verdict | None, fields: Fields | None) -> None:
        """The model answered: send it, unless the verdict says otherwise."""
        if self._transport is None:
            return
        match verdict:
            case None:
                if fields is not None:
                    self._reply(head, request, fields)
            case Drop():
                self.cut()
            case Silence():
                self._stall()
            case Cut(keep) if fields is not None:
                self._transport.write(self._framed(head, request, fields)[:keep])
                self._transport.close()
            case Change(change) if fields is not None:
                self._reply(head, request, change(fields))
            case Throttle(ms) if fields is not None:
                self._reply(head, request, {**fields, "throttle_time": ms})
            case _ if fields is not None:
                self._reply(head, request, fields)

    def _reply(self, head: RequestHead, request: Request, fields: Fields) -> None:
        self._kafka.report("response", request=request, fields=fields)
        self._write(self._framed(head, request, fields))
        if self.session.over and self._transport is not None and not self._paused:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._paused:
            self._held_back.append(data)
        elif self._transport is not None:
            self._transport.write(data)

    def _framed(self, head: RequestHead, request: Request, fields: Fields) -> bytes:
        return _frame(encode_response(request.api, request.version, head.correlation_id, fields))

    def _stall(self) -> None:
        """Stay connected and never answer."""
        self._working = asyncio.get_running_loop().create_task(_forever())

    def _defect(self, defect: Exception) -> None:
        """The model itself failed: a bug, which must not look like a broker's answer."""
        _log.error("a defect in the fake cluster", exc_info=defect)
        self._kafka.report("defect", error=defect)
        self.cut()


def _frame(content: bytes) -> bytes:
    return len(content).to_bytes(HEAD, "big") + content


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
