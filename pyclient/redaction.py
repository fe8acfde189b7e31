"""How what others sent, and what holds secrets, is shown in errors and logs."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "[hidden]"
"""Stands where a secret stood."""


def without(secrets: Iterable[str], text: str) -> str:
    """*text* with `HIDDEN` where it repeats one of *secrets*, the longest first: one may be a part of another."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def in_one_line(text: str, length: int) -> str:
    """Its first *length* characters: what others sent neither begins a line of a log nor speaks to a terminal."""
    return "".join(each if each.isprintable() else " " for each in text[:length])
