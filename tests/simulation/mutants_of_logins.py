"""The deliberate bugs of logins: what a connection, its node and the tokens may get wrong when sessions end."""
from __future__ import annotations

from typing import Final

from tests.simulation.mutation import Edit, Mutant

CONNECTION: Final = "pyclient.net.connection:Connection"
LINKS: Final = "pyclient.net.pool:ConnectionPool"
TOKENS: Final = "pyclient.sasl.tokens:Tokens"
LIFE: Final = "min(lifetime * random.uniform(*RENEWED_AT), lifetime - LEAST_REST_S)"


def _bug(name: str, source: str, target: str, old: str, new: str, survives: str = "") -> Mutant:
    return Mutant(name, "logins", source, (Edit(target, old, new),), survives)


BUGS_OF_LOGINS: Final = (
    # --- when
    _bug("a session is renewed when it is all but over", "KIP-368", "pyclient.core.sasl:renewal_after", LIFE, "lifetime * 0.999"),
    _bug("a session is renewed when it has hardly begun", "KIP-368: a busy loop of logins", "pyclient.core.sasl:renewal_after",
         f"max({LIFE}, SHORTEST_S)", "lifetime * 0.05"),
    _bug("a session's life is counted from the answer", "KIP-368", f"{CONNECTION}._authenticated",
         "anew = self.state is State.REAUTHENTICATING", "anew, self._asked_at = self.state is State.REAUTHENTICATING, self._clock()"),
    _bug("the end of a session is not looked at", "KIP-368", f"{CONNECTION}.ready",
         "(self.session_ends_at is None or self._clock() < self.session_ends_at)", "True"),
    _bug("no session is ever renewed", "KIP-368", f"{LINKS}.tick", "link.renew_at is not None and now >= link.renew_at", "False"),
    _bug("a connection that was given up is still to be renewed", "S02: the driver span", f"{CONNECTION}.retire", "self.renew_at = None", "pass"),
    _bug("a renewal that is under way is still to be done", "M11", f"{LINKS}.tick", "link.renew_at = None", "pass",
         "it notes so itself in its first step, before the next turn of the driver"),
    # --- alone on the connection
    _bug("requests are written during a renewal", "M11", f"{CONNECTION}.ready", "self.state is State.READY", "self.state in (State.READY, State.REAUTHENTICATING)"),
    _bug("a renewal does not wait for what is in flight", "M11", f"{CONNECTION}._be_alone", "while self._in_flight:", "while False:"),
    _bug("a renewal is not told that nothing is in flight any more", "M11: stuck", f"{CONNECTION}._tell_drained", "self._drained.set_result(None)", "pass"),
    _bug("a login does not wait until a silence is over", "M09: KIP-219", f"{CONNECTION}._keep_silence", "await asyncio.sleep(silence)", "pass"),
    # --- what fails
    _bug("a renewal without a token ends the connection", "M11", f"{CONNECTION}._not_authenticated",
         "if self.state in (State.AUTHENTICATING, State.REAUTHENTICATING):", "if True:"),
    _bug("a renewal that failed is never tried again", "M11: stuck", f"{CONNECTION}._not_authenticated",
         "self.renew_at = min(now + max(RENEWAL_RETRY, (self.session_ends_at - now) / 4), self.session_ends_at)", "pass",
         "the token that opened a session is good until its end: a renewal finds none only after a refusal; the unit tests look for the next try"),
    _bug("a renewal that failed is tried again at once", "Java 20253: busy loops", f"{CONNECTION}._not_authenticated",
         "min(now + max(RENEWAL_RETRY, (self.session_ends_at - now) / 4), self.session_ends_at)", "now",
         "tokens that cannot be had have pauses of their own, so nobody is asked anything; the unit tests look for the next try"),
    _bug("a token service that is down is asked by every connection", "busy loops", f"{TOKENS}._at_hand", "0 <= now - self._failed_at < self._pause", "False"),
    _bug("a session that could not be renewed is kept after its end", "M11: stuck", f"{CONNECTION}._not_authenticated", "self.retire()", "pass"),
    _bug("a login that is not answered is waited for without end", "M10", f"{CONNECTION}.authenticate", "asyncio.timeout(timeout)", "asyncio.timeout(None)",
         "each of its questions has the same time, and the whole attempt to connect has its own; the unit tests let a mechanism wait for ever"),
    _bug("a refused token ends the client", "credentials that can change", f"{LINKS}._give_up_if_refused",
         "not (self._was_accepted and self._options.protection.may_change(error))", "True"),
    _bug("an old token is shown after its end", "S10: a pause that outlives the token", f"{TOKENS}._without", "min(RETRY_S, (kept.expires_at - now) / 2)", "RETRY_S"),
)
