"""User and password of PLAIN and SCRAM, from the options."""
from __future__ import annotations

from typing import Any, Final

from pyclient.errors import ConfigurationError

OPTIONS: Final = ("sasl_plain_username", "sasl_plain_password")


def check_password(config: Any, mechanism: str) -> None:
    """Raises ConfigurationError: one is missing or cannot be sent; shows neither."""
    for option in OPTIONS:
        text = getattr(config, option, None)
        if text is None:
            raise ConfigurationError(f"{option} is not set: sasl_mechanism={mechanism} needs it", option=option)
        if "\0" in text:
            raise ConfigurationError(f"{option} contains a NUL character, which {mechanism} does not allow", option=option)
