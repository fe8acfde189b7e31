# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""One connection: requests out, responses in, in order (M08-M10, M12).

Does what the table of `pyclient.core.connection` allows; decides neither when to connect nor what to send.
"""
from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from random import Random
from typing import Any, Final

import attrs

from pyclient.clocks import seconds_of
from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.memory import int32_bytes
from pyclient.codec.messages import CORRELATION_ID_BYTES, Buffer
from pyclient.core.connection import CONNECTION, Event, State, Throttle, Usage
from pyclient.core.handshake import UNSUPPORTED_VERSION, ClientInfo, HandshakeRequest, Versions, agree_on_versions
from pyclient.core.manager import Frame, NotSent, Outcome, Reply, Request, Unknown, Use, earlier, reply_with
from pyclient.core.sasl import check_no_login_required
from pyclient.core.session import Session
from pyclient.core.silence import LONGEST_SILENCE_S, Silence
from pyclient.errors import DisconnectError, KafkaError, ResponseTimeoutError, UnsupportedVersionError, counted, said_of
from pyclient.net.authentication import Authentication, run_exchange
from pyclient.net.frame_reader import SIZE_BYTES, FrameReader
from pyclient.net.in_flight import InFlight, InFlightRequests
from pyclient.net.low_water import LowWater
from pyclient.net.sasl_login import SaslLogin
from pyclient.net.tls_errors import lost_after_handshake, lost_before_answer
from pyclient.reactor.channels import Channel
from pyclient.reactor.pollers import READABLE, WRITABLE
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future
from pyclient.redaction import SecretBytes

_log = logging.getLogger(__name__)
READY, DRAINING, UNUSED, SENT, ANSWERED = State.READY, State.DRAINING, Usage.UNUSED, Usage.SENT, Usage.ANSWERED
_MOST_READS: Final = 16
"""In a row: other connections have bytes too."""
_SIZE_BYTES: Final = SIZE_BYTES
_READABLE, _WRITABLE = READABLE, WRITABLE


@attrs.frozen
class Ending:
    """How a connection ended."""

    cause: KafkaError
    by_peer: bool
    """The peer or the network closed it; otherwise this client did."""
    requests_lost: int
    """Requests in flight, whose outcome is unknown."""


class AnswerListener:
    """Is notified of each answer on a connection. This one ignores it."""

    def answered(self, api: Api, now: float, latency: float, throttled: float) -> None:
        """The request's response came after *latency* seconds, and throttles the client for *throttled* seconds."""


