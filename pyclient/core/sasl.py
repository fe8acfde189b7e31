"""SASL authentication as an exchange: the mechanism's messages inside SaslHandshake and SaslAuthenticate.

Independent of mechanisms and secrets. Work that a mechanism must compute or await is yielded as `Work` or `Wait`; the
caller chooses the thread. The exchange returns the session lifetime in seconds; None means unlimited.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from pyclient.codec.apis import Api, VersionRange
from pyclient.core.handshake import HandshakeRequest, Versions
from pyclient.errors import DisconnectError, KafkaError, SaslAuthenticationError, UnsupportedSaslMechanismError, error_for, with_article
from pyclient.plugins import SaslMechanism
from pyclient.redaction import SecretBytes, encoded_forms, in_one_line, without

UNSUPPORTED_MECHANISM: Final = 33
SASL_AUTHENTICATION_FAILED: Final = 58
FRAMED: Final = VersionRange(1, 1)
"""After SaslHandshake v0 the messages are not Kafka requests; only brokers before 1.0 need that."""
PROBE_MECHANISM: Final = "PLAIN"
"""Any mechanism name makes a SASL listener list its mechanisms."""
ROUNDS: Final = 16
"""Messages of one login. Kerberos needs four at most; a peer that continues beyond this is disconnected."""
NOT_SHOWN: Final = "(not shown: the mechanism could not remove its secrets)"


@attrs.frozen
class Work:
    """A call that may block: run it outside of the reactor and send its result."""

    run: Callable[[], Any]


@attrs.frozen
class Wait:
    """Await this on the user's loop, or in the login's thread, and send its result."""

    on: Awaitable[Any]


LoginExchange: TypeAlias = Generator[HandshakeRequest | Work | Wait, Any, float | None]
_Reply: TypeAlias = Generator[HandshakeRequest | Work | Wait, Any, bytes | None]


@attrs.frozen(kw_only=True)
class Credentials:
    """Mechanism, options and host of one login.

    ``peer`` names the broker in errors; ``hide`` removes secrets from its text.
    """

    mechanism: SaslMechanism
    config: Any = attrs.field(repr=False)
    host: str
    peer: str = "the broker"
    hide: Callable[[str], str] = attrs.field(default=str, repr=False)

    def shown(self, text: str, message: bytes = b"") -> str:
        """A broker's text for an error message: of limited length, on one line, without secrets.

        *message* is what it answers: the text may repeat it.
        """
        return in_one_line(self._hidden(self.hide(without(encoded_forms(message), text))))

    def _hidden(self, text: str) -> str:
        """Without the mechanism's own secrets.

        If its ``hide`` raises, the refusal must still be raised as a refusal.
        """
        hide = getattr(self.mechanism, "hide", None)
        if not callable(hide):
            return text
        try:
            hidden = hide(text)
        except Exception as error:  # noqa: BLE001 user code
            hidden = error
        return hidden if isinstance(hidden, str) else NOT_SHOWN

    @property
    def advice(self) -> str:
        """Which options to check when the broker refuses the login."""
        options = getattr(self.mechanism, "options", ())
        names = [options] if isinstance(options, str) else options if isinstance(options, Sequence) else ()
        return f"check {' and '.join(map(str, names)) or 'the sasl_ options'}"


def log_in(credentials: Credentials, versions: Versions, *, again: bool = False) -> LoginExchange:
    """Authenticate a new connection, or *again* one that is in use (KIP-368).

    The mechanism makes its first message before any request: if that fails, a session being renewed is unaffected.

    Raises:
        UnsupportedSaslMechanismError: the listener does not offer the mechanism; lists what it offers.
        SaslAuthenticationError: refused, or the mechanism failed.
        KafkaError: another error response, or none at all.
    """
    steps = _MechanismSteps(credentials)
    try:
        message = yield from steps.next_message(None)
        yield from _sasl_handshake(credentials, versions, again=again)
        return (yield from _authenticate(credentials, versions.choose(Api.SASL_AUTHENTICATE), steps, message))
    finally:
        steps.close()


def check_no_login_required(versions: Versions, peer: str) -> Generator[HandshakeRequest, Any, None]:
    """Find out whether a listener that closed the connection on the first request requires SASL.

    A SASL listener closes the connection without an explanation when any other request comes before the login.

    Raises:
        SaslAuthenticationError: it does; lists its mechanisms.
    """
    if not versions.usable(Api.SASL_HANDSHAKE, FRAMED):
        return
    response = yield HandshakeRequest(Api.SASL_HANDSHAKE, FRAMED.high, {"mechanism": PROBE_MECHANISM})
    if response.error_code in (0, UNSUPPORTED_MECHANISM):
        raise SaslAuthenticationError(
            f"{peer} requires a login, and no login is configured. It offers {in_one_line(', '.join(response.mechanisms))}: set "
            "security_protocol to SASL_PLAINTEXT or SASL_SSL, sasl_mechanism and its options, or use the port of a listener without SASL.")


def _sasl_handshake(credentials: Credentials, versions: Versions, *, again: bool) -> Generator[HandshakeRequest, Any, None]:
    name = credentials.mechanism.name
    request = HandshakeRequest(Api.SASL_HANDSHAKE, versions.choose(Api.SASL_HANDSHAKE, FRAMED), {"mechanism": name})
    try:
        response = yield request
    except DisconnectError as lost:
        if again:  # this listener has accepted SASL before
            raise
        raise DisconnectError(
            f"{str(lost).rstrip('.')}. It did so when the login began (SaslHandshake): the listener may not use SASL. Check security_protocol and the port.") from lost
    if response.error_code == UNSUPPORTED_MECHANISM:
        offered = credentials.shown(", ".join(response.mechanisms)) or "none"
        raise UnsupportedSaslMechanismError(
            f"the listener of {credentials.peer} does not offer {name}; it offers {offered}: set sasl_mechanism to one of these, or enable it in the "
            "broker (sasl.enabled.mechanisms)")
    if response.error_code:
        raise error_for(response.error_code, f"{credentials.peer} refused SaslHandshake for {name}")


def _authenticate(credentials: Credentials, version: int, steps: _MechanismSteps, message: bytes | None) -> LoginExchange:
    for _ in range(ROUNDS):
        if message is None:
            raise SaslAuthenticationError(f"the mechanism {credentials.mechanism.name} ended without a message")
        response = yield from _sasl_authenticate(credentials, version, message)
        if response.error_code:
            yield from steps.reject(_refusal(credentials, response))
        message = yield from steps.next_message(response.data)
        if message is None:
            return response.lifetime
    raise SaslAuthenticationError(f"the login by {credentials.mechanism.name} did not end within {ROUNDS} messages")


@attrs.frozen
class _Response:
    """A response of SaslAuthenticate. It may repeat the message that it answers: its ``repr`` shows no secret."""

    error_code: int
    text: str
    """For errors: without secrets."""
    data: SecretBytes
    lifetime: float | None


def _sasl_authenticate(credentials: Credentials, version: int, message: bytes) -> Generator[HandshakeRequest, Any, _Response]:
    try:
        response = yield HandshakeRequest(Api.SASL_AUTHENTICATE, version, {"auth_bytes": message})
        return _Response(response.error_code, credentials.shown(response.error_message or "", message), SecretBytes(response.auth_bytes), _lifetime(response))
    except DisconnectError as lost:
        raise DisconnectError(
            f"{str(lost).rstrip('.')}. It did so during the login by {credentials.mechanism.name}; some brokers disconnect instead of refusing: "
            f"{credentials.advice}.") from lost


def _refusal(credentials: Credentials, response: _Response) -> KafkaError:
    text = response.text
    if response.error_code == SASL_AUTHENTICATION_FAILED:
        return SaslAuthenticationError(
            f"{credentials.peer} refused the login by {credentials.mechanism.name}: {text.rstrip('. ') or 'no reason given'}; {credentials.advice}")
    return error_for(response.error_code, text)


def _lifetime(response: Any) -> float | None:
    """Seconds; version 0 has no such field, and 0 means unlimited."""
    lifetime = getattr(response, "session_lifetime", None)
    seconds: float = 0.0 if lifetime is None else lifetime.total_seconds()
    return seconds if seconds > 0 else None


class _MechanismSteps:
    """Runs the mechanism's generator, which yields messages and awaitables; what it raises becomes a KafkaError."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._blocking = bool(getattr(credentials.mechanism, "blocking", True))
        self._steps: Generator[Any, Any, None] | None = None

    def next_message(self, response: bytes | None) -> _Reply:
        """Send the broker's response and return the next message; None when the mechanism is done."""
        try:
            return (yield from self._run(functools.partial(self._send, response)))
        except KafkaError:
            raise
        except Exception as error:
            name = self._credentials.mechanism.name
            raise SaslAuthenticationError(f"the mechanism {name} failed: {type(error).__name__}: {self._credentials.shown(str(error))}") from error

    def reject(self, error: KafkaError) -> Generator[HandshakeRequest | Work | Wait, Any, NoReturn]:
        """Throw the broker's refusal in; the mechanism may raise a more precise KafkaError in its place."""
        try:
            yield from self._run(functools.partial(self._throw, error))
        except KafkaError as explained:
            if explained is not error:
                raise explained from error
        except Exception as defect:
            raise error from defect
        raise error

    def close(self) -> None:
        """Close the generator."""
        if self._steps is not None:
            with contextlib.suppress(Exception):  # a cancelled login may still be inside it, in the worker
                self._steps.close()

    def _run(self, step: Callable[[], Any]) -> _Reply:
        while True:
            made = (yield Work(functools.partial(_next_item, step))) if self._blocking else _next_item(step)
            if made is None or isinstance(made, bytes):
                return made
            if not inspect.isawaitable(made):
                raise TypeError(f"it yielded {with_article(type(made).__name__)}; bytes or an awaitable are allowed")
            try:
                result = yield Wait(made)
            except Exception as error:  # noqa: BLE001 the mechanism decides what a failure means
                step = functools.partial(self._throw, error)
            else:
                step = functools.partial(self._send, result)

    def _send(self, value: Any) -> Any:
        if self._steps is None:  # created here, so that a blocking mechanism is entered outside of the reactor too
            self._steps = self._credentials.mechanism.exchange(self._credentials.config, self._credentials.host)
        return self._steps.send(value)

    def _throw(self, error: Exception) -> Any:
        assert self._steps is not None
        return self._steps.throw(error)


def _next_item(step: Callable[[], Any]) -> Any:
    """What the generator yields next; None at its end, because StopIteration cannot leave a worker."""
    try:
        made = step()
    except StopIteration:
        return None
    if made is None:
        raise TypeError("it yielded None; bytes or an awaitable are allowed")
    return SecretBytes(made) if isinstance(made, (bytes, bytearray, memoryview)) else made
