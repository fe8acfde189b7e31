"""One connection before scripted peers: negotiation, order, time and hostile bytes."""
from __future__ import annotations

import asyncio
import datetime
import itertools
import random
import time
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.messages import encode_response
from pyclient.core.connection import State
from pyclient.core.handshake import ClientInfo, VersionZeroNeededError
from pyclient.core.manager import Frame, NotSent, Outcome, Reply, Request, Unknown, Use
from pyclient.errors import DisconnectError, KafkaError, ProtocolError, ResponseTimeoutError, UnsupportedVersionError
from pyclient.net.connection import AnswerListener, Connection
from pyclient.net.frame_reader import SCRATCH
from pyclient.reactor.channels import NOTHING, Buffer, Channel
from pyclient.reactor.pollers import READABLE
from pyclient.runtime.network import SocketNetwork, SocketOptions
from pyclient.runtime.portals import LoopPortal
from tests.reactors import idle_portal, open_portal
from tests.unit.net.peers import Conversation, Peer, Question, Script, metadata, silence, versions

NEWEST = SPOKEN[Api.API_VERSIONS].high
MAX_FRAME = 1 << 20
LIMIT = 20.0


class Clock:
    """Time as far as the connection sees it: real, and pushed on by hand."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Latencies(AnswerListener):
    """Notes how long each answer took."""

    def __init__(self, found: list[tuple[Api, float]]) -> None:
        self._found = found

    def answered(self, api: Api, now: float, latency: float, throttled: float) -> None:
        self._found.append((api, latency))


class Client:
    """A connection to a peer, and its events."""

    def __init__(self, portal: LoopPortal) -> None:
        self.portal = portal
        self.clock = Clock()
        self.changes = 0
        self.lost: list[KafkaError] = []
        self.latencies: list[tuple[Api, float]] = []
        self.connection = Connection("the peer", "a client", reactor=portal.reactor, clock=self.clock, max_frame=MAX_FRAME, on_change=self._changed, on_quiet=self._changed,
                               on_lost=lambda connection, cause: self.lost.append(cause),
                               answers=Latencies(self.latencies))

    def _changed(self) -> None:
        self.changes += 1

    @property
    def requests_lost(self) -> int:
        assert self.connection.ending is not None
        return self.connection.ending.requests_lost

    def ask(self, timeout: float = LIMIT, **changes: Any) -> asyncio.Future[Outcome]:
        """Send a Metadata request; its outcome."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        fields = {"topics": [], "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
                  "include_topic_authorized_operations": False}
        self.connection.send(Request(**{
            "node": 1, "use": Use.CONTROL, "api": Api.METADATA, "timeout": timeout, "fields": lambda version: fields,
            "done": lambda now, result: outcome.set_result(result), **changes}))
        return outcome


@asynccontextmanager
async def connected(*scripts: Script) -> AsyncIterator[Client]:
    async with Peer(*scripts) as peer:
        client = Client(await open_portal())
        await client.portal.call(lambda: open_connection(client.connection, peer.port))
        try:
            yield client
        finally:
            if client.connection.state is not State.CLOSED:
                client.connection.close(DisconnectError("the test is over"))
                await until(lambda: client.connection.state is State.CLOSED)


async def open_connection(connection: Connection, port: int) -> None:
    """Connect it to this machine's *port*; in a task of its reactor."""
    network = SocketNetwork()
    endpoint, = await network.resolve(connection.reactor, "127.0.0.1", port)
    connection.attach(await network.open(connection.reactor, endpoint, SocketOptions()))


@asynccontextmanager
async def ready(script: Script) -> AsyncIterator[Client]:
    """Connected and introduced; the script begins after that."""
    async def whole(conversation: Conversation) -> None:
        await conversation.introduce()
        await script(conversation)

    async with connected(whole) as client:
        await introduce(client)
        yield client


async def introduce(client: Client, newest: int = NEWEST, timeout: float = LIMIT) -> None:
    await client.portal.call(lambda: client.connection.introduce(ClientInfo("pyclient", "1"), newest, timeout))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 any condition, not one event
            await asyncio.sleep(0)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, LIMIT))


# ---- negotiation ----------------------------------------------------------------------------------------------------


def test_M08_the_first_request_on_a_connection_is_ApiVersions_in_our_newest_version() -> None:
    asked: list[Question] = []

    async def script(conversation: Conversation) -> None:
        asked.append(await conversation.introduce())
        await conversation.end()

    async def test() -> None:
        async with connected(script) as client:
            assert not client.connection.accepts_requests()
            await introduce(client)
            assert client.connection.accepts_requests()
            assert client.connection.state is State.READY
            assert [(each.api, each.version) for each in asked] == [(Api.API_VERSIONS, NEWEST)]
            assert b"pyclient" in asked[0].frame
            assert client.connection.versions.choose(Api.METADATA) == SPOKEN[Api.METADATA].high

    run(test())


