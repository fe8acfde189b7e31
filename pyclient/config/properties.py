"""Java's properties files, as ``java.util.Properties`` reads them: keys, values, escapes, lines that go on."""
from __future__ import annotations

import re
from typing import Final

from pyclient.redaction import Secret

_COMMENT: Final = ("#", "!")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"((?:[^\\\s=:]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LINE: Final = re.compile(r"\r\n|\r|\n")


def properties(text: str) -> dict[str, Secret]:
    """Each key with its value; of a key that stands twice the last one.

    Raises:
        ValueError: an escaped character has less than four digits; the error does not hold the text.
    """
    found = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        if match is not None:
            found[_unescaped(Secret(match[1]))] = Secret(_unescaped(Secret(line[match.end():])))
    return found


def _logical_lines(text: str) -> list[Secret]:
    """Lines without comments and empty ones; a backslash at the end joins the next line without its leading blanks."""
    lines: list[Secret] = []
    goes_on = False
    for natural in map(Secret, _LINE.split(text)):
        line = Secret(natural.lstrip(" \t\f"))
        if goes_on:
            lines[-1] = Secret(lines[-1] + line)
        elif line and not line.startswith(_COMMENT):
            lines.append(line)
        else:
            continue
        goes_on = _is_open(lines[-1])
        if goes_on:
            lines[-1] = Secret(lines[-1][:-1])
    return lines


def _is_open(line: str) -> bool:
    """Whether the line ends in an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: Secret) -> str:
    """Two escapes may be the halves of one character, as in UTF-16."""
    return _ESCAPED.sub(_character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(escaped: re.Match[str]) -> str:
    if escaped[1]:
        return chr(int(escaped[1], 16))
    if escaped[2] == "u":
        raise ValueError("malformed \\uxxxx")
    return _ESCAPES.get(escaped[2], escaped[2])
