"""User and password as PLAIN and SCRAM take them from the options."""
from __future__ import annotations

from typing import Any, Final

from pyclient.errors import ConfigurationError

OPTIONS: Final = ("sasl_plain_username", "sasl_plain_password")


def check_password(config: Any, mechanism: str) -> None:
    """See that both are there and can be sent.

    Raises:
        ConfigurationError: which one is missing or wrong; shows neither.
    """
    for option in OPTIONS:
        text = getattr(config, option, None)
        if text is None:
            raise ConfigurationError(f"{option} is not set: sasl_mechanism={mechanism} needs it", option=option)
        if "\0" in text:
            raise ConfigurationError(f"{option} holds a NUL character, which {mechanism} cannot carry", option=option)
