"""Ownership of containers, so that those of a process that died without cleaning up can be found and removed.

An owner is a lock file that the system unlocks when its process dies; a pid could have been reused.
"""
from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import uuid
from pathlib import Path

from pyclient.testing.cache import FileLock
from pyclient.testing.common.errors import LocalClusterError


def _folder() -> Path:
    """This user's folder. Anyone can create its name in the temporary directory first, so its owner is checked.

    Raises:
        LocalClusterError: it is another user's, a link, or no folder.
    """
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    path = Path(tempfile.gettempdir()) / f"pyclient-owners-{user}"
    path.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid"):
        _check_owner(path)
    return path


def _check_owner(path: Path) -> None:
    found = path.lstat()  # not of what a link points to
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise LocalClusterError(f"{path} is not a folder of this user: another one created it. Remove it, or set TMPDIR to a folder of your own.")
    if found.st_mode & 0o077:
        path.chmod(0o700)


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
