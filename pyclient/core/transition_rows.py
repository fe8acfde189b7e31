# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The rows of a table of states, and who watches them. Compiled: each batch takes one."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pyclient.errors import IllegalTransitionError


class Rows:
    """(state, event) → the next state. ``observer(state, event)`` is called for each row taken."""

    def __init__(self, rows: Mapping[tuple[Any, Any], Any]) -> None:
        self._following = dict(rows)
        self.rows: Mapping[tuple[Any, Any], Any] = MappingProxyType(self._following)
        self.observer: Callable[[Any, Any], object] | None = None

    def after(self, state: Any, event: Any) -> Any:
        """The state after *event*. A pair that is not in the table is a defect: IllegalTransitionError."""
        following = self._following.get((state, event))
        if following is None:
            raise IllegalTransitionError(state, event)
        if self.observer is not None:
            self.observer(state, event)
        return following
