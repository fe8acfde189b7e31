"""What a TLS connection that did not come about, or broke, means: an error of ours with the cause in words and the way out.

What is wrong with trust, or with who speaks what, is an `SslAuthenticationError`; what the network or a broker that restarts may have done
is `DisconnectError`. Knows ``ssl``'s errors; knows no connections.
"""
from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyclient.errors import DisconnectError, KafkaError, SslAuthenticationError
from pyclient.runtime.transport import reason

CA: Final = ("its certificate is not signed by an authority that this client trusts. Put the authority's certificate into "
             "ssl_truststore_location or ssl_truststore_certificates")
VERIFYING: Final[Mapping[int, str]] = {
    2: CA, 18: CA, 19: CA, 20: CA, 21: CA,
    9: "its certificate, or one of its authorities', is not valid yet. Check the clocks of both machines",
    10: "its certificate, or one of its authorities', has expired. Renew it on the broker; check this machine's clock",
    23: "its certificate was revoked (ssl_crl_location)",
    3: "ssl_crl_location has no list of the authority that signed its certificate. Add that list",
    12: "the list of ssl_crl_location has expired. Get the authority's newest",
    11: "the list of ssl_crl_location is not valid yet. Check the clocks",
}
"""X509_V_ERR_… → what it says of the broker."""
WRONG_HOST: Final = (62, 64)

NO_IDENTITY: Final = ("the broker asks for a certificate of the client, and none is set. Set ssl_keystore_location, or "
                      "ssl_certificate_location and ssl_key_location")
REFUSED: Final = "the broker does not accept the client's certificate: {alert}. Use one that is valid and signed by an authority the broker trusts"
NO_SUITE: Final = ("client and broker have no cipher suite or key type in common{or_identity}. Look at ssl_cipher_suites here and at "
                   "ssl.cipher.suites and the type of the certificate's key there")
NO_VERSION: Final = "client and broker have no TLS version in common. Look at ssl_enabled_protocols and ssl_protocol here and there"
NOT_TLS: Final = "what answers does not speak TLS. Use security_protocol=PLAINTEXT (or SASL_PLAINTEXT), or the port of a TLS listener"
TOO_WEAK: Final = "the broker's certificate or key exchange is weaker than this machine's OpenSSL allows ({said}). Renew it with a longer key"

ABOUT_CLIENTS_CERTIFICATE: Final = frozenset({
    "BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE", "CERTIFICATE_REVOKED", "CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN", "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR", "NO_CERTIFICATE",
})
ABOUT_SUITES: Final = frozenset({"HANDSHAKE_FAILURE", "INSUFFICIENT_SECURITY", "ILLEGAL_PARAMETER"})
FOR_GOOD: Final = frozenset({"UNRECOGNIZED_NAME", "NO_APPLICATION_PROTOCOL", "MISSING_EXTENSION", "UNSUPPORTED_EXTENSION"})
VERSION_REASONS: Final = frozenset({
    "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "UNKNOWN_SSL_VERSION", "WRONG_SSL_VERSION", "VERSION_TOO_LOW", "VERSION_TOO_HIGH"})
SUITE_REASONS: Final = frozenset({"NO_SHARED_CIPHER", "NO_CIPHERS_AVAILABLE", "WRONG_CIPHER_RETURNED", "NO_SUITABLE_SIGNATURE_ALGORITHM",
                                  "NO_SUITABLE_KEY_SHARE", "WRONG_SIGNATURE_TYPE"})
STRANGE_REASONS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE",
                                    "PACKET_LENGTH_TOO_LONG"})
WEAK: Final = ("TOO_SMALL", "TOO_WEAK")


