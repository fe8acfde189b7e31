"""Which modules configuration may import.

A keyword is code: it may name any ``"package.module:Class"``. A mapping, a file, the environment and Spark's options
are data, of which others may be the author: they name what is registered as an entry point, and import only from the
modules that a keyword or the operator of the process allows.
"""
from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import Final

from pyclient.errors import ConfigurationError

OPTION: Final = "allow_imports"
VARIABLE: Final = "PYCLIENT_ALLOW_IMPORTS"
_MODULE: Final = re.compile(r"\w+(\.\w+)*")


def allowed_modules(given: Iterable[str]) -> frozenset[str]:
    """The modules of the option and of the environment variable."""
    return frozenset([*given, *_split(os.environ.get(VARIABLE, ""))])


def check_imports(option: str, value: object, allowed: Collection[str]) -> None:
    """Refuse a value that is data and would import from a module that is not one of the *allowed*, nor inside of one.

    Raises:
        ConfigurationError: names the module, and the ways to allow it.
    """
    for text in _texts(value):
        module = text.partition(":")[0]
        if ":" in text and not any(module == each or module.startswith(f"{each}.") for each in allowed):
            raise ConfigurationError(_complaint(option, module), option=option)


def _complaint(option: str, module: str) -> str:
    """Shows no more than the module: the text may be a secret, given by mistake."""
    named = module if _MODULE.fullmatch(module) else "package.module"
    return (f"{option} would import {named if named == module else 'a module'}, but it was set by configuration (a mapping, a file, the environment or "
            f"Spark's options), which imports nothing on its own. Give {option} as a keyword argument or by the name of a registered entry point, or allow "
            f"the module: the keyword {OPTION}=[{named!r}], or {VARIABLE}={named} in the environment")


def _texts(value: object) -> list[str]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return [text for item in items if isinstance(item, str) for text in _split(item)]


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
