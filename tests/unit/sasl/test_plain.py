"""PLAIN (RFC 4616), and the options that it shares with SCRAM."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import ConfigurationError
from pyclient.plugin_loading import available_plugins, load_plugin
from pyclient.sasl.plain import Plain
from tests.unit.sasl.exchanges import exchanged, options

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@pytest.mark.parametrize("name", ["GSSAPI", "OAUTHBEARER", *MECHANISMS])
def test_each_mechanism_is_found_by_its_name(name: str) -> None:
    assert load_plugin("sasl mechanism", name).name == name
    assert name in available_plugins("sasl mechanism")


@given(user=TEXT, password=TEXT)
def test_user_and_password_are_sent_unchanged_without_an_authorization_id(user: str, password: str) -> None:
    config = options(sasl_plain_username=user, sasl_plain_password=password)
    assert exchanged(Plain(), config, lambda message: b"") == [b"\0" + user.encode() + b"\0" + password.encode()]


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("given_", "option"), [
    ({}, "sasl_plain_username"), ({"sasl_plain_username": "anna"}, "sasl_plain_password"), ({"sasl_plain_password": "hunter2"}, "sasl_plain_username"),
    ({"sasl_plain_username": "an\0na", "sasl_plain_password": "hunter2"}, "sasl_plain_username"),
    ({"sasl_plain_username": "anna", "sasl_plain_password": "hunt\0er2"}, "sasl_plain_password"),
])
def test_missing_or_unsendable_credentials_are_raised_when_the_client_is_created(name: str, given_: dict[str, Any], option: str) -> None:
    mechanism, config = load_plugin("sasl mechanism", name), options(**given_)
    begins: list[Callable[[], object]] = [lambda: mechanism.check(config), lambda: next(mechanism.exchange(config, "host"))]
    for begin in begins:
        with pytest.raises(ConfigurationError, match=option) as caught:
            begin()
        assert caught.value.option == option
        assert "hunt" not in str(caught.value) + repr(caught.value)
