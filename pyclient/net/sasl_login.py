"""The SASL login of one client: its mechanism, created once, and the worker in which a blocking mechanism runs."""
from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from pyclient.config.addresses import is_loopback
from pyclient.config.declaration import Config
from pyclient.core.handshake import Versions
from pyclient.core.sasl import Credentials, LoginExchange, log_in
from pyclient.errors import ConfigurationError
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import ChecksOptions, RenewsCredentials, SaslMechanism, SeesClose, Surroundings, TakesSurroundings
from pyclient.redaction import encoded_forms, without
from pyclient.reactor.tasks import CancelledError, Future
from pyclient.runtime.environment import Environment
from pyclient.runtime.offload import Offload
from pyclient.runtime.portals import Portal

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger(__name__)
WORKER: Final = "pyclient-login"
SENT_READABLE: Final = {"PLAIN": "password", "OAUTHBEARER": "token"}
"""What these mechanisms send readable: without TLS, any network observer can then log in as the client."""


@attrs.frozen
class SaslLogin:
    """The login to one host, for `Connection.authenticate`."""

    client: SaslClient
    host: str

    def exchange(self, versions: Versions, *, peer: str, again: bool) -> LoginExchange:
        """The steps of the login; *peer* names the broker in errors. *again*: on a connection that has a session."""
        return log_in(self.client.credentials(self.host, peer), versions, again=again)

    async def in_worker(self, work: Callable[[], Any]) -> Any:
        """Run *work* outside of the reactor."""
        return await self.client.in_worker(work)

    async def awaited(self, awaitable: Awaitable[Any]) -> Any:
        """Await what a user's function has returned, outside of steps."""
        return await self.client.awaited(awaitable)

    @property
    def random(self) -> Random:
        """Chooses when to renew a session."""
        return self.client.random


