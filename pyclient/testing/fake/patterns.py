"""Regular expressions as brokers read them (RE2, KIP-848), made into Python's; what RE2 does not know is refused as a broker refuses it.

Topic names are ASCII and matched as a whole, so greed does not matter, and of Unicode's classes only those with ASCII letters are known.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MOST_REPEATS: Final = 1000
FLAGS: Final = re.compile(r"([imsU]*)(?:-([imsU]+))?([:)])")
REPEAT: Final = re.compile(r"(\d+)(?:(,)(\d*))?\}")
NAMED: Final = re.compile(r"P?<(\w+)>")
BRACED: Final = re.compile(r"\{\^?(\w+)\}|\w")
HEX: Final = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
POSIX: Final = re.compile(r"\[:(\^?)(\w+):\]")
PERL: Final = "dDsSwW"
CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
EDGES: Final = {"A": r"\A", "b": r"\b", "B": r"\B", "z": r"\Z"}
POSIX_CLASSES: Final[Mapping[str, str]] = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z", "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}
UNICODE_CLASSES: Final[Mapping[str, str]] = {
    "L": "A-Za-z", "Lu": "A-Z", "Ll": "a-z", "N": "0-9", "Nd": "0-9", "P": r"._\-", "Pc": "_", "Pd": r"\-", "Po": ".", "Latin": "A-Za-z",
    "Any": r"\x00-\x7f",
}


class InvalidPatternError(ValueError):
    """No regular expression of RE2's; the text is what a broker says of it."""


def matcher(pattern: str) -> re.Pattern[str]:
    """What decides by ``fullmatch`` whether a topic's name matches.

    Raises:
        InvalidPatternError: RE2 does not take it.
    """
    return re.compile(_Reader(pattern).read(), re.ASCII)


