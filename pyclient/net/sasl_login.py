"""How one client logs in (SASL): its mechanism, made once, and the worker in which the mechanism does what may take long."""
from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from random import Random
from typing import Any, Final, Self

import attrs

from pyclient.config.addresses import is_loopback
from pyclient.config.declaration import Config
from pyclient.core.handshake import Versions
from pyclient.core.sasl import Credentials, LoginExchange, log_in, renewal_after
from pyclient.errors import ConfigurationError
from pyclient.plugins import ChecksOptions, RenewsCredentials, SaslMechanism, SeesClose, Surroundings, TakesSurroundings, load_plugin
from pyclient.runtime.environment import Environment
from pyclient.runtime.offload import Offload
from pyclient.redaction import without

_log = logging.getLogger(__name__)
WORKER: Final = "pyclient-login"
READABLE: Final = {"PLAIN": "password", "OAUTHBEARER": "token"}
"""What mechanisms send as it is: without TLS, who reads it on its way can be the client."""


@attrs.frozen
class Login:
    """Logging in to one host, by `Connection.authenticate`: on a new connection, and anew before the session ends."""

    logins: Logins
    host: str

    def exchange(self, versions: Versions, *, peer: str, anew: bool) -> LoginExchange:
        """What to ask, compute and await; *peer* is the broker's name in errors."""
        return log_in(self.logins.to(self.host, peer), versions, anew=anew)

    async def in_worker(self, work: Callable[[], Any]) -> Any:
        """Do it apart from the loop."""
        return await self.logins.in_worker(work)

    def renewal_after(self, lifetime: float) -> float:
        """Seconds after which a session of this life is renewed."""
        return renewal_after(lifetime, self.logins.random)


class Logins:
    """The logins of one client. Use it on one loop; `close` ends it."""

    def __init__(self, mechanism: SaslMechanism, config: Config, environment: Environment, random: Random) -> None:
        self._mechanism = mechanism
        self._config = config
        self._offloading = Offload(environment, WORKER, lambda: None)
        self.random = random

    def __repr__(self) -> str:
        return f"<Logins by {self._mechanism.name}>"

    @classmethod
    def of(cls, config: Any, environment: Environment, random: Random) -> Self | None:
        """As the options say; None where the protocol has no login. Waits for nothing.

        Raises:
            ConfigurationError: there is no such mechanism, or an option that it needs is missing.
        """
        if not config.security_protocol.startswith("SASL_"):
            _warn_of_unused(config)
            return None
        mechanism: Any = _loaded(config.sasl_mechanism)
        if isinstance(mechanism, TakesSurroundings):
            mechanism.run_in(Surroundings(environment.wall, environment.token_bytes, random.random))
        if isinstance(mechanism, ChecksOptions):
            mechanism.check(config)
        _warn_of_readers(mechanism.name, config)
        return cls(mechanism, config, environment, random)

    @property
    def may_change(self) -> bool:
        """Whether a login that was refused may be accepted later: tokens and tickets change, passwords do not."""
        return isinstance(self._mechanism, RenewsCredentials) and bool(self._mechanism.renews)

    def login(self, host: str) -> Login:
        """The way to log in to *host*."""
        return Login(self, host)

    def to(self, host: str, peer: str) -> Credentials:
        """Who logs in, and to which host."""
        return Credentials(mechanism=self._mechanism, config=self._config, host=host, peer=peer, hide=self._without_secrets)

    async def in_worker(self, work: Callable[[], Any]) -> Any:
        """Do it in the client's one worker for logins; its result or exception is this call's."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def tell(result: Any, error: BaseException | None) -> None:
            if not done.done():
                if error is not None:
                    done.set_exception(_harmless(error))
                else:
                    done.set_result(result)

        self._offloading.run(work, tell)
        return await done

    def _without_secrets(self, text: str) -> str:
        """Taken from the options each time: kept beside them, they would be seen where objects are shown."""
        return without(_secrets(self._config), text)

    def close(self) -> None:
        """On the loop: begin nothing more. A worker that is still busy is not waited for."""
        self._offloading.close()
        if isinstance(self._mechanism, SeesClose):
            try:
                self._mechanism.close()
            except Exception:  # noqa: BLE001 a user's mechanism must not keep the client from its end
                _log.exception("the close of the mechanism %s raised", self._mechanism.name)


def _loaded(spec: str) -> Any:
    try:
        found: Any = load_plugin("sasl mechanism", spec)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, option="sasl_mechanism") from error
    if not isinstance(getattr(found, "name", None), str):
        raise ConfigurationError(f"{spec!r} is no sasl mechanism: its name is no text, such as PLAIN", option="sasl_mechanism")
    if inspect.iscoroutinefunction(found.exchange) or inspect.isasyncgenfunction(found.exchange):
        raise ConfigurationError(f"{spec!r} is no sasl mechanism: its exchange is async. Write a plain generator, which yields what is to be awaited",
                                 option="sasl_mechanism")
    return found


def _harmless(error: BaseException) -> Exception:
    """What a worker raised, as something that ends the login, and not the loop of the client or the task that logs in."""
    if isinstance(error, Exception):
        return error
    made = RuntimeError(f"it raised {type(error).__name__}")
    made.__cause__ = error
    return made


def _warn_of_unused(config: Any) -> None:
    unused = sorted(name for name in config.given if name.startswith("sasl_"))
    if unused:
        _log.warning("security_protocol is %s, so nobody logs in; these options do nothing: %s. Set security_protocol to SASL_SSL or SASL_PLAINTEXT, or leave them out",
                     config.security_protocol, ", ".join(unused))


def _warn_of_readers(mechanism: str, config: Any) -> None:
    far = [str(each) for each in config.bootstrap_servers if not is_loopback(each.host)]
    if config.security_protocol == "SASL_PLAINTEXT" and mechanism in READABLE and far:
        _log.warning("security_protocol is SASL_PLAINTEXT and sasl_mechanism %s: the %s crosses the network readable, to %s; use SASL_SSL%s",
                     mechanism, READABLE[mechanism], ", ".join(far), ", or SCRAM-SHA-512" if mechanism == "PLAIN" else "")


def _secrets(config: Config) -> set[str]:
    return {value for option, value in config if option.secret and isinstance(value, str) and value}
