"""The login of one connection (SASL) as an exchange: the mechanism's messages, carried by SaslHandshake and SaslAuthenticate.

Knows no mechanism and no secret. What a mechanism has to compute or wait for is yielded as `Work` or `Wait`: who does it, and on which
thread, is not known here. A login gives the seconds that the broker lets the session live; None means for ever.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import attrs

from pyclient.codec.apis import Api, VersionRange
from pyclient.core.handshake import Ask, Versions
from pyclient.errors import DisconnectError, KafkaError, SaslAuthenticationError, UnsupportedSaslMechanismError, error_for
from pyclient.plugins import SaslMechanism
from pyclient.redaction import in_one_line

if TYPE_CHECKING:
    from random import Random

UNSUPPORTED_MECHANISM: Final = 33
REFUSED: Final = 58
FRAMED: Final = VersionRange(1, 1)
"""In version 0 of SaslHandshake the messages that follow are no requests; brokers before 1.0 need that."""
ANY: Final = "PLAIN"
"""A mechanism to ask with, to learn which there are."""
ROUNDS: Final = 16
"""Messages of one login. Kerberos needs four at most; a peer that never comes to an end is cut off."""
NOT_SHOWN: Final = "(not shown: the mechanism cannot tell what is secret in it)"
WORDS: Final = 500
"""Characters that are shown of what a broker says."""
RENEWED_AT: Final = (0.85, 0.95)
"""The part of a session's life after which it is renewed (KIP-368), as Java's client has it."""
LEAST_REST_S: Final = 0.5
"""A broker that is busy serves some time later what was written before, and hangs up if the session is over by then."""
SHORTEST_S: Final = 1.1
"""Brokers refuse to be asked anew within a second of the last time."""


@attrs.frozen
class Work:
    """Something that may take long or block: call it apart from the loop, and send the result."""

    run: Callable[[], Any]


@attrs.frozen
class Wait:
    """Something that must be awaited on the client's loop; its result is to be sent."""

    on: Awaitable[Any]


LoginExchange: TypeAlias = Generator[Ask | Work | Wait, Any, float | None]
_Reply: TypeAlias = Generator[Ask | Work | Wait, Any, bytes | None]


@attrs.frozen(kw_only=True)
class Credentials:
    """Who logs in, how, and to which host; ``peer`` is its name in errors. ``hide`` takes secrets out of what a broker says."""

    mechanism: SaslMechanism
    config: Any = attrs.field(repr=False)
    host: str
    peer: str = "the broker"
    hide: Callable[[str], str] = attrs.field(default=str, repr=False)

    def shown(self, text: str) -> str:
        """Somebody else's words as far as they may stand in an error: without secrets, bounded, on one line."""
        return in_one_line(self._hidden(self.hide(text)), WORDS)

    def _hidden(self, text: str) -> str:
        """By the mechanism, if it knows secrets of its own. A defect in it must not turn a refusal into something that is tried again."""
        hide = getattr(self.mechanism, "hide", None)
        if not callable(hide):
            return text
        try:
            hidden = hide(text)
        except Exception as error:  # noqa: BLE001 a user's
            hidden = error
        return hidden if isinstance(hidden, str) else NOT_SHOWN

    @property
    def advice(self) -> str:
        """Which options to look at when the login is refused."""
        options = getattr(self.mechanism, "options", ())
        names = [options] if isinstance(options, str) else options if isinstance(options, Sequence) else ()
        return f"check {' and '.join(map(str, names)) or 'the sasl_ options'}"


def log_in(who: Credentials, versions: Versions, *, anew: bool = False) -> LoginExchange:
    """Authenticate on a new connection, or *anew* on one in use (KIP-368).

    The mechanism's first message is made before anything is asked: when that fails, a session that is being renewed stays as it was.

    Raises:
        UnsupportedSaslMechanismError: the listener does not offer the mechanism; names what it offers.
        SaslAuthenticationError: refused, or the mechanism failed.
        KafkaError: the broker answered otherwise, or not at all.
    """
    talk = _Talk(who)
    try:
        message = yield from talk.hear(None)
        yield from _shake_hands(who, versions, anew=anew)
        return (yield from _authenticate(who, versions.choose(Api.SASL_AUTHENTICATE), talk, message))
    finally:
        talk.end()


def see_that_nobody_must_log_in(versions: Versions, peer: str) -> Generator[Ask, Any, None]:
    """Ask a listener that hung up on the first request whether it wants a login: brokers say no word to who asks anything before.

    Raises:
        SaslAuthenticationError: it does; names its mechanisms.
    """
    if not versions.usable(Api.SASL_HANDSHAKE, FRAMED):
        return
    answer = yield Ask(Api.SASL_HANDSHAKE, FRAMED.high, {"mechanism": ANY})
    if answer.error_code in (0, UNSUPPORTED_MECHANISM):
        raise SaslAuthenticationError(
            f"{peer} wants a login, and this client has none. It offers {in_one_line(', '.join(answer.mechanisms), WORDS)}: set security_protocol to SASL_PLAINTEXT "
            "or SASL_SSL, sasl_mechanism and its options, or use the port of a listener without SASL.")


def renewal_after(lifetime: float, random: Random) -> float:
    """Seconds after which a session that lives *lifetime* seconds is renewed, each connection by chance at another time."""
    return max(min(lifetime * random.uniform(*RENEWED_AT), lifetime - LEAST_REST_S), SHORTEST_S)


