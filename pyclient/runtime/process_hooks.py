"""What happens to open clients when the process forks or exits. Process-wide; the only module with such hooks.

Without ``os.register_at_fork`` (Windows) there is no fork to handle.
"""
from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Any, Final, Protocol

_log = logging.getLogger(__name__)


class ForkAware(Protocol):
    """A client that is notified of forks."""

    def forked(self) -> None: ...


class ExitHook(Protocol):
    """Something to finish before the interpreter exits."""

    def at_exit(self) -> None: ...


_open: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_exit_hooks: Final[dict[int, ExitHook]] = {}  # strong references: a collected producer may still have records to send
_kept_in_child: Final[list[Any]] = []


def register(client: ForkAware) -> None:
    """Call ``client.forked()`` in forked children."""
    _open.add(client)


def unregister(client: ForkAware) -> None:
    """The client is closed."""
    _open.discard(client)


def add_exit_hook(hook: ExitHook) -> None:
    """Call ``hook.at_exit()`` before the interpreter exits, while daemon threads still run."""
    _exit_hooks[id(hook)] = hook


def remove_exit_hook(hook: ExitHook) -> None:
    """There is nothing to finish any more."""
    _exit_hooks.pop(id(hook), None)


def _after_fork_in_child() -> None:
    _kept_in_child.extend(_exit_hooks.values())  # never collected in the child: finalizers would touch the parent's descriptors
    _exit_hooks.clear()
    for client in list(_open):
        _kept_in_child.append(client)
        client.forked()
    _open.clear()


def _at_exit() -> None:
    for hook in list(_exit_hooks.values()):
        try:
            hook.at_exit()
        except Exception:  # noqa: BLE001 the other hooks must run too
            _log.exception("closing a client at interpreter exit failed")


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
