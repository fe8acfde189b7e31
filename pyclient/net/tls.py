"""The TLS contexts of one client, from its options: made with the client, and again when the files have changed.

Rule: an unreadable file prevents a client from being created, but never stops a running one: it keeps its context and
logs this once per change.
"""
from __future__ import annotations

import logging
import os
import re
import ssl
from typing import Final

from pyclient.config.files import Stamp, stamp
from pyclient.config.security import SecurityConfig
from pyclient.errors import ConfigurationError
from pyclient.net.keystores import (
    Identity, Source, as_file, certificates, jks_way_out, pkcs12_certificates, pkcs12_identity, private_key, revoked,
)
from pyclient.redaction import SecretBytes
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future, shielded
from pyclient.runtime.environment import Environment
from pyclient.runtime.offload import Offload

_log = logging.getLogger(__name__)

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
WITH_TLS: Final = ("SSL", "SASL_SSL")
FILES: Final = ("ssl_truststore_location", "ssl_keystore_location", "ssl_certificate_location", "ssl_key_location", "ssl_crl_location")
TLS_13_PREFIX: Final = "TLS_"
"""Prefix of the names of TLS 1.3 suites, and of Java's names for older ones."""
HASHED_NAME: Final = re.compile(r"[0-9a-f]{8}\.\d+")
"""File names in a folder of certificates."""
CIPHER_OPERATORS: Final = "!-+@"
"""First characters of words in an OpenSSL cipher list that name no suite."""


class TlsContexts:
    """Provides the context of the next connection. Raises ConfigurationError if the first one cannot be made."""

    def __init__(self, config: SecurityConfig, environment: Environment, reactor: Reactor) -> None:
        self._config = config
        self._reactor = reactor
        self._worker = Offload(environment, reactor, "pyclient-tls")
        self._files = [] if config.ssl_context is not None else [path for path in (getattr(config, name) for name in FILES) if path]
        self._seen = self._stamps()
        self._reported: list[Stamp] = []
        self._context = make_context(config)
        self._reading: Future[None] | None = None

    def __repr__(self) -> str:
        return f"<TlsContexts from {'the ssl_context option' if self._config.ssl_context else self._files or 'options'}>"

    @property
    def may_change(self) -> bool:
        """Whether a later connection may succeed: after files or the user's own context have changed."""
        return bool(self._files) or self._config.ssl_context is not None

    @property
    def has_identity(self) -> bool | None:
        """Whether the client has a certificate to present; None if only the user knows."""
        return None if self._config.ssl_context is not None else has_identity(self._config)

    async def current(self) -> ssl.SSLContext:
        """The context, made again if its files have changed. A worker reads and decrypts keys: that takes long."""
        if self._files and self._stamps() != self._seen:
            await self._read_again()
        return self._context

    def close(self) -> None:
        """Read no more files."""
        self._worker.close()

    def _stamps(self) -> list[Stamp]:
        return [stamp(path) for path in self._files]

    async def _read_again(self) -> None:
        """One at a time: further callers wait for the same result."""
        if self._reading is None:
            self._reading = Future(self._reactor)
            stamps = self._stamps()  # before reading: a later write is then seen as another change
            self._worker.run(lambda: make_context(self._config), lambda context, error: self._take(stamps, context, error))
        await shielded(self._reading)

    def _take(self, stamps: list[Stamp], context: ssl.SSLContext | None, error: BaseException | None) -> None:
        read, self._reading = self._reading, None
        if context is not None:
            self._context, self._seen = context, stamps
            _log.info("TLS files have changed and were read again: %s", ", ".join(self._files))
        elif stamps != self._reported:  # the file may be half written: the next connection tries again
            self._reported = stamps
            _log.warning("TLS files have changed but cannot be used; the client keeps the previous context: %s", error)
        if read is not None and not read.done():
            read.set_result(None)


def tls_contexts(config: SecurityConfig, environment: Environment, reactor: Reactor) -> TlsContexts | None:
    """From the options; None without TLS. Raises ConfigurationError."""
    if config.security_protocol in WITH_TLS:
        return TlsContexts(config, environment, reactor)
    unused = sorted(name for name in config.given if name.startswith("ssl_"))
    if unused:
        _log.warning("security_protocol is %s, which does not encrypt; these options are ignored: %s", config.security_protocol, ", ".join(unused))
    return None


def make_context(config: SecurityConfig) -> ssl.SSLContext:
    """From the options, or the user's own. Raises ConfigurationError."""
    if config.ssl_context is not None:
        return _users_context(config, config.ssl_context)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # requires and checks the broker's certificate
    context.options |= ssl.OP_NO_RENEGOTIATION  # TLS 1.2: a write would have to wait for a read
    context.hostname_checks_common_name = False  # RFC 9525: authorities do not check that a common name is a host of its owner
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    _set_versions(context, config)
    _set_suites(context, config)
    _trust(context, config)
    _check_revoked(context, config)
    identity = _identity(config)
    if identity is not None:
        identity.load_into(context)
    _refuse_unused_passwords(config)
    return context


