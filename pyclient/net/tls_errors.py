"""Errors of TLS connections in words: what failed, the likely cause and the way out.

Problems of trust or configuration are `SslAuthenticationError`; what the network or a restarting broker may cause is
`DisconnectError`. Independent of connections.
"""
from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyclient.errors import DisconnectError, KafkaError, SslAuthenticationError
from pyclient.runtime.network import os_reason

UNTRUSTED: Final = ("its certificate is not signed by an authority that this client trusts. Add the authority's certificate to "
             "ssl_truststore_location or ssl_truststore_certificates")
VERIFY_CODES: Final[Mapping[int, str]] = {
    2: UNTRUSTED, 18: UNTRUSTED, 19: UNTRUSTED, 20: UNTRUSTED, 21: UNTRUSTED,
    9: "its certificate, or an authority's, is not valid yet. Check the clocks of both machines",
    10: "its certificate, or an authority's, has expired. Renew it on the broker; check this machine's clock",
    23: "its certificate was revoked (ssl_crl_location)",
    3: "ssl_crl_location has no revocation list of the authority that signed its certificate. Add that list",
    12: "the revocation list in ssl_crl_location has expired. Get the authority's newest one",
    11: "the revocation list in ssl_crl_location is not valid yet. Check the clocks",
}
"""X509_V_ERR_… → cause and way out."""
WRONG_HOST: Final = (62, 64)

NO_IDENTITY: Final = ("the broker requires a client certificate, and none is set. Set ssl_keystore_location, or "
                      "ssl_certificate_location and ssl_key_location")
REFUSED: Final = "the broker does not accept the client's certificate: {alert}. Use a valid one, signed by an authority that the broker trusts"
NO_SUITE: Final = ("client and broker have no cipher suite or key type in common{or_identity}. Compare ssl_cipher_suites here with "
                   "the broker's ssl.cipher.suites and the type of its certificate's key")
NO_VERSION: Final = "client and broker have no TLS version in common. Compare ssl_enabled_protocols and ssl_protocol on both sides"
NOT_TLS: Final = "the peer does not use TLS. Use security_protocol=PLAINTEXT (or SASL_PLAINTEXT), or the port of a TLS listener"
TOO_WEAK: Final = "the broker's certificate or key exchange is weaker than this machine's OpenSSL allows ({reason}). Renew it with a longer key"

CLIENT_CERTIFICATE_ALERTS: Final = frozenset({
    "BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE", "CERTIFICATE_REVOKED", "CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN", "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR", "NO_CERTIFICATE",
})
SUITE_ALERTS: Final = frozenset({"HANDSHAKE_FAILURE", "INSUFFICIENT_SECURITY", "ILLEGAL_PARAMETER"})
PERMANENT_ALERTS: Final = frozenset({"UNRECOGNIZED_NAME", "NO_APPLICATION_PROTOCOL", "MISSING_EXTENSION", "UNSUPPORTED_EXTENSION"})
VERSION_REASONS: Final = frozenset({
    "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "UNKNOWN_SSL_VERSION", "WRONG_SSL_VERSION", "VERSION_TOO_LOW", "VERSION_TOO_HIGH"})
SUITE_REASONS: Final = frozenset({"NO_SHARED_CIPHER", "NO_CIPHERS_AVAILABLE", "WRONG_CIPHER_RETURNED", "NO_SUITABLE_SIGNATURE_ALGORITHM",
                                  "NO_SUITABLE_KEY_SHARE", "WRONG_SIGNATURE_TYPE"})
NOT_TLS_REASONS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE",
                                    "PACKET_LENGTH_TOO_LONG"})
WEAK_SUFFIXES: Final = ("TOO_SMALL", "TOO_WEAK")


