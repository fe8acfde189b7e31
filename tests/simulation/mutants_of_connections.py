"""Deliberate bugs of connections, of the driver's timers, and of logins."""
from __future__ import annotations

from typing import Any, Final

from pyclient.errors import AuthenticationError
from tests.simulation.mutation import Museum, Target, nothing, returns
from tests.simulation.situations import AREAS, has_tokens

MUSEUM: Final = Museum(situations=AREAS)
bug = MUSEUM.bug
CONNECTION: Final = "pyclient.net.connection:Connection"
CALLS: Final = "pyclient.core.calls:Calls"
CONNECTOR: Final = "pyclient.net.connector:Connector"
DRIVER: Final = "pyclient.client.driver:Driver"
POOL: Final = "pyclient.net.pool:ConnectionPool"
RECONNECTS: Final = "pyclient.core.connection:Reconnects"
RENEWAL_AFTER: Final = "pyclient.core.session:renewal_after"

# --- connections -----------------------------------------------------------------------------------------------------

bug("connections", "an overdue response does not end the connection", "half-open connections", f"{CONNECTION}.expire")(nothing)
bug("connections", "a throttled client goes on", "M09: KIP-219", "pyclient.core.connection:Throttle.apply")(returns(0.0))
bug("connections", "requests in flight are forgotten when the connection breaks", "aiokafka: futures that never end",
    "pyclient.net.in_flight:InFlightRequests.fail")(returns(0))
bug("connections", "the loop sets no timer", "Java 20780: stuck", f"{DRIVER}._set_timer")(nothing)

# --- brokers that accept and never answer ----------------------------------------------------------------------------

bug("hung brokers", "silence is not looked for", "hung leaders: seconds without metadata", f"{POOL}._check_silence")(nothing)
bug("hung brokers", "a coordinator that is silent is not looked up again", "G04: heartbeats stay on the hung node", f"{CALLS}._doubt_coordinator")(nothing)
bug("hung brokers", "requests stay with a coordinator that was replaced", "commits that block", f"{POOL}.give_up")(nothing)


@bug("hung brokers", "a call waits for any node as long as for one", "M04: look-ups on hung nodes", "pyclient.core.silence:silence_timeout_s")
def _(_original: Target) -> Target:
    return lambda request_timeout, _failures=0: request_timeout


@bug("hung brokers", "a silent node is chosen like another", "M04: look-ups on hung nodes", "pyclient.net.node_connections:least_loaded")
def _(_original: Target) -> Target:
    def least_loaded(nodes: Any, use: Any, random: Any, _now: float) -> Any:
        ready = [node for node in nodes if node.free_slots(use)]
        return min(ready, key=lambda node: (node.connections[use].in_flight, random.random()), default=None)
    return least_loaded


@bug("connections", "reconnecting has no back-off", "Java: connection storms", f"{RECONNECTS}.failed")
def _(original: Target) -> Target:
    def failed(self: Any, now: float) -> None:
        original(self, now)
        self.not_before = now
    return failed


@bug("connections", "a failed node is never tried again", "franz-go: no usable node", f"{RECONNECTS}.allowed")
def _(_original: Target) -> Target:
    return lambda self, _now: self.failures == 0


@bug("connections", "more requests are in flight than allowed", "max.in.flight", "pyclient.net.node_connections:NodeConnections.free_slots")
def _(original: Target) -> Target:
    def free(self: Any, use: Any) -> int:
        connection = self.connections.get(use)
        return max(int(original(self, use)), int(connection is not None and connection.accepts_requests()))
    return free


@bug("connections", "an earlier deadline waits for the timer that is set", "Java 20780: stuck", f"{DRIVER}._set_timer")
def _(original: Target) -> Target:
    def set_timer(self: Any, deadline: float) -> None:
        if self._timer_at is None:
            original(self, deadline)
    return set_timer


@bug("connections", "the loop never sleeps", "Java 20253: busy loops", f"{DRIVER}._set_timer")
def _(original: Target) -> Target:
    return lambda self, _deadline: original(self, self._clock())


# --- logins ----------------------------------------------------------------------------------------------------------

bug("logins", "requests are written after the end of the session", "KIP-368", "pyclient.core.session:Session.is_over", has_tokens)(returns(False))
bug("logins", "a renewal is not notified when nothing is in flight any more", "M11: stuck", "pyclient.net.in_flight:InFlightRequests.notify_if_empty")(nothing)


@bug("logins", "a session is renewed when it is almost over", "KIP-368", RENEWAL_AFTER)
def _(_original: Target) -> Target:
    return lambda lifetime, _random: lifetime * 0.999


@bug("logins", "a session is renewed when it has hardly begun", "KIP-368: a busy loop of logins", RENEWAL_AFTER)
def _(_original: Target) -> Target:
    return lambda lifetime, _random: lifetime * 0.05


@bug("logins", "no session is ever renewed", "KIP-368", f"{CONNECTOR}._authenticate_again")
def _(_original: Target) -> Target:
    async def renew(*_: Any) -> None:
        pass
    return renew


@bug("logins", "a login does not wait for the end of a throttle", "M09: KIP-219", "pyclient.net.authentication:Authentication._wait_while_muted")
def _(_original: Target) -> Target:
    async def keep_silence(_self: Any) -> None:
        pass
    return keep_silence


@bug("logins", "a refused token ends the client", "credentials that can change", f"{CONNECTOR}._give_up_if_refused", has_tokens)
def _(_original: Target) -> Target:
    return lambda self, error: self._on_refused(error) if isinstance(error, AuthenticationError) else None


@bug("logins", "every connection calls a token service that is down", "busy loops", "pyclient.sasl.tokens:TokenCache._valid", has_tokens)
def _(original: Target) -> Target:
    def at_hand(self: Any) -> Any:
        failed, self._failure = self._failure, None
        try:
            return original(self)
        finally:
            self._failure = failed
    return at_hand
