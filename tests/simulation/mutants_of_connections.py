"""Deliberate bugs of connections, of the driver's timers, and of logins."""
from __future__ import annotations

from typing import Any, Final

from pyclient.errors import AuthenticationError
from tests.simulation.mutation import Museum, Target, nothing, returns

MUSEUM: Final = Museum()
bug = MUSEUM.bug
CONNECTION: Final = "pyclient.net.connection:Connection"
POOL: Final = "pyclient.net.pool:ConnectionPool"
DRIVER: Final = "pyclient.client.driver:Driver"
RECONNECTS: Final = "pyclient.core.connection:Reconnects"
RENEWAL_AFTER: Final = "pyclient.core.sasl:renewal_after"

# --- connections -----------------------------------------------------------------------------------------------------

bug("connections", "an overdue response does not end the connection", "half-open connections", f"{CONNECTION}.expire")(nothing)
bug("connections", "a throttled client goes on", "M09: KIP-219", f"{CONNECTION}._throttle")(returns(0.0))
bug("connections", "the loop sets no timer", "Java 20780: stuck", f"{DRIVER}._wake_by")(nothing)


@bug("connections", "requests in flight are forgotten when the connection breaks", "aiokafka: futures that never end", f"{CONNECTION}._lost")
def _(original: Target) -> Target:
    def lost(self: Any, *rest: Any) -> None:
        self._in_flight.clear()
        original(self, *rest)
    return lost


@bug("connections", "reconnecting has no back-off", "Java: connection storms", f"{RECONNECTS}.failed")
def _(original: Target) -> Target:
    def failed(self: Any, now: float) -> None:
        original(self, now)
        self.not_before = now
    return failed


@bug("connections", "a failed node is never tried again", "franz-go: no usable node", f"{RECONNECTS}.allowed")
def _(_original: Target) -> Target:
    return lambda self, _now: self.failures == 0


@bug("connections", "more requests are in flight than allowed", "max.in.flight", f"{POOL}._free")
def _(original: Target) -> Target:
    def free(self: Any, host: Any, use: Any) -> int:
        connection = host.connections.get(use)
        return max(int(original(self, host, use)), int(connection is not None and connection.ready))
    return free


@bug("connections", "an earlier deadline waits for the timer that is set", "Java 20780: stuck", f"{DRIVER}._wake_by")
def _(original: Target) -> Target:
    def wake_by(self: Any, deadline: float) -> None:
        if self._timer_at is None:
            original(self, deadline)
    return wake_by


@bug("connections", "the loop never sleeps", "Java 20253: busy loops", f"{DRIVER}._wake_by")
def _(original: Target) -> Target:
    return lambda self, _deadline: original(self, self._clock())


# --- logins ----------------------------------------------------------------------------------------------------------

bug("logins", "a renewal is not notified when nothing is in flight any more", "M11: stuck", f"{CONNECTION}._tell_drained")(nothing)


@bug("logins", "a session is renewed when it is almost over", "KIP-368", RENEWAL_AFTER)
def _(_original: Target) -> Target:
    return lambda lifetime, _random: lifetime * 0.999


@bug("logins", "a session is renewed when it has hardly begun", "KIP-368: a busy loop of logins", RENEWAL_AFTER)
def _(_original: Target) -> Target:
    return lambda lifetime, _random: lifetime * 0.05


@bug("logins", "requests are written after the end of the session", "KIP-368", f"{CONNECTION}.ready")
def _(original: Target) -> Target:
    def ready(self: Any) -> bool:
        ends_at, self.session_ends_at = self.session_ends_at, None
        try:
            return bool(original(self))
        finally:
            self.session_ends_at = ends_at
    return ready


@bug("logins", "no session is ever renewed", "KIP-368", f"{POOL}._renew")
def _(_original: Target) -> Target:
    async def renew(*_: Any) -> None:
        pass
    return renew


@bug("logins", "a login does not wait for the end of a throttle", "M09: KIP-219", f"{CONNECTION}._keep_silence")
def _(_original: Target) -> Target:
    async def keep_silence(_self: Any) -> None:
        pass
    return keep_silence


@bug("logins", "a refused token ends the client", "credentials that can change", f"{POOL}._give_up_if_refused")
def _(_original: Target) -> Target:
    return lambda self, error: self._on_refused(error) if isinstance(error, AuthenticationError) else None


@bug("logins", "every connection calls a token service that is down", "busy loops", "pyclient.sasl.tokens:Tokens._at_hand")
def _(original: Target) -> Target:
    def at_hand(self: Any) -> Any:
        failed, self._failed = self._failed, None
        try:
            return original(self)
        finally:
            self._failed = failed
    return at_hand
