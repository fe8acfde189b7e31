"""Invariants of logins: a renewal is alone on its connection and in time, and no request fails because of it."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.core.connection import State
from pyclient.errors import TokenUnavailableError
from pyclient.sasl.oauthbearer import ACKNOWLEDGE_ERROR
from pyclient.testing.fake.model.request import Request
from pyclient.testing.fake.model.sasl import SHORTEST_S, Session, token_end
from pyclient.testing.simulation.invariants import INVARIANTS, Judge, breach, holds
from pyclient.testing.simulation.network import Link

LOGIN: Final = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
RENEWED_BY: Final = 0.95
"""The latest renewal, as a share of the session's lifetime."""
COMPUTING_S: Final = 0.05
"""What a mechanism may take to create its first message, while requests go on."""
WAITED_S: Final = 0.1
"""A login that comes so soon after an answer may have waited for it, with its token already chosen."""
ON_ITS_WAY_S: Final = 0.05
"""How long a token may be expired on arrival: it was valid when it was sent."""
TOO_SHORT_S: Final = 1.3
"""Sessions so short end before they may be renewed."""
LOGINS_PER_SECOND: Final = 24
"""Of one client: up to twelve connections whose sessions end together, as many again that were refused or cut."""
TOKENS_PER_SECOND: Final = 12
"""Of one client: up to six addresses, some uses each, with backoffs from 50 ms on."""


def session_of(link: Link) -> Session:
    """The broker's side of a connection's login."""
    served: Any = link.served
    session: Session = served.session
    return session


@holds("written", "M11")
def a_login_is_alone(judge: Judge, link: Link) -> None:
    """During a login no other request is written or in flight on its connection."""
    waiting = list(link.client_protocol.requests)
    now = judge.world.loop.time()
    if any(each.api in LOGIN for each in waiting) and len(waiting) > 1:
        raise breach(a_login_is_alone, f"{link!r} has {[each.api.title for each in waiting]} in flight during a login")
    written = [each for each in waiting if each.sent_at == now and each.api not in LOGIN]
    if written and link.client_protocol.state in (State.AUTHENTICATING, State.REAUTHENTICATING):
        raise breach(a_login_is_alone, f"{link!r} writes {written[-1].api.title} and is {link.client_protocol.state.value}")


@holds("written", "M11")
def a_session_is_renewed_in_time(judge: Judge, link: Link) -> None:
    """No request is written after the latest time of renewal; without a token, none after the session's end."""
    session, now = session_of(link), judge.world.loop.time()
    newest = next(reversed(link.client_protocol.requests), None)
    if newest is None or newest.sent_at != now or newest.api in LOGIN:
        return
    latest = _renewed_by(judge, session)
    if now > latest:
        raise breach(a_session_is_renewed_in_time, f"{link!r} writes {newest.api.title}; {session!r} was to be renewed by {latest:.3f}")


def _renewed_by(judge: Judge, session: Session) -> float:
    """The latest time of renewal; without a token it is the session's end."""
    if session.ends_at is None or session.granted_at is None:
        return float("inf")
    life = session.ends_at - session.granted_at
    late = life < TOO_SHORT_S or (judge.world.tokens is not None and judge.world.tokens.failed_at >= session.granted_at)
    return session.ends_at if late else session.granted_at + RENEWED_BY * life + COMPUTING_S


@holds("second", "M11")
def a_renewal_does_not_wait_for_the_end_of_the_session(judge: Judge) -> None:
    """At the latest time of renewal no connection is merely ready: it logs in, or waits for responses before. One that
    needs a token may wait for that first."""
    if judge.world.tokens is not None:
        return
    now = judge.world.loop.time()
    for link in judge.world.network.links:
        if link.client_protocol is not None and link.client_protocol.state is State.READY and now > _renewed_by(judge, session_of(link)):
            raise breach(a_renewal_does_not_wait_for_the_end_of_the_session, f"{link!r} is not renewed; {session_of(link)!r}")


@holds("reached", "M11")
def every_request_is_admitted(judge: Judge, asked: Request | None, link: Link | None) -> None:
    """No broker closes a connection because of a request: none arrives before or within a login, and after the
    session's end only those written long before."""
    if asked is None and link is not None and not session_of(link).logged_in:
        raise breach(every_request_is_admitted, f"a request on {link!r} is not admitted: {session_of(link)!r}")