class _Reader:
    """Goes through a pattern once, and writes it down as Python would have it."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []
        self._repeatable = False
        """Whether something stands before that can be repeated."""
        self._repeated = False
        """Whether a repetition stands just before: RE2 takes no second one."""
        self._groups: list[list[str]] = [[]]
        """For each open group, the flags set within it, which hold to its end."""
        self._names: set[str] = set()

    def read(self) -> str:
        """The whole pattern."""
        while self._at < len(self._pattern):
            self._next()
        if len(self._groups) > 1:
            raise InvalidPatternError("missing closing )")
        return "".join([*self._out, ")" * len(self._groups[0])])

    def _next(self) -> None:
        sign = self._pattern[self._at]
        self._at += 1
        match sign:
            case "\\":
                self._escape()
            case "[":
                self._put(self._class())
            case "(":
                self._open()
            case ")":
                self._close()
            case "|":
                self._alternative()
            case "*" | "+" | "?":
                self._repeat(sign)
            case "{":
                self._braces()
            case "^" | "$" | ".":
                self._put(sign)
            case _:
                self._put(re.escape(sign))

    def _put(self, text: str) -> None:
        self._out.append(text)
        self._repeatable, self._repeated = True, False

    def _taken(self, form: re.Pattern[str]) -> re.Match[str] | None:
        """What is here, when it is of this form."""
        found = form.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
        return found

    # ---- groups -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._pattern.startswith("?", self._at):
            self._at += 1
            self._special()
        else:
            self._begin("(?:")

    def _special(self) -> None:
        named = self._taken(NAMED)
        if named is not None:
            self._name(named[1])
            return
        if self._pattern.startswith(("P<", "<"), self._at):
            raise InvalidPatternError("invalid named capture")
        flags = self._taken(FLAGS)
        if flags is None:
            raise InvalidPatternError("invalid or unsupported Perl syntax")
        self._flags(flags[1], flags[2] or "", scoped=flags[3] == ":")

    def _name(self, name: str) -> None:
        if name in self._names:
            raise InvalidPatternError("duplicate capture group name")
        self._names.add(name)
        self._begin("(?:")

    def _flags(self, on: str, off: str, *, scoped: bool) -> None:
        """Python sets flags for a group only, so what follows becomes one. To be greedy or not changes no whole match."""
        on, off = ("".join(dict.fromkeys(each.replace("U", ""))) for each in (on, off))
        text = f"(?{on}{'-' if off else ''}{off}:"
        if scoped:
            self._begin(text)
        else:
            self._out.append(text)
            self._groups[-1].append(text)
            self._repeatable = False

    def _begin(self, text: str) -> None:
        self._out.append(text)
        self._groups.append([])
        self._repeatable = False

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise InvalidPatternError("regexp/syntax: internal error")
        self._put(")" * (1 + len(self._groups.pop())))

    def _alternative(self) -> None:
        """Flags hold for the alternatives that follow too."""
        flags = self._groups[-1]
        self._out.append(")" * len(flags) + "|" + "".join(flags))
        self._repeatable = False

    # ---- repetitions ------------------------------------------------------------------------------------------------

    def _repeat(self, text: str) -> None:
        if self._repeated:
            raise InvalidPatternError("invalid nested repetition operator")
        if not self._repeatable:
            raise InvalidPatternError("missing argument to repetition operator")
        if self._pattern.startswith("?", self._at):
            self._at += 1
        self._out.append(text)
        self._repeated = True

    def _braces(self) -> None:
        """A repetition, or else just a brace."""
        found = self._taken(REPEAT)
        if found is None:
            self._put(re.escape("{"))
            return
        low, high = int(found[1]), int(found[3] or found[1])
        if not low <= high <= MOST_REPEATS:
            raise InvalidPatternError("invalid repeat count")
        self._repeat("{" + found[0])

    # ---- escapes ----------------------------------------------------------------------------------------------------

    def _escape(self) -> None:
        if self._at == len(self._pattern):
            raise InvalidPatternError("trailing backslash at end of expression")
        sign = self._pattern[self._at]
        if sign == "Q":
            self._quoted()
        elif sign in EDGES:
            self._at += 1
            self._put(EDGES[sign])
        elif sign in PERL or sign in "pP":
            self._put(f"[{self._set()}]")
        else:
            self._put(re.escape(self._sign()))

    def _quoted(self) -> None:
        quoted, _, _ = self._pattern[self._at + 1:].partition("\\E")
        self._at = min(self._at + 1 + len(quoted) + 2, len(self._pattern))
        for sign in quoted:
            self._put(re.escape(sign))

    def _set(self) -> str:
        """What stands in brackets for the letter of a class; the backslash before it is read already."""
        sign = self._pattern[self._at]
        self._at += 1
        if sign in PERL:
            return f"\\{sign}"
        found = self._taken(BRACED)
        name = found[1] or found[0] if found is not None else ""
        if found is None or name not in UNICODE_CLASSES:
            raise InvalidPatternError("invalid character class range")
        return _within(UNICODE_CLASSES[name], but=(sign == "P") != ("^" in found[0]))

    def _sign(self) -> str:
        """One character that is written with a backslash; that one is read already."""
        for form in (HEX, OCTAL):
            found = self._taken(form)
            if found is not None:
                return chr(int(found[1] or found[2], 16)) if form is HEX else chr(int(found[0], 8))
        sign = self._pattern[self._at]
        self._at += 1
        if sign in CONTROLS:
            return CONTROLS[sign]
        if sign.isalnum() or not sign.isascii():
            raise InvalidPatternError("invalid escape sequence")
        return sign

    # ---- classes ----------------------------------------------------------------------------------------------------

    def _class(self) -> str:
        """``[...]``; the bracket is read already."""
        out = ["[^"] if self._pattern.startswith("^", self._at) else ["["]
        self._at += len(out[0]) - 1
        first = True
        while first or not self._pattern.startswith("]", self._at):
            if self._at >= len(self._pattern):
                raise InvalidPatternError("missing closing ]")
            out.append(self._item())
            first = False
        self._at += 1
        return "".join([*out, "]"])

    def _item(self) -> str:
        named = self._taken(POSIX)
        if named is not None:
            if named[2] not in POSIX_CLASSES:
                raise InvalidPatternError("invalid character class range")
            return _within(POSIX_CLASSES[named[2]], but=bool(named[1]))
        if self._pattern[self._at] == "\\" and self._pattern[self._at + 1:self._at + 2] in (*PERL, "p", "P"):
            self._at += 1
            return self._set()
        return self._range()

    def _range(self) -> str:
        low = high = self._single()
        if self._pattern.startswith("-", self._at) and not self._pattern.startswith("-]", self._at):
            self._at += 1
            high = self._single()
        if low > high:
            raise InvalidPatternError("invalid character class range")
        return re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"

    def _single(self) -> str:
        if self._at >= len(self._pattern):
            raise InvalidPatternError("missing closing ]")
        sign = self._pattern[self._at]
        self._at += 1
        if sign != "\\":
            return sign
        if self._at >= len(self._pattern):
            raise InvalidPatternError("trailing backslash at end of expression")
        return self._sign()


def _within(inside: str, *, but: bool) -> str:
    """A part of a class, or all ASCII but that part."""
    if not but:
        return inside
    known = re.compile(f"[{inside}]", re.ASCII)
    return "".join(re.escape(chr(each)) for each in range(128) if not known.match(chr(each)))
