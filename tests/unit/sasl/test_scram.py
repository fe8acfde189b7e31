"""SCRAM (RFC 5802, RFC 7677): the standards' own examples, real servers, and servers that lie."""
from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scramp import ScramMechanism

from pyclient.errors import SaslAuthenticationError
from pyclient.plugins import Surroundings
from pyclient.sasl.scram import ITERATIONS, Scram, ScramSha256, ScramSha512
from tests.unit.sasl.exchanges import exchanged, options

PENCIL = options(sasl_plain_username="user", sasl_plain_password="pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def sha256() -> Scram:
    return ScramSha256(nonce=lambda: NONCE)


def answers(*given_: bytes) -> Callable[[bytes], bytes]:
    left = iter(given_)
    return lambda message: next(left)


# ---- the standards' examples ----------------------------------------------------------------------------------------


def test_RFC_7677_the_example_with_SHA_256() -> None:
    assert exchanged(sha256(), PENCIL, answers(FIRST, FINAL)) == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


def test_RFC_5802_the_example_with_SHA_1() -> None:
    nonce = "fyko+d2lbbFgONRv9qkxdawL"
    first = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    said = exchanged(Scram("SCRAM-SHA-1", nonce=lambda: nonce), PENCIL, answers(first, b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="))
    assert said == [b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
                    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="]


# ---- servers --------------------------------------------------------------------------------------------------------


def server(name: str, user: str, password: str, iterations: int = 4096) -> tuple[Any, Callable[[bytes], bytes]]:
    """scramp's server, with keys made as Kafka makes them: of the text as it is."""
    digest, salt = name.removeprefix("SCRAM-").replace("-", "").lower(), b"0123456789abcdef"
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    keys = [hmac.digest(salted, text, digest) for text in (b"Client Key", b"Server Key")]
    known = {user: (salt, hashlib.new(digest, keys[0]).digest(), keys[1], iterations)}
    made = ScramMechanism(name).make_server(known.get)

    def answer(message: bytes) -> bytes:
        if made.stage is None:
            made.set_client_first(message.decode())
            return made.get_server_first().encode()  # type: ignore[no-any-return]
        made.set_client_final(message.decode())
        return made.get_server_final().encode()  # type: ignore[no-any-return]

    return made, answer


@pytest.mark.parametrize("scram", [ScramSha256(), ScramSha512()], ids=lambda each: each.name)
@pytest.mark.parametrize(("user", "password"), [
    ("anna", "secret"), ("a,b=c", "x,y=z"), ("anna", ""), ("änna", "pässwörd"), ("anna", "ﬁ\u00a0ª\u200b"), ("anna", "\u05d0a"),
])
def test_a_login_succeeds_with_the_password_unchanged(scram: Scram, user: str, password: str) -> None:
    """Kafka prepares no text: what SASLprep changes (ligatures, spaces) or refuses must pass."""
    made, answer = server(scram.name, user, password)
    assert len(exchanged(scram, options(sasl_plain_username=user, sasl_plain_password=password), answer)) == 2
    assert made.stage == 4


def test_the_password_never_leaves_in_any_form() -> None:
    _, answer = server("SCRAM-SHA-256", "anna", "the marker secret")
    said = b"".join(exchanged(ScramSha256(), options(sasl_plain_username="anna", sasl_plain_password="the marker secret"), answer))
    assert b"marker" not in said
    assert base64.b64encode(b"the marker secret") not in said


def test_each_login_has_its_own_nonce_from_the_surroundings() -> None:
    scram = ScramSha512()
    assert next(scram.exchange(PENCIL, "")) != next(scram.exchange(PENCIL, ""))
    twice = []
    for _ in range(2):
        scram.run_in(Surroundings(token_bytes=Random(7).randbytes))
        twice.append(next(scram.exchange(PENCIL, "")))
    assert twice[0] == twice[1]
    assert len(twice[0].partition(b"r=")[2]) >= 32


# ---- servers that lie -----------------------------------------------------------------------------------------------


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    with pytest.raises(SaslAuthenticationError, match="does not know the password"):
        exchanged(sha256(), PENCIL, answers(FIRST, b"v=" + base64.b64encode(bytes(32))))


@pytest.mark.parametrize("final", [b"", b"v=", b"e=invalid-proof", b"e=whatever", b"v=AAAA", b"\xff", b"x=1", FINAL + b",m=1", FIRST, b"v=" + b"A" * 100_000])
def test_a_login_does_not_count_without_the_servers_proof(final: bytes) -> None:
    with pytest.raises(SaslAuthenticationError, match="SCRAM-SHA-256"):
        exchanged(sha256(), PENCIL, answers(FIRST, final))


@pytest.mark.parametrize("iterations", [b"0", b"-1", b"1", b"4095", b"1000001", b"2147483647", b"9" * 100, b"9" * 5000, b"4096.5", b"4_096", "٤٠٩٦".encode()])
def test_an_iteration_count_out_of_bounds_is_refused_before_hashing(iterations: bytes) -> None:
    began = time.process_time()
    with pytest.raises(SaslAuthenticationError):
        exchanged(sha256(), PENCIL, answers(FIRST.replace(b"4096", iterations)))
    assert time.process_time() - began < 0.3


def test_the_bounds_of_the_iteration_count_are_ours_and_are_named() -> None:
    assert (ITERATIONS[0], ITERATIONS[-1]) == (4096, 1_000_000)
    with pytest.raises(SaslAuthenticationError, match=r"1000001 iterations of SCRAM-SHA-256; allowed are 4096 to 1000000"):
        exchanged(sha256(), PENCIL, answers(FIRST.replace(b"4096", b"1000001")))


@pytest.mark.parametrize("first", [
    FIRST.replace(b"rOprNG", b"XXXXXX"), FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""), b"m=ext," + FIRST, b"e=other-error", b"", b",", b"r=", b"\0" * 100,
    b"r=rOprNGfwEbeRWgbNEkqOx,s=!!!,i=4096", FIRST + b",i=4096", b"x" * 9000,
])
def test_a_malformed_first_message_of_the_server_is_refused(first: bytes) -> None:
    with pytest.raises(SaslAuthenticationError, match="SCRAM-SHA-256"):
        exchanged(sha256(), PENCIL, answers(first))


def test_a_well_formed_but_far_too_long_message_is_refused() -> None:
    with pytest.raises(SaslAuthenticationError, match=r"9\d\d\d B; SCRAM-SHA-256"):
        exchanged(sha256(), PENCIL, answers(FIRST.replace(b"NlF$k0", b"x" * 9000)))


PIECES = st.lists(st.one_of(st.binary(max_size=12), st.sampled_from(
    [b"r=", b"s=", b"i=", b"v=", b"e=", b",", NONCE.encode(), b"W22ZaJ0SNY7soEsUEjb6gQ==", b"4096", b"=", b"m=", b"\xff"])), max_size=9).map(b"".join)


@given(first=PIECES, final=PIECES)
@example(first=FIRST, final=b"")
def test_garbage_at_any_step_ends_in_a_refusal_and_nothing_else(first: bytes, final: bytes) -> None:
    for given_ in ((first, final), (FIRST, final)):
        with pytest.raises(SaslAuthenticationError) as caught:
            exchanged(sha256(), PENCIL, answers(*given_))
        assert "pencil" not in repr(caught.value)


@given(data=st.data())
def test_a_damaged_response_is_never_accepted_as_the_proof(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(FINAL) - 3))  # the last characters of base64 hold bits that count for nothing
    damaged = bytearray(FINAL)
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SaslAuthenticationError):
        exchanged(sha256(), PENCIL, answers(FIRST, bytes(damaged)))


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_delegation_token_is_announced_in_the_first_message_and_signed(name: str) -> None:
    """scramp's server knows no extensions: it is given the message without, and signs it with."""
    config = options(sasl_plain_username="id", sasl_plain_password="c2VjcmV0", sasl_scram_tokenauth=True)
    made, plain = server(name, "id", "c2VjcmV0")

    def answer(message: bytes) -> bytes:
        said = plain(message.removesuffix(b",tokenauth=true"))
        if message.endswith(b",tokenauth=true"):
            made.client_first_bare += ",tokenauth=true"
        return said

    first, _ = exchanged(Scram(name), config, answer)
    assert first.startswith(b"n,,n=id,r=")
    assert first.endswith(b",tokenauth=true")
    assert made.stage == 4
