"""Assertions signed by the client (RFC 7523; KIP-1139): a JWT of claims from a template and options.

Errors in files and options are raised when the client is created, by option and path, never by content. Rule: a changed
file that cannot be used does not stop a running client: it keeps the previous content and logs this once per change.
"""
from __future__ import annotations

import base64
import binascii
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from pyclient.config.files import stamp
from pyclient.errors import ConfigurationError
from pyclient.plugins import Surroundings
from pyclient.redaction import Secret, SecretBytes

_log = logging.getLogger(__name__)
PREFIX: Final = "sasl_oauthbearer_assertion_"
ASSERTION_FILE: Final = f"{PREFIX}file"
KEY: Final = f"{PREFIX}private_key_file"
PASSPHRASE: Final = f"{PREFIX}private_key_passphrase"
TEMPLATE: Final = f"{PREFIX}template_file"
ALGORITHM: Final = f"{PREFIX}algorithm"
NEEDED: Final = ("iss", "sub", "aud")
"""Claims that every assertion must have (RFC 7523, 3), beside ``exp``."""
MOST_BYTES: Final = 1024 * 1024
LEAST_RSA_BITS: Final = 2048
"""RFC 7518, 3.3."""
P256_BYTES: Final = 32
"""Size of each of the two numbers of an ES256 signature (RFC 7518, 3.4)."""

Sign: TypeAlias = Callable[[bytes], bytes]
Made = TypeVar("Made")


class Assertions:
    """Signs one assertion per request; changed files are read again. Used by one thread at a time.

    Raises:
        ConfigurationError: an option or a file is missing or wrong, or cryptography is not installed.
    """

    def __init__(self, config: Any, surroundings: Surroundings) -> None:
        self._config = config
        self._surroundings = surroundings
        _need_cryptography()
        passphrase, algorithm = getattr(config, PASSPHRASE), getattr(config, ALGORITHM)
        self._sign = _WatchedFile(KEY, getattr(config, KEY), lambda content, error_about: _signer(content, passphrase, algorithm, error_about))
        template = getattr(config, TEMPLATE)
        self._template = None if template is None else _WatchedFile(TEMPLATE, template, self._checked)
        if self._template is None:
            self._check_required_claims({})

    def __repr__(self) -> str:
        return f"<Assertions by {getattr(self._config, ALGORITHM)}>"

    def __call__(self) -> str:
        """A new assertion, valid from now on."""
        template = Template({}, {}) if self._template is None else self._template.current()
        now = self._surroundings.wall() // 1000
        signed = f"{_encoded({**template.header, **self._header()})}.{_encoded({**template.payload, **self._claims(), **self._dynamic(now)})}"
        return Secret(f"{signed}.{_base64url(self._sign.current()(signed.encode('ascii')))}")

    def _header(self) -> dict[str, str]:
        return {"alg": getattr(self._config, ALGORITHM), "typ": "JWT"}

    def _claims(self) -> dict[str, str]:
        given = {claim: getattr(self._config, f"{PREFIX}claim_{claim}") for claim in NEEDED}
        return {claim: value for claim, value in given.items() if value is not None}

    def _dynamic(self, now: int) -> dict[str, object]:
        config = self._config
        claims: dict[str, object] = {
            "iat": now,
            "exp": now + config.sasl_oauthbearer_assertion_claim_exp_seconds,
            "nbf": now - config.sasl_oauthbearer_assertion_claim_nbf_seconds,
        }
        if config.sasl_oauthbearer_assertion_claim_jti_include:
            claims["jti"] = str(uuid.UUID(bytes=self._surroundings.token_bytes(16), version=4))
        return claims

    def _checked(self, content: bytes, error_about: FileError) -> Template:
        template = _parsed(content, error_about)
        self._check_required_claims(template.payload)
        return template

    def _check_required_claims(self, claims: Mapping[str, Any]) -> None:
        both = {**claims, **self._claims()}
        for claim in NEEDED:
            if not both.get(claim):
                option = f"{PREFIX}claim_{claim}"
                nor = "" if getattr(self._config, TEMPLATE) is None else f", nor is {claim} in the payload of {TEMPLATE}"
                raise ConfigurationError(f"{option} is not set{nor}: every assertion needs it", option=option)


def unused(config: Any) -> list[str]:
    """The options for signed assertions that are set."""
    return sorted(name for name in config.given if name.startswith(PREFIX) and name not in (ASSERTION_FILE, KEY))


# ---- files ----------------------------------------------------------------------------------------------------------