def test_M08_an_older_broker_gets_ApiVersions_in_the_version_that_it_names() -> None:
    asked = []

    async def script(conversation: Conversation) -> None:
        refused = await conversation.question()
        conversation.answer(refused, version=0, **{**versions(api_versions=(0, 2)), "error_code": 35})
        asked.append((refused.version, (await conversation.introduce()).version))
        await conversation.end()

    async def test() -> None:
        async with connected(script) as client:
            await introduce(client)
            assert client.connection.accepts_requests()

    run(test())
    assert asked == [(NEWEST, 2)]


@pytest.mark.parametrize("version", [NEWEST, 3])
def test_M08_a_wrongly_encoded_refusal_requires_a_new_connection_in_version_0(version: int) -> None:
    async def script(conversation: Conversation) -> None:
        question = await conversation.question()
        conversation.answer(question, version=version, **{**versions(), "error_code": 35})  # the rule: always version 0
        await conversation.end()

    async def test() -> None:
        async with connected(script) as client:
            with pytest.raises(VersionZeroNeededError):
                await introduce(client)

    run(test())


async def hangs_up(conversation: Conversation) -> None:
    await conversation.question()
    conversation.hang_up()


async def resets(conversation: Conversation) -> None:
    await conversation.question()
    conversation.hang_up(reset=True)


async def talks_http(conversation: Conversation) -> None:
    await conversation.question()
    conversation.say(b"HTTP/1.1 400 Bad Request\r\nServer: elsewhere\r\n\r\n")
    await conversation.end()


async def answers_noise(conversation: Conversation) -> None:
    question = await conversation.question()
    conversation.frame(question.correlation_id.to_bytes(4, "big") + bytes(range(200)))
    await conversation.end()


async def answers_too_little(conversation: Conversation) -> None:
    conversation.frame((await conversation.question()).correlation_id.to_bytes(4, "big"))
    await conversation.end()


PUZZLING = [hangs_up, resets, talks_http, answers_noise, answers_too_little]


@pytest.mark.parametrize("script", PUZZLING)
def test_M08_an_undecodable_response_or_a_closed_connection_requires_a_new_one_in_version_0(script: Script) -> None:
    async def test() -> None:
        async with connected(script) as client:
            with pytest.raises(VersionZeroNeededError):
                await introduce(client)
            await until(lambda: client.lost or client.connection.state is State.VERSIONS)

    run(test())


@pytest.mark.parametrize("script", PUZZLING)
def test_M08_a_failure_in_version_0_is_raised(script: Script) -> None:
    async def test() -> None:
        async with connected(script) as client:
            with pytest.raises((ProtocolError, DisconnectError)):
                await introduce(client, newest=0)

    run(test())


def test_M08_a_refused_ApiVersions_request_is_raised_with_its_error() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.introduce(error_code=58)

    async def test() -> None:
        async with connected(script) as client:
            with pytest.raises(KafkaError, match="refused the ApiVersions request"):
                await introduce(client)

    run(test())


def test_M15_a_request_that_shares_no_version_with_the_broker_is_not_sent_and_names_both_ranges() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.introduce(**versions(metadata=(99, 120)))
        await conversation.end()

    async def test() -> None:
        async with connected(script) as client:
            await introduce(client)
            outcome = await client.ask()
            assert isinstance(outcome, NotSent)
            assert isinstance(outcome.cause, UnsupportedVersionError)
            assert "99-120" in str(outcome.cause)
            assert str(SPOKEN[Api.METADATA]) in str(outcome.cause)
            assert client.connection.accepts_requests()

    run(test())


def test_M15_a_request_goes_out_in_the_highest_version_both_speak() -> None:
    asked = []

    async def script(conversation: Conversation) -> None:
        await conversation.introduce(**versions(metadata=(0, 9)))
        question = await conversation.question()
        asked.append(question.version)
        conversation.answer(question, **metadata((1, "here", 1)))
        await conversation.end()

    async def test() -> None:
        async with connected(script) as client:
            await introduce(client)
            outcome = await client.ask()
            assert isinstance(outcome, Reply)
            assert outcome.version == 9
            assert outcome.message.brokers[0].host == "here"

    run(test())
    assert asked == [9]


# ---- order ----------------------------------------------------------------------------------------------------------


def test_M10_requests_are_pipelined_and_their_responses_delivered_in_order() -> None:
    async def script(conversation: Conversation) -> None:
        questions = [await conversation.question() for _ in range(5)]  # all five come before the first answer
        for at, question in enumerate(questions):
            conversation.answer(question, **metadata((at, "here", 1)))
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            outcomes = await asyncio.gather(*(client.ask() for _ in range(5)))
            assert [outcome.message.brokers[0].node_id for outcome in outcomes if isinstance(outcome, Reply)] == list(range(5))
            assert client.connection.in_flight == 0
            assert [api for api, _ in client.latencies] == [Api.API_VERSIONS] + [Api.METADATA] * 5

    run(test())