class SaslClient:
    """The mechanism of one client and its worker; `close` ends it."""

    def __init__(self, mechanism: SaslMechanism, config: Config, environment: Environment, portal: Portal, random: Random) -> None:
        self._mechanism = mechanism
        self._config = config
        self._portal = portal
        self._worker = Offload(environment, portal.reactor, WORKER)
        self._runner: asyncio.Runner | None = None
        self.random = random

    def __repr__(self) -> str:
        return f"<SaslClient {self._mechanism.name}>"

    @classmethod
    def of(cls, config: Any, environment: Environment, portal: Portal, random: Random) -> Self | None:
        """From the options; None if ``security_protocol`` has no SASL.

        Raises:
            ConfigurationError: there is no such mechanism, or an option that it needs is missing.
        """
        if not config.security_protocol.startswith("SASL_"):
            _warn_about_unused_options(config)
            return None
        mechanism: Any = _load(config.sasl_mechanism)
        if isinstance(mechanism, TakesSurroundings):
            mechanism.run_in(Surroundings(environment.wall, environment.token_bytes, random.random))
        if isinstance(mechanism, ChecksOptions):
            mechanism.check(config)
        _warn_about_readable_secrets(mechanism.name, config)
        return cls(mechanism, config, environment, portal, random)

    @property
    def may_change(self) -> bool:
        """Whether a refused login may be accepted later: tokens and tickets change, passwords do not."""
        return isinstance(self._mechanism, RenewsCredentials) and bool(self._mechanism.renews)

    def login(self, host: str) -> SaslLogin:
        """The login to *host*."""
        return SaslLogin(self, host)

    def credentials(self, host: str, peer: str) -> Credentials:
        """What a login to *host* needs."""
        return Credentials(mechanism=self._mechanism, config=self._config, host=host, peer=peer, hide=self._without_secrets)

    async def in_worker(self, work: Callable[[], Any]) -> Any:
        """Run *work* in the client's worker for logins and return its result, or raise its exception."""
        result, error = await self._worked(work)
        if error is not None:
            raise _as_exception(error)
        return result

    async def awaited(self, awaitable: Awaitable[Any]) -> Any:
        """Await what a user's function has returned: on the user's loop, or on the worker's own.

        Raises CancelledError where it was cancelled, or raised what would end a program.
        """
        if self._portal.awaits is not None:
            return await self._portal.awaits(awaitable)
        result, error = await self._worked(lambda: self._await_here(awaitable))
        if isinstance(error, Exception):
            raise error
        if error is not None:
            raise CancelledError from error
        return result

    async def _worked(self, work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        done: Future[tuple[Any, BaseException | None]] = Future(self._portal.reactor)

        def settle(result: Any, error: BaseException | None) -> None:
            if not done.done():
                done.set_result((result, error))

        self._worker.run(work, settle)
        return await done

    def _await_here(self, awaitable: Awaitable[Any]) -> Any:
        """In the worker. Its loop stays the same, as a user's HTTP session belongs to one."""
        import asyncio

        async def wait() -> Any:
            return await awaitable

        self._runner = self._runner or asyncio.Runner()
        loop = self._runner.get_loop()
        task = loop.create_task(wait())
        while not task.done():
            with contextlib.suppress(KeyboardInterrupt, SystemExit):  # a loop stops at those of any task
                loop.run_until_complete(task)
        return task.result()

    def _without_secrets(self, text: str) -> str:
        """Reads the secrets from the options each time: an attribute with them would appear in a repr."""
        return without(set().union(*[encoded_forms(secret.encode("utf-8", "surrogatepass")) for secret in _secrets(self._config)]), text)

    def close(self) -> None:
        """Start no more work. A busy worker is not waited for. Call it in a step."""
        self._worker.close(self._close_runner)
        if isinstance(self._mechanism, SeesClose):
            try:
                self._mechanism.close()
            except Exception:  # noqa: BLE001 user code must not prevent the client from closing
                _log.exception("close() of the SASL mechanism %s raised; the client is closed nevertheless", self._mechanism.name)

    def _close_runner(self) -> None:
        """In the worker."""
        if self._runner is not None:
            self._runner.close()


def _load(spec: str) -> Any:
    try:
        found: Any = load_plugin("sasl mechanism", spec)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, option="sasl_mechanism") from error
    if not isinstance(getattr(found, "name", None), str):
        raise ConfigurationError(f"{spec!r} is not a SASL mechanism: its `name` must be a str such as 'PLAIN'", option="sasl_mechanism")
    if inspect.iscoroutinefunction(found.exchange) or inspect.isasyncgenfunction(found.exchange):
        raise ConfigurationError(f"{spec!r} is not a SASL mechanism: its `exchange` is async; write a plain generator that yields messages and awaitables",
                                 option="sasl_mechanism")
    return found


def _as_exception(error: BaseException) -> Exception:
    """SystemExit and its like from a worker must fail the login, not stop the reactor or cancel the task."""
    if isinstance(error, Exception):
        return error
    made = RuntimeError(f"it raised {type(error).__name__}")
    made.__cause__ = error
    return made


def _warn_about_unused_options(config: Any) -> None:
    unused = sorted(name for name in config.given if name.startswith("sasl_"))
    if unused:
        _log.warning("security_protocol is %s, which has no login; these options are ignored: %s. Set security_protocol to SASL_SSL or "
                     "SASL_PLAINTEXT, or remove them", config.security_protocol, ", ".join(unused))


def _warn_about_readable_secrets(mechanism: str, config: Any) -> None:
    remote = [str(each) for each in (*config.bootstrap_servers, *getattr(config, "bootstrap_controllers", ())) if not is_loopback(each.host)]
    if config.security_protocol == "SASL_PLAINTEXT" and mechanism in SENT_READABLE and remote:
        _log.warning("security_protocol is SASL_PLAINTEXT and sasl_mechanism %s: the %s is sent unencrypted to %s; use SASL_SSL%s",
                     mechanism, SENT_READABLE[mechanism], ", ".join(remote), ", or SCRAM-SHA-512" if mechanism == "PLAIN" else "")


def _secrets(config: Config) -> set[str]:
    return {value for option, value in config if option.secret and isinstance(value, str) and value}