@holds("login begins", "M11")
def logins_of_a_connection_are_spaced(judge: Judge, asked: Request) -> None:
    """A connection does not log in again within `SHORTEST_S`: brokers refuse that."""
    begun, now = judge.facts.logins, judge.world.loop.time()
    before = begun.get(asked.connection, float("-inf"))
    begun[asked.connection] = now
    if now - before < SHORTEST_S:
        raise breach(logins_of_a_connection_are_spaced, f"{asked.client_id} logs in again {now - before:.3f} s after it did, on the same connection")


@holds("login answered", "M11")
def valid_credentials_are_accepted(judge: Judge, asked: Request, fields: Mapping[str, Any]) -> None:
    """No broker has a reason to refuse a login: no expired token is shown, and no step is left out."""
    ended = _ended_for(judge, asked) if asked.api is Api.SASL_AUTHENTICATE else None
    if ended is not None and not _may_be_late(judge, asked):
        raise breach(valid_credentials_are_accepted, f"{asked.client_id} shows broker {asked.broker} a token that ended {ended:.3f} s ago")
    session = getattr(asked.connection, "session", None)
    refused = fields["error_code"] and (asked.api is Api.SASL_HANDSHAKE or (isinstance(session, Session) and session.over))
    if refused and (asked.api is Api.SASL_HANDSHAKE or bytes(asked.body.auth_bytes) != ACKNOWLEDGE_ERROR):  # it is right, and late
        raise breach(valid_credentials_are_accepted, f"broker {asked.broker} refuses {asked.api.title} of {asked.client_id} with error {fields['error_code']}")


def _ended_for(judge: Judge, asked: Request) -> float | None:
    """Seconds since the token in this message ended, if it has."""
    ends = token_end(bytes(asked.body.auth_bytes))
    over = None if ends is None else judge.world.wall() / 1000 - ends
    return over if over is not None and over > ON_ITS_WAY_S else None


def _may_be_late(judge: Judge, asked: Request) -> bool:
    """Whether the token may have expired after it was chosen: while the login waited for responses or for a throttle to
    end, or in transit."""
    link = judge.world.network.served_by(asked.connection)
    if link is None:
        return True
    waited_until = max(judge.facts.answered.get(asked.connection, 0.0), link.silent[1], link.late_until)
    return judge.world.loop.time() < waited_until + WAITED_S


@holds("ended", "M11")
def a_session_outlives_a_failed_renewal(judge: Judge, link: Link) -> None:
    """While no token is available, the session of the last one stays open."""
    session, cause = session_of(link), link.client_protocol._cause
    if isinstance(cause, TokenUnavailableError) and session.logged_in and session.ends_at is not None and judge.world.loop.time() < session.ends_at:
        raise breach(a_session_outlives_a_failed_renewal, f"{link!r} ends, though its session lives until {session.ends_at:.3f}: {cause}")


@holds("second", "M05")
def logins_are_bounded(judge: Judge) -> None:
    """No client logs in or requests tokens in a loop; one that was closed and made again has new connections."""
    facts, world = judge.facts, judge.world
    for name, count in facts.second.logins.items():
        if count > LOGINS_PER_SECOND * (1 + facts.second.starts[name]):
            raise breach(logins_are_bounded, f"{name} began {count} logins in one second")
    if world.tokens is not None:
        asked, facts.tokens = world.tokens.asked - facts.tokens, world.tokens.asked
        if asked > TOKENS_PER_SECOND * max(1, len(world.clients)):
            raise breach(logins_are_bounded, f"{asked} tokens were asked for in one second")


RULES_OF_LOGINS: Final = tuple(INVARIANTS[each.__name__] for each in (
    a_login_is_alone, a_session_is_renewed_in_time, a_renewal_does_not_wait_for_the_end_of_the_session, every_request_is_admitted, logins_of_a_connection_are_spaced, valid_credentials_are_accepted,
    a_session_outlives_a_failed_renewal, logins_are_bounded))
"""For runs in which clients log in."""
