"""A password that a function gives: asked for at each login, checked, and hidden."""
from __future__ import annotations

import asyncio
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


def test_a_password_in_a_long_error_is_hidden_before_the_text_is_cut() -> None:
    mechanism = Plain()
    exchanged(mechanism, anna(lambda: "hunter2-of-anna"), lambda message: b"")
    with pytest.raises(PasswordUnavailableError) as caught:
        exchanged(mechanism, anna(raising(OSError("x" * 290 + "hunter2-of-anna"))), lambda message: b"")
    assert "hunter" not in str(caught.value)


async def hunter() -> str:
    return "hunter2"


@pytest.mark.parametrize("given", [lambda: "hunter2", hunter, lambda: hunter()], ids=["plain", "async", "awaitable"])  # noqa: PLW0108 no async function itself
def test_local_variables_of_a_traceback_do_not_show_the_password(given: Any) -> None:
    steps = Plain().exchange(anna(given), "host")
    run_to_first_message(steps)
    with pytest.raises(OSError, match="lost") as caught:
        steps.throw(OSError("lost"))
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "hunter2" not in "".join(shown.format())


def run_to_first_message(steps: Any) -> None:
    sent = None
    while not isinstance(made := steps.send(sent), bytes):
        sent = asyncio.run(awaited(made))
        assert "hunter2" not in repr(sent)


async def awaited(made: Any) -> Any:
    return await made


@pytest.mark.parametrize("returned", ["hunt\0er2", b"hunter2"], ids=["NUL", "bytes"])
def test_local_variables_of_a_refusal_do_not_show_what_was_refused(returned: object) -> None:
    with pytest.raises(PasswordUnavailableError) as caught:
        next(Plain().exchange(anna(lambda: returned), "host"))
    caught.value.__traceback__ = None if caught.value.__traceback__ is None else caught.value.__traceback__.tb_next  # without this test's own variables
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "er2" not in "".join(line for line in "".join(shown.format()).splitlines() if "returned" in line)


def test_only_a_text_or_a_function_is_a_password() -> None:
    with pytest.raises(ConfigurationError, match="expected a text, or a function that returns it"):
        anna(5)
