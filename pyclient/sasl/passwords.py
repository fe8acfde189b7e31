"""User and password of PLAIN and SCRAM: from the options, or the password by a function."""
from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from pyclient.cancellation import CallOnLoop
from pyclient.errors import ConfigurationError, PasswordUnavailableError, with_article
from pyclient.redaction import encoded_forms, hidden, without

OPTIONS: Final = ("sasl_plain_username", "sasl_plain_password")
REMEMBERED: Final = 8
"""Recent passwords to hide, because a broker may repeat them in an error."""
SHOWN: Final = 300


class LogsInByPassword:
    """What PLAIN and SCRAM share. A password is a text, or a function that is called at each login and renewal."""

    name: str
    options: tuple[str, ...] = OPTIONS
    renews = False
    """Whether a function gives the password: then a refusal may be temporary."""

    def __init__(self) -> None:
        self._recent: deque[str] = deque(maxlen=REMEMBERED)

    def check(self, config: Any, /) -> None:
        """Raises ConfigurationError: user or password is missing or cannot be sent; shows neither."""
        for option in OPTIONS:
            value = getattr(config, option, None)
            if value is None:
                raise ConfigurationError(f"{option} is not set: sasl_mechanism={self.name} needs it", option=option)
            if isinstance(value, str) and "\0" in value:
                raise ConfigurationError(f"{option} contains a NUL character, which {self.name} does not allow", option=option)
        self.renews = callable(config.sasl_plain_password)

    def hide(self, text: str, /) -> str:
        """*text* without the recent passwords of a function."""
        return without(set().union(*[encoded_forms(each.encode()) for each in list(self._recent)]), text)

    def _password(self, config: Any) -> Generator[Any, Any, str]:
        """The password of this login; what an async function returns is yielded, and awaited on an async client's loop.

        Raises:
            PasswordUnavailableError: the function raised, or returned no password.
        """
        given = config.sasl_plain_password
        if not callable(given):
            return given  # type: ignore[no-any-return]
        try:
            if inspect.iscoroutinefunction(given):
                returned = yield CallOnLoop(functools.partial(_called, given))
            elif isinstance(returned := hidden(given()), Awaitable):
                returned = yield CallOnLoop(functools.partial(_awaited, returned))
        except Exception as error:
            raise PasswordUnavailableError(f"sasl_plain_password raised {type(error).__name__}: {self.hide(str(error))[:SHOWN]}") from error
        return self._accepted(returned)

    def _accepted(self, returned: object) -> str:
        if not isinstance(returned, str):
            kind = "bytes" if isinstance(returned, bytes) else type(returned).__name__
            raise PasswordUnavailableError(f"sasl_plain_password returned {with_article(kind)}: expected a str")
        if "\0" in returned or not is_utf8(returned):
            raise PasswordUnavailableError("sasl_plain_password returned a text that no login can carry: it has a NUL character or half of a surrogate pair")
        if returned not in self._recent:
            self._recent.append(returned)
        return returned


async def _called(function: Callable[[], Awaitable[Any]]) -> Any:
    return hidden(await function())


async def _awaited(returned: Awaitable[Any]) -> Any:
    return hidden(await returned)


def is_utf8(text: str) -> bool:
    """Whether *text* can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
