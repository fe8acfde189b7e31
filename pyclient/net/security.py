"""The security of one client's connections: TLS, SASL, both or neither; and whether a refusal may be temporary."""
from __future__ import annotations

import ssl
from random import Random
from typing import Self

import attrs

from pyclient.config.security import SecurityConfig
from pyclient.errors import AuthenticationError, SslAuthenticationError
from pyclient.net.sasl_login import SaslClient
from pyclient.net.tls import TlsContexts, tls_contexts
from pyclient.runtime.environment import Environment
from pyclient.runtime.portals import Portal


@attrs.frozen
class Security:
    """Without both, connections are plain and unauthenticated."""

    tls: TlsContexts | None = None
    sasl: SaslClient | None = None

    @classmethod
    def of(cls, config: SecurityConfig, environment: Environment, portal: Portal, random: Random) -> Self:
        """From the options.

        Raises:
            ConfigurationError: a file, a key, a mechanism or an option is missing, or does not fit the others.
        """
        return cls(tls_contexts(config, environment, portal.reactor), SaslClient.of(config, environment, portal, random))

    def may_change(self, refusal: AuthenticationError) -> bool:
        """Whether a retry may succeed: files, tokens, tickets and the broker's certificate can change."""
        if isinstance(refusal.__cause__, ssl.SSLCertVerificationError):
            return True
        refused = self.tls if isinstance(refusal, SslAuthenticationError) else self.sasl
        return refused is not None and refused.may_change

    def close(self) -> None:
        """Read no more files and log in no more."""
        for each in (self.tls, self.sasl):
            if each is not None:
                each.close()


UNPROTECTED = Security()
