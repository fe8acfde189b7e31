"""Ownership of containers, so that those of a process that died without cleaning up can be found and removed.

An owner is a lock file that the system unlocks when its process dies; a pid could have been reused.
"""
from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from pathlib import Path

from pyclient.testing.cache import FileLock


def _folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    path = Path(tempfile.gettempdir()) / f"pyclient-owners-{user}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


class Owner:
    """This process as the owner of containers, until `end`."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self._lock = FileLock(_folder() / self.name)
        self._lock.acquire()

    def end(self) -> None:
        """Release the ownership."""
        (_folder() / self.name).unlink(missing_ok=True)
        self._lock.release()


def is_dead(name: str) -> bool:
    """Whether the owner *name* died. An owner of another machine or user counts as alive."""
    path = _folder() / name
    if not name or not path.is_file():
        return False
    lock = FileLock(path)
    if not lock.try_acquire():
        return False
    with contextlib.suppress(OSError):
        path.unlink()
    lock.release()
    return True
