"""Assertions that the client signs itself (RFC 7523; KIP-1139): a JWT of claims from a template file and from options, by RS256 or ES256.

What is wrong with a file or an option is told when the client is made, by option and path, never by content. Rule: a file that changes
and cannot be used ends no client that runs: it keeps what it had, and says so once per change.
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

_log = logging.getLogger(__name__)
PREFIX: Final = "sasl_oauthbearer_assertion_"
READY: Final = f"{PREFIX}file"
KEY: Final = f"{PREFIX}private_key_file"
PASSPHRASE: Final = f"{PREFIX}private_key_passphrase"
TEMPLATE: Final = f"{PREFIX}template_file"
ALGORITHM: Final = f"{PREFIX}algorithm"
NEEDED: Final = ("iss", "sub", "aud")
"""Claims without which no assertion is one (RFC 7523, 3), beside the end of its life."""
MOST_BYTES: Final = 1024 * 1024
LEAST_RSA_BITS: Final = 2048
"""RFC 7518, 3.3."""
P256_BYTES: Final = 32
"""Of each of the two numbers that are a signature by ES256 (RFC 7518, 3.4)."""

Sign: TypeAlias = Callable[[bytes], bytes]
Made = TypeVar("Made")


class Assertions:
    """Signs one for each request; the files are read again when they have changed. Used by one thread at a time.

    Raises:
        ConfigurationError: an option or a file is missing or wrong, or cryptography is not installed.
    """

    def __init__(self, config: Any, surroundings: Surroundings) -> None:
        self._config = config
        self._surroundings = surroundings
        _need_cryptography()
        passphrase, algorithm = getattr(config, PASSPHRASE), getattr(config, ALGORITHM)
        self._sign = _Kept(KEY, getattr(config, KEY), lambda content, wrong: _signer(content, passphrase, algorithm, wrong))
        template = getattr(config, TEMPLATE)
        self._template = None if template is None else _Kept(TEMPLATE, template, self._checked)
        if self._template is None:
            self._refuse_gaps({})

    def __repr__(self) -> str:
        return f"<Assertions by {getattr(self._config, ALGORITHM)}>"

    def __call__(self) -> str:
        """A new assertion, from now on."""
        template = Template({}, {}) if self._template is None else self._template.current()
        now = self._surroundings.wall() // 1000
        signed = f"{_encoded({**template.header, **self._header()})}.{_encoded({**template.payload, **self._claims(), **self._dynamic(now)})}"
        return f"{signed}.{_base64url(self._sign.current()(signed.encode('ascii')))}"

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

    def _checked(self, content: bytes, wrong: Wrong) -> Template:
        template = _parsed(content, wrong)
        self._refuse_gaps(template.payload)
        return template

    def _refuse_gaps(self, claims: Mapping[str, Any]) -> None:
        both = {**claims, **self._claims()}
        for claim in NEEDED:
            if not both.get(claim):
                option = f"{PREFIX}claim_{claim}"
                nor = "" if getattr(self._config, TEMPLATE) is None else f", nor is {claim} in the payload of {TEMPLATE}"
                raise ConfigurationError(f"{option} is not set{nor}: an assertion needs it", option=option)


def unused(config: Any) -> list[str]:
    """The options of signed assertions that are given, though none is signed."""
    return sorted(name for name in config.given if name.startswith(PREFIX) and name not in (READY, KEY))


# ---- files ----------------------------------------------------------------------------------------------------------


class Wrong(NamedTuple):
    """Makes the errors about one file."""

    option: str
    path: str

    def __call__(self, what: str, option: str | None = None) -> ConfigurationError:
        """The error that says what is wrong with it; *option*: with what is given beside it."""
        return ConfigurationError(f"{self.option} = {self.path!r}: {what}", option=option or self.option)


class _Kept(Generic[Made]):
    """What was made of a file's content, and is made anew when it has changed."""

    def __init__(self, option: str, path: str, make: Callable[[bytes, Wrong], Made]) -> None:
        self._wrong = Wrong(option, path)
        self._make = make
        self._seen = stamp(path)  # before reading: what is written meanwhile is a change that is still to be seen
        self._made = self._read()

    def current(self) -> Made:
        now = stamp(self._wrong.path)
        if now != self._seen:
            self._seen = now
            try:
                self._made = self._read()
            except ConfigurationError as error:
                _log.warning("the file of %s has changed and cannot be used, the client goes on with what it had: %s", self._wrong.option, error)
            else:
                _log.info("the file of %s has changed and was read again", self._wrong.option)
        return self._made

    def _read(self) -> Made:
        try:
            with Path(self._wrong.path).open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise self._wrong(f"the file cannot be read: {error.strerror or error}") from error
        if len(content) > MOST_BYTES:
            raise self._wrong(f"the file has more than {MOST_BYTES} B")
        return self._make(content, self._wrong)


