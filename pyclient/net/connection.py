"""One connection: frames out, frames in, answers to their requests in order (M08–M10, M12).

Does what the table of `pyclient.core.connection` allows; decides neither when to connect nor what to send.
"""
from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar, cast

import attrs

from pyclient.codec.apis import Api
from pyclient.codec.memory import unwritten
from pyclient.codec.messages import correlation_id_of, decode_response, encode_request
from pyclient.codec.produce import Buffer
from pyclient.core.connection import CONNECTION, Event, State
from pyclient.core.handshake import UNSUPPORTED_VERSION, Ask, ClientInfo, Versions, agree_on_versions
from pyclient.core.manager import NotSent, Reply, Request, Unknown, earliest
from pyclient.core.sasl import Wait, Work, see_that_nobody_must_log_in, usable_for
from pyclient.errors import DisconnectError, KafkaError, ProtocolError, ResponseTimeoutError, UnsupportedVersionError
from pyclient.net.sasl_login import Login
from pyclient.net.write_buffer import WriteBuffer
from pyclient.runtime.loop_thread import in_portal
from pyclient.net.socket_read import fill
from pyclient.net.tls_errors import ALERT_RECORD, alert_in_plaintext, lost_early, lost_in_plaintext
from pyclient.net.rcvlowat import ReceiveLowWater

_log = logging.getLogger(__name__)
T = TypeVar("T")
W = TypeVar("W")
HEAD: Final = 4
SCRATCH: Final = 4096
"""Bytes: an answer that is no larger takes one read, where its length apart would take two, and as many turns of the loop."""
MUCH: Final = 65_536
"""Bytes of an answer still to come: worth a call that reads on."""
PATIENCE_MS: Final = 1
"""Such a call waits so long for the next piece, if the loop is the client's own; a user's loop has other work."""
MAX_CORRELATION_ID: Final = 2**31 - 1
RENEWAL_RETRY: Final = 1.0
"""Seconds after which a login that failed before it began is tried again, at least."""


@attrs.define(eq=False)
class InFlight:
    """A request whose answer has not come."""

    correlation_id: int
    api: Api
    version: int
    sent_at: float
    deadline: float
    end: int
    """Where it ends in what was ever to be written on the connection."""
    done: Callable[[float, Reply | Unknown], bool | None]


