"""How one client's connections are protected: TLS, logins, both or neither; and whether what was refused may be accepted later."""
from __future__ import annotations

import ssl
from random import Random
from typing import Self

import attrs

from pyclient.config.security import SecurityConfig
from pyclient.errors import AuthenticationError, SslAuthenticationError
from pyclient.runtime.environment import Environment
from pyclient.net.sasl_login import Logins
from pyclient.net.tls import Contexts, contexts_for


@attrs.frozen
class Security:
    """Without both, connections are plain and nobody logs in."""

    tls: Contexts | None = None
    logins: Logins | None = None

    @classmethod
    def of(cls, config: SecurityConfig, environment: Environment, random: Random) -> Self:
        """As the options say.

        Raises:
            ConfigurationError: a file, a key, a mechanism or an option is missing, or does not fit the others.
        """
        return cls(contexts_for(config, environment), Logins.of(config, environment, random))

    def may_change(self, refusal: AuthenticationError) -> bool:
        """Whether what was refused may be another thing at the next try: files, tokens and tickets change, passwords do not; and a broker's
        certificate, which this client refuses, is the broker's to change.
        """
        if isinstance(refusal.__cause__, ssl.SSLCertVerificationError):
            return True
        part = self.tls if isinstance(refusal, SslAuthenticationError) else self.logins
        return part is not None and part.may_change

    def close(self) -> None:
        """Nothing is read or asked for any more."""
        for part in (self.tls, self.logins):
            if part is not None:
                part.close()


UNPROTECTED = Security()
