"""Certificates and keys from files and option values, as PEM blocks. Errors name option and path, never the content.

Independent of TLS contexts and connections.
"""
from __future__ import annotations

import contextlib
import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from pyclient.errors import ConfigurationError
from pyclient.redaction import Secret, SecretBytes

CERTIFICATES: Final = re.compile(rb"-----BEGIN ((?:TRUSTED |X509 )?CERTIFICATE)-----.*?-----END \1-----", re.DOTALL)
BEGIN: Final = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----")
BEGIN_LIST: Final = b"-----BEGIN X509 CRL-----"
LISTS: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
KEYS: Final = re.compile(rb"-----BEGIN ((?:[A-Z0-9]+ )*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
ENCRYPTED: Final = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")
JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of one file: a device or a log file named by mistake is an error."""
MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


class Source(NamedTuple):
    """The option, and the path if it names a file."""

    option: str
    path: str | None = None

    def __str__(self) -> str:
        return self.option if self.path is None else f"{self.option} = {self.path!r}"

    def error(self, what: str) -> ConfigurationError:
        """An error about this source."""
        return ConfigurationError(f"{self}: {what}", option=self.option)

    def read(self) -> bytes:
        """The file's content. Raises ConfigurationError."""
        assert self.path is not None
        try:
            with Path(self.path).open("rb") as file:
                content = SecretBytes(file.read(MOST_BYTES + 1))
        except OSError as error:
            raise self.error(f"the file cannot be read: {error.strerror or error}") from error
        if len(content) > MOST_BYTES:
            raise self.error(f"the file has more than {MOST_BYTES} B: it holds no certificates")
        return content


@attrs.frozen(repr=False)
class Identity:
    """The client's certificate chain and key, as PEM; its repr shows neither."""

    chain: bytes
    key: bytes
    password: str | None
    certificate_from: Source
    key_from: Source

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make *context* present it to brokers. Raises ConfigurationError."""
        with as_file(SecretBytes(self.chain + b"\n" + self.key + b"\n")) as path:
            try:
                context.load_cert_chain(path, password=self._password)
            except ConfigurationError:
                raise
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise self._load_error(error) from error

    def _password(self) -> str:
        """Called for encrypted keys only. Without this, OpenSSL would prompt on the terminal and wait."""
        if self.password is None:
            raise self.key_from.error("the key is encrypted and ssl_key_password is not set")
        return self.password

    def _load_error(self, error: Exception) -> ConfigurationError:
        reason = getattr(error, "reason", None) or type(error).__name__
        if reason in MISMATCHES:
            return self.key_from.error(
                f"the key does not belong to the certificate of {self.certificate_from}; the client's own certificate must be the first")
        if any(mark in self.key for mark in ENCRYPTED):
            return self.key_from.error(f"the key cannot be decrypted: ssl_key_password is wrong, or the key is damaged ({reason})")
        return self.key_from.error(f"this machine's OpenSSL does not accept the certificate or its key ({reason})")


# ---- PEM ------------------------------------------------------------------------------------------------------------


def certificates(source: Source, content: bytes) -> bytes:
    """The certificates in *content*, checked. Raises ConfigurationError."""
    blocks = [match[0] for match in CERTIFICATES.finditer(content)]
    if not blocks:
        raise source.error(f"it contains no complete certificate: expected -----BEGIN CERTIFICATE----- {_looks_like(source, content)}")
    if len(blocks) != len(BEGIN.findall(content)):
        raise source.error("a certificate in it is truncated: was the file cut, or is it still being written?")
    found = b"\n".join(blocks)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found.decode("ascii"))
    except (OSError, ValueError) as error:
        raise source.error("a certificate in it is damaged") from error
    return found


def private_key(source: Source, content: bytes) -> bytes:
    """The first private key in *content*. Raises ConfigurationError."""
    found = KEYS.search(content)
    if found is None:
        raise source.error(f"it contains no complete private key: expected -----BEGIN PRIVATE KEY----- {_looks_like(source, content)}")
    return SecretBytes(found[0])


def revoked(source: Source, content: bytes) -> bytes:
    """The revocation lists in *content*. Raises ConfigurationError."""
    blocks = [match[0] for match in LISTS.finditer(content)]
    if not blocks:
        raise source.error("it contains no complete revocation list: expected -----BEGIN X509 CRL-----")
    if len(blocks) != content.count(BEGIN_LIST):
        raise source.error("a revocation list in it is truncated: was the file cut, or is it still being written?")
    return b"\n".join(blocks)


def _looks_like(source: Source, content: bytes) -> str:
    """The end of an error message about a file of another format."""
    kind = source.option.removesuffix("_location") + "_type"
    if content.startswith(JKS_MAGIC):
        return f"… PEM text. It is a JKS file. {jks_way_out(source)}"
    if content.startswith(b"\x30") and source.path is not None:
        return f"… PEM text. It looks like a PKCS#12 file{f': set {kind}=PKCS12' if source.option.endswith('store_location') else ''}"
    return "… PEM text"


def jks_way_out(source: Source) -> str:
    """How to convert a file in Java's own format."""
    path = source.path or "store.jks"
    made = path.removesuffix(".jks") + ".p12"
    return (f"Convert it: keytool -importkeystore -srckeystore {path} -destkeystore {made} -deststoretype PKCS12; then give that file, and "
            f"{source.option.removesuffix('_location')}_type=PKCS12")


# ---- PKCS#12 --------------------------------------------------------------------------------------------------------


def pkcs12_certificates(source: Source, content: bytes, password: str | None) -> bytes:
    """All certificates of a PKCS#12 file, as PEM. Raises ConfigurationError."""
    opened = _opened(source, content, password)
    found = [each.certificate for each in [opened.cert, *opened.additional_certs] if each is not None]
    if not found:
        raise source.error("this PKCS#12 file contains no certificate")
    return b"\n".join(_pem(each) for each in found)


def pkcs12_identity(source: Source, content: bytes, password: str | None) -> Identity:
    """The key of a PKCS#12 file and the chain of its certificate. Raises ConfigurationError."""
    opened = _opened(source, content, password)
    if opened.key is None or opened.cert is None:
        raise source.error("this PKCS#12 file contains no private key with a certificate")
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    chain = b"\n".join(_pem(each.certificate) for each in [opened.cert, *opened.additional_certs])
    once = Secret(secrets.token_urlsafe(32))  # if the key must pass through a file, it is encrypted there
    key = SecretBytes(opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(once.encode())))
    return Identity(chain, key, once, source, source)


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    found: bytes = certificate.public_bytes(Encoding.PEM)
    return found