def handshake_failed(error: OSError | ValueError, where: str, *, host: str, names: Sequence[str] = (), has_identity: bool | None = None) -> KafkaError:
    """Why there is no TLS connection to *where*. *names*: those of the broker's certificate, where they are known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _for_good(f"{where}: {_not_trusted(error, host, names)}", error)
    said = _meaning(error, has_identity) if isinstance(error, ssl.SSLError) else None
    if said is not None:
        return _for_good(f"{where}: {said}", error)
    if isinstance(error, ssl.SSLError) and not hung_up(error):
        return _maybe_network(f"{where}: the TLS handshake broke off ({error.reason or error})", error)
    if isinstance(error, OSError):
        return _maybe_network(
            f"{where} hung up during the TLS handshake ({reason(error) or type(error).__name__}). A listener without TLS does so (then use "
            "security_protocol=PLAINTEXT or SASL_PLAINTEXT), and a broker that ends", error)
    return _for_good(f"{where}: TLS cannot be spoken with a host of this name: {error}", error)


def hung_up(error: BaseException) -> bool:
    """Whether the peer ended the connection without saying why."""
    return not isinstance(error, ssl.SSLError) or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))


def kafka_in_plaintext(where: str, error: BaseException) -> KafkaError:
    """Who hung up on the handshake answers what is asked without TLS."""
    return _for_good(f"{where} is a Kafka listener without TLS. Use security_protocol=PLAINTEXT (or SASL_PLAINTEXT), or the port of a TLS listener", error)


def lost_early(error: Exception | None, where: str, *, has_identity: bool | None) -> KafkaError:
    """Why a TLS connection ended before the first answer. In TLS 1.3 the client is done before the broker has seen its certificate."""
    said = _meaning(error, has_identity) if isinstance(error, ssl.SSLError) else None
    if said is not None and error is not None:
        return _for_good(f"{where}: {said}", error)
    wants = "" if has_identity else ", as brokers do that want a certificate of the client (ssl_keystore_location)"
    return _maybe_network(f"{where} closed the connection right after the TLS handshake{_text(error)}{wants}", error)


def lost_in_plaintext(error: Exception | None, where: str) -> KafkaError:
    """Why a connection without TLS ended before the first answer."""
    return _maybe_network(f"{where} closed the connection{_text(error)} before it answered anything, as a TLS listener does (then use security_protocol=SSL "
                          "or SASL_SSL)", error)


def alert_in_plaintext(where: str) -> KafkaError:
    """The answer to a client without TLS begins as an alert of TLS does."""
    return SslAuthenticationError(f"{where} speaks TLS, this client does not. Use security_protocol=SSL (or SASL_SSL), or the port of a listener without TLS.")


ALERT_RECORD: Final = b"\x15\x03"
"""How a TLS record begins that holds an alert."""


def _for_good(text: str, error: BaseException) -> KafkaError:
    made = SslAuthenticationError(f"{text}.")
    made.__cause__ = error
    return made


def _maybe_network(text: str, error: BaseException | None) -> KafkaError:
    made = DisconnectError(f"{text}.")
    made.__cause__ = error
    return made


def _text(error: Exception | None) -> str:
    """What the system said, in brackets."""
    if isinstance(error, ssl.SSLError):
        return f" ({error.reason or error})"
    return f" ({reason(error) or type(error).__name__})" if isinstance(error, OSError) else ""


def _not_trusted(error: ssl.SSLCertVerificationError, host: str, names: Sequence[str]) -> str:
    if error.verify_code in WRONG_HOST:
        has = f"it is for {', '.join(names)}" if names else "its names are other ones"
        return (f"its certificate is not for {host}: {has}. Use one of its names in bootstrap_servers and in the broker's advertised.listeners, or add "
                "this name to the certificate; ssl_endpoint_identification_algorithm='' switches this check off, and its protection")
    said = VERIFYING.get(error.verify_code)
    return said if said is not None else f"its certificate cannot be trusted: {error.verify_message}"


def _meaning(error: ssl.SSLError, has_identity: bool | None) -> str | None:
    """What OpenSSL's reason means, if it is for good."""
    said = error.reason or ""
    _, is_alert, alert = said.partition("_ALERT_")
    if is_alert:
        return _meaning_of_alert(alert, has_identity)
    if said in VERSION_REASONS:
        return NO_VERSION
    if said in SUITE_REASONS:
        return NO_SUITE.format(or_identity="")
    if said in STRANGE_REASONS:
        return NOT_TLS
    return TOO_WEAK.format(said=said) if said.endswith(WEAK) else None


def _meaning_of_alert(alert: str, has_identity: bool | None) -> str | None:
    plain = alert.lower().replace("_", " ")
    if alert in ABOUT_CLIENTS_CERTIFICATE:
        return NO_IDENTITY if has_identity is False or (alert == "CERTIFICATE_REQUIRED" and not has_identity) else REFUSED.format(alert=plain)
    if alert == "PROTOCOL_VERSION":
        return NO_VERSION
    if alert in ABOUT_SUITES:
        return NO_SUITE.format(or_identity="" if has_identity else ", or the broker asks for a certificate of the client (ssl_keystore_location)")
    return f"the broker refuses TLS: {plain}" if alert in FOR_GOOD else None


def names_in(certificate: Mapping[str, Any]) -> list[str]:
    """The hosts that a checked certificate is for, as ``getpeercert`` gives it."""
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return names or [str(value) for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
