"""Java's properties files, as ``java.util.Properties`` reads them: keys, values, escapes, lines that go on."""
from __future__ import annotations

import re
from typing import Final

from pyclient.redaction import Secret

_COMMENT: Final = ("#", "!")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"((?:[^\\\s=:]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_MALFORMED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_LINE: Final = re.compile(r"\r\n|\r|\n")


def properties(text: str) -> dict[str, Secret]:
    """Each key with its value; of a key that stands twice the last one.

    Raises:
        ValueError: an escaped character has less than four digits; the error does not hold the text.
    """
    if any(_MALFORMED.search(line) for line in _logical_lines(text)):
        raise ValueError("malformed \\uxxxx")
    found = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        if match is not None:
            found[_unescaped(match[1])] = Secret(_unescaped(line[match.end():]))
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


def _unescaped(text: str) -> str:
    """Two escapes may be the halves of one character, as in UTF-16."""
    plain = _ESCAPED.sub(lambda each: chr(int(each[1], 16)) if each[1] else _ESCAPES.get(each[2], each[2]), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
