"""Certificates for a test cluster: an authority of its own, and what it signs for brokers and clients.

Knows nothing of files and brokers. Keys are EC P-256; texts are PEM, keys PKCS#8. Everything lives for days only.
"""
from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY: Final = datetime.timedelta(days=1)
LIFE: Final = 30 * DAY
_USES: Final = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


class Issued(NamedTuple):
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"<Issued: {self.certificate.subject.rfc4514_string()}>"

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        """The key in PKCS#8, encrypted when there is a *password*."""
        protection = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection).decode()

    def pkcs12(self, password: str, authorities: Sequence[x509.Certificate] = ()) -> bytes:
        """Certificate, key and the *authorities* that signed it, as one encrypted file."""
        return pkcs12.serialize_key_and_certificates(
            b"client", self.key, self.certificate, list(authorities), BestAvailableEncryption(password.encode()))


class Authority:
    """A certificate authority that exists for one cluster."""

    def __init__(self, name: str) -> None:
        self._key: Final = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        self.certificate: Final = _signed(
            _begun(subject, subject, self._key.public_key(), ended=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True), self._key)

    def __repr__(self) -> str:
        return f"<Authority: {self.certificate.subject.rfc4514_string()}>"

    @property
    def pem(self) -> str:
        """The authority's own certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def for_broker(self, hosts: Collection[str], *, expired: bool = False) -> Issued:
        """A broker's certificate that names *hosts*: DNS names or IP addresses."""
        return self._issue("kafka", "server", hosts, expired=expired)

    def for_client(self, name: str, *, expired: bool = False) -> Issued:
        """A client's certificate; its subject is ``CN=name``."""
        return self._issue(name, "client", (), expired=expired)

    def _issue(self, name: str, use: str, hosts: Collection[str], *, expired: bool) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject
        begun = (
            _begun(_subject(name), issuer, key.public_key(), ended=expired)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([_USES[use]]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False))
        if hosts:
            begun = begun.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        return Issued(_signed(begun, self._key), key)


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, ended: bool) -> x509.CertificateBuilder:
    """What all certificates have; one that *ended* did so yesterday. (A day of the past is for clocks that differ.)"""
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (now - LIFE, now - DAY) if ended else (now - DAY, now + LIFE)
    return (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
        .serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False))


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates, encipher_only=False, decipher_only=False)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
