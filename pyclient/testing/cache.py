"""The cache of downloads and archives between runs, shared by processes.

Independent of Kafka. Rule: a file appears under its final name complete or not at all.
"""
from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from pyclient.testing.common.errors import LocalClusterError

LOCK_TIMEOUT_S: Final = 600.0
"""Longest wait for another process that downloads or builds the same thing: a slow link takes minutes."""


def cache_directory() -> Path:
    """The cache folder; created if absent.

    ``PYCLIENT_CACHE`` names it; else the platform's own cache folder is used (``XDG_CACHE_HOME`` is honoured).
    """
    chosen = os.environ.get("PYCLIENT_CACHE")
    path = Path(chosen).expanduser() if chosen else _platform_cache() / "pyclient"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def _platform_cache() -> Path:
    if configured := os.environ.get("XDG_CACHE_HOME"):
        return Path(configured)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local")))
    return Path.home() / ".cache"


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a scratch name beside *path*; renamed to it when the block succeeds, removed when it fails."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    scratch = Path(name)
    try:
        yield scratch
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


class FileLock:
    """A lock between processes that the operating system releases when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; never waits."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _lock_now(handle):
            os.close(handle)
            return False
        self._handle = handle
        return True

    def acquire(self, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        """Take the lock, waiting at most *timeout_s* seconds.

        Raises:
            LocalClusterError: another process held it all that time.
        """
        deadline = time.monotonic() + timeout_s
        while not self.try_acquire():
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"another process has held {self._path} for {timeout_s:.0f} s. It is downloading or building "
                    "what is needed here too; look for a hanging process, or set PYCLIENT_CACHE to another folder."
                )
            time.sleep(0.05)

    def release(self) -> None:
        """Release the lock; does nothing when it is not held."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


if sys.platform == "win32":
    import msvcrt

    def _lock_now(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _lock_now(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
