"""TLS on real sockets: every failure is explained at once, and an end is as quick as one without TLS."""
from __future__ import annotations

import asyncio
import datetime
import functools
import selectors
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import encode_response
from pyclient.config import ProducerConfig
from pyclient.config.addresses import Address, parse_addresses
from pyclient.core.connection import Event, State
from pyclient.core.handshake import ClientInfo
from pyclient.core.manager import Reply, Request, Use
from pyclient.errors import AuthenticationError, DisconnectError, KafkaError, ResponseTimeoutError, SslAuthenticationError
from pyclient.net.connect import ConnectAttempt
from pyclient.net.connection import AnswerListener, Connection
from pyclient.reactor.pollers import READABLE
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Task
from pyclient.reactor.tls_channel import CHUNK, TlsChannel, tls_name
from pyclient.runtime.environment import Environment, loop_reactor
from pyclient.runtime.network import Endpoint, SocketNetwork, SocketOptions
from pyclient.runtime.portals import LoopPortal
from pyclient.net.security import Security
from pyclient.net.tls import TlsContexts
from pyclient.net.tls_errors import handshake_failed, lost_after_handshake
from pyclient.testing import CertificateAuthority, FaultProxy
from pyclient.testing.common.certificates import FIRST_DAY, LAST_DAY
from tests.reactors import InSteps, idle_portal, run_in_task
from tests.unit.net import raw_peers
from tests.unit.net.peers import Conversation, Peer, Question, Script, broker, metadata, silence, versions
from tests.unit.net.test_connection import Arrived
from tests.unit.net.written import Written

SET_UP_S: Final = 5.0
AT_ONCE_S: Final = 2.5
"""Far less than the set-up time: nothing was waited for."""
TURNS: Final = 200
"""Of the loop, for a handshake that fails: far more than one takes, far less than a busy loop would in that time."""
LONG_AGO: Final = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)


@functools.cache
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@functools.cache
def served() -> ssl.SSLContext:
    return authority().server_context()


def limited(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    context.minimum_version = context.maximum_version = version
    return context


def loops() -> list[Any]:
    found = [pytest.param(asyncio.run, id="asyncio")]
    if sys.platform != "win32":
        import uvloop

        found.append(pytest.param(uvloop.run, id="uvloop"))
    return found


@pytest.fixture(params=loops())
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run on each loop: users bring theirs."""
    found: Callable[[Coroutine[Any, Any, None]], None] = request.param
    return found


Runs = Callable[[Coroutine[Any, Any, None]], None]


class Client:
    """One attempt, and its connections."""

    def __init__(self, address: str, *, timeout: float = SET_UP_S, answer_timeout: float = SET_UP_S, tls: bool = True, network: SocketNetwork | None = None,
                 sockets: SocketOptions | None = None, canonical: bool = False, **options: Any) -> None:
        self.portal = LoopPortal("test", loop_reactor())
        self.portal.start()
        reactor = self.portal.reactor
        self.connections: list[Connection] = []
        self.lost: list[KafkaError] = []
        self.changes = asyncio.Event()
        given = {"ssl_truststore_certificates": authority().pem, **options} if "ssl_context" not in options else options
        contexts = TlsContexts(ProducerConfig.parse({"bootstrap_servers": address, "security_protocol": "SSL", **given}), Environment(), reactor) if tls else None
        self.attempt = ConnectAttempt(
            reactor, parse_addresses(address)[0], network or SocketNetwork(), sockets or SocketOptions(), first_address=0, timeout=timeout,
            answer_timeout=answer_timeout, make_connection=self._make, start=lambda work: Task(reactor, work), discard=self._give_up, security=Security(contexts), unverified=True, canonical=canonical)

    def _make(self, _endpoint: Endpoint) -> Connection:
        self.connections.append(Connection(
            "the peer", "c", reactor=self.portal.reactor, clock=time.monotonic, max_frame=1 << 26, on_change=self.changes.set, on_quiet=self.changes.set,
            on_lost=lambda _connection, cause: self._lose(cause), answers=AnswerListener()))
        return self.connections[-1]

    def _lose(self, cause: KafkaError) -> None:
        self.lost.append(cause)
        self.changes.set()

    def _give_up(self, connection: Connection) -> None:
        if connection.state is not State.CLOSED:
            connection.close(DisconnectError("given up"))

    async def failure(self) -> KafkaError:
        """Why it fails, at once; nothing is left."""
        began = time.monotonic()
        with pytest.raises(KafkaError) as caught:
            await self.ready()
        assert time.monotonic() - began < AT_ONCE_S
        await self.all_gone()
        return caught.value

    async def all_gone(self) -> None:
        async with asyncio.timeout(5):
            while len(self.lost) < len([each for each in self.connections if each.state is not State.CONNECTING]):
                self.changes.clear()
                await self.changes.wait()

    async def ready(self) -> InSteps:
        return InSteps(self.portal, await self.portal.call(self.attempt.connect))


def ask(connection: InSteps) -> asyncio.Future[Any]:
    """A Metadata request; its answer."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    fields = {"topics": [], "allow_auto_topic_creation": False, "include_cluster_authorized_operations": False,
              "include_topic_authorized_operations": False}
    connection.send(Request(node=1, use=Use.CONTROL, api=Api.METADATA, timeout=20.0, fields=lambda version: fields,
                      done=lambda now, outcome: answer.set_result(outcome)))
    return answer