def _users_context(config: SecurityConfig, context: ssl.SSLContext) -> ssl.SSLContext:
    others = sorted(name for name in config.given if name.startswith("ssl_") and name != "ssl_context")
    if others:
        raise ConfigurationError(f"ssl_context replaces every other ssl_ option; leave out {', '.join(others)}", option="ssl_context")
    if context.protocol is ssl.PROTOCOL_TLS_SERVER:
        raise ConfigurationError("ssl_context is a server context: create it with ssl.PROTOCOL_TLS_CLIENT", option="ssl_context")
    return context


def without_host_check(context: ssl.SSLContext) -> ssl.SSLContext:
    """With the same authorities, but no host check and no client certificate: to read the broker's certificate."""
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname = False
    unchecked.verify_flags = context.verify_flags & ~ssl.VERIFY_CRL_CHECK_LEAF
    unchecked.minimum_version, unchecked.maximum_version = context.minimum_version, context.maximum_version
    for authority in context.get_ca_certs(binary_form=True):
        unchecked.load_verify_locations(cadata=authority)
    return unchecked


# ---- versions and suites --------------------------------------------------------------------------------------------


def _set_versions(context: ssl.SSLContext, config: SecurityConfig) -> None:
    unknown = [name for name in config.ssl_enabled_protocols if name not in VERSIONS]
    if unknown or not config.ssl_enabled_protocols:
        raise ConfigurationError(
            f"ssl_enabled_protocols = {', '.join(config.ssl_enabled_protocols)!r}: choose from {', '.join(VERSIONS)}; older versions are insecure",
            option="ssl_enabled_protocols")
    newest = VERSIONS.get(config.ssl_protocol, ssl.TLSVersion.TLSv1_3)
    offered = [VERSIONS[name] for name in config.ssl_enabled_protocols if VERSIONS[name] <= newest]
    if not offered:
        raise ConfigurationError(
            f"ssl_protocol = {config.ssl_protocol} is older than all of ssl_enabled_protocols = {', '.join(config.ssl_enabled_protocols)}: "
            "no version is left to offer", option="ssl_protocol")
    context.minimum_version, context.maximum_version = min(offered), max(offered)


def _set_suites(context: ssl.SSLContext, config: SecurityConfig) -> None:
    """Of TLS 1.2. Python's ssl cannot select TLS 1.3 suites, none of which is weak."""
    names = config.ssl_cipher_suites
    if not names:
        return
    for name in names:
        if name.startswith(TLS_13_PREFIX):
            raise ConfigurationError(
                f"ssl_cipher_suites: {name} cannot be selected. OpenSSL selects TLS 1.3 suites: leave them out. "
                "Give TLS 1.2 suites by their OpenSSL names, such as ECDHE-RSA-AES256-GCM-SHA384", option="ssl_cipher_suites")
        if not name.startswith(tuple(CIPHER_OPERATORS)) and not _is_known(name):
            raise ConfigurationError(
                f"ssl_cipher_suites: this machine's OpenSSL has no suite {name}; `openssl ciphers` lists its suites", option="ssl_cipher_suites")
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError as error:
        raise ConfigurationError(f"ssl_cipher_suites = {':'.join(names)} leaves no suite to offer", option="ssl_cipher_suites") from error