def handshake_failed(error: OSError | ValueError, peer: str, *, host: str, names: Sequence[str] = (), has_identity: bool | None = None) -> KafkaError:
    """Why the handshake with *peer* failed. *names*: the host names in the broker's certificate, if known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _permanent(f"{peer}: {_not_trusted(error, host, names)}", error)
    reason = _meaning(error, has_identity) if isinstance(error, ssl.SSLError) else None
    if reason is not None:
        return _permanent(f"{peer}: {reason}", error)
    if isinstance(error, ssl.SSLError) and not closed_without_reason(error):
        return _temporary(f"{peer}: the TLS handshake failed ({error.reason or error})", error)
    if isinstance(error, OSError):
        return _temporary(
            f"{peer} closed the connection during the TLS handshake ({os_reason(error) or type(error).__name__}). Either the listener does not use "
            "TLS (then set security_protocol=PLAINTEXT or SASL_PLAINTEXT), or the broker is shutting down", error)
    return _permanent(f"{peer}: TLS cannot be used with this host name: {error}", error)


def closed_without_reason(error: BaseException) -> bool:
    """Whether the peer closed the connection without an alert."""
    return not isinstance(error, ssl.SSLError) or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))


def plaintext_listener(peer: str, error: BaseException) -> KafkaError:
    """The peer closed the connection during the handshake, but answers without TLS."""
    return _permanent(f"{peer} is a Kafka listener without TLS. Use security_protocol=PLAINTEXT (or SASL_PLAINTEXT), or the port of a TLS listener", error)


def lost_after_handshake(error: Exception | None, peer: str, *, has_identity: bool | None) -> KafkaError:
    """Why a TLS connection ended before the first response.

    In TLS 1.3 the client finishes before the broker has checked its certificate.
    """
    reason = _meaning(error, has_identity) if isinstance(error, ssl.SSLError) else None
    if reason is not None and error is not None:
        return _permanent(f"{peer}: {reason}", error)
    hint = "" if has_identity else ". The broker may require a client certificate (ssl_keystore_location)"
    return _temporary(f"{peer} closed the connection right after the TLS handshake{_text(error)}{hint}", error)


def lost_before_answer(error: Exception | None, peer: str) -> KafkaError:
    """Why a connection without TLS ended before the first response."""
    return _temporary(f"{peer} closed the connection{_text(error)} before its first response. It may be a TLS listener: then set "
                      "security_protocol=SSL or SASL_SSL", error)


def tls_listener(peer: str) -> KafkaError:
    """The peer answered a client without TLS by a TLS alert."""
    return SslAuthenticationError(f"{peer} uses TLS, this client does not. Use security_protocol=SSL (or SASL_SSL), or the port of a listener without TLS.")


ALERT_RECORD: Final = b"\x15\x03"
"""First bytes of a TLS record with an alert."""


def _permanent(text: str, error: BaseException) -> KafkaError:
    made = SslAuthenticationError(f"{text}.")
    made.__cause__ = error
    return made


def _temporary(text: str, error: BaseException | None) -> KafkaError:
    made = DisconnectError(f"{text}.")
    made.__cause__ = error
    return made


def _text(error: Exception | None) -> str:
    """The system's reason in brackets."""
    if isinstance(error, ssl.SSLError):
        return f" ({error.reason or error})"
    return f" ({os_reason(error) or type(error).__name__})" if isinstance(error, OSError) else ""


def _not_trusted(error: ssl.SSLCertVerificationError, host: str, names: Sequence[str]) -> str:
    if error.verify_code in WRONG_HOST:
        actual = f"it is for {', '.join(names)}" if names else "it is for other names"
        return (f"its certificate is not for {host}: {actual}. Use one of its names in bootstrap_servers and in the broker's advertised.listeners, or add "
                "this name to the certificate; ssl_endpoint_identification_algorithm='' disables this check and its protection")
    reason = VERIFY_CODES.get(error.verify_code)
    return reason if reason is not None else f"its certificate cannot be trusted: {error.verify_message}"


def _meaning(error: ssl.SSLError, has_identity: bool | None) -> str | None:
    """What OpenSSL's reason means, if it is permanent."""
    reason = error.reason or ""
    _, is_alert, alert = reason.partition("_ALERT_")
    if is_alert:
        return _meaning_of_alert(alert, has_identity)
    if reason in VERSION_REASONS:
        return NO_VERSION
    if reason in SUITE_REASONS:
        return NO_SUITE.format(or_identity="")
    if reason in NOT_TLS_REASONS:
        return NOT_TLS
    return TOO_WEAK.format(reason=reason) if reason.endswith(WEAK_SUFFIXES) else None


def _meaning_of_alert(alert: str, has_identity: bool | None) -> str | None:
    plain = alert.lower().replace("_", " ")
    if alert in CLIENT_CERTIFICATE_ALERTS:
        return NO_IDENTITY if has_identity is False or (alert == "CERTIFICATE_REQUIRED" and not has_identity) else REFUSED.format(alert=plain)
    if alert == "PROTOCOL_VERSION":
        return NO_VERSION
    if alert in SUITE_ALERTS:
        return NO_SUITE.format(or_identity="" if has_identity else ", or the broker requires a client certificate (ssl_keystore_location)")
    return f"the broker refuses the TLS handshake: {plain}" if alert in PERMANENT_ALERTS else None


def certificate_names(certificate: Mapping[str, Any]) -> list[str]:
    """The host names of a checked certificate, as ``getpeercert`` returns it; else its common name, which is none."""
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return names or [f"{value} as common name only, which does not count (it needs a subjectAltName)"
                     for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