def test_M10_a_response_out_of_order_closes_the_connection_and_all_outcomes_are_unknown() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.question()
        conversation.answer(await conversation.question(), **metadata())
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            for outcome in await asyncio.gather(client.ask(), client.ask()):
                assert isinstance(outcome, Unknown)
                assert isinstance(outcome.cause, ProtocolError)
                assert "answered request 3, expected 2" in str(outcome.cause)
            assert client.connection.state is State.CLOSED

    run(test())


def test_M10_a_response_without_a_request_closes_the_connection() -> None:
    async def script(conversation: Conversation) -> None:
        conversation.frame(bytes(8))
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            await until(lambda: client.lost)
            assert isinstance(client.lost[0], ProtocolError)
            assert "no request was in flight" in str(client.lost[0])

    run(test())


def test_M10_an_overdue_response_closes_the_connection_and_all_outcomes_are_unknown() -> None:
    async def test() -> None:
        async with ready(silence) as client:
            patient, hasty = client.ask(timeout=1000), client.ask(timeout=30)
            assert (client.connection.next_deadline() or 0) <= client.clock() + 30
            client.connection.expire(client.clock())
            assert not hasty.done()
            client.clock.ahead = 31
            client.connection.expire(client.clock())
            assert not client.connection.accepts_requests()
            for outcome in (await patient, await hasty):
                assert isinstance(outcome, Unknown)
                assert isinstance(outcome.cause, ResponseTimeoutError)
                assert "Metadata within 30.0 s" in str(outcome.cause)
            assert client.connection.state is State.CLOSED
            assert client.requests_lost

    run(test())


def test_when_the_peer_closes_the_connection_outcomes_in_flight_are_unknown() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.question()
        conversation.hang_up()

    async def test() -> None:
        async with ready(script) as client:
            outcome = await client.ask()
            assert isinstance(outcome, Unknown)
            assert isinstance(outcome.cause, DisconnectError)

    run(test())


def test_P22_a_request_without_a_response_is_done_when_written() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.question()
        conversation.answer(await conversation.question(), **metadata((7, "here", 1)))
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            unanswered = client.ask(answered=False)
            assert unanswered.result() == Reply(SPOKEN[Api.METADATA].high, None)
            assert client.connection.in_flight == 0
            outcome = await client.ask()
            assert isinstance(outcome, Reply)
            assert outcome.message.brokers[0].node_id == 7

    run(test())


# ---- silence on request ---------------------------------------------------------------------------------------------


def test_M09_a_throttled_connection_takes_no_request_until_the_throttle_ends() -> None:
    async def script(conversation: Conversation) -> None:
        conversation.answer(await conversation.question(), **{**metadata(), "throttle_time": datetime.timedelta(seconds=30)})
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            await client.ask()
            assert not client.connection.accepts_requests()
            deadline = client.connection.next_deadline()
            assert deadline is not None
            assert 25 < deadline - client.clock() <= 30
            client.clock.ahead = 29
            assert not client.connection.accepts_requests()
            client.clock.ahead = 31
            assert client.connection.accepts_requests()
            assert client.connection.next_deadline() == deadline, "it stays until it was looked at"
            client.connection.expire(client.clock())
            assert client.connection.next_deadline() is None

    run(test())


# ---- hostile bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, MAX_FRAME + 1, 2**31 - 1, int.from_bytes(b"HTTP", "big")])
def test_M12_a_frame_size_out_of_bounds_closes_the_connection_and_allocates_nothing(size: int) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.question()
        conversation.say(size.to_bytes(4, "big", signed=True) + bytes(100))
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            tracemalloc.start()
            try:
                outcome = await client.ask()
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert isinstance(outcome, Unknown)
            assert isinstance(outcome.cause, ProtocolError)
            assert f"a response of {size} B" in str(outcome.cause)
            assert f"receive_max_frame_bytes={MAX_FRAME}" in str(outcome.cause)
            assert peak < MAX_FRAME

    run(test())


def test_M12_a_frame_of_the_largest_size_is_read() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.question()
        conversation.frame(bytes(MAX_FRAME))
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            outcome = await client.ask()
            assert isinstance(outcome, Unknown)
            assert "answered request 0" in str(outcome.cause)  # so the frame was taken

    run(test())


def test_M12_an_array_longer_than_its_frame_is_a_protocol_error_and_allocates_nothing() -> None:
    async def script(conversation: Conversation) -> None:
        question = await conversation.question()
        hostile = question.correlation_id.to_bytes(4, "big") + b"\0" + bytes(4) + b"\xff\xff\xff\xff\x07"  # 2³¹ brokers
        conversation.frame(hostile)
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            outcome = await client.ask()
            assert isinstance(outcome, Unknown)
            assert isinstance(outcome.cause, ProtocolError)
            assert "Metadata" in str(outcome.cause)

    run(test())


