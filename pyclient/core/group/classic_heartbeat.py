"""The heartbeats of a member of a classic group (G03): when they are sent, and when a silent coordinator is replaced.

Knows no states: the member polls it only in those that send heartbeats.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pyclient.core.calls import Call, Calls
from pyclient.core.group.classic_calls import heartbeat_call
from pyclient.core.group.coordinator import GroupOptions, Identity

OnHeartbeat: TypeAlias = Callable[[Identity, BaseException | None], None]
"""Receives the identity that the heartbeat was sent with, and the error of the response."""


class ClassicHeartbeat:
    """One heartbeat at a time, each interval. *on_heartbeat* receives the outcome of each."""

    def __init__(self, options: GroupOptions, calls: Calls, on_heartbeat: OnHeartbeat) -> None:
        self._options = options
        self._calls = calls
        self._on_heartbeat = on_heartbeat
        self._call: Call | None = None
        self._due_at: float | None = None  # None: one interval after the next poll
        self._alive_at: float | None = None  # when the coordinator was last known to be alive
        self._seen_alive = False  # since the last poll

    def restart(self) -> None:
        """A generation begins: the coordinator is alive, and the first heartbeat is due after one interval."""
        self._due_at = None
        self._seen_alive = True

    def coordinator_alive(self) -> None:
        """A response shows that the coordinator is alive."""
        self._seen_alive = True

    def poll(self, now: float, identity: Identity) -> None:
        """Send a heartbeat if it is due; look the coordinator up again if it has been silent for a session timeout."""
        if self._seen_alive or self._alive_at is None:
            self._seen_alive, self._alive_at = False, now
        elif now >= self._alive_at + self._options.session_timeout:
            self._calls.lose_coordinator(self._options.group_id)
            self._alive_at = now
        if self._due_at is None:
            self._due_at = now + self._options.heartbeat_interval
        if self._call is None and now >= self._due_at:
            self._due_at = now + self._options.heartbeat_interval
            self._call = heartbeat_call(self._options, identity, lambda _, error: self._responded(identity, error))
            self._calls.submit(self._call)

    def next_deadline(self) -> float | None:
        """When the next heartbeat is due; while one is in flight, when the coordinator counts as lost."""
        return self._due_at if self._call is None or self._alive_at is None else self._alive_at + self._options.session_timeout

    def cancel(self) -> None:
        """Forget the heartbeat in flight, and when the next one is due."""
        if self._call is not None:
            self._calls.cancel(self._call)
        self._call = self._due_at = None

    def _responded(self, sent_as: Identity, error: BaseException | None) -> None:
        self._call = None
        self._on_heartbeat(sent_as, error)
