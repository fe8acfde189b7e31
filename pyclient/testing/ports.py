"""TCP ports of a cluster, reserved so that no other process takes them before the broker starts.

Ports lie below the ephemeral range: from inside it, any outgoing connection of the machine could take one. All are
bound at once, which proves they are free, and stay reserved among pyclient's processes until released, so that a
stopped broker finds its port again. Reservations are record locks: the system drops those of a dead process.
"""
from __future__ import annotations

import os
import random
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyclient.testing.common.errors import LocalClusterError

LOWEST_PORT: Final = 10_000
HIGHEST_PORT: Final = 32_768  # exclusive; lower when the ephemeral range starts earlier
TRIES: Final = 500

_held: set[int] = set()  # record locks do not conflict within one process: this set does that part
_held_guard = threading.Lock()
_lock_file: int | None = None


def reserve_ports(count: int, host: str = "127.0.0.1") -> tuple[int, ...]:
    """Draw *count* ports that are free now and that no other cluster of this user will draw until `release_ports`.

    Raises:
        LocalClusterError: too many draws in a row were taken.
    """
    chooser = random.Random()
    taken: list[tuple[int, socket.socket]] = []
    try:
        for _ in range(TRIES):
            if len(taken) == count:
                return tuple(port for port, _ in taken)
            port = chooser.randrange(LOWEST_PORT, _upper_bound())
            if (bound := _take(port, host)) is not None:
                taken.append((port, bound))
        release_ports(port for port, _ in taken)
        raise LocalClusterError(
            f"found only {len(taken)} of {count} free ports on {host} in {TRIES} draws between {LOWEST_PORT} and "
            f"{_upper_bound()}: something on this machine occupies nearly all of them, or {host} is no local address."
        )
    finally:
        for _, bound in taken:
            bound.close()


def reserve_port(port: int, host: str = "127.0.0.1") -> bool:
    """Take this very port as `reserve_ports` does, whatever range it is in; False when it is not free."""
    bound = _take(port, host)
    if bound is not None:
        bound.close()
    return bound is not None


def release_ports(ports: Iterable[int]) -> None:
    """Release *ports*. Ports not held here are ignored."""
    with _held_guard:
        for port in ports:
            if port in _held:
                _held.discard(port)
                _unlock_between_processes(port)


def _take(port: int, host: str) -> socket.socket | None:
    if not _lock(port):
        return None
    probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        probe.bind((host, port))
    except OSError:
        probe.close()
        release_ports((port,))
        return None
    return probe


def _lock(port: int) -> bool:
    with _held_guard:
        if port in _held:
            return False
        if not _lock_between_processes(port):
            return False
        _held.add(port)
        return True


if sys.platform == "win32":
    def _lock_between_processes(port: int) -> bool:
        return True  # no record locks there: the test by binding is what remains

    def _unlock_between_processes(port: int) -> None:
        return None
else:
    import fcntl

    def _lock_between_processes(port: int) -> bool:
        try:
            fcntl.lockf(_lock_handle(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        return True

    def _unlock_between_processes(port: int) -> None:
        fcntl.lockf(_lock_handle(), fcntl.LOCK_UN, 1, port)

    def _lock_handle() -> int:
        """The file whose byte *n* stands for port *n*. Never closed: closing any handle of it would drop all locks."""
        global _lock_file
        if _lock_file is None:
            path = Path(tempfile.gettempdir()) / f"pyclient-ports-{os.getuid()}.lock"
            _lock_file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        return _lock_file


def _upper_bound() -> int:
    try:
        ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return HIGHEST_PORT  # the ephemeral ranges of macOS and the BSDs start at 49152
    return min(ephemeral, HIGHEST_PORT) if ephemeral > LOWEST_PORT + TRIES else HIGHEST_PORT