class FileError(NamedTuple):
    """Creates the errors about one file."""

    option: str
    path: str

    def __call__(self, what: str, option: str | None = None) -> ConfigurationError:
        """*option*: the option to blame, if it is not the file's own."""
        return ConfigurationError(f"{self.option} = {self.path!r}: {what}", option=option or self.option)


class _WatchedFile(Generic[Made]):
    """A value made from a file's content, and made again when the file has changed."""

    def __init__(self, option: str, path: str, make: Callable[[bytes, FileError], Made]) -> None:
        self._error_about = FileError(option, path)
        self._make = make
        self._seen = stamp(path)  # before reading: a later write is then seen as another change
        self._made = self._read()

    def current(self) -> Made:
        now = stamp(self._error_about.path)
        if now != self._seen:
            self._seen = now
            try:
                self._made = self._read()
            except ConfigurationError as error:
                _log.warning("the file of %s has changed but cannot be used; the client keeps the previous content: %s", self._error_about.option, error)
            else:
                _log.info("the file of %s has changed and was read again", self._error_about.option)
        return self._made

    def _read(self) -> Made:
        try:
            with Path(self._error_about.path).open("rb") as file:
                content = SecretBytes(file.read(MOST_BYTES + 1))  # a key, or claims
        except OSError as error:
            raise self._error_about(f"the file cannot be read: {error.strerror or error}") from error
        if len(content) > MOST_BYTES:
            raise self._error_about(f"the file has more than {MOST_BYTES} B")
        return self._make(content, self._error_about)


# ---- the template ---------------------------------------------------------------------------------------------------


class Template(NamedTuple):
    """Header and claims that a file adds to each assertion."""

    header: dict[str, Any]
    payload: dict[str, Any]


def _parsed(content: bytes, error_about: FileError) -> Template:
    try:
        said = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise error_about("the file is not valid JSON") from error
    if not isinstance(said, dict) or not said.keys() <= {"header", "payload"} or not all(isinstance(part, dict) for part in said.values()):
        raise error_about('expected {"header": {…}, "payload": {…}}, each part optional')
    return Template(said.get("header", {}), said.get("payload", {}))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


# ---- the signature --------------------------------------------------------------------------------------------------


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"{KEY} needs the package cryptography ({error}); install it with pip install 'pyclient-kafka[oidc]', or set {ASSERTION_FILE} to a finished assertion",
            option=KEY) from error


def _signer(content: bytes, passphrase: str | None, algorithm: str, error_about: FileError) -> Sign:
    key = _private_key(content, passphrase, error_about)
    return _by_rs256(key, error_about) if algorithm == "RS256" else _by_es256(key, error_about)


def _private_key(content: bytes, passphrase: str | None, error_about: FileError) -> Any:
    """The key of a PEM file; or, as in Java, its base64 text without the BEGIN and END lines."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    password = None if passphrase is None else SecretBytes(passphrase.encode("utf-8", "surrogatepass"))
    try:
        if b"-----BEGIN" in content:
            return load_pem_private_key(content, password)
        return load_der_private_key(base64.b64decode(b"".join(content.split()), validate=True), password)
    except TypeError:  # cryptography's error for a password without encryption, or the reverse
        if passphrase is None:
            raise error_about(f"the key is encrypted and {PASSPHRASE} is not set", PASSPHRASE) from None
        raise error_about(f"the key is not encrypted: leave out {PASSPHRASE}", PASSPHRASE) from None
    except (ValueError, UnsupportedAlgorithm, binascii.Error):
        if passphrase is not None:
            raise error_about(f"the key cannot be decrypted: {PASSPHRASE} is wrong, or the key is damaged", PASSPHRASE) from None
        raise error_about("it contains no complete private key: expected -----BEGIN PRIVATE KEY----- … PEM text") from None


def _by_rs256(key: Any, error_about: FileError) -> Sign:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256

    if not isinstance(key, RSAPrivateKey):
        raise error_about(f"{ALGORITHM} = RS256 needs an RSA key; this is another type", ALGORITHM)
    if key.key_size < LEAST_RSA_BITS:
        raise error_about(f"the key has {key.key_size} bits: RS256 needs at least {LEAST_RSA_BITS}")
    return lambda data: key.sign(data, PKCS1v15(), SHA256())


def _by_es256(key: Any, error_about: FileError) -> Sign:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise error_about(f"{ALGORITHM} = ES256 needs an elliptic-curve key on P-256; this is another type", ALGORITHM)

    def signature(data: bytes) -> bytes:
        return b"".join(number.to_bytes(P256_BYTES, "big") for number in decode_dss_signature(key.sign(data, ECDSA(SHA256()))))

    return signature


def _encoded(part: Mapping[str, object]) -> str:
    return _base64url(json.dumps(part, separators=(",", ":")).encode("ascii"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
