"""Regular expressions as brokers read them (KIP-848): RE2's, matched against whole topic names.

Brokers use RE2/J, the library here is C++ RE2: they read the same syntax, but word their complaints differently.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

BROKER_WORDS: Final[Mapping[str, str]] = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid character class range": "invalid character class range",
    "invalid escape sequence": "invalid escape sequence",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid perl operator: (?<": "invalid named capture",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}
"""How C++ RE2's message begins → what a broker says."""
TOKEN: Final = re.compile(r"\\.|\(\?P?<(\w+)>", re.DOTALL)
"""An escape, or the start of a named group."""
ANY_BYTE: Final = "\\C"


class InvalidPatternError(ValueError):
    """Not a regular expression of RE2; the text is a broker's."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that returns whether a whole topic name matches *pattern*.

    Raises:
        InvalidPatternError: RE2 rejects the pattern.
        ModuleNotFoundError: google-re2 is not installed.
    """
    try:
        import re2
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "a fake cluster needs google-re2 to match a SubscriptionPattern: pip install 'pyclient-kafka[testing]'",
            name=missing.name) from missing
    _check_dialect(pattern)
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPatternError(_broker_words(error)) from None
    return lambda name: compiled.fullmatch(name) is not None


def _check_dialect(pattern: str) -> None:
    """Raises InvalidPatternError for what C++ RE2 accepts and RE2/J does not."""
    tokens = list(TOKEN.finditer(pattern))
    names = [found[1] for found in tokens if found[1]]
    if any(found[0] == ANY_BYTE for found in tokens):
        raise InvalidPatternError("invalid escape sequence")
    if len(set(names)) < len(names):
        raise InvalidPatternError("duplicate capture group name")


def _broker_words(error: Exception) -> str:
    text = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
    return next((words for start, words in sorted(BROKER_WORDS.items(), reverse=True) if text.startswith(start)), text)
