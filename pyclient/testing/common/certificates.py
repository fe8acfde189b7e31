"""Certificates for tests: an authority, what it signs, and contexts for brokers. Needs the package cryptography."""
from __future__ import annotations

import datetime
import functools
import ipaddress
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption, Encoding, KeySerializationEncryption, NoEncryption, PrivateFormat, pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

KeyKind: TypeAlias = Literal["ec", "ed25519", "rsa"]
FIRST_DAY: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
LAST_DAY: Final = datetime.datetime(2120, 1, 1, tzinfo=datetime.timezone.utc)
EXPIRED: Final = (FIRST_DAY, datetime.datetime(2020, 2, 1, tzinfo=datetime.timezone.utc))
"""When a certificate was valid that is not any more."""
HERE: Final = ("localhost", "127.0.0.1", "::1")


@attrs.frozen(repr=False)
class Certificate:
    """A certificate with its key, as PEM texts and in other formats."""

    certificate: x509.Certificate
    private_key: Any
    authorities: Sequence[x509.Certificate] = ()
    """Those between it and the root, which a peer must be shown."""

    @property
    def chain(self) -> str:
        """The certificate and those between it and the root, as PEM."""
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in [self.certificate, *self.authorities])

    @property
    def key(self) -> str:
        """The key as PEM (PKCS#8), not encrypted."""
        return self.encrypted_key(None)

    def encrypted_key(self, password: str | None) -> str:
        """The key as PEM (PKCS#8), encrypted with *password*."""
        found: bytes = self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))
        return found.decode()

    def pkcs12(self, password: str | None, *more: x509.Certificate) -> bytes:
        """Key and chain, and *more* certificates, as a PKCS#12 file."""
        return pkcs12.serialize_key_and_certificates(b"client", self.private_key, self.certificate, [*self.authorities, *more], _encryption(password))


class CertificateAuthority:
    """Issues certificates; clients trust them by ``pem``. ``key``: the type of its key and of issued ones."""

    def __init__(self, name: str = "pyclient test authority", *, key: KeyKind = "ec", signed_by: CertificateAuthority | None = None) -> None:
        self._kind: KeyKind = key
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = _new_key(key)
        self._above = signed_by
        issuer = self if signed_by is None else signed_by
        usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
                              data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False)
        self.certificate = issuer._sign(self._name, self._key.public_key(), (FIRST_DAY, LAST_DAY), [
            (x509.BasicConstraints(ca=True, path_length=None), True), (usage, True)])

    @property
    def pem(self) -> str:
        """Its certificate: what ``ssl_truststore_certificates`` takes."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, *names: str, common_name: str = "pyclient test", valid: tuple[datetime.datetime, datetime.datetime] = (FIRST_DAY, LAST_DAY),
              key: KeyKind | None = None) -> Certificate:
        """A certificate for hosts of these names and addresses (without any: for a client)."""
        private = _new_key(key or self._kind)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        extensions: list[tuple[Any, bool]] = [(x509.BasicConstraints(ca=False, path_length=None), True), (usage, False)]
        if names:
            extensions.append((x509.SubjectAlternativeName([_general(name) for name in names]), False))
        made = self._sign(subject, private.public_key(), valid, extensions)
        return Certificate(made, private, [] if self._above is None else [self.certificate])

    def revoked(self, *certificates: Certificate) -> str:
        """A revocation list with these certificates, as PEM."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name).last_update(FIRST_DAY).next_update(LAST_DAY)
        for each in certificates:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(each.certificate.serial_number).revocation_date(FIRST_DAY).build())
        return builder.sign(self._key, _hash(self._key)).public_bytes(Encoding.PEM).decode()

    def server_context(self, *names: str, clients: CertificateAuthority | None = None, certificate: Certificate | None = None) -> ssl.SSLContext:
        """A TLS context for brokers: a new certificate for *names* (default: this machine's), or *certificate*.

        With *clients*, a client must show a certificate that this authority signed.
        """
        shown = certificate or self.issue(*(names or HERE))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "shown.pem"
            path.write_text(shown.chain + shown.key)
            context.load_cert_chain(path)
        if clients is not None:
            context.load_verify_locations(cadata=clients.pem)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _sign(self, subject: x509.Name, public: Any, valid: tuple[datetime.datetime, datetime.datetime],
              extensions: Sequence[tuple[Any, bool]]) -> x509.Certificate:
        builder = (x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(public)
                   .serial_number(_serial()).not_valid_before(valid[0]).not_valid_after(valid[1])
                   .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
                   .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, _hash(self._key))


def _new_key(kind: KeyKind) -> Any:
    if kind == "rsa":
        return _one_rsa_key()
    return ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())


@functools.cache
def _one_rsa_key() -> Any:
    """They take long to make: one for all."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=2048)


def _serial() -> int:
    """Chosen by chance, and always of one size: what is signed is, too."""
    return 1 << 158 | secrets.randbits(158)


def _hash(key: Any) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