# ---- the template ---------------------------------------------------------------------------------------------------


class Template(NamedTuple):
    """What a file adds to each assertion."""

    header: dict[str, Any]
    payload: dict[str, Any]


def _parsed(content: bytes, wrong: Wrong) -> Template:
    try:
        said = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise wrong("the file is no JSON") from error
    if not isinstance(said, dict) or not said.keys() <= {"header", "payload"} or not all(isinstance(part, dict) for part in said.values()):
        raise wrong('expected {"header": {…}, "payload": {…}}, of which either may be left out')
    return Template(said.get("header", {}), said.get("payload", {}))


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# ---- the signature --------------------------------------------------------------------------------------------------


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"{KEY} needs the package cryptography ({error}); install it with pip install 'pyclient-kafka[oidc]', or give a ready assertion in {READY}",
            option=KEY) from error


def _signer(content: bytes, passphrase: str | None, algorithm: str, wrong: Wrong) -> Sign:
    key = _private_key(content, passphrase, wrong)
    return _by_rs256(key, wrong) if algorithm == "RS256" else _by_es256(key, wrong)


def _private_key(content: bytes, passphrase: str | None, wrong: Wrong) -> Any:
    """The key in a PEM file; or, as Java has it, what stands between the lines of one."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    password = None if passphrase is None else passphrase.encode("utf-8", "surrogatepass")
    try:
        if b"-----BEGIN" in content:
            return load_pem_private_key(content, password)
        return load_der_private_key(base64.b64decode(b"".join(content.split()), validate=True), password)
    except TypeError:  # how cryptography says that a password and the key do not go together
        if passphrase is None:
            raise wrong(f"the key is encrypted and {PASSPHRASE} is not set", PASSPHRASE) from None
        raise wrong(f"the key is not encrypted: leave out {PASSPHRASE}", PASSPHRASE) from None
    except (ValueError, UnsupportedAlgorithm, binascii.Error):
        if passphrase is not None:
            raise wrong(f"the key cannot be decrypted: {PASSPHRASE} is wrong, or the key is damaged", PASSPHRASE) from None
        raise wrong("there is no whole private key in it: expected -----BEGIN PRIVATE KEY----- … PEM text") from None


def _by_rs256(key: Any, wrong: Wrong) -> Sign:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256

    if not isinstance(key, RSAPrivateKey):
        raise wrong(f"{ALGORITHM} = RS256 needs an RSA key, and this is another one", ALGORITHM)
    if key.key_size < LEAST_RSA_BITS:
        raise wrong(f"the key has {key.key_size} bits: RS256 needs {LEAST_RSA_BITS} at least")
    return lambda data: key.sign(data, PKCS1v15(), SHA256())


def _by_es256(key: Any, wrong: Wrong) -> Sign:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise wrong(f"{ALGORITHM} = ES256 needs an elliptic-curve key on P-256, and this is another one", ALGORITHM)

    def signature(data: bytes) -> bytes:
        return b"".join(number.to_bytes(P256_BYTES, "big") for number in decode_dss_signature(key.sign(data, ECDSA(SHA256()))))

    return signature


def _encoded(part: Mapping[str, object]) -> str:
    return _base64url(json.dumps(part, separators=(",", ":")).encode("ascii"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
