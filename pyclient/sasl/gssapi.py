"""GSSAPI (RFC 4752): Kerberos tickets, by the package gssapi (python-gssapi) and the system's Kerberos library."""
from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from pyclient.errors import ConfigurationError, SaslAuthenticationError

NO_LAYER: Final = 1
"""The bit of the security layer "none": messages after the login are not wrapped. Kafka knows no other one."""
NO_SIZE: Final = bytes(3)
OFFER: Final = 4
"""Bytes of the broker's offer: the layers' bits, and the largest message it takes."""
LEGS: Final = 8
"""Tokens until both sides trust each other; Kerberos needs one or two."""


class Gssapi:
    """Logs in with the ticket of the system's cache, or of the keytab in ``KRB5_CLIENT_KTNAME``. Fetching one may block: in a worker."""

    name = "GSSAPI"
    blocking = True
    renews = True
    options = ("sasl_kerberos_service_name", "the Kerberos ticket (klist)")

    def check(self, config: Any, /) -> None:
        """The brokers' service name must be known, and the package be there."""
        if config.sasl_kerberos_service_name is None:
            chosen = "" if config.sasl_plain_username is None else " For a user and a password choose sasl_mechanism PLAIN or SCRAM-SHA-512."
            raise ConfigurationError(
                f"sasl_kerberos_service_name is not set: sasl_mechanism=GSSAPI needs it, usually 'kafka'.{chosen}", option="sasl_kerberos_service_name")
        _package()

    def exchange(self, config: Any, host: str, /) -> Generator[bytes, bytes, None]:
        """Tokens until both sides trust each other, then the agreement on no security layer."""
        package = _package()
        service = f"{config.sasl_kerberos_service_name}@{host}"
        try:
            yield from _negotiate(package, service)
        except package.exceptions.GSSError as error:
            raise SaslAuthenticationError(
                f"Kerberos did not let us in to {service}: {error}. Is there a ticket (klist, kinit, KRB5_CLIENT_KTNAME), and is {service} the brokers' principal?",
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
    token, legs = context.step(), 0
    while not context.complete:
        legs += 1
        if legs > LEGS:
            raise SaslAuthenticationError(f"the broker wants more than {LEGS} Kerberos tokens")
        token = context.step((yield token or b""))
    offer = context.unwrap((yield token or b"")).message
    if len(offer) != OFFER or not offer[0] & NO_LAYER:
        raise SaslAuthenticationError("the broker wants Kerberos to protect what follows; Kafka leaves that to TLS (security_protocol=SASL_SSL)")
    yield context.wrap(bytes([NO_LAYER]) + NO_SIZE, False).message
