"""What happens to open clients when the process forks or ends. Process-wide; the only place with such hooks.

POSIX-only calls are here too: elsewhere there is no fork to guard against.
"""
from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Any, Final, Protocol

_log = logging.getLogger(__name__)


class Living(Protocol):
    """A client that wants to know."""

    def forked(self) -> None: ...


class Farewell(Protocol):
    """Something to finish before the interpreter ends."""

    def at_exit(self) -> None: ...


_open: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_leaving: Final[dict[int, Farewell]] = {}  # held strongly: a producer that was collected may still have records to send
_kept_in_child: Final[list[Any]] = []


def register(client: Living) -> None:
    """Tell *client* when the process was forked."""
    _open.add(client)


def unregister(client: Living) -> None:
    """Forget it: it is closed."""
    _open.discard(client)


def at_exit(farewell: Farewell) -> None:
    """Give it a last chance before the interpreter ends, while daemon threads still run."""
    _leaving[id(farewell)] = farewell


def left(farewell: Farewell) -> None:
    """It has nothing to finish any more."""
    _leaving.pop(id(farewell), None)


def _after_fork_in_child() -> None:
    _kept_in_child.extend(_leaving.values())  # never collected here: nothing may touch the parent's descriptors
    _leaving.clear()
    for client in list(_open):
        _kept_in_child.append(client)
        client.forked()
    _open.clear()


def _at_exit() -> None:
    for farewell in list(_leaving.values()):
        try:
            farewell.at_exit()
        except Exception:  # noqa: BLE001 the others have something to finish too
            _log.exception("ending a client with the interpreter failed")


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
