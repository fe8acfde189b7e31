"""The listeners of a secured cluster and their broker settings.

Pure: PEM texts, users and names in, Kafka's settings out. The backends choose addresses and ports.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from pyclient.testing.security import Security

Presented: TypeAlias = Literal["valid", "expired", "wrong host"]

PLAINTEXT: Final = "PLAINTEXT"
INTERNAL: Final = "INTERNAL"
PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Listener(NamedTuple):
    """One listener: its security protocol, its certificate, and what it requires of clients."""

    protocol: str
    presents: Presented = "valid"
    wants_certificate: bool = False
    mechanisms: tuple[str, ...] = ()
    signed_tokens: bool = False


LISTENERS: Final[Mapping[str, Listener]] = {
    "SSL": Listener("SSL"),
    "MTLS": Listener("SSL", wants_certificate=True),
    "EXPIRED": Listener("SSL", "expired"),
    "WRONG_HOST": Listener("SSL", "wrong host"),
    "SASL_PLAINTEXT": Listener("SASL_PLAINTEXT", mechanisms=(*PASSWORDS, "OAUTHBEARER")),
    "SASL_SSL": Listener("SASL_SSL", mechanisms=(*PASSWORDS, "OAUTHBEARER"), signed_tokens=True),
    "OIDC": Listener("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), signed_tokens=True),
}

_COMMON: Final = "org.apache.kafka.common.security"
_MODULES: Final = {
    "PLAIN": f"{_COMMON}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_COMMON}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_COMMON}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_COMMON}.oauthbearer.OAuthBearerLoginModule",
}
_UNSECURED: Final = f"{_COMMON}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_SIGNED: Final = f"{_COMMON}.oauthbearer.OAuthBearerValidatorCallbackHandler"
_SIGNED_3: Final = f"{_COMMON}.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"


class KeyStore(NamedTuple):
    """A broker's certificate and its key, as PEM texts."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "<KeyStore>"

    def settings(self) -> dict[str, str]:
        return {"ssl.keystore.type": "PEM", "ssl.keystore.key": self.key, "ssl.keystore.certificate.chain": self.certificate}


class BrokerSecurity(NamedTuple):
    """All that brokers need to be secured: made once per cluster, the same for each broker."""

    security: Security
    authority: str  # certificate of the authority they trust, PEM
    keystores: Mapping[Presented, KeyStore]
    issuer: str  # whose tokens they take
    audience: str
    jwks: str  # the issuer's keys

    def __repr__(self) -> str:
        return f"<BrokerSecurity: {self.security}>"

    def settings(self, version: str, jwks_path: str) -> dict[str, str]:
        """Broker settings. ``jwks_path`` is where the broker finds the text ``jwks`` in a file."""
        found = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.authority,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # what brokers ask of each other, on plaintext listeners, is ANONYMOUS's wish
            "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *self.security.super_users)),
            # the same for all brokers of the cluster, and protects nothing
            "delegation.token.secret.key": hashlib.sha256(self.authority.encode()).hexdigest(),
        }
        for name, listener in LISTENERS.items():
            prefix = f"listener.name.{name.lower()}."
            found |= {prefix + setting: value for setting, value in self._of(listener, version, jwks_path)}
        return found

    def _of(self, listener: Listener, version: str, jwks_path: str) -> Iterator[tuple[str, str]]:
        yield "num.network.threads", "1"  # many listeners, few clients
        if listener.protocol.endswith("SSL"):
            yield from self.keystores[listener.presents].settings().items()
            yield "ssl.client.auth", "required" if listener.wants_certificate else "none"
        if listener.wants_certificate:
            yield "ssl.principal.mapping.rules", "RULE:^CN=([^,]+)$/$1/,DEFAULT"  # a user is the same with whatever proof
        if listener.mechanisms:
            yield "sasl.enabled.mechanisms", ",".join(listener.mechanisms)
            yield "connections.max.reauth.ms", str(self.security.connections_max_reauth_ms)
        for mechanism in listener.mechanisms:
            yield f"{mechanism.lower()}.sasl.jaas.config", f"{_MODULES[mechanism]} required{self._jaas(mechanism, listener)};"
        if "OAUTHBEARER" in listener.mechanisms:
            yield from self._tokens(listener, version, jwks_path)

    def _jaas(self, mechanism: str, listener: Listener) -> str:
        if mechanism == "PLAIN":
            return "".join(f" user_{name}={_quoted(password)}" for name, password in self.security.users.items())
        if mechanism == "OAUTHBEARER" and not listener.signed_tokens:
            return ' unsecuredLoginStringClaim_sub="unused"'  # the broker's own login, which is not used
        return ""

    def _tokens(self, listener: Listener, version: str, jwks_path: str) -> Iterator[tuple[str, str]]:
        handler = "oauthbearer.sasl.server.callback.handler.class"
        if not listener.signed_tokens:
            yield handler, _UNSECURED
            return
        yield handler, _SIGNED_3 if version.startswith("3.") else _SIGNED
        yield "sasl.oauthbearer.jwks.endpoint.url", _url(jwks_path)
        yield "sasl.oauthbearer.expected.issuer", self.issuer
        yield "sasl.oauthbearer.expected.audience", self.audience


def java_flags(jwks_path: str) -> list[str]:
    """Java options that let Kafka read the keys: URLs must be allowed explicitly, also those of files."""
    return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={_url(jwks_path)}"]


def protocol_map(names: Iterable[str]) -> str:
    """``listener.security.protocol.map`` of these listeners: those that are none of `LISTENERS` are plaintext."""
    return ",".join(f"{name}:{LISTENERS[name].protocol if name in LISTENERS else PLAINTEXT}" for name in names)


def _url(path: str) -> str:
    return f"file:{path}"


def _quoted(text: str) -> str:
    """A JAAS string as a ``.properties`` file holds it; that is Latin-1 with escapes, which JSON's are too."""
    return json.dumps('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')[1:-1]