def usable_for(lifetime: float) -> float:
    """Seconds for which requests may be written in a session of *lifetime* seconds, though it could not be renewed."""
    return lifetime - min(LEAST_REST_S, lifetime / 10)


def _shake_hands(who: Credentials, versions: Versions, *, anew: bool) -> Generator[Ask, Any, None]:
    name = who.mechanism.name
    question = Ask(Api.SASL_HANDSHAKE, versions.choose(Api.SASL_HANDSHAKE, FRAMED), {"mechanism": name})
    try:
        answer = yield question
    except DisconnectError as lost:
        if anew:  # it was no reason to hang up the first time
            raise
        raise DisconnectError(
            f"{str(lost).rstrip('.')}. It did so when it was asked to log in: is this a listener with SASL? Check security_protocol and the port.") from lost
    if answer.error_code == UNSUPPORTED_MECHANISM:
        offered = who.shown(", ".join(answer.mechanisms)) or "none"
        raise UnsupportedSaslMechanismError(
            f"the listener of {who.peer} does not offer {name}; it offers {offered}: set sasl_mechanism to one of these, or enable it there "
            "(sasl.enabled.mechanisms)")
    if answer.error_code:
        raise error_for(answer.error_code, f"{who.peer} does not begin a login by {name}")


def _authenticate(who: Credentials, version: int, talk: _Talk, message: bytes | None) -> LoginExchange:
    for _ in range(ROUNDS):
        if message is None:
            raise SaslAuthenticationError(f"the mechanism {who.mechanism.name} ended without a message")
        answer = yield from _say(who, version, message)
        if answer.error_code:
            yield from talk.refuse(_refusal(who, answer))
        message = yield from talk.hear(bytes(answer.auth_bytes))
        if message is None:
            return _lifetime(answer)
    raise SaslAuthenticationError(f"the login by {who.mechanism.name} came to no end in {ROUNDS} messages")


def _say(who: Credentials, version: int, message: bytes) -> Generator[Ask, Any, Any]:
    try:
        return (yield Ask(Api.SASL_AUTHENTICATE, version, {"auth_bytes": message}))
    except DisconnectError as lost:
        raise DisconnectError(
            f"{str(lost).rstrip('.')}. It did so during the login by {who.mechanism.name}: some brokers hang up where others refuse, so {who.advice}.") from lost


def _refusal(who: Credentials, answer: Any) -> KafkaError:
    said = who.shown(answer.error_message or "")
    if answer.error_code == REFUSED:
        return SaslAuthenticationError(f"{who.peer} refused the login by {who.mechanism.name}: {said.rstrip('. ') or 'it says no more'}; {who.advice}")
    return error_for(answer.error_code, said)


def _lifetime(answer: Any) -> float | None:
    """Seconds; version 0 tells none, and 0 is for ever."""
    lifetime = getattr(answer, "session_lifetime", None)
    seconds: float = 0.0 if lifetime is None else lifetime.total_seconds()
    return seconds if seconds > 0 else None


class _Talk:
    """The mechanism's generator. It yields messages, and things to be awaited in between; whatever it raises comes out as a KafkaError."""

    def __init__(self, who: Credentials) -> None:
        self._who = who
        self._blocking = bool(getattr(who.mechanism, "blocking", True))
        self._steps: Generator[Any, Any, None] | None = None

    def hear(self, answer: bytes | None) -> _Reply:
        """Its next message, after it was sent the broker's answer; None when it is done."""
        try:
            return (yield from self._on(functools.partial(self._send, answer)))
        except KafkaError:
            raise
        except Exception as error:
            name = self._who.mechanism.name
            raise SaslAuthenticationError(f"the mechanism {name} failed: {type(error).__name__}: {self._who.shown(str(error))}") from error

    def refuse(self, error: KafkaError) -> Generator[Ask | Work | Wait, Any, NoReturn]:
        """The broker's refusal, which the mechanism may explain by raising another KafkaError in its place."""
        try:
            yield from self._on(functools.partial(self._throw, error))
        except KafkaError as explained:
            if explained is not error:
                raise explained from error
        except Exception as defect:
            raise error from defect
        raise error

    def end(self) -> None:
        """Nothing more is asked of it."""
        if self._steps is not None:
            with contextlib.suppress(Exception):  # a worker that was given up may still be in it
                self._steps.close()

    def _on(self, step: Callable[[], Any]) -> _Reply:
        while True:
            made = (yield Work(functools.partial(_stepped, step))) if self._blocking else _stepped(step)
            if made is None or isinstance(made, bytes):
                return made
            if not inspect.isawaitable(made):
                raise TypeError(f"it yielded a {type(made).__name__}; bytes or an awaitable are allowed")
            try:
                result = yield Wait(made)
            except Exception as error:  # noqa: BLE001 the mechanism is told what became of it
                step = functools.partial(self._throw, error)
            else:
                step = functools.partial(self._send, result)

    def _send(self, value: Any) -> Any:
        if self._steps is None:  # made here, so that a blocking one is entered apart from the loop too
            self._steps = self._who.mechanism.exchange(self._who.config, self._who.host)
        return self._steps.send(value)

    def _throw(self, error: Exception) -> Any:
        assert self._steps is not None
        return self._steps.throw(error)


def _stepped(step: Callable[[], Any]) -> Any:
    """What the generator yields next; None at its end, for StopIteration cannot leave a thread."""
    try:
        made = step()
    except StopIteration:
        return None
    if made is None:
        raise TypeError("it yielded None; bytes or an awaitable are allowed")
    return bytes(made) if isinstance(made, (bytearray, memoryview)) else made