# ---- it works -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_requests_are_answered_and_the_connection_went_through_its_states(run: Runs, version: str) -> None:
    async def steps() -> None:
        async with Peer(broker, tls=served()) as peer:
            client = Client(peer.address, ssl_enabled_protocols=version)
            connection = await client.ready()
            assert connection.state is State.READY
            assert connection.secured
            answers = await asyncio.gather(*[ask(connection) for _ in range(20)])
            assert all(isinstance(each, Reply) for each in answers)
            connection.close(DisconnectError("the test is over"))
            await client.all_gone()

    run(steps())


def test_the_users_own_context_is_used(run: Runs) -> None:
    own = ssl.create_default_context(cadata=authority().pem)

    async def steps() -> None:
        async with Peer(broker, tls=served()) as peer:
            client = Client(peer.address, ssl_context=own)
            (await client.ready()).close(DisconnectError("the test is over"))
            await client.all_gone()

    run(steps())


def test_the_host_name_is_checked_not_the_address_it_resolves_to(run: Runs) -> None:
    class Names(SocketNetwork):
        async def resolve(self, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
            return [Endpoint(socket.AF_INET, ("127.0.0.1", port))]

    async def steps() -> None:
        async with Peer(broker, tls=authority().server_context("kafka.example")) as peer:
            for name in ("kafka.example", "kafka.example."):
                client = Client(f"{name}:{peer.port}", network=Names())
                (await client.ready()).close(DisconnectError("the test is over"))
                await client.all_gone()
            assert "not for 127.0.0.1: it is for kafka.example" in str(await Client(peer.address).failure())

    run(steps())


def test_a_bootstrap_server_may_be_known_by_the_canonical_name_of_its_address(run: Runs) -> None:
    class Names(SocketNetwork):
        async def resolve(self, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
            return [Endpoint(socket.AF_INET, ("127.0.0.1", port))]

        async def canonical_name(self, reactor: Reactor, endpoint: Endpoint) -> str:
            return "broker-1.example"

    async def steps() -> None:
        async with Peer(broker, tls=authority().server_context("broker-1.example")) as peer:
            client = Client(f"kafka.example:{peer.port}", network=Names(), canonical=True)
            (await client.ready()).close(DisconnectError("the test is over"))
            await client.all_gone()
            assert "not for kafka.example" in str(await Client(f"kafka.example:{peer.port}", network=Names()).failure())

    run(steps())


def test_the_canonical_name_is_that_of_the_systems_resolver() -> None:
    async def steps(reactor: Reactor) -> None:
        here = ("127.0.0.1", 9092)
        assert await SocketNetwork().canonical_name(reactor, Endpoint(socket.AF_INET, here)) == socket.getnameinfo(here, 0)[0]

    run_in_task(steps)


def test_the_canonical_name_of_an_address_that_cannot_be_looked_up_is_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> tuple[str, str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    async def steps(reactor: Reactor) -> None:
        monkeypatch.setattr(socket, "getnameinfo", fails)
        assert await SocketNetwork().canonical_name(reactor, Endpoint(socket.AF_INET6, ("fe80::1%eth0", 9092, 0, 2))) == "fe80::1"

    run_in_task(steps)


def test_names_are_written_as_certificates_have_them() -> None:
    assert [tls_name(host) for host in ("a.example.", "fe80::1%eth0", "::1", "10.0.0.1")] == ["a.example", "fe80::1", "::1", "10.0.0.1"]


# ---- it does not, and says why --------------------------------------------------------------------------------------


def issued(*names: str, first: datetime.datetime = FIRST_DAY, last: datetime.datetime = LAST_DAY) -> ssl.SSLContext:
    return authority().server_context(certificate=authority().issue(*names, valid=(first, last)))


HERE: Final = ("127.0.0.1",)
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
TRUST: Final = [
    pytest.param(lambda: CertificateAuthority().server_context(), {}, "not signed by an authority that this client trusts. Add", id="unknown authority"),
    pytest.param(lambda: issued(*HERE, first=LONG_AGO, last=LONG_AGO + datetime.timedelta(days=1)), {}, "has expired", id="expired"),
    pytest.param(lambda: issued(*HERE, first=LAST_DAY, last=LAST_DAY + datetime.timedelta(days=1)), {}, "is not valid yet. Check the clocks", id="not yet"),
    pytest.param(lambda: issued("other.example", "*.kafka.example", "10.1.2.3"), {}, "not for 127.0.0.1: it is for other.example, *.kafka.example, 10.1.2.3",
                 id="wrong name"),
    pytest.param(lambda: limited(authority().server_context("other.example", clients=authority()), V12), {}, "it is for other names",
                 id="wrong name that is not shown"),
    pytest.param(lambda: limited(authority().server_context(), V12), {"ssl_enabled_protocols": "TLSv1.3"}, "no TLS version in common", id="broker too old"),
    pytest.param(lambda: limited(authority().server_context(), V13), {"ssl_enabled_protocols": "TLSv1.2"}, "no TLS version in common", id="client too old"),
    pytest.param(lambda: authority().server_context(), {"ssl_protocol": "TLSv1.2", "ssl_cipher_suites": "ECDHE-RSA-AES128-GCM-SHA256"},
                 "no cipher suite or key type in common, or the broker requires a client certificate", id="suites"),
    pytest.param(lambda: authority().server_context(), {"ssl_protocol": "TLSv1.2", "ssl_cipher_suites": "ECDHE-RSA-AES128-GCM-SHA256",
                                                        "ssl_keystore_certificate_chain": "", "ssl_keystore_key": "match"},
                 "no cipher suite or key type in common. Compare", id="suites with a certificate"),
    pytest.param(lambda: limited(authority().server_context(clients=authority()), V13), {}, "requires a client certificate, and none is set",
                 id="no certificate in 1.3"),
    pytest.param(lambda: limited(authority().server_context(clients=authority()), V12), {}, "client certificate", id="no certificate in 1.2"),
    *[pytest.param(lambda version=version: limited(authority().server_context(clients=CertificateAuthority()), version),
                   {"ssl_keystore_certificate_chain": authority().issue().chain, "ssl_keystore_key": "match"},
                   "does not accept the client's certificate: unknown ca", id=f"refused certificate in {version.name}") for version in (V12, V13)],
]


@functools.cache
def own() -> Any:
    return authority().issue()


@pytest.mark.parametrize(("server", "options", "said"), TRUST)
def test_a_problem_of_trust_is_raised_at_once(run: Runs, server: Callable[[], ssl.SSLContext], options: dict[str, Any], said: str) -> None:
    if options.get("ssl_keystore_key") == "match":
        options = {**options, "ssl_keystore_certificate_chain": own().chain, "ssl_keystore_key": own().key}

    async def steps() -> None:
        async with Peer(broker, tls=server()) as peer:
            error = await Client(peer.address, **options).failure()
            assert isinstance(error, SslAuthenticationError)
            assert isinstance(error, AuthenticationError)
            assert said in str(error)
            assert "the peer" in str(error)
            assert isinstance(error.__cause__, ssl.SSLError)
            async with asyncio.timeout(2):
                while peer.open:  # noqa: ASYNC110 also who only looked for the names has gone
                    await asyncio.sleep(0)

    run(steps())


def test_a_client_without_tls_at_a_listener_with_it_is_refused(run: Runs) -> None:
    async def hangs_up(conversation: Conversation) -> None:
        await conversation.question()

    async def alerts(conversation: Conversation) -> None:
        await conversation.question()
        conversation.say(b"\x15\x03\x03\x00\x02\x02\x50")
        await conversation.end()

    async def steps() -> None:
        async with Peer(alerts) as peer:
            error = await Client(peer.address, tls=False).failure()
            assert isinstance(error, SslAuthenticationError)
            assert "uses TLS, this client does not. Use security_protocol=SSL" in str(error)
            assert peer.connections == 1
        async with Peer(hangs_up) as peer:
            error = await Client(peer.address, tls=False).failure()
            assert isinstance(error, DisconnectError)
            assert "It may be a TLS listener: then set security_protocol=SSL" in str(error)
        async with Peer(broker, tls=served()) as peer:  # OpenSSL hangs up without an alert, so it is asked
            error = await Client(peer.address, tls=False).failure()
            assert isinstance(error, SslAuthenticationError)
            assert "uses TLS, this client does not" in str(error)

    run(steps())


@pytest.mark.parametrize(("said_by_peer", "said", "kind"), [
    (b"", "closed the connection during the TLS handshake", DisconnectError),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not use TLS. Use security_protocol=PLAINTEXT", SslAuthenticationError),
    (b"\x00\x00\x00\x10\x00\x00\x00\x01\x00\x23\x00\x00\x00\x00\x00\x00", "does not use TLS", SslAuthenticationError),
    (bytes(5000), "does not use TLS", SslAuthenticationError),
    (b"\x16\x03\x03\x00\x05garba", "the TLS handshake failed", DisconnectError),
])
def test_a_client_with_tls_at_a_listener_without_it_is_refused(run: Runs, said_by_peer: bytes, said: str, kind: type[KafkaError]) -> None:
    async def answers(conversation: Conversation) -> None:
        await conversation._reader.read(10)
        conversation.say(said_by_peer)
        if said_by_peer:
            await conversation.end()

    async def steps() -> None:
        async with Peer(answers) as peer:
            error = await Client(peer.address).failure()
            assert isinstance(error, kind), repr(error)
            assert said in str(error)
            assert peer.connections == (1 if said_by_peer else 2), "who hangs up without a word is asked once more, in plain words"

    run(steps())


def test_M16_a_listener_that_closes_tls_connections_and_answers_plain_ones_is_plaintext(run: Runs) -> None:
    async def hangs_up_on_tls(conversation: Conversation) -> None:
        if (await conversation._reader.readexactly(1)) == b"\x16":
            return
        size = int.from_bytes(await conversation._reader.readexactly(3), "big")
        question = Question(await conversation._reader.readexactly(size))
        conversation.answer(question, **versions())
        await conversation.end()

    async def steps() -> None:
        async with Peer(hangs_up_on_tls) as peer:
            error = await Client(peer.address).failure()
            assert isinstance(error, SslAuthenticationError), repr(error)
            assert "is a Kafka listener without TLS. Use security_protocol=PLAINTEXT" in str(error)
            assert isinstance(error.__cause__, OSError)
            assert peer.connections == 2

    run(steps())


@pytest.mark.parametrize("script", [silence])
def test_an_unanswered_handshake_counts_within_the_set_up_timeout_and_the_error_names_the_stage(run: Runs, script: Script) -> None:
    async def steps() -> None:
        async with Peer(script) as peer:
            client = Client(peer.address, timeout=0.3)
            with pytest.raises(ResponseTimeoutError, match="connected, no answer to the TLS handshake within 0.3 s"):
                await client.ready()
            await client.all_gone()
        async with Peer(script, tls=served()) as peer:
            client = Client(peer.address, timeout=0.5)
            with pytest.raises(ResponseTimeoutError, match="TLS handshake done, no answer to ApiVersions within 0.5 s"):
                await client.ready()
            await client.all_gone()

    run(steps())


@pytest.mark.parametrize("secured", [False, True], ids=["before TLS", "after TLS"])
def test_M05_an_unanswered_handshake_lasts_no_longer_than_a_request(run: Runs, secured: bool) -> None:
    async def steps() -> None:
        async with Peer(silence, tls=served() if secured else None) as peer:
            client = Client(peer.address, timeout=600.0, answer_timeout=0.3)
            with pytest.raises(ResponseTimeoutError, match=r"within 0\.3 s"):
                await client.ready()
            assert client.attempt.reached
            await client.all_gone()

    run(steps())


def test_a_problem_of_trust_at_one_address_is_not_hidden_by_an_unreachable_one(run: Runs) -> None:
    class Names(SocketNetwork):
        async def resolve(self, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
            return [Endpoint(socket.AF_INET, ("127.0.0.1", port)), Endpoint(socket.AF_INET, ("127.0.0.1", 1))]

    async def steps() -> None:
        async with Peer(broker, tls=CertificateAuthority().server_context()) as peer:
            error = await Client(f"localhost:{peer.port}", network=Names()).failure()
            assert isinstance(error, SslAuthenticationError)
            assert isinstance(error.__cause__, ssl.SSLError)

    run(steps())


def refusal(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize(("reason", "said"), [
    ("UNSUPPORTED_PROTOCOL", "no TLS version in common"), ("NO_SHARED_CIPHER", "no cipher suite"), ("HTTP_REQUEST", "does not use TLS"),
    ("DH_KEY_TOO_SMALL", "weaker than this machine's OpenSSL allows (DH_KEY_TOO_SMALL)"), ("CA_MD_TOO_WEAK", "weaker than"),
    ("TLSV1_ALERT_PROTOCOL_VERSION", "no TLS version in common"), ("TLSV1_ALERT_INSUFFICIENT_SECURITY", "no cipher suite"),
    ("TLSV1_UNRECOGNIZED_NAME", None), ("TLSV1_ALERT_UNRECOGNIZED_NAME", "the broker refuses the TLS handshake: unrecognized name"),
    ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "requires a client certificate"), ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "certificate expired"),
    ("TLSV1_ALERT_INTERNAL_ERROR", None), ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", None), ("SSLV3_ALERT_BAD_RECORD_MAC", None),
])
def test_openssls_errors_are_explained_and_network_failures_are_disconnects(reason: str, said: str | None) -> None:
    for error in (handshake_failed(refusal(reason), "b1", host="h"), lost_after_handshake(refusal(reason), "b1", has_identity=None)):
        assert isinstance(error, DisconnectError if said is None else SslAuthenticationError)
        assert (said or reason) in str(error)
        assert isinstance(error.__cause__, ssl.SSLError)


def test_a_client_certificate_that_was_presented_is_not_called_missing() -> None:
    alert = refusal("TLSV13_ALERT_CERTIFICATE_REQUIRED")
    assert "none is set" in str(lost_after_handshake(alert, "b1", has_identity=False))
    assert "does not accept the client's certificate" in str(lost_after_handshake(alert, "b1", has_identity=True))


# ---- the proxy ------------------------------------------------------------------------------------------------------


class Selector(selectors.DefaultSelector):
    """Counts how often the loop looks for something to do."""

    turns = 0

    def select(self, timeout: float | None = None) -> Any:
        self.turns += 1
        return super().select(timeout)


@pytest.mark.parametrize("to_client", [False, True])
@pytest.mark.parametrize("silently", [False, True])
def test_a_handshake_that_breaks_on_a_real_network_ends_in_a_clear_error_in_time(to_client: bool, silently: bool) -> None:
    selector = Selector()

    async def steps() -> None:
        async with Peer(broker, tls=served()) as peer:
            with FaultProxy(("127.0.0.1", peer.port)) as proxy:
                for after in range(0, 500, 100 if silently else 9):
                    proxy.break_after(after, to_client=to_client, silently=silently)
                    client = Client(proxy.address, timeout=0.2 if silently else SET_UP_S)
                    turns = selector.turns
                    with pytest.raises(ResponseTimeoutError if silently else DisconnectError):
                        await client.ready()
                    await client.all_gone()
                    assert selector.turns - turns < TURNS, "a busy loop"
                proxy.heal()
                client = Client(proxy.address)
                (await client.ready()).close(DisconnectError("the test is over"))
                await client.all_gone()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(steps())


# ---- the end --------------------------------------------------------------------------------------------------------


def unanswered(size: int) -> Request:
    return Written(lambda _version, number, _client: [number.to_bytes(4, "big") * (size // 4)], node=1, use=Use.PRODUCE, api=Api.PRODUCE, timeout=5.0,
                   versions=VersionRange(9, 9), answered=False, done=lambda now, outcome: None)


class Stalled:
    """A broker in a thread: reads so many requests on command, and then nothing more, not even that the client ends."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self.go_on, self.leave = threading.Event(), threading.Event()
        self.sizes: list[int] = []
        self.peer = raw_peers.Peer(self._talk)

    def _talk(self, connection: socket.socket) -> None:
        with served().wrap_socket(connection, server_side=True, suppress_ragged_eofs=False) as secured:
            _key, version, correlation_id = raw_peers.request(secured)
            secured.sendall(len(answer := encode_response(Api.API_VERSIONS, version, correlation_id, versions())).to_bytes(4, "big") + answer)
            self.go_on.wait(20)
            for _ in range(self._requests):
                self.sizes.append(len(raw_peers.exactly(secured, int.from_bytes(raw_peers.exactly(secured, 4), "big"))))
            self.leave.wait(20)


@pytest.mark.parametrize(("size", "count"), [(64, 5), (10_000, 40), (300_000, 3)])
def test_pending_bytes_are_written_before_closing_and_the_peer_is_not_waited_for(run: Runs, size: int, count: int) -> None:
    stalled = Stalled(count)

    async def steps() -> None:
        client = Client(stalled.peer.address, sockets=SocketOptions(send_buffer=4096))
        connection = await client.ready()
        for _ in range(count):
            connection.send(unanswered(size))
        connection.retire()
        stalled.go_on.set()
        async with asyncio.timeout(15):
            while len(stalled.sizes) < count:  # noqa: ASYNC110 the peer is a thread
                await asyncio.sleep(0)
        await client.all_gone()
        assert not stalled.leave.is_set()
        stalled.leave.set()

    with stalled.peer:
        run(steps())
    assert stalled.sizes == [size] * count


def test_an_idle_connection_closes_at_once_without_the_peers_close_notify(run: Runs) -> None:
    stalled = Stalled(0)

    async def steps() -> None:
        client = Client(stalled.peer.address)
        connection = await client.ready()
        assert not connection.unwritten
        connection.retire()
        await client.all_gone()
        stalled.leave.set()

    with stalled.peer:
        stalled.go_on.set()
        run(steps())


def test_a_connection_that_is_closing_is_not_closed_twice(run: Runs) -> None:
    async def steps() -> None:
        async with Peer(broker, tls=served()) as peer:
            client = Client(peer.address)
            await client.ready()
            connection, = client.connections

            def close_and_retire() -> None:
                connection.close(DisconnectError("first"))
                connection.retire()

            client.portal.run(close_and_retire)
            assert not connection.unwritten
            await client.all_gone()
            assert [str(each) for each in client.lost] == ["first"]

    run(steps())


class Refused(Arrived):
    """A channel on which the broker's alert comes behind the handshake."""

    def attach(self, on_events: Callable[[int], object]) -> None:
        on_events(READABLE)

    def read_into(self, buffer: bytearray, start: int) -> int:
        raise refusal("TLSV13_ALERT_CERTIFICATE_REQUIRED")


def test_a_refusal_before_the_first_request_is_what_that_request_raises() -> None:
    async def steps(reactor: Reactor) -> None:
        connection = Connection(
            "the peer", "c", reactor=idle_portal().reactor, clock=time.monotonic, max_frame=1 << 26, on_change=lambda: None, on_quiet=lambda: None,
            on_lost=lambda *_: None, answers=AnswerListener())
        connection.advance(Event.OPENED_FOR_TLS)
        connection.attach(Refused([]))
        with pytest.raises(SslAuthenticationError, match="requires a client certificate"):
            await connection.introduce(ClientInfo("c", "1"), 4, 1.0)

    run_in_task(steps)


def test_an_orderly_close_by_the_peer_closes_the_connection(run: Runs) -> None:
    async def one(conversation: Conversation) -> None:
        await conversation.introduce()

    async def steps() -> None:
        async with Peer(one, tls=served()) as peer:
            client = Client(peer.address)
            connection = await client.ready()
            await client.all_gone()
            assert connection.state is State.CLOSED
            assert isinstance(client.lost[-1], DisconnectError)

    run(steps())


# ---- bytes ----------------------------------------------------------------------------------------------------------


def test_pending_requests_wait_unencrypted_and_the_connection_takes_no_more() -> None:
    async def steps() -> None:
        read = asyncio.Event()

        async def late(conversation: Conversation) -> None:
            await conversation.introduce()
            await read.wait()
            for _ in range(2):
                conversation.answer(await conversation.question(), **metadata((1, *conversation.here)))

        async with Peer(late, tls=served()) as peer:
            client = Client(peer.address)
            connection = await client.ready()
            for _ in range(10):
                connection.send(unanswered(2_000_000))
            assert not connection.accepts_requests()
            assert sum(map(len, connection._pieces)) > 10_000_000
            assert isinstance(connection._channel, TlsChannel)
            assert sum(map(len, connection._channel._encrypted)) < 2 * CHUNK
            connection.close(DisconnectError("the test is over"))
            await client.all_gone()

    asyncio.run(steps())


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(1, 3000), max_size=30), version=st.sampled_from(["TLSv1.2", "TLSv1.3"]))
def test_responses_are_the_same_however_the_tls_stream_is_split(cuts: list[int], version: str) -> None:
    """Between a client and its broker stands somebody who cuts the stream where it likes."""
    async def steps() -> None:
        async with Peer(broker, tls=served()) as peer:

            async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                sizes = iter([*cuts, *[65_536] * 10_000])
                while data := await reader.read(next(sizes)):
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(0)
                writer.close()

            async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                there, back = await asyncio.open_connection("127.0.0.1", peer.port)
                await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)
                writer.close()

            server = await asyncio.start_server(between, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            client = Client(str(Address("127.0.0.1", port)), ssl_enabled_protocols=version)
            connection = await client.ready()
            answers = await asyncio.gather(*[ask(connection) for _ in range(5)])
            assert all(isinstance(each, Reply) for each in answers)
            connection.close(DisconnectError("the test is over"))
            await client.all_gone()
            server.close()
            await server.wait_closed()

    asyncio.run(steps())
