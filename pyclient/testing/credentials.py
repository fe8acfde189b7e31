"""Credentials of a secured cluster's clients, as files and texts.

Creates certificates and the token issuer of one cluster in its folder, and `BrokerSecurity` for the brokers.
No repr contains a secret.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from pyclient.testing.broker_security import BrokerSecurity, KeyStore
from pyclient.testing.common.certificates import EXPIRED, Certificate, CertificateAuthority
from pyclient.testing.security import Security
from pyclient.testing.tokens import AUDIENCE, LIFETIME_S, TokenIssuer, unsecured_token

KEY_PASSWORD: Final = "key-secret"
LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@attrs.define(frozen=True)
class Pem:
    """PEM as clients take it: the path of a file, or its text."""

    path: str
    text: str = attrs.field(repr=False)


@attrs.define(frozen=True, kw_only=True)
class ClientCertificate:
    """A client's certificate and key in all forms.

    ``key`` is plain and ``encrypted_key`` encrypted (PKCS#8); ``keystore`` is certificate and plain key in one file;
    ``pkcs12`` is the path of a PKCS#12 file with certificate, key and authority. ``key_password`` opens both.
    """

    certificate: Pem
    key: Pem
    encrypted_key: Pem
    keystore: Pem
    pkcs12: str
    key_password: str = attrs.field(repr=False)


@attrs.define(frozen=True, kw_only=True)
class User:
    """A user of the cluster with all its credentials. The principal is ``User:name`` with each of them."""

    name: str
    password: str = attrs.field(repr=False)
    tls: ClientCertificate
    _issuer: TokenIssuer = attrs.field(repr=False)

    def unsecured_token(self, lifetime_s: float = LIFETIME_S) -> str:
        """An unsecured token, for the listener SASL_PLAINTEXT."""
        return unsecured_token(self.name, lifetime_s)

    def token(self, lifetime_s: float = LIFETIME_S) -> str:
        """A signed token, for the listeners OIDC and SASL_SSL."""
        return self._issuer.token(self.name, lifetime_s=lifetime_s)


@attrs.define(frozen=True, kw_only=True)
class Credentials:
    """Credentials of a secured cluster, in the folder ``directory``, which is removed with the cluster.

    Attributes:
        ca: the authority that signed the brokers' certificates, and the users'.
        other_ca: an authority that signed none of the brokers'.
        users: by name.
        stranger: a client certificate of ``other_ca``, which brokers do not trust.
        expired: a client certificate of ``ca`` that expired yesterday.
        tokens: the identity provider of the listeners OIDC and SASL_SSL.
    """

    directory: str
    ca: Pem
    other_ca: Pem
    users: Mapping[str, User]
    stranger: ClientCertificate
    expired: ClientCertificate
    tokens: TokenIssuer


@contextlib.contextmanager
def made_for(security: Security) -> Iterator[tuple[Credentials, BrokerSecurity]]:
    """Everything for one cluster: files exist, and the issuer answers, until the end of the block."""
    with _folder() as folder, TokenIssuer(security.users) as issuer:
        authority, other = CertificateAuthority("pyclient test CA"), CertificateAuthority("untrusted CA")
        yield _credentials(folder, security, issuer, authority, other), _for_brokers(security, issuer, authority)


def _credentials(folder: Path, security: Security, issuer: TokenIssuer, authority: CertificateAuthority, other: CertificateAuthority) -> Credentials:
    def client(file: str, issued: Certificate) -> ClientCertificate:
        return _written_client(folder / file, issued, authority)

    (folder / "users").mkdir(mode=0o700)
    first = next(iter(security.users), "client")
    users = {
        name: User(name=name, password=password, tls=client(f"users/{name}", authority.issue(common_name=name)), issuer=issuer)
        for name, password in security.users.items()
    }
    return Credentials(
        directory=str(folder),
        ca=_written(folder / "ca.pem", authority.pem),
        other_ca=_written(folder / "other-ca.pem", other.pem),
        users=users,
        stranger=client("stranger", other.issue(common_name=first)),
        expired=client("expired", authority.issue(common_name=first, valid=EXPIRED)),
        tokens=issuer,
    )


def _for_brokers(security: Security, issuer: TokenIssuer, authority: CertificateAuthority) -> BrokerSecurity:
    hosts = (*LOCAL, *_engine_host())
    return BrokerSecurity(
        security, authority.pem,
        {
            "valid": _keystore(authority.issue(*hosts, common_name="kafka")),
            "expired": _keystore(authority.issue(*hosts, common_name="kafka", valid=EXPIRED)),
            "wrong host": _keystore(authority.issue("kafka.invalid", common_name="kafka")),
        },
        issuer.url, AUDIENCE, issuer.jwks)


def _keystore(issued: Certificate) -> KeyStore:
    return KeyStore(issued.chain, issued.key)


def _written_client(stem: Path, issued: Certificate, authority: CertificateAuthority) -> ClientCertificate:
    key, certificate = issued.key, issued.chain
    pkcs12 = stem.with_name(f"{stem.name}.p12")
    _write(pkcs12, issued.pkcs12(KEY_PASSWORD, authority.certificate))
    return ClientCertificate(
        certificate=_written(stem.with_name(f"{stem.name}.crt"), certificate),
        key=_written(stem.with_name(f"{stem.name}.key"), key),
        encrypted_key=_written(stem.with_name(f"{stem.name}-encrypted.key"), issued.encrypted_key(KEY_PASSWORD)),
        keystore=_written(stem.with_name(f"{stem.name}.pem"), key + certificate),
        pkcs12=str(pkcs12),
        key_password=KEY_PASSWORD,
    )


def _written(path: Path, text: str) -> Pem:
    _write(path, text.encode())
    return Pem(str(path), text)


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(content)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A private folder that does not outlive this process, however it ends (on Windows: when it ends in order)."""
    if sys.platform != "win32":
        from pyclient.testing.process_guard import ProcessGuard

        with contextlib.closing(ProcessGuard("credentials")) as guard:
            yield guard.directory
    else:
        folder = Path(tempfile.mkdtemp(prefix="pyclient-credentials-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _engine_host() -> tuple[str, ...]:
    """The host of a remote Docker engine, where the brokers' ports are published."""
    host = urllib.parse.urlsplit(os.environ.get("DOCKER_HOST", "")).hostname
    return (host,) if host else ()
