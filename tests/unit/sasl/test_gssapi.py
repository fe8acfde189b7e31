"""GSSAPI (RFC 4752) against a stand-in for the package gssapi: these tests have no Kerberos realm."""
from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pyclient.errors import ConfigurationError, SaslAuthenticationError
from pyclient.sasl.gssapi import Gssapi
from tests.unit.sasl.exchanges import exchanged, options

KAFKA = options(sasl_kerberos_service_name="kafka")


class GSSError(Exception):
    """As the package's."""


class Context:
    """Needs so many answers until it is complete; wraps by brackets."""

    needs = 1
    last: bytes | None = None
    """The token of the step that completes it."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.heard: list[bytes | None] = []
        Stub.made.append(self)

    @property
    def complete(self) -> bool:
        return len(self.heard) > self.needs

    def step(self, token: bytes | None = None) -> bytes | None:
        if token == b"bad":
            raise GSSError("No credentials were supplied")
        self.heard.append(token)
        return self.last if self.complete else b"token %d" % len(self.heard)

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"<" + message + b">")

    def unwrap(self, message: bytes) -> Any:
        if not message.startswith(b"<"):
            raise GSSError("A token was invalid")
        return SimpleNamespace(message=message[1:-1])


class Stub(ModuleType):
    made: list[Context]

    def __init__(self) -> None:
        super().__init__("gssapi")
        Stub.made = []
        self.exceptions = SimpleNamespace(GSSError=GSSError)
        self.NameType = SimpleNamespace(hostbased_service="hostbased")
        self.RequirementFlag = SimpleNamespace(mutual_authentication="mutual", out_of_sequence_detection="order", integrity="integrity")
        self.Name = lambda text, kind: (text, kind)
        self.SecurityContext: Any = type("SecurityContext", (Context,), {})


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    made = Stub()
    monkeypatch.setitem(sys.modules, "gssapi", made)
    return made


def answering(*answers: bytes) -> tuple[list[bytes], Any]:
    left = iter(answers)
    return [], lambda message: next(left)


@pytest.mark.parametrize("last", [None, b"the last token"])
def test_tokens_until_both_trust_each_other_then_no_security_layer(stub: Stub, last: bytes | None) -> None:
    stub.SecurityContext.last = last
    said = exchanged(Gssapi(), KAFKA, answering(b"server's token", b"<\x07\x00\x10\x00>", b"")[1])
    assert said == [b"token 1", last or b"", b"<\x01\x00\x00\x00>"]
    (context,) = Stub.made
    assert context.heard == [None, b"server's token"]
    assert context.given["name"] == ("kafka@broker-1", "hostbased")
    assert context.given["usage"] == "initiate"


def test_the_layer_none_must_be_offered(stub: Stub) -> None:
    for offer in (b"<\x06\x00\x10\x00>", b"<>", b"<\x01>", b"<\x01\x00\x00\x00\x00>"):
        with pytest.raises(SaslAuthenticationError, match="SASL_SSL"):
            exchanged(Gssapi(), KAFKA, answering(b"", offer)[1])


@pytest.mark.parametrize("answers", [(b"bad",), (b"", b"no wrapping")])
def test_an_error_of_Kerberos_is_raised_with_what_to_check(stub: Stub, answers: tuple[bytes, ...]) -> None:
    with pytest.raises(SaslAuthenticationError, match=r"kafka@broker-1.*klist"):
        exchanged(Gssapi(), KAFKA, answering(*answers)[1])


def test_a_broker_that_never_ends_the_exchange_is_given_up(stub: Stub) -> None:
    stub.SecurityContext.needs = 1000
    with pytest.raises(SaslAuthenticationError, match="more than 8"):
        exchanged(Gssapi(), KAFKA, lambda message: b"more")


def test_the_service_name_is_needed_and_a_password_leads_to_a_hint_at_other_mechanisms(stub: Stub) -> None:
    with pytest.raises(ConfigurationError, match="sasl_kerberos_service_name") as caught:
        Gssapi().check(options())
    assert caught.value.option == "sasl_kerberos_service_name"
    with pytest.raises(ConfigurationError, match="SCRAM-SHA-512"):
        Gssapi().check(options(sasl_plain_username="anna"))
    Gssapi().check(KAFKA)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyclient-kafka\[gssapi\]'"):
        Gssapi().check(KAFKA)
