"""The heartbeats of a member of a classic group (G03): when they are sent.

Independent of states: the member polls it only in those that send heartbeats.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pyclient.core.calls import Call, Calls
from pyclient.core.group.classic_calls import heartbeat_call
from pyclient.core.group.coordinator import GroupOptions, Identity

OnHeartbeat: TypeAlias = Callable[[Identity, BaseException | None], bool]
"""Receives the identity that the heartbeat was sent with, and the error of the response. Returns whether nothing is to
be done because of it.
"""


class ClassicHeartbeat:
    """One heartbeat at a time, each interval. *on_heartbeat* receives the outcome of each, and returns whether nothing
    is to be done because of it.
    """

    def __init__(self, options: GroupOptions, calls: Calls, on_heartbeat: OnHeartbeat) -> None:
        self._options = options
        self._calls = calls
        self._on_heartbeat = on_heartbeat
        self._call: Call | None = None
        self._due_at: float | None = None  # None: one interval after the next poll
        self._overdue = False  # the next one leaves when the one in flight has its outcome

    def restart(self) -> None:
        """A generation begins: the first heartbeat is due after one interval."""
        self._due_at = None

    def poll(self, now: float, identity: Identity) -> None:
        """Send a heartbeat if it is due."""
        if self._due_at is None:
            self._due_at = now + self._options.heartbeat_interval
        if now < self._due_at:
            return
        if self._call is not None:
            self._overdue = True
            return
        self._due_at = now + self._options.heartbeat_interval
        self._call = heartbeat_call(self._options, identity, lambda _, error: self._responded(identity, error))
        self._calls.submit(self._call)

    def next_deadline(self) -> float | None:
        """When the next heartbeat is due; None while it waits for the outcome of the last one."""
        return None if self._overdue else self._due_at

    def cancel(self) -> None:
        """Forget the heartbeat in flight, and when the next one is due."""
        if self._call is not None:
            self._calls.cancel(self._call)
        self._call = self._due_at = None
        self._overdue = False

    def _responded(self, sent_as: Identity, error: BaseException | None) -> bool:
        """Returns whether nothing is to be done because of it."""
        overdue, self._overdue = self._overdue, False
        self._call = None
        return self._on_heartbeat(sent_as, error) and not overdue
