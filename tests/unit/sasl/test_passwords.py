"""A password that a function gives: asked for at each login, checked, and hidden."""
from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pyclient.errors import ConfigurationError, PasswordUnavailableError
from pyclient.plugin_loading import load_plugin
from pyclient.sasl.plain import Plain
from tests.unit.sasl.exchanges import exchanged, options

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def anna(password: object) -> Any:
    return options(sasl_plain_username="anna", sasl_plain_password=password)


def raising(error: Exception) -> Callable[[], str]:
    def password() -> str:
        raise error
    return password


@pytest.mark.parametrize("is_async", [False, True])
def test_the_function_is_called_at_each_login(is_async: bool) -> None:
    given = iter(["first", "second", "third"])

    async def awaited() -> str:
        return next(given)

    mechanism, config = Plain(), anna(awaited if is_async else lambda: next(given))
    said = [exchanged(mechanism, config, lambda message: b"") for _ in range(3)]
    assert said == [[b"\0anna\0first"], [b"\0anna\0second"], [b"\0anna\0third"]]


def test_an_async_function_is_called_only_once_it_is_awaited() -> None:
    called = list[str]()

    async def password() -> str:
        called.append("called")
        return "first"

    wait = next(Plain().exchange(anna(password), "broker"))
    assert isinstance(wait, Awaitable)  # a login that ends here leaves no coroutine that was never awaited
    assert called == []


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_function_may_wait_so_it_is_called_outside_of_the_loop(name: str) -> None:
    mechanism = load_plugin("sasl mechanism", name)
    mechanism.check(anna(lambda: "hunter2"))
    assert (mechanism.blocking, mechanism.renews) == (True, True)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("returned", "said"), [
    (None, "a NoneType"), (b"hunter2", "a bytes"), (("hunter2", 5), "a tuple"), ("hunt\0er2", "no login can carry"), ("hunt\ud800er2", "no login can carry"),
], ids=["None", "bytes", "tuple", "NUL", "surrogate"])
def test_what_is_no_password_is_refused_and_not_shown(name: str, returned: object, said: str) -> None:
    mechanism = load_plugin("sasl mechanism", name)
    with pytest.raises(PasswordUnavailableError, match=said) as caught:
        exchanged(mechanism, anna(lambda: returned), lambda message: b"")
    assert "hunt" not in str(caught.value)


def test_an_error_of_the_function_is_raised_as_one_that_may_pass_without_earlier_passwords() -> None:
    mechanism = Plain()
    exchanged(mechanism, anna(lambda: "hunter2"), lambda message: b"")
    cause = OSError("no vault; the last one was hunter2")
    with pytest.raises(PasswordUnavailableError, match=r"sasl_plain_password raised OSError: no vault; the last one was \[hidden\]") as caught:
        exchanged(mechanism, anna(raising(cause)), lambda message: b"")
    assert caught.value.__cause__ is cause


def test_recent_passwords_are_hidden_in_what_a_broker_says() -> None:
    given = iter(["first-secret", "second-secret"])
    mechanism, config = Plain(), anna(lambda: next(given))
    for _ in range(2):
        exchanged(mechanism, config, lambda message: b"")
    assert mechanism.hide("first-secret, second-secret") == "[hidden], [hidden]"


def test_local_variables_of_a_traceback_do_not_show_the_password() -> None:
    steps = Plain().exchange(anna(lambda: "hunter2"), "host")
    next(steps)
    with pytest.raises(OSError, match="lost") as caught:
        steps.throw(OSError("lost"))
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "hunter2" not in "".join(shown.format())


def test_only_a_text_or_a_function_is_a_password() -> None:
    with pytest.raises(ConfigurationError, match="expected a text, or a function that returns it"):
        anna(5)