def _opened(source: Source, content: bytes, password: str | None) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise source.error(
            "reading PKCS#12 needs the package cryptography: pip install 'pyclient-kafka[tls]', or give PEM files") from error
    if content.startswith(JKS_MAGIC):
        raise source.error(f"this is a JKS file. {jks_way_out(source)}")
    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except Exception as error:  # the library raises many types
        if content.lstrip().startswith(b"-----BEGIN"):
            raise source.error("this is PEM text, not PKCS#12: set the type to PEM") from error
        if password is None:
            raise source.error(f"{source.option.removesuffix('_location')}_password is not set, and the file is encrypted, damaged or not PKCS#12") from error
        raise source.error(f"the password ({source.option.removesuffix('_location')}_password) is wrong, or the file is damaged or not PKCS#12") from error


# ---- files for OpenSSL ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """A path with *content*, for functions that cannot take keys from memory.

    On Linux it is an anonymous file in memory, not inherited by other processes; elsewhere a file of mode 0600 in a
    folder of mode 0700, removed when the block ends.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        with open(os.memfd_create("pyclient"), "wb") as file:  # noqa: PTH123 a descriptor has no path
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.TemporaryDirectory(prefix="pyclient-") as folder:
            path = Path(folder) / "identity.pem"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 created with its final mode
                file.write(content)
            yield str(path)
