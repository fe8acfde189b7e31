"""What the brokers of a seed require: TLS, a login with short sessions, both or neither; and the token service."""
from __future__ import annotations

import asyncio
import base64
import functools
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from pyclient.testing.simulation.faults import LOGIN_FAULTS, TOKEN_FAULTS

if TYPE_CHECKING:
    from pyclient.testing.simulation.world import World

SECURED: Final = 25
"""Of so many seeds one speaks TLS without a login, and another one with a login."""
LOGS_IN: Final = 5
"""One seed of so many logs in."""
USER: Final = "service"
USERS: Final = {USER: "the service's password"}
BEARER: Final = "OAUTHBEARER"
SESSIONS_MS: Final[Mapping[str, Sequence[int]]] = {
    "PLAIN": (2500, 4000, 7000), BEARER: (0, 3000, 5000), "SCRAM-SHA-256": (8000, 12_000), "SCRAM-SHA-512": (8000, 12_000),
}
"""``connections.max.reauth.ms`` by mechanism; 0: sessions end with their tokens. A SCRAM login costs 2 ms of CPU."""
MECHANISMS: Final = ("PLAIN", "PLAIN", "PLAIN", *[BEARER] * 5, "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Tokens are most of them: they can fail in more ways."""
WEEK_S: Final = 7 * 86_400.0
TOKENS_LIVE_S: Final = (5.0, 6.0, 8.0, 12.0, WEEK_S)
"""Only the longest survives a jump of the wall clock in transit; a client whose first token is refused fails."""
FETCHED_PER_S: Final = 50.0
FEWEST_FAULTS: Final = 4
MOST_FAULTS: Final = 7


@attrs.frozen(kw_only=True)
class Security:
    """What brokers ask for."""

    tls: bool = False
    mechanism: str | None = None
    session_ms: int = 0
    token_life_s: float = WEEK_S
    awaits: bool = False
    """Tokens come from an async function."""

    @property
    def users(self) -> Mapping[str, str] | None:
        """Who may log in; None: there are no logins."""
        return None if self.mechanism is None else USERS

    @property
    def settings(self) -> Mapping[str, object]:
        """Of the brokers."""
        return {} if self.mechanism is None else {"connections.max.reauth.ms": self.session_ms, "sasl.enabled.mechanisms": self.mechanism}

    @property
    def login_faults(self) -> Sequence[str]:
        """What can go wrong with its logins, beside all else."""
        if self.mechanism == BEARER:
            return [*sorted(LOGIN_FAULTS), *sorted(TOKEN_FAULTS)]  # these twice: most end before a client asks for a token
        return sorted(LOGIN_FAULTS - TOKEN_FAULTS) if self.mechanism is not None else []

    @property
    def spares(self) -> frozenset[str]:
        """The faults that this seed cannot be asked to survive."""
        return frozenset({"clock_jump"}) if self.token_life_s < WEEK_S else frozenset()

    def context(self) -> ssl.SSLContext | None:
        """With what its brokers speak TLS."""
        return _certified()[0] if self.tls else None

    def equip(self, world: World) -> None:
        """Give the world's clients what they need."""
        options: dict[str, Any] = {"security_protocol": ("SASL_" if self.mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")}
        if self.tls:
            options["ssl_truststore_certificates"] = _certified()[1]
        if self.mechanism == BEARER:
            world.tokens = TokenService(world, self.token_life_s)
            options["sasl_token_provider"] = world.tokens.fetch if self.awaits else world.tokens.give
        elif self.mechanism is not None:
            options |= {"sasl_plain_username": USER, "sasl_plain_password": USERS[USER]}
        if self.mechanism is not None:
            options["sasl_mechanism"] = self.mechanism
        world.security = options if self.tls or self.mechanism is not None else {}


def drawn(seed: int, *, logs_in: bool = True) -> Security:
    """This seed's."""
    if seed % SECURED == SECURED - 1:
        return Security(tls=True)
    if not logs_in or seed % LOGS_IN != LOGS_IN - 2:
        return Security()
    random = Random(f"{seed}/protection")
    mechanism = random.choice(MECHANISMS)
    session = random.choice(SESSIONS_MS[mechanism])
    life = random.choice(TOKENS_LIVE_S) if session else random.choice(TOKENS_LIVE_S[:-1])
    return Security(tls=seed % SECURED == SECURED - 2, mechanism=mechanism, session_ms=session, awaits=random.random() < 0.5,
                      token_life_s=life if mechanism == BEARER else WEEK_S)


class TokenService:
    """Gives unsecured tokens that end; while it is out of service, it gives none."""

    def __init__(self, world: World, life_s: float) -> None:
        self._world = world
        self._random = world.random("tokens")
        self._life_s = life_s
        self._back_at = 0.0
        self._missed: Callable[[], object] = lambda: None
        self.failed_at = float("-inf")
        """When a client last got no token."""
        self.asked = 0
        """How often a client asked."""

    def out_of_service(self, seconds: float, missed: Callable[[], object]) -> None:
        """Fail for so long from now on; *missed* is called for each client that asks."""
        self._back_at = max(self._back_at, self._world.loop.time() + seconds)
        self._missed = missed

    async def fetch(self) -> str:
        """A token, a little later."""
        await asyncio.sleep(self._random.expovariate(FETCHED_PER_S))
        return self.give()

    def give(self) -> str:
        """A token.

        Raises:
            OSError: it is out of service.
        """
        self.asked += 1
        now = self._world.loop.time()
        if now < self._back_at:
            self.failed_at = now
            self._missed()
            raise OSError("the token service cannot be reached")
        parts = ({"alg": "none"}, {"sub": USER, "exp": self._world.wall() / 1000 + self._life_s})
        return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts) + "."


@functools.cache
def _certified() -> tuple[ssl.SSLContext, str]:
    """The brokers' context, and the authority that clients must trust.

    Made once per process; all sizes are the same in each process.
    """
    from pyclient.testing.common.certificates import CertificateAuthority

    authority = CertificateAuthority(key="ed25519")
    return authority.server_context(*[f"broker-{number}" for number in range(1, 10)]), authority.pem
