"""Files that options name: whether they changed while a client runs."""
from __future__ import annotations

import os
from typing import TypeAlias

Stamp: TypeAlias = tuple[int, int, int, int] | None


def stamp(path: str) -> Stamp:
    """A value that differs once the file, or the target of a link, has changed; None if the file cannot be found."""
    try:
        found = os.stat(path)  # noqa: PTH116 a text as the user gave it
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
