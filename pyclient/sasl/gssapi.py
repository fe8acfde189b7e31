"""GSSAPI (RFC 4752): login by Kerberos ticket, with the package gssapi and the system's Kerberos library."""
from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from pyclient.errors import ConfigurationError, SaslAuthenticationError

NO_LAYER: Final = 1
"""The bit for no security layer: messages after the login are not wrapped. Kafka supports nothing else."""
NO_SIZE: Final = bytes(3)
OFFER: Final = 4
"""Bytes of the broker's offer: the bits of its layers and its largest message size."""
MOST_TOKENS: Final = 8
"""Until both sides are authenticated; Kerberos needs one or two."""


class Gssapi:
    """Uses the ticket in the system's cache, or the keytab in ``KRB5_CLIENT_KTNAME``.

    Fetching one may block: it runs in a worker.
    """

    name = "GSSAPI"
    blocking = True
    renews = True
    options = ("sasl_kerberos_service_name", "the Kerberos ticket (klist)")

    def check(self, config: Any, /) -> None:
        """Raises ConfigurationError: the service name is not set, or the package is missing."""
        if config.sasl_kerberos_service_name is None:
            chosen = "" if config.sasl_plain_username is None else " To log in by user and password, set sasl_mechanism to PLAIN or SCRAM-SHA-512."
            raise ConfigurationError(
                f"sasl_kerberos_service_name is not set: sasl_mechanism=GSSAPI needs it, usually 'kafka'.{chosen}", option="sasl_kerberos_service_name")
        _package()

    def exchange(self, config: Any, host: str, /) -> Generator[bytes, bytes, None]:
        """Exchange tokens until both sides are authenticated, then agree on no security layer."""
        package = _package()
        service = f"{config.sasl_kerberos_service_name}@{host}"
        try:
            yield from _negotiate(package, service)
        except package.exceptions.GSSError as error:
            raise SaslAuthenticationError(
                f"Kerberos refused the login to {service}: {error}. Check that there is a ticket (klist, kinit, KRB5_CLIENT_KTNAME) and that {service} "
                "is the brokers' principal.",
            ) from None


def _package() -> Any:
    try:
        import gssapi
    except ImportError as error:
        raise ConfigurationError(
            f"sasl_mechanism=GSSAPI needs the package gssapi ({error}); install it with pip install 'pyclient-kafka[gssapi]'; "
            "it needs the system's Kerberos library", option="sasl_mechanism") from error
    except OSError as error:  # the system's library is missing
        raise ConfigurationError(f"the package gssapi does not work here: {error}", option="sasl_mechanism") from error
    return gssapi


def _negotiate(package: Any, service: str) -> Generator[bytes, bytes, None]:
    flag = package.RequirementFlag
    context = package.SecurityContext(
        name=package.Name(service, package.NameType.hostbased_service), usage="initiate",
        flags=[flag.mutual_authentication, flag.out_of_sequence_detection, flag.integrity])
    token, count = context.step(), 0
    while not context.complete:
        count += 1
        if count > MOST_TOKENS:
            raise SaslAuthenticationError(f"the broker requests more than {MOST_TOKENS} Kerberos tokens")
        token = context.step((yield token or b""))
    offer = context.unwrap((yield token or b"")).message
    if len(offer) != OFFER or not offer[0] & NO_LAYER:
        raise SaslAuthenticationError("the broker requires a Kerberos security layer, which Kafka does not use; encrypt by TLS (security_protocol=SASL_SSL)")
    yield context.wrap(bytes([NO_LAYER]) + NO_SIZE, False).message
