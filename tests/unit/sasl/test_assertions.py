"""Assertions that the client signs: header, claims, a valid signature, and errors that name the option."""
from __future__ import annotations

import base64
import json
import logging
import os
import sys
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from pyclient.errors import AuthenticationError, ConfigurationError
from pyclient.plugins import OAuthToken
from pyclient.sasl.assertions import Assertions
from pyclient.sasl.oauthbearer import OAuthBearer
from pyclient.sasl.oidc import token_source
from pyclient.sasl.tokens import TokenSource
from tests.secrets import assert_no_local_shows
from tests.unit.sasl.endpoint import Endpoint
from tests.unit.sasl.exchanges import Wall, exchanged, options

NOW = 1_700_000_000
P = "sasl_oauthbearer_assertion_"
CLAIMS = {f"{P}claim_iss": "our app", f"{P}claim_sub": "orders", f"{P}claim_aud": "https://idp"}
GIVEN = {"iss": "our app", "sub": "orders", "aud": "https://idp"}


@cache
def rsa_key(bits: int = 2048, name: str = "") -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def pem(key: Any, password: bytes | None = None, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    made: bytes = key.private_bytes(Encoding.PEM, form, NoEncryption() if password is None else BestAvailableEncryption(password))
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """With an RSA key in it."""
    path = tmp_path / "key.pem"
    path.write_bytes(pem(rsa_key()))
    return path


@pytest.fixture
def template(tmp_path: Path) -> Path:
    return tmp_path / "template.json"


def assertions(file: Path, wall: Wall | None = None, /, **given: Any) -> Assertions:
    return Assertions(options(**{f"{P}private_key_file": str(file), **CLAIMS, **given}), (wall or Wall()).surroundings())


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Header, claims, what was signed, and the signature."""
    header, claims, signature = token.split(".")
    return json.loads(plain(header)), json.loads(plain(claims)), f"{header}.{claims}".encode(), plain(signature)


def plain(text: str) -> bytes:
    assert "=" not in text
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def verify_rs256(token: str, key: rsa.RSAPrivateKey) -> None:
    _, _, signed, signature = parts(token)
    key.public_key().verify(signature, signed, PKCS1v15(), SHA256())


def refused(file: Path, /, **given: Any) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        assertions(file, **given)
    return caught.value


# ---- signatures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_RS256_signs_header_and_claims(file: Path, form: PrivateFormat) -> None:
    file.write_bytes(pem(rsa_key(), form=form))
    token = assertions(file)()
    verify_rs256(token, rsa_key())
    assert parts(token)[0] == {"alg": "RS256", "typ": "JWT"}
    with pytest.raises(InvalidSignature):
        verify_rs256(token, rsa_key(name="another"))


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_ES256_signs_with_two_numbers_of_32_bytes(file: Path, form: PrivateFormat) -> None:
    file.write_bytes(pem(ec_key(), form=form))
    signing = assertions(file, **{f"{P}algorithm": "ES256"})
    for _ in range(300):  # one number in 256 begins with a byte of zeros
        header, _, signed, signature = parts(signing())
        assert len(signature) == 64
        numbers = (int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
        ec_key().public_key().verify(encode_dss_signature(*numbers), signed, ec.ECDSA(SHA256()))
        assert header == {"alg": "ES256", "typ": "JWT"}


def test_a_key_without_PEM_lines_is_accepted_as_in_Java(file: Path) -> None:
    file.write_bytes(b"\n".join(pem(rsa_key()).splitlines()[1:-1]))
    verify_rs256(assertions(file)(), rsa_key())


# ---- claims ---------------------------------------------------------------------------------------------------------


def test_claims_come_from_the_options_and_the_clock(file: Path) -> None:
    wall = Wall(NOW + 0.9)
    signing = assertions(file, wall)
    assert parts(signing())[1] == {**GIVEN, "iat": NOW, "exp": NOW + 300, "nbf": NOW - 60}
    wall.now += 1000
    assert parts(signing())[1] == {**GIVEN, "iat": NOW + 1000, "exp": NOW + 1300, "nbf": NOW + 940}


def test_lifetime_and_id_of_an_assertion_are_options(file: Path) -> None:
    claims = parts(assertions(file, **{f"{P}claim_exp_seconds": 20, f"{P}claim_nbf_seconds": 0, f"{P}claim_jti_include": True})())[1]
    assert (claims["exp"], claims["nbf"]) == (NOW + 20, NOW)
    assert uuid.UUID(claims["jti"]).version == 4


def test_ids_differ(file: Path) -> None:
    config = options(**{f"{P}private_key_file": str(file), f"{P}claim_jti_include": True, **CLAIMS})
    signing = Assertions(config, Wall().surroundings()._replace(token_bytes=os.urandom))
    assert len({parts(signing())[1]["jti"] for _ in range(10)}) == 10


def test_a_template_adds_header_fields_and_claims_and_the_options_win(file: Path, template: Path) -> None:
    template.write_text(json.dumps({
        "header": {"kid": "key-7", "alg": "none"}, "payload": {"aud": ["a", "b"], "sub": "the template's", "exp": 5, "é": {"deep": [1, None]}},
    }))
    given = {f"{P}template_file": str(template), f"{P}claim_aud": None}
    header, claims, _, _ = parts(assertions(file, **given)())
    assert header == {"kid": "key-7", "alg": "RS256", "typ": "JWT"}
    assert claims == {"aud": ["a", "b"], "sub": "orders", "iss": "our app", "é": {"deep": [1, None]}, "iat": NOW, "exp": NOW + 300, "nbf": NOW - 60}


@pytest.mark.parametrize("claim", ["aud", "iss", "sub"])
def test_a_claim_that_is_missing_is_raised_by_its_option(file: Path, template: Path, claim: str) -> None:
    option = f"{P}claim_{claim}"
    assert refused(file, **{option: None}).option == option
    template.write_text(json.dumps({"payload": {claim: ""}}))
    error = refused(file, **{option: None, f"{P}template_file": str(template)})
    assert error.option == option
    assert f"nor is {claim} in the payload" in str(error)
    template.write_text(json.dumps({"payload": {claim: "here"}}))
    assert parts(assertions(file, **{option: None, f"{P}template_file": str(template)})())[1][claim] == "here"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"claims": {}}', '{"payload": []}', '{"header": 5}', '{"payload": {"a": NaN}}', "[" * 100_000])
def test_an_invalid_template_is_refused(file: Path, template: Path, content: str) -> None:
    template.write_text(content)
    error = refused(file, **{f"{P}template_file": str(template)})
    assert error.option == f"{P}template_file"
    assert str(template) in str(error)


# ---- keys -----------------------------------------------------------------------------------------------------------


def test_an_encrypted_key_is_opened_with_its_passphrase(file: Path) -> None:
    file.write_bytes(pem(rsa_key(), "märker".encode()))
    verify_rs256(assertions(file, **{f"{P}private_key_passphrase": "märker"})(), rsa_key())


@pytest.mark.parametrize(("password", "passphrase", "expected"), [
    (b"right", "marker", "is wrong, or the key is damaged"), (b"right", None, "encrypted and .* is not set"), (None, "marker", "not encrypted"),
])
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_a_passphrase_that_does_not_fit_is_raised_by_its_option(
    file: Path, password: bytes | None, passphrase: str | None, expected: str, form: PrivateFormat,
) -> None:
    file.write_bytes(pem(rsa_key(), password, form))
    with pytest.raises(ConfigurationError, match=expected) as caught:
        assertions(file, **{f"{P}private_key_passphrase": passphrase})
    assert caught.value.option == f"{P}private_key_passphrase"
    assert "marker" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no key", b"\xff" * 100, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_without_a_key_is_raised_by_option_and_path(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    error = refused(file)
    assert error.option == f"{P}private_key_file"
    assert str(file) in str(error)


def test_a_file_that_is_too_long_is_not_read_to_its_end(file: Path) -> None:
    file.write_bytes(pem(rsa_key()) + b" " * (1024 * 1024))
    assert "more than 1048576 B" in str(refused(file))


def test_a_file_that_is_not_there_is_raised_by_option_and_path(file: Path) -> None:
    file.unlink()
    assert "No such file" in str(refused(file))
    assert refused(file.parent).option == f"{P}private_key_file"


@pytest.mark.parametrize(("algorithm", "key"), [
    ("RS256", ec_key), ("ES256", rsa_key), ("ES256", lambda: ec_key(ec.SECP384R1)), ("RS256", ed25519.Ed25519PrivateKey.generate),
])
def test_a_key_of_another_kind_is_raised_by_the_algorithm(file: Path, algorithm: str, key: Any) -> None:
    file.write_bytes(pem(key()))
    error = refused(file, **{f"{P}algorithm": algorithm})
    assert error.option == f"{P}algorithm"
    assert algorithm in str(error)


def test_a_key_that_is_too_short_is_refused(file: Path) -> None:
    file.write_bytes(pem(rsa_key(1024)))
    assert "1024 bits" in str(refused(file))


def test_files_are_read_again_when_they_have_changed(file: Path, template: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    template.write_text('{"header": {"kid": "1"}}')
    signing = assertions(file, **{f"{P}template_file": str(template)})
    signing()
    signing()
    assert not caplog.records
    file.write_bytes(pem(rsa_key(name="another")))
    template.write_text('{"header": {"kid": "two"}}')
    token = signing()
    verify_rs256(token, rsa_key(name="another"))
    assert parts(token)[0]["kid"] == "two"
    assert caplog.text.count("was read again") == 2


def test_an_unusable_change_is_logged_once_and_the_previous_content_kept(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    signing = assertions(file)
    for change in (lambda: file.write_bytes(b"half"), file.unlink):
        caplog.clear()
        change()
        for _ in range(3):
            verify_rs256(signing(), rsa_key())
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert f"{P}private_key_file" in caplog.text
    file.write_bytes(pem(rsa_key(name="another")))
    verify_rs256(signing(), rsa_key(name="another"))


def test_a_missing_package_is_named_with_its_extra(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert "pip install 'pyclient-kafka[oidc]'" in str(refused(file))


# ---- at a token endpoint --------------------------------------------------------------------------------------------


def source(endpoint: Endpoint, file: Path, /, **given: Any) -> TokenSource:
    config = options(**{"sasl_oauthbearer_token_endpoint_url": endpoint.url, f"{P}private_key_file": str(file), **CLAIMS, **given})
    return token_source(config, Wall().surroundings(), sleep=lambda _: None)


def test_a_signed_assertion_is_exchanged_for_a_token(file: Path) -> None:
    with Endpoint() as endpoint:
        token = source(endpoint, file, sasl_oauthbearer_scope="kafka.read")()
    assert isinstance(token, OAuthToken)
    assert (token.value, token.expires_at) == ("abc", NOW + 3600)
    (asked,) = endpoint.asked
    assert asked.form | {"assertion": ""} == {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "scope": "kafka.read", "assertion": ""}
    assert "authorization" not in asked.headers
    verify_rs256(asked.form["assertion"], rsa_key())


def test_each_attempt_has_its_own_assertion(file: Path) -> None:
    wall = Wall()
    with Endpoint((503, b""), (200, {"access_token": "abc"})) as endpoint:
        config = options(**{"sasl_oauthbearer_token_endpoint_url": endpoint.url, f"{P}private_key_file": str(file), **CLAIMS})

        def sleep(_: float) -> None:
            wall.now += 100

        token_source(config, wall.surroundings(), sleep=sleep)()
    assert [parts(asked.form["assertion"])[1]["exp"] for asked in endpoint.asked] == [NOW + 300, NOW + 400]


def test_a_login_takes_its_token_for_an_assertion(file: Path) -> None:
    with Endpoint() as endpoint:
        config = options(**{"sasl.oauthbearer.token.endpoint.url": endpoint.url, f"{P}private_key_file": str(file), **CLAIMS})
        mechanism = OAuthBearer()
        mechanism.check(config)
        assert exchanged(mechanism, config, lambda message: b"") == [b"n,,\x01auth=Bearer abc\x01\x01"]


def test_a_refusal_names_the_key_and_shows_no_assertion(file: Path) -> None:
    with Endpoint() as endpoint:
        fetch = source(endpoint, file)
        fetch()
        expected = endpoint.asked[0].form["assertion"]  # the clock stands still: the next one is the same
        endpoint.answers = [(400, {"error": "invalid_grant", "error_description": f"no {expected}"})]
        with pytest.raises(AuthenticationError, match=rf"no \[hidden\].*check {P}private_key_file") as caught:
            fetch()
    assert expected not in str(caught.value)


def test_an_assertion_file_wins_as_in_Java_and_a_warning_says_so(file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ready = tmp_path / "ready"
    ready.write_text("the.ready.one")
    with Endpoint() as endpoint:
        source(endpoint, file, **{f"{P}file": str(ready)})()
    assert endpoint.asked[0].form["assertion"] == "the.ready.one"
    assert "are ignored" in caplog.text


@pytest.mark.parametrize("option", [f"{P}template_file", f"{P}claim_aud", f"{P}private_key_passphrase"])
def test_assertion_options_without_a_key_are_refused(file: Path, option: str) -> None:
    with Endpoint() as endpoint, pytest.raises(ConfigurationError, match=option) as caught:
        source(endpoint, file, **{f"{P}private_key_file": None, **dict.fromkeys(CLAIMS), option: "given"})
    assert caught.value.option == f"{P}private_key_file"


@pytest.mark.parametrize(("password", "passphrase"), [(b"marker-pass", None), (b"marker-pass", "marker-other"), (None, "marker-pass")])
def test_no_local_variable_of_a_refused_key_shows_it(tmp_path: Path, password: bytes | None, passphrase: str | None) -> None:
    """Nor the passphrase. Tools that report errors keep the variables of each frame."""
    path = tmp_path / "key.pem"
    path.write_bytes(pem(rsa_key(), password))
    with pytest.raises(ConfigurationError) as caught:
        Assertions(options(**CLAIMS, **{f"{P}private_key_file": str(path), f"{P}private_key_passphrase": passphrase}), Wall().surroundings())
    assert_no_local_shows(caught.value, "marker-", "PRIVATE KEY")