class Connection:
    """Requests and responses over one channel.

    ``on_change`` is called after each event that may let a manager continue, ``on_quiet`` after responses that concern
    no manager, ``on_lost`` once at the end. *answers* is notified of each response.
    """

    def __init__(self, label: str, client_id: str | None, *, reactor: Reactor, clock: Callable[[], float], max_frame: int,
                 on_change: Callable[[], None], on_quiet: Callable[[], None], on_lost: Callable[[Connection, KafkaError], None],
                 answers: AnswerListener, silence_timeout_s: float = LONGEST_SILENCE_S) -> None:
        self.label = label
        self.state = State.CONNECTING
        self.usage = Usage.UNUSED
        self.versions = Versions()
        self.session = Session()
        self.ending: Ending | None = None
        self.throttle = Throttle()
        self.silence = Silence(silence_timeout_s)
        self.idle_since = clock()
        self.secured = False  # by TLS
        self.known_as: str | None = None  # the broker's name in logins, if it is not the host of its address
        self.has_identity: bool | None = None  # whether TLS can present a client certificate; None if only the user knows
        self._writing: list[Request] = []  # one without a response (acks=0), until the channel has it
        self.wrote_unanswered = False  # a request without a response (acks=0) was written
        self.bytes_out = 0
        self.client_id = client_id or None
        self.reactor = reactor
        self._clock = clock
        self._on_change = on_change
        self._on_quiet = on_quiet
        self._on_lost = on_lost
        self._answers = answers
        self.requests = InFlightRequests(label, reactor)
        self.reader = FrameReader(label, max_frame, self._on_frame)
        self._low_water = LowWater()
        self._channel: Channel | None = None
        self._pieces: list[Buffer] = []  # written, and not taken by the channel yet; they must not change
        self._chosen: tuple[Versions, Api, VersionRange | None, int] | None = None  # the last request's version
        self._paused = False  # the system's send buffer is full
        self._handshake_at = 0.0  # when the last request of an exchange was written
        self._cause: KafkaError | None = None  # why this client closes it
        self._ending = False  # the channel is closed, which is not reported yet

    def __repr__(self) -> str:
        return f"<Connection {self.label} {self.state.value} {self.in_flight} in flight>"

    @property
    def in_flight(self) -> int:
        """Requests written and not answered."""
        return self.count_in_flight()

    def count_in_flight(self) -> int:
        """As `in_flight`."""
        return len(self.requests.requests)

    def accepts_requests(self) -> bool:
        """Whether requests may be written now, apart from the limit of requests in flight."""
        if self.state is not READY or self._cause is not None or self._paused:
            return False
        if not self.throttle.until and self.session.ends_at is None:
            return True  # of most connections; the clock is read for the others
        now = seconds_of(self._clock)
        return now >= self.throttle.until and not self.session.is_over(now)

    @property
    def unwritten(self) -> bool:
        """Whether some bytes have not reached the system yet: closing it now may lose requests that get no response."""
        return self._has_unwritten()

    def _has_unwritten(self) -> bool:
        return self._channel is not None and (len(self._pieces) > 0 or self._channel.unwritten)

    @property
    def bytes_in(self) -> int:
        """Bytes received, after TLS."""
        return self.reader.bytes_in

    def throttled_for(self) -> float:
        """Seconds for which the broker throttles this connection (M09)."""
        return self.throttle.until - seconds_of(self._clock)

    def next_deadline(self, others: float | None = None) -> float | None:
        """When a request is overdue, throttling ends, the session is to be renewed, or silence is to be looked for.

        *others*: as in `Silence.next_check`.
        """
        if not self.requests.requests and not self.throttle.until:
            return self.session.renew_at  # all that the usual, idle connection has
        return earlier(earlier(self.session.renew_at, self.overdue_at()), self.silence.next_check(self._answer_due_since(), others))

    def overdue_at(self) -> float | None:
        """When a request is overdue, or throttling ends: all that matters of a connection that is being closed."""
        return earlier(self.requests.deadline(), self.throttle.deadline())

    def is_silent(self, now: float) -> bool:
        """Whether an answer is due and nothing comes."""
        return self.silence.is_silent(now, self._answer_due_since(), self.bytes_in)

    def _answer_due_since(self) -> float | None:
        since = self.requests.answer_due_since()
        return None if since is None else max(since, self.throttle.until)  # M09: a broker that throttles reads nothing meanwhile

    async def drained(self) -> None:
        """Wait until no request is in flight."""
        await self.requests.drained()

    def renewal_failed(self) -> bool:
        """Authenticating again failed before anything was requested; False if the session is over."""
        return self.session.renewal_failed(seconds_of(self._clock))

    # ---- states -----------------------------------------------------------------------------------------------------

    def advance(self, event: Event) -> None:
        """Move as the table says."""
        self.state = CONNECTION.after(self.state, event)
        _log.debug("%s: %s, now %s", self.label, event.value, self.state.value)

    async def introduce(self, client: ClientInfo, newest: int, timeout: float, *, logs_in: bool = False, check_login: bool = False) -> None:
        """Agree on API versions; afterwards the connection is ready, or waits for `authenticate` if it *logs_in*.

        *check_login*: find out whether the listener requires a login.

        Raises:
            VersionZeroNeededError: connect again and send ApiVersions v0.
            KafkaError: the peer is not a usable broker.
        """
        if self.state is State.CONNECTING:
            self.advance(Event.OPENED)
        elif self.state is State.CLOSED and self.ending is not None:  # since the TLS handshake, one pass ago
            raise self.ending.cause
        do = functools.partial(self.request, timeout=timeout)
        self.versions = await run_exchange(agree_on_versions(client, newest), do)
        if check_login:
            await run_exchange(check_no_login_required(self.versions, self.label), do)
        self.advance(Event.AGREED_FOR_SASL if logs_in else Event.AGREED)
        self.reader.may_be_tls = False
        if not logs_in:
            self.reader.logged_in()
        self.idle_since = seconds_of(self._clock)

    async def request(self, request: HandshakeRequest, timeout: float) -> Any:
        """Write a request of an exchange and wait for its response."""
        if self._channel is None or self._cause is not None or self.state in (State.DRAINING, State.CLOSED):
            raise DisconnectError(f"{self.label} closed the connection" if self._cause is None else str(self._cause))
        step = _Step(request, timeout, self.reactor)
        self._handshake_at = seconds_of(self._clock)
        self._write(step, request.version)
        return await step.response

    async def authenticate(self, login: SaslLogin, timeout: float) -> None:
        """Log in, after `introduce` or on a ready connection; see `Authentication`. Raises KafkaError."""
        await Authentication(self, login, timeout).run()

    def authenticated(self, lifetime: float | None, random: Random, *, idle_since: float | None) -> None:
        """The broker accepted the login.

        *idle_since*: keep the idle time of a connection that was authenticated again.
        """
        self.advance(Event.AUTHENTICATED)
        self.reader.logged_in()
        self.idle_since = seconds_of(self._clock) if idle_since is None else idle_since
        # The broker's count began after the last request was written.
        self.session.begin(self._handshake_at, lifetime, random)
        if idle_since is not None:
            self._on_change()

    def retire(self) -> None:
        """Close after the last response."""
        self.session.clear_renewal()
        if self.state in (State.READY, State.REAUTHENTICATING):
            self.advance(Event.RETIRED)
        self._close_if_drained()

    def close(self, cause: KafkaError) -> None:
        """Close now; requests in flight get *cause*."""
        self._cause = self._cause or cause
        if self._channel is not None:
            self._end_channel(None)
        elif not self._ending:
            self._lost(cause, by_peer=False)

    def expire(self, now: float) -> None:
        """M10: an overdue response closes the connection; the outcome of all requests in flight is then unknown.

        M09: a throttle that is over is noted.
        """
        self.throttle.expire(now)
        overdue = self.requests.overdue(now)
        if overdue is not None:
            self.close(_timed_out(self.label, overdue.request.api, overdue.deadline - overdue.sent_at))
        else:
            self.requests.give_up_late(now)

    # ---- writing ----------------------------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Write a request; its ``done`` is called exactly once.

        When this raises, close the connection if it `awaits` the request or `bytes_out` has changed. Otherwise nothing
        was written, and ``done`` was not called.
        """
        try:
            version = self._version(request)
        except UnsupportedVersionError as error:
            request.done(seconds_of(self._clock), NotSent(error))
            self._on_change()
            return
        if self.usage is UNUSED:
            self.usage = SENT
        if request.answered:
            self._write(request, version)
        else:
            self._write_unanswered(request, version)

    def _version(self, request: Request) -> int:
        """The highest common one. Most requests on a connection are of one API."""
        chosen = self._chosen
        if chosen is None or chosen[0] is not self.versions or chosen[1] is not request.api or chosen[2] is not request.versions:
            chosen = self._chosen = (self.versions, request.api, request.versions, self.versions.choose(request.api, request.versions))
        return chosen[3]

    def _write_unanswered(self, request: Request, version: int) -> None:
        data = b"".join(request.encode(version, self.requests.next_id(), self.client_id))  # a copy: no response says when the pieces are free again
        self.wrote_unanswered = True
        self.idle_since = seconds_of(self._clock)
        now, reply = seconds_of(self._clock), reply_with(version, None)
        self._writing.append(request)
        self._put(len(data), [data])
        self._writing.pop().done(now, reply)

    def awaits(self, request: Request) -> bool:
        """Whether *request* is in flight, or being written."""
        return request in self._writing or any(each.request is request for each in self.requests)

    def _write(self, request: Request, version: int) -> None:
        pieces = request.encode(version, self.requests.next_id(), self.client_id)
        size = _size_of(pieces)
        self.requests.add(request, version, seconds_of(self._clock), self.bytes_out + _SIZE_BYTES + size)
        self._put(size, pieces)

    def _put(self, size: int, pieces: list[Buffer]) -> None:
        self.bytes_out += size + _SIZE_BYTES
        self._pieces.append(int32_bytes(size))
        self._pieces.extend(pieces)
        if not self._paused:
            self._flush()

    def _flush(self) -> None:
        """Write what the channel takes."""
        channel = self._channel
        if channel is None:
            return  # lost meanwhile
        try:
            self._paused = not channel.write(self._pieces)
        except OSError as error:
            self._end_channel(error)

    def _writable(self) -> None:
        """The system's send buffer has room again."""
        self._flush()
        if not self._paused and self._channel is not None:
            self._close_if_drained()
            self._on_change()

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _on_events(self, events: int) -> None:
        if events & _WRITABLE and self._has_unwritten():
            self._writable()
        if events & _READABLE:
            self._read()

    def _read(self) -> None:
        """Take what has come. The end of the stream comes last: answers before it count."""
        for _ in range(_MOST_READS):
            channel = self._channel
            if channel is None:
                return
            reader = self.reader
            room = reader.room()
            try:
                size = channel.read_into(room, reader.filled)
            except OSError as error:
                self._end_channel(error)
                return
            if size < 0:
                return
            if not size:
                self._end_channel(None)
                return
            full = size == len(room) - reader.filled
            self._received(size, channel)
            if channel.short_reads_end and not full:
                return
        self.reactor.call_soon(self._read)

    def _received(self, size: int, channel: Channel) -> None:
        try:
            missing = self.reader.received(size)
        except KafkaError as error:
            # Before it is ready another way may work (M08); if none does, the connecting task reports it.
            level = logging.DEBUG if self.state in (State.VERSIONS, State.AUTHENTICATING) else logging.WARNING
            _log.log(level, "%s; closing the connection", error)
            self.close(error)
        else:
            if self._low_water.update(missing) and channel is self._channel:
                channel.set_low_water(self._low_water.bytes)

    def _on_frame(self, frame: Frame) -> None:
        answered = self.requests.answered(frame, self.bytes_out - _size_of(self._pieces))
        message = answered.request.decode(answered.version, frame)
        self.requests.take_oldest()
        now = seconds_of(self._clock)
        self._note_answer(answered, now, self.throttle.apply(now, message))
        quiet = answered.ended(now, reply_with(answered.version, message))
        self.requests.notify_if_empty()
        if self.state is DRAINING:
            self._close_if_drained()
        if quiet:
            self._on_quiet()
        else:
            self._on_change()

    def _note_answer(self, answered: InFlight, now: float, throttled: float) -> None:
        if self.usage is SENT:
            self.usage = ANSWERED
        self.idle_since = now
        self.silence.answered(now, self.reader.bytes_in)
        self._answers.answered(answered.request.api, now, now - answered.sent_at, throttled)

    # ---- the channel -------------------------------------------------------------------------------------------------

    def attach(self, channel: Channel) -> None:
        """It is connected, with TLS after the handshake."""
        self._channel = channel
        if self.state is State.TLS:
            self.secured = True
            self.advance(Event.SECURED)
            self.reader.may_be_tls = False
        channel.attach(self._on_events)

    def _end_channel(self, error: OSError | None, *, drained: bool = False) -> None:
        """The peer or the network has closed it, or this client does; that is reported in the next pass."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        if drained:
            channel.close()
        else:
            channel.abort()
        self._pieces.clear()
        self._ending = True
        self.reactor.call_soon(functools.partial(self._channel_ended, error))

    def _channel_ended(self, error: OSError | None) -> None:
        self._lost(self._cause or _closed_by_peer(self, error), by_peer=self._cause is None and self.state is not State.CLOSED)

    def _close_if_drained(self) -> None:
        if self.state is not State.DRAINING or self.in_flight or self.unwritten:
            return
        self.advance(Event.DRAINED)
        self._end_channel(None, drained=True)

    def _lost(self, cause: KafkaError, *, by_peer: bool) -> None:
        self.reader.stop()
        if self.state is not State.CLOSED:
            self.advance(Event.LOST)
        lost = self.in_flight
        self.ending = Ending(cause, by_peer, lost)
        self.requests.fail(seconds_of(self._clock), cause)
        while self._writing:
            self._writing.pop().done(seconds_of(self._clock), Unknown(cause))
        _log.debug("%s: %s; %s in flight", self.label, said_of(self.label, cause).rstrip("."), counted(lost, "request"))
        self._on_lost(self, cause)


def _size_of(pieces: list[Buffer]) -> int:
    size = 0
    for each in pieces:
        size += len(each)
    return size


class _Step(Request):
    """A request of an exchange; *response* is a future."""

    def __init__(self, request: HandshakeRequest, timeout: float, reactor: Reactor) -> None:
        self.response: Future[Any] = Future(reactor)
        super().__init__(node=0, use=Use.CONTROL, api=request.api, timeout=timeout, fields=lambda _version: request.fields, done=self._settle)

    def encode(self, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
        """As `Request.encode`; it may hold a password."""
        pieces = super().encode(version, correlation_id, client_id)
        return [SecretBytes(each) for each in pieces]

    def decode(self, version: int, frame: Frame) -> Any:
        """As `Request.decode`. An ApiVersions refusal is always encoded in version 0, whatever was requested (M08)."""
        refused = self.api is Api.API_VERSIONS and int.from_bytes(frame[CORRELATION_ID_BYTES:CORRELATION_ID_BYTES + 2], "big") == UNSUPPORTED_VERSION
        return super().decode(0 if refused else version, frame)

    def _settle(self, _now: float, outcome: Outcome) -> None:
        if self.response.done():
            return
        if isinstance(outcome, Reply):
            self.response.set_result(outcome.message)
        else:
            self.response.set_exception(outcome.cause)


def _timed_out(label: str, api: Api, seconds: float) -> KafkaError:
    return ResponseTimeoutError(
        f"{label} did not answer {api.title} within {seconds:.1f} s (request_timeout_ms); the connection is closed, and the outcome of all "
        "requests in flight on it is unknown.")


def interrupted(label: str, title: str, error: BaseException) -> KafkaError:
    """Why the outcome of a request is unknown that was being written."""
    return DisconnectError(f"{label}: {title} may have been written in part: it was interrupted by {error!r}")


def _closed_by_peer(connection: Connection, error: Exception | None) -> KafkaError:
    """Why the peer or the network closed it."""
    if connection.state is State.VERSIONS and connection.secured:
        return lost_after_handshake(error, connection.label, has_identity=connection.has_identity)
    if connection.state is State.VERSIONS:
        return lost_before_answer(error, connection.label)
    return DisconnectError(f"{connection.label} closed the connection" + (f": {error}" if error else ""))