def _is_known(name: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(name)
    except ssl.SSLError:
        return False
    return True


# ---- truststores ---------------------------------------------------------------------------------------------------


def _trust(context: ssl.SSLContext, config: SecurityConfig) -> None:
    text, path = config.ssl_truststore_certificates, config.ssl_truststore_location
    if text is not None and path is not None:
        raise _both("ssl_truststore_location", "ssl_truststore_certificates")
    if text is not None:
        _trust_certificates(context, certificates(Source("ssl_truststore_certificates"), SecretBytes(text.encode())))
    elif path is not None:
        _trust_file(context, config, Source("ssl_truststore_location", path))
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _trust_file(context: ssl.SSLContext, config: SecurityConfig, source: Source) -> None:
    assert source.path is not None
    if config.ssl_truststore_type == "JKS":
        raise source.error(f"JKS is Java's own format and cannot be read. {jks_way_out(source)}")
    if os.path.isdir(source.path):  # noqa: PTH112 does not raise for overlong paths
        _trust_folder(context, source)
    elif config.ssl_truststore_type == "PKCS12":
        _trust_certificates(context, pkcs12_certificates(source, source.read(), config.ssl_truststore_password))
    else:
        found = certificates(source, source.read())
        _refuse_password(config, "ssl_truststore")
        _trust_certificates(context, found)


def _trust_folder(context: ssl.SSLContext, source: Source) -> None:
    """Files named by hashes, which OpenSSL reads when it needs them."""
    assert source.path is not None
    try:
        names = os.listdir(source.path)  # noqa: PTH208 the path as the user gave it
    except OSError as error:
        raise source.error(f"the folder cannot be read: {error.strerror or error}") from error
    if not any(HASHED_NAME.fullmatch(name) for name in names):
        raise source.error("the folder has no file with a hashed name such as 9d66eef0.0: run `openssl rehash` on it")
    context.load_verify_locations(capath=source.path)


def _trust_certificates(context: ssl.SSLContext, found: bytes) -> None:
    """As in Java, every certificate in a truststore is trusted, also one that is not a root."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=found.decode("ascii"))


def _check_revoked(context: ssl.SSLContext, config: SecurityConfig) -> None:
    if config.ssl_crl_location is None:
        return
    source = Source("ssl_crl_location", config.ssl_crl_location)
    with as_file(revoked(source, source.read())) as path:
        try:
            context.load_verify_locations(cafile=path)
        except OSError as error:
            raise source.error("a revocation list in it is damaged") from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


# ---- client certificate ----------------------------------------------------------------------------------------------


def has_identity(config: SecurityConfig) -> bool:
    """Whether the options name a certificate of the client."""
    return bool(config.ssl_keystore_location or config.ssl_certificate_location or config.ssl_keystore_certificate_chain)


def _identity(config: SecurityConfig) -> Identity | None:
    parts = [name for name in ("ssl_keystore_certificate_chain", "ssl_keystore_key", "ssl_certificate_location", "ssl_key_location")
             if getattr(config, name) is not None]
    if config.ssl_keystore_location is not None:
        if parts:
            raise _both("ssl_keystore_location", parts[0])
        return _of_keystore(config, Source("ssl_keystore_location", config.ssl_keystore_location))
    return _of_parts(config) if parts else None


def _of_keystore(config: SecurityConfig, source: Source) -> Identity:
    if config.ssl_keystore_type == "JKS":
        raise source.error(f"JKS is Java's own format and cannot be read. {jks_way_out(source)}")
    content = source.read()
    if config.ssl_keystore_type == "PKCS12":
        return pkcs12_identity(source, content, config.ssl_keystore_password)
    chain, key = certificates(source, content), private_key(source, content)
    _refuse_password(config, "ssl_keystore", "; the password of the key is ssl_key_password")
    return Identity(chain, key, config.ssl_key_password, source, source)


def _of_parts(config: SecurityConfig) -> Identity:
    certificate, content = _part(config.ssl_keystore_certificate_chain, "ssl_keystore_certificate_chain",
                                 config.ssl_certificate_location, "ssl_certificate_location")
    key, of_key = _part(config.ssl_keystore_key, "ssl_keystore_key", config.ssl_key_location, "ssl_key_location")
    if certificate is None or content is None:
        raise ConfigurationError(f"{(key or Source('')).option} is set without its certificate: set ssl_certificate_location or "
                                 "ssl_keystore_certificate_chain", option="ssl_certificate_location")
    chain = certificates(certificate, content)
    if key is None or of_key is None:
        key, of_key = certificate, content  # both in one
    return Identity(chain, private_key(key, of_key), config.ssl_key_password, certificate, key)


def _part(text: str | None, text_option: str, path: str | None, path_option: str) -> tuple[Source | None, bytes | None]:
    if text is not None and path is not None:
        raise _both(path_option, text_option)
    if text is not None:
        return Source(text_option), SecretBytes(text.encode())
    if path is not None:
        source = Source(path_option, path)
        return source, source.read()
    return None, None


def _both(one: str, other: str) -> ConfigurationError:
    return ConfigurationError(f"{one} and {other} are two ways to set the same thing: keep one", option=one)


def _refuse_unused_passwords(config: SecurityConfig) -> None:
    """A password without a store or key is a mistake, as in Java."""
    needed = {
        "ssl_truststore_password": ("ssl_truststore_location",),
        "ssl_keystore_password": ("ssl_keystore_location",),
        "ssl_key_password": ("ssl_keystore_location", "ssl_key_location", "ssl_keystore_key", "ssl_certificate_location", "ssl_keystore_certificate_chain"),
    }
    for password, stores in needed.items():
        if getattr(config, password) is not None and all(getattr(config, store) is None for store in stores):
            raise ConfigurationError(f"{password} is set, but {stores[0]} is not: there is nothing to decrypt", option=password)


def _refuse_password(config: SecurityConfig, store: str, instead: str = "") -> None:
    if getattr(config, f"{store}_password") is not None:
        raise ConfigurationError(f"{store}_password is set, but a PEM store has no password{instead}. Leave it out, or set {store}_type=PKCS12",
                                 option=f"{store}_password")
