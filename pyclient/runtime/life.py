"""What happens to open clients when the process forks or ends. Process-wide; the only place with such hooks.

POSIX-only calls are here too: elsewhere there is no fork to guard against.
"""
from __future__ import annotations

import atexit
import os
import weakref
from typing import Any, Final, Protocol


class Living(Protocol):
    """A client that wants to know."""

    def forked(self) -> None: ...


class Farewell(Protocol):
    """A client with something to finish before the interpreter ends."""

    def at_exit(self) -> None: ...


_open: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_leaving: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_kept_in_child: Final[list[Any]] = []


def register(client: Living) -> None:
    """Tell *client* when the process was forked."""
    _open.add(client)


def unregister(client: Living) -> None:
    """Forget it: it is closed."""
    _open.discard(client)


def at_exit(client: Farewell) -> None:
    """Give *client* its last chance before the interpreter ends, while daemon threads still run."""
    _leaving.add(client)


def _after_fork_in_child() -> None:
    for client in list(_open):
        _kept_in_child.append(client)  # never collected here: its transports must not touch the parent's descriptors
        client.forked()
    _open.clear()
    _leaving.clear()


def _at_exit() -> None:
    for client in list(_leaving):
        client.at_exit()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
