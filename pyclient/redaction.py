"""Redaction: how secrets and text from peers are shown in errors and logs."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "[hidden]"
"""Replaces a secret."""


def without(secrets: Iterable[str], text: str) -> str:
    """*text* with `HIDDEN` in place of *secrets*. The longest is replaced first: it may contain another one."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def in_one_line(text: str, length: int) -> str:
    """The first *length* characters of text from a peer, without line breaks and terminal control characters."""
    return "".join(each if each.isprintable() else " " for each in text[:length])
