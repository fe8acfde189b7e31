"""Options of TLS and SASL. Shared by all clients."""
from __future__ import annotations

import re
from collections.abc import Callable
from ssl import SSLContext

import attrs

from pyclient.config.declaration import Config, option
from pyclient.config.kinds import INT64_MAX, Anything, Bool, Choice, FilePath, Float, Int, Names, PluginName, Text, TextOrFunction

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _is_function(value: object) -> bool:
    """A function, or the path to import it from: files and Spark jobs hold only texts."""
    return callable(value) or (isinstance(value, str) and re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", value) is not None)


@attrs.define(frozen=True, kw_only=True, repr=False)
class SecurityConfig(Config):
    """TLS and SASL."""

    security_protocol: str = option(
        "0.9", "PLAINTEXT", Choice(SECURITY_PROTOCOLS),
        "Protocol to brokers: SSL means TLS, SASL means a login.")

    ssl_protocol: str = option(
        "0.9", "TLSv1.3", Choice(("TLSv1.2", "TLSv1.3", "TLS")), "The newest TLS version offered.")
    ssl_enabled_protocols: tuple[str, ...] = option(
        "0.9", ("TLSv1.2", "TLSv1.3"), Names(), "The TLS versions offered.")
    ssl_cipher_suites: tuple[str, ...] = option(
        "0.9", (), Names(), "OpenSSL names of the TLS 1.2 cipher suites to offer; empty: OpenSSL's default. Those of TLS 1.3 are always OpenSSL's default.",
        importance="low")
    ssl_endpoint_identification_algorithm: str = option(
        "0.9", "https", Choice(("https", "")),
        "https checks that the broker's certificate names its host; empty disables that check.",
        importance="low")
    ssl_truststore_type: str = option(
        "0.9", "PEM", Choice(("PEM", "PKCS12", "JKS")),
        "Format of the truststore. PEM here (Java: JKS), the format Python's TLS reads.")
    ssl_truststore_location: str | None = option(
        "0.9", None, FilePath(), "File with the certificate authorities to trust, or a folder of hashed ones; not set: the system's.",
        importance="high")
    ssl_truststore_certificates: str | None = option(
        "2.7", None, Text(empty=False), "The certificate authorities to trust, as PEM text.",
        importance="high", secret=True)
    ssl_truststore_password: str | None = option(
        "0.9", None, Text(), "Password of the truststore file (PKCS12).", importance="high", secret=True)
    ssl_keystore_type: str = option(
        "0.9", "PEM", Choice(("PEM", "PKCS12", "JKS")),
        "Format of the keystore. PEM here (Java: JKS), the format Python's TLS reads.")
    ssl_keystore_location: str | None = option(
        "0.9", None, FilePath(), "File with the client's certificate and key, for mutual TLS.", importance="high")
    ssl_keystore_certificate_chain: str | None = option(
        "2.7", None, Text(empty=False), "The client's certificate chain, as PEM text.", importance="high", secret=True)
    ssl_keystore_key: str | None = option(
        "2.7", None, Text(empty=False), "The client's private key, as PEM text.", importance="high", secret=True)
    ssl_keystore_password: str | None = option(
        "0.9", None, Text(), "Password of the keystore file (PKCS12).", importance="high", secret=True)
    ssl_key_password: str | None = option(
        "0.9", None, Text(), "Password of the private key, when it is PEM and encrypted.", importance="high", secret=True)
    ssl_certificate_location: str | None = option(
        "pyclient", None, FilePath(), "PEM file with the client's certificate chain, when its key is in another file.")
    ssl_key_location: str | None = option(
        "pyclient", None, FilePath(), "PEM file with the client's private key, when it is not in the certificate's file.")
    ssl_crl_location: str | None = option(
        "pyclient", None, FilePath(), "PEM file with the authorities' lists of revoked certificates.")
    ssl_context: SSLContext | None = option(
        "pyclient", None, Anything("an ssl.SSLContext", check=lambda value: isinstance(value, SSLContext), accepts="SSLContext"),
        "A ready ssl.SSLContext; it replaces every other ssl_ option.")

    sasl_mechanism: str = option(
        "0.10", "GSSAPI", PluginName(empty=False),
        "Login: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM, or a plugin's name.")
    sasl_plain_username: str | None = option(
        "pyclient", None, Text(empty=False), "User name for PLAIN and SCRAM (Java: part of sasl.jaas.config).")
    sasl_plain_password: Callable[[], object] | str | None = option(
        "pyclient", None, TextOrFunction(),
        "Password for PLAIN and SCRAM (Java: part of sasl.jaas.config), or a function that returns it, called at each login and renewal; may be async.",
        secret=True)
    sasl_scram_tokenauth: bool = option(
        "pyclient", False, Bool(), "User name and password for SCRAM are a delegation token's id and HMAC (Java: part of sasl.jaas.config).")
    sasl_token_provider: Callable[[], object] | str | None = option(
        "pyclient", None, Anything("a callable or 'package.module:function'", check=_is_function, accepts="Callable[[], object] | str", imports=True),
        "Returns the token for OAUTHBEARER when one is needed: a text, (text, expiry in seconds since the epoch) or an OAuthToken; may be async.",
        secret=True)  # a token may be given here by mistake
    sasl_kerberos_service_name: str | None = option(
        "0.9", None, Text(empty=False), "The brokers' Kerberos service name, for GSSAPI; usually kafka.")
    sasl_login_connect_timeout_ms: int | None = option(
        "3.1", None, Int(), "Longest time to connect to the OAuth token endpoint.", importance="low")
    sasl_login_read_timeout_ms: int | None = option(
        "3.1", None, Int(), "Longest time to wait for the OAuth token endpoint's answer.", importance="low")
    sasl_login_retry_backoff_ms: int = option(
        "3.1", 100, Int(high=INT64_MAX), "First wait before the OAuth token endpoint is tried again.", importance="low")
    sasl_login_retry_backoff_max_ms: int = option(
        "3.1", 10_000, Int(high=INT64_MAX), "Longest wait before the OAuth token endpoint is tried again.",
        importance="low")
    sasl_login_refresh_window_factor: float = option(
        "2.0", 0.8, Float(0.5, 1.0), "Share of a token's lifetime after which a new one is fetched.", importance="low")
    sasl_login_refresh_window_jitter: float = option(
        "2.0", 0.05, Float(0.0, 0.25), "Random share of a token's lifetime added to that, so that clients do not all fetch at once.",
        importance="low")
    sasl_login_refresh_min_period_seconds: int = option(
        "2.0", 60, Int(0, 900), "Shortest time between two fetches of a token.", importance="low")
    sasl_login_refresh_buffer_seconds: int = option(
        "2.0", 300, Int(0, 3600), "A new token is fetched at least so long before the old one expires.", importance="low")
    sasl_oauthbearer_token_endpoint_url: str | None = option(
        "3.1", None, Text(empty=False), "Where tokens are fetched: an https URL, or a file URL.")
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        "4.1", None, Text(empty=False), "Client id for the OAuth client-credentials grant.")
    sasl_oauthbearer_client_credentials_client_secret: str | None = option(
        "4.1", None, Text(), "Client secret for the OAuth client-credentials grant.", secret=True)
    sasl_oauthbearer_scope: str | None = option(
        "4.1", None, Text(), "Scope requested from the token endpoint.")
    sasl_oauthbearer_scope_claim_name: str = option(
        "3.1", "scope", Text(empty=False), "Claim of the token that holds its scope.", importance="low")
    sasl_oauthbearer_sub_claim_name: str = option(
        "3.1", "sub", Text(empty=False), "Claim of the token that names the principal.", importance="low")
    sasl_oauthbearer_header_urlencode: bool = option(
        "3.9", False, Bool(), "URL-encode id and secret in the Authorization header, as RFC 6749 requires.",
        importance="low")
    sasl_oauthbearer_assertion_algorithm: str = option(
        "4.1", "RS256", Choice(("RS256", "ES256")), "Signature of an OAuth assertion.")
    sasl_oauthbearer_assertion_claim_aud: str | None = option("4.1", None, Text(), "Audience claim of an OAuth assertion.")
    sasl_oauthbearer_assertion_claim_iss: str | None = option("4.1", None, Text(), "Issuer claim of an OAuth assertion.")
    sasl_oauthbearer_assertion_claim_sub: str | None = option("4.1", None, Text(), "Subject claim of an OAuth assertion.")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(
        "4.1", 300, Int(0, 86400), "Lifetime of an OAuth assertion.", importance="low")
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = option(
        "4.1", 60, Int(0, 3600), "How long before now an OAuth assertion becomes valid.", importance="low")
    sasl_oauthbearer_assertion_claim_jti_include: bool = option(
        "4.1", False, Bool(), "Give each OAuth assertion an id of its own.")
    sasl_oauthbearer_assertion_file: str | None = option(
        "4.1", None, FilePath(), "File with an OAuth assertion that is already signed.")
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        "4.1", None, FilePath(), "File with the PEM key that signs OAuth assertions.")
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = option(
        "4.1", None, Text(), "Password of that key.", secret=True)
    sasl_oauthbearer_assertion_template_file: str | None = option(
        "4.1", None, FilePath(), "JSON file with additional header fields and claims of an OAuth assertion.")
    sasl_aws_msk_iam_region: str | None = option(
        "pyclient", None, Text(empty=False), "Region of the cluster, for AWS_MSK_IAM; default: that in the brokers' names, or in AWS_REGION.")
    sasl_aws_msk_iam_profile: str | None = option(
        "pyclient", None, Text(empty=False), "Profile of AWS's files whose credentials sign, for AWS_MSK_IAM; default: AWS's chain.")
    sasl_aws_msk_iam_role_arn: str | None = option(
        "pyclient", None, Text(empty=False), "Role to assume, for AWS_MSK_IAM.")
    sasl_aws_msk_iam_role_session_name: str | None = option(
        "pyclient", None, Text(empty=False), "Name of that role's session.", importance="low")