class Connection(asyncio.BufferedProtocol):
    """The protocol of one socket. ``on_change`` is called after every event that may let a manager go on, ``on_quiet`` after one that can't."""

    def __init__(self, label: str, client_id: str | None, *, clock: Callable[[], float], max_frame: int,
                 on_change: Callable[[], None], on_quiet: Callable[[], None], on_lost: Callable[[Connection, KafkaError], None],
                 on_answer: Callable[[Api, float, float], None]) -> None:
        self.label = label
        self.state = State.CONNECTING
        self.versions = Versions()
        self.muted_until = 0.0
        self.idle_since = clock()
        self._idle_before = 0.0  # logging in anew is no use
        self.lost_work = False  # it ended with requests in flight
        self.hung_up = False  # the peer, or the network, ended it
        self.used = False  # something was sent on it since it is ready
        self.heard = False  # something of that was answered
        self.unanswered = False  # something was sent on it that has no answer (acks=0)
        self.renew_at: float | None = None  # when to log in anew; None while nothing is to be done
        self.session_ends_at: float | None = None  # nothing is written after that; the broker hangs up at the first request that comes too late
        self._client_id = client_id or None
        self._clock = clock
        self._max_frame = max_frame
        self._on_change = on_change
        self._on_quiet = on_quiet
        self._on_lost = on_lost
        self._on_answer = on_answer
        self._transport: asyncio.Transport | None = None
        self._write_buffer: WriteBuffer | None = None
        self._socket: socket.socket | None = None
        self._deafen: Callable[[], None] | None = None  # with TLS
        self._waking: ReceiveLowWater | None = None
        self.secured = False  # by TLS
        self.has_identity: bool | None = None  # a certificate of the client, for TLS
        self._patience_ms = PATIENCE_MS if in_portal() else 0
        self._in_flight: deque[InFlight] = deque()
        self._correlation_id = 0
        self._scratch = bytearray(SCRATCH)
        self._frame: bytearray | None = None
        self._filled = 0
        self._full = False  # the kernel takes no more for now
        self._cause: KafkaError | None = None
        self._ended_by: KafkaError = DisconnectError(f"{label} was not connected to")
        self._asked_at = 0.0
        self._drained: asyncio.Future[None] | None = None  # somebody waits until nothing is in flight
        self.bytes_in = 0
        self.bytes_out = 0

    def __repr__(self) -> str:
        return f"<Connection {self.label} {self.state.value} {len(self._in_flight)} in flight>"

    @property
    def in_flight(self) -> int:
        """Requests written and not answered."""
        return len(self._in_flight)

    @property
    def ready(self) -> bool:
        """Whether requests may be written, apart from their number."""
        return (self.state is State.READY and self._cause is None and not self._full
                and self._clock() >= self.muted_until and (self.session_ends_at is None or self._clock() < self.session_ends_at))

    @property
    def unwritten(self) -> bool:
        """Whether the kernel has not taken everything yet."""
        return self._write_buffer is not None and (self._write_buffer.unwritten > 0 or self._write_buffer.holds)

    @property
    def may_lose(self) -> bool:
        """Whether ending it now may lose what no answer will tell of. Nobody can see what lies below TLS and waits for the kernel."""
        return self.unwritten or (self.secured and self.unanswered)

    def next_deadline(self) -> float | None:
        """When the oldest request is overdue, muting ends, or the session is to be renewed."""
        overdue = earliest(self.renew_at, *[each.deadline for each in self._in_flight]) if self._in_flight else self.renew_at
        return overdue if self.muted_until <= self._clock() else min(filter(None, (overdue, self.muted_until)))

    # ---- life -------------------------------------------------------------------------------------------------------

    def advance(self, event: Event) -> None:
        """Move as the table says."""
        self.state = CONNECTION.after(self.state, event)
        _log.debug("%s: %s, now %s", self.label, event.value, self.state.value)

    async def introduce(self, client: ClientInfo, newest: int, timeout: float, *, logs_in: bool = False, doubts: bool = False) -> None:
        """Agree on API versions; afterwards the connection is ready, or waits for `authenticate` if it *logs_in*. Who *doubts* that the
        listener takes clients without a login asks.

        Raises:
            TryVersionZero: connect again and ask in version 0.
            KafkaError: the peer is no usable broker.
        """
        if self.state is State.CONNECTING:
            self.advance(Event.OPENED)
        elif self.state is State.CLOSED:  # since the handshake of TLS, a turn of the loop ago
            raise self._ended_by
        self.versions = await self.talk(agree_on_versions(client, newest), timeout)
        if doubts:
            await self.talk(see_that_nobody_must_log_in(self.versions, self.label), timeout)
        self.advance(Event.AGREED_FOR_SASL if logs_in else Event.AGREED)
        self.idle_since = self._clock()

    async def talk(self, exchange: Generator[Ask, Any, T], timeout: float) -> T:
        """Ask what the exchange asks, *timeout* seconds for each answer; its result."""
        return await _run(exchange, functools.partial(self._ask, timeout=timeout))

    async def _ask(self, question: Ask, timeout: float) -> Any:
        if self._write_buffer is None or self._cause is not None or self.state in (State.DRAINING, State.CLOSED):
            raise DisconnectError(f"{self.label} closed the connection" if self._cause is None else str(self._cause))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(now: float, outcome: Reply | Unknown) -> None:
            if not future.done():
                if isinstance(outcome, Reply):
                    future.set_result(outcome.message)
                else:
                    future.set_exception(outcome.cause)

        data = encode_request(question.api, question.version, self._next_id(), self._client_id, question.fields)
        self._asked_at = self._clock()
        self._write([data], question.api, question.version, timeout, done)
        return await future

    # ---- logging in -------------------------------------------------------------------------------------------------

    async def authenticate(self, login: Login, timeout: float) -> None:
        """Log in: after `introduce`, and anew (KIP-368) on a ready connection; afterwards it is ready, and `renew_at` says until when.

        Anew, requests go on until the first message is made; then none is written, what is in flight is answered, and the login follows
        alone (M11). *timeout* is in seconds and does not count what others' answers take.

        Raises:
            KafkaError: it failed. A ready connection stays ready when that was before anything was asked; else it is closed, by this error
                or by the peer, which may be faster.
        """
        self.renew_at = None
        exchange = login.exchange(self.versions, peer=self.label, anew=self.state is State.READY)
        try:
            async with asyncio.timeout(timeout) as limit:
                lifetime = await _run(exchange, functools.partial(self._login_step, login, timeout, limit))
        except Exception as error:  # noqa: BLE001 whoever connects is to get one kind of error
            failure = self._login_failure(error, timeout)
            self._not_authenticated(failure)
            raise failure from (None if failure is error else error)
        except BaseException:
            self._not_authenticated(DisconnectError(f"{self.label}: the login was given up"))
            raise
        self._authenticated(lifetime, login)

    async def _login_step(self, login: Login, timeout: float, limit: asyncio.Timeout, step: Ask | Work | Wait) -> Any:
        match step:
            case Work(work):
                return await login.in_worker(work)
            case Wait(awaitable):
                return await awaitable
            case Ask():
                if self.state is State.READY:
                    await self._be_alone(timeout, limit)
                else:
                    await self._keep_silence()
                return await self._ask(step, timeout)

    async def _be_alone(self, timeout: float, limit: asyncio.Timeout) -> None:
        """M11: write nothing more, and wait until everything is answered; that takes as long as the others were promised."""
        self.advance(Event.SESSION_ENDING)
        limit.reschedule(None)
        loop = asyncio.get_running_loop()
        while self._in_flight:
            self._drained = loop.create_future()
            await self._drained
        self._idle_before = self.idle_since
        await self._keep_silence()
        limit.reschedule(loop.time() + timeout)

    async def _keep_silence(self) -> None:
        """M09: as long as the broker asked for it, perhaps by its answer to ApiVersions."""
        if (silence := self.muted_until - self._clock()) > 0:
            await asyncio.sleep(silence)

    def _authenticated(self, lifetime: float | None, login: Login) -> None:
        if self.state not in (State.AUTHENTICATING, State.REAUTHENTICATING):
            raise DisconnectError(f"{self.label}: the connection ended during the login")
        anew = self.state is State.REAUTHENTICATING
        self.advance(Event.AUTHENTICATED)
        self.idle_since = self._idle_before if anew else self._clock()
        # Counted from the last question: the broker began to count after that.
        self.session_ends_at = None if lifetime is None else self._asked_at + usable_for(lifetime)
        self.renew_at = None if lifetime is None else self._asked_at + login.renewal_after(lifetime)
        if anew:
            self._on_change()

    def _login_failure(self, error: Exception, timeout: float) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, TimeoutError):
            return ResponseTimeoutError(f"{self.label}: the login did not end within {timeout:.1f} s")
        return DisconnectError(f"{self.label}: the login raised {type(error).__name__}")

    def _not_authenticated(self, error: KafkaError) -> None:
        """Before anything was asked a session stays as it is; the next try comes before its end, and after that it is of no use."""
        now = self._clock()
        if self.state in (State.AUTHENTICATING, State.REAUTHENTICATING):
            self.close(error)
        elif self.state is State.READY and (self.session_ends_at is None or self.session_ends_at <= now):
            self.retire()
        elif self.state is State.READY and self.session_ends_at is not None:
            self.renew_at = min(now + max(RENEWAL_RETRY, (self.session_ends_at - now) / 4), self.session_ends_at)

    def retire(self) -> None:
        """Close once the last answer came."""
        self.renew_at = None
        if self.state in (State.READY, State.REAUTHENTICATING):
            self.advance(Event.RETIRED)
        self._end_when_drained()

    def close(self, cause: KafkaError) -> None:
        """End it now; what is in flight gets *cause*."""
        self._cause = self._cause or cause
        if self._transport is not None:
            self._transport.abort()
        else:
            self._lost(cause)

    def expire(self, now: float) -> None:
        """M10: an overdue answer ends the connection, and everything else in flight on it is unknown too."""
        for each in self._in_flight:
            if now >= each.deadline:
                self.close(ResponseTimeoutError(
                    f"{self.label} did not answer {each.api.title} within request_timeout_ms; the connection is closed and "
                    "the outcome of what was sent on it is unknown."))
                return

    # ---- out --------------------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Write a request; its ``done`` is called exactly once, whatever happens."""
        try:
            version = self.versions.choose(request.api, request.versions)
        except UnsupportedVersionError as error:
            request.done(self._clock(), NotSent(error))
            self._on_change()
            return
        self.used = True
        correlation_id = self._next_id()
        if request.encode is not None:
            pieces = request.encode(version, correlation_id, self._client_id)
        else:
            assert request.fields is not None
            pieces = [encode_request(request.api, version, correlation_id, self._client_id, request.fields(version))]
        if request.answered:
            self._write(pieces, request.api, version, request.timeout, request.done)
        else:
            self.unanswered = True
            self.idle_since = self._clock()
            self._put(sum(map(len, pieces)), [b"".join(pieces)])  # no answer will tell when the pieces are free again: keep none of them
            request.done(self._clock(), Reply(version, None))

    def _write(self, pieces: list[Buffer], api: Api, version: int, timeout: float,
               done: Callable[[float, Reply | Unknown], bool | None]) -> None:
        now, size = self._clock(), sum(map(len, pieces))
        self._in_flight.append(InFlight(self._correlation_id, api, version, now, now + timeout, self.bytes_out + HEAD + size, done))
        self._put(size, pieces)

    def _put(self, size: int, pieces: list[Buffer]) -> None:
        assert self._write_buffer is not None
        self.bytes_out += size + HEAD
        self._write_buffer.put([size.to_bytes(HEAD, "big"), *pieces])

    def _next_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & MAX_CORRELATION_ID
        return self._correlation_id

    # ---- in: asyncio.BufferedProtocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        # It is one, whatever its class says: other loops' are no subclasses (uvloop).
        self._transport = cast(asyncio.Transport, transport)
        self._write_buffer = WriteBuffer(self._transport)
        if self.state is State.TLS:
            self.secured = True
            self.advance(Event.SECURED)
            self._write_buffer.take_tls()

    def take_socket(self, sock: socket.socket, *, writes: bool) -> None:
        """It is the transport's too, which waits and closes."""
        assert self._write_buffer is not None
        self._socket = sock
        if writes:
            self._write_buffer.take_socket(sock)

    def take_tls(self, deafen: Callable[[], None], wake_at: Callable[[int], None] | None = None) -> None:
        """The transport encrypts, and reads and writes alone."""
        self._deafen = deafen
        self._waking = ReceiveLowWater(wake_at) if wake_at is not None else None

    def pause_writing(self) -> None:
        """The kernel's buffer is full."""
        self._full = True

    def resume_writing(self) -> None:
        """There is room again."""
        if self._write_buffer is not None and (self._write_buffer.holds or self.state is State.DRAINING):
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._full = False
            self._on_change()

    def _go_on(self) -> None:
        """Write what waits; it may be the last."""
        if self._write_buffer is None:
            return  # lost meanwhile
        self._write_buffer.go_on()
        self._full = self.unwritten
        self._end_when_drained()
        if not self._full:
            self._on_change()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: into the frame that is still incomplete, else to where small frames are taken from by one read."""
        return memoryview(self._scratch if self._frame is None else self._frame)[self._filled:]

    def buffer_updated(self, nbytes: int) -> None:
        """Some bytes came."""
        self.bytes_in += nbytes
        self._filled += nbytes
        frame = self._frame
        try:
            self._take()
            if self._much_is_missing():
                self._read_on()
            if self._waking is not None:
                self._waking.lacks(len(frame) - self._filled if frame is not None and frame is self._frame else 0)
        except KafkaError as error:
            # Before it is ready there may be another way (M08), and if there is none, whoever connects reports it.
            level = logging.DEBUG if self.state in (State.VERSIONS, State.AUTHENTICATING) else logging.WARNING
            _log.log(level, "%s; closing the connection", error)
            self.close(error)

    def _much_is_missing(self) -> bool:
        return self._cause is None and self._frame is not None and len(self._frame) - self._filled >= MUCH

    def _read_on(self) -> None:
        """The rest of a large frame, as far as it is there."""
        if self._socket is not None and self._frame is not None:
            came = fill(self._socket.fileno(), self._frame, self._filled, self._patience_ms)
            self.bytes_in += came
            self._filled += came
            self._take()

    def _take(self) -> None:
        if self._frame is None:
            self._take_small()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = memoryview(self._frame).toreadonly(), None, 0
            self._on_frame(frame)

    def _take_small(self) -> None:
        """The frames that one read has brought; the last one may be incomplete, and be read on in place."""
        at, end, self._filled = 0, self._filled, 0
        while end - at >= HEAD and self._transport is not None:
            size = self._frame_size(at)
            at += HEAD
            if size > end - at:
                self._frame, self._filled = unwritten(size), end - at
                self._frame[:end - at] = self._scratch[at:end]
                return
            at += size
            self._on_frame(memoryview(bytes(self._scratch[at - size:at])))
        self._scratch[:end - at] = self._scratch[at:end]
        self._filled = end - at

    def _frame_size(self, at: int) -> int:
        size = int.from_bytes(self._scratch[at:at + HEAD], "big", signed=True)
        if self.state is State.VERSIONS and not self.secured and self._scratch[at:at + 2] == ALERT_RECORD:
            raise alert_in_plaintext(self.label)
        if not HEAD <= size <= self._max_frame:
            raise ProtocolError(
                f"{self.label} announces an answer of {size} B; 4 to receive_max_frame_bytes={self._max_frame} are allowed. "
                "Is this a Kafka listener, and is it one without TLS?")
        return size

    def _on_frame(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise ProtocolError(f"{self.label} sent an answer nobody asked for")
        correlation_id = correlation_id_of(frame)
        expected = self._in_flight[0]
        if correlation_id != expected.correlation_id:
            raise ProtocolError(f"{self.label} answered request {correlation_id}, the next one was {expected.correlation_id}")
        if self._write_buffer is not None and self.bytes_out - self._write_buffer.unwritten < expected.end:
            # Its memory would be used again while it is still to be written (P07).
            raise ProtocolError(f"{self.label} answered request {correlation_id} before it was written to the end")
        message = _decode(expected, frame)
        self._in_flight.popleft()
        self.heard = self.used
        self.idle_since = now = self._clock()
        self._on_answer(expected.api, now - expected.sent_at, self._throttle(now, message))
        quiet = expected.done(now, Reply(expected.version, message))
        self._tell_drained()
        self._end_when_drained()
        if quiet:
            self._on_quiet()
        else:
            self._on_change()

    def _throttle(self, now: float, message: Any) -> float:
        """KIP-219: the broker has answered already and asks for so many seconds of silence (M09)."""
        throttle = getattr(message, "throttle_time", None)
        if not throttle:
            return 0.0
        seconds: float = throttle.total_seconds()
        self.muted_until = now + seconds
        return seconds

    def _tell_drained(self) -> None:
        if self._drained is not None and not self._in_flight and not self._drained.done():
            self._drained.set_result(None)

    def _end_when_drained(self) -> None:
        if self.state is State.DRAINING and not self._in_flight and not (self._write_buffer is not None and self._write_buffer.holds):
            self.advance(Event.DRAINED)
            if self._transport is not None and not self._transport.is_closing():  # asyncio's TLS cannot be asked anything when it was closed twice
                self._transport.close()
            if self._deafen is not None:
                self._deafen()

    def eof_received(self) -> None:
        """The peer hangs up; connection_lost follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone, by whatever cause."""
        self._transport = self._write_buffer = self._socket = self._deafen = self._waking = None
        self.hung_up = self._cause is None and self.state is not State.CLOSED
        self._lost(self._cause or self._meaning(exc))

    def _meaning(self, error: Exception | None) -> KafkaError:
        """Why the peer, or the network, ended it."""
        if self.state is State.VERSIONS and self.secured:
            return lost_early(error, self.label, has_identity=self.has_identity)
        if self.state is State.VERSIONS:
            return lost_in_plaintext(error, self.label)
        return DisconnectError(f"{self.label} closed the connection" + (f": {error}" if error else ""))

    def _lost(self, cause: KafkaError) -> None:
        self._ended_by = cause
        if self.state is not State.CLOSED:
            self.advance(Event.LOST)
        now = self._clock()
        lost, self._in_flight = self._in_flight, deque()
        self.lost_work = bool(lost)
        for each in lost:
            each.done(now, Unknown(cause))
        self._tell_drained()
        _log.debug("%s: ended with %d requests in flight: %s", self.label, len(lost), cause)
        self._on_lost(self, cause)


async def _run(exchange: Generator[W, Any, T], do: Callable[[W], Awaitable[Any]]) -> T:
    """Do what the exchange yields, send it what came of it, throw it the failures, until it returns."""
    step: Callable[[], W] = functools.partial(next, exchange)
    try:
        while True:
            try:
                wish = step()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                came = await do(wish)
            except Exception as error:  # noqa: BLE001 the exchange knows what each failure means
                step = functools.partial(exchange.throw, error)
            else:
                step = functools.partial(exchange.send, came)
    finally:
        exchange.close()


def _decode(expected: InFlight, frame: memoryview) -> Any:
    """An ApiVersions refusal is always written in version 0, whatever was asked (M08)."""
    refused = int.from_bytes(frame[HEAD:HEAD + 2], "big") == UNSUPPORTED_VERSION
    version = 0 if expected.api is Api.API_VERSIONS and refused else expected.version
    return decode_response(expected.api, version, frame)