def test_a_response_that_arrives_byte_by_byte_is_read() -> None:
    async def script(conversation: Conversation) -> None:
        question = await conversation.question()
        conversation.answer(question, **metadata((3, "slow", 9)))
        second = await conversation.question()
        frame = encode_response(Api.METADATA, second.version, second.correlation_id, metadata((4, "slower", 9)))
        for byte in len(frame).to_bytes(4, "big") + frame:
            conversation.say(bytes([byte]))
            await asyncio.sleep(0)
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            hosts = [outcome.message.brokers[0].host for outcome in [await client.ask(), await client.ask()] if isinstance(outcome, Reply)]
            assert hosts == ["slow", "slower"]

    run(test())


class Arrived(Channel):
    """A channel from which one piece after the other can be read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__()
        self._pieces = deque(pieces)
        self.reads = 0

    def attach(self, on_events: Callable[[int], object]) -> None:
        while self._pieces:
            on_events(READABLE)

    def read_into(self, buffer: bytearray, start: int) -> int:
        if not self._pieces:
            return NOTHING
        self.reads += 1
        piece = self._pieces.popleft()
        size = min(len(buffer) - start, len(piece))
        buffer[start:start + size] = piece[:size]
        if size < len(piece):
            self._pieces.appendleft(piece[size:])
        return size

    def write(self, pieces: list[Buffer]) -> bool:
        return True

    def close(self) -> None:
        pass

    abort = close


class Taking(Connection):
    """Keeps the frames instead of reading them."""

    def __init__(self) -> None:
        super().__init__("the peer", None, reactor=idle_portal().reactor, clock=time.monotonic, max_frame=MAX_FRAME, on_change=lambda: None, on_quiet=lambda: None, on_lost=lambda *_: None,
                         answers=AnswerListener())
        self.frames: list[Frame] = []

    def _on_frame(self, frame: Frame) -> None:
        self.frames.append(frame)


@given(sizes=st.lists(st.integers(4, 40) | st.integers(SCRATCH - 10, SCRATCH + 10) | st.just(3 * SCRATCH), max_size=8), cuts=st.lists(st.floats(0, 1), max_size=8))
def test_M10_frames_are_the_same_however_the_bytes_are_split(sizes: list[int], cuts: list[float]) -> None:
    frames = [random.Random(f"{at}").randbytes(size) for at, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    places = sorted({0, len(stream), *(round(cut * len(stream)) for cut in cuts)})
    connection = Taking()
    connection.attach(Arrived(stream[begin:end] for begin, end in itertools.pairwise(places)))
    assert [bytes(frame) for frame in connection.frames] == frames  # those that came first were not overwritten by those that came later
    assert connection.bytes_in == len(stream)


def test_small_responses_that_arrive_together_take_one_read() -> None:
    connection = Taking()
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in (b"first", b"second", b"a third one"))
    channel = Arrived([stream])
    connection.attach(channel)
    assert channel.reads == 1
    assert [bytes(frame) for frame in connection.frames] == [b"first", b"second", b"a third one"]


# ---- the end --------------------------------------------------------------------------------------------------------


def test_a_retired_connection_closes_after_its_last_response() -> None:
    go = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        question = await conversation.question()
        await go.wait()
        conversation.answer(question, **metadata((1, "here", 1)))
        await conversation.end()

    async def test() -> None:
        async with ready(script) as client:
            pending = client.ask()
            client.connection.retire()
            assert client.connection.state is State.DRAINING
            assert not client.connection.accepts_requests()
            go.set()
            assert isinstance(await pending, Reply)
            await until(lambda: client.lost)
            assert client.connection.state is State.CLOSED
            assert not client.requests_lost

    run(test())


def test_M13_an_idle_connection_that_the_peer_closes_is_logged_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    async def script(conversation: Conversation) -> None:
        conversation.hang_up()

    async def test() -> None:
        async with ready(script) as client:
            await until(lambda: client.lost)
            assert not client.requests_lost

    with caplog.at_level("DEBUG", "pyclient"):
        run(test())
    assert {record.levelname for record in caplog.records if record.name.startswith("pyclient")} == {"DEBUG"}


def test_each_outcome_is_delivered_once_also_when_closing_and_losing_coincide() -> None:
    async def test() -> None:
        async with ready(silence) as client:
            outcome = client.ask()  # set_result twice would raise
            client.connection.close(DisconnectError("first"))
            client.connection.close(DisconnectError("second"))
            result = await outcome
            assert isinstance(result, Unknown)
            assert str(result.cause) == "first"
            assert len(client.lost) == 1

    run(test())
