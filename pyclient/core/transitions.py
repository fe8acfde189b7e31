"""State machines as data: a table of rows is the only way to change a state.

Every table of the client is in `TABLES` once its module is imported. Tests, docs and simulations list the rows and
count which of them were taken.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from pyclient.errors import IllegalTransitionError

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class Transitions(Generic[S, E]):
    """A named table: (state, event) → the next state. ``observer(state, event)`` is called for each row taken."""

    def __init__(self, name: str, rows: Mapping[tuple[S, E], S]) -> None:
        if name in TABLES:
            raise ValueError(f"a table named {name!r} exists already")
        self.name = name
        self.rows: Mapping[tuple[S, E], S] = MappingProxyType(dict(rows))
        self.observer: Callable[[S, E], object] | None = None
        TABLES[name] = self

    def __repr__(self) -> str:
        return f"<Transitions {self.name}, {len(self.rows)} rows>"

    def after(self, state: S, event: E) -> S:
        """The state after *event*. A pair that is not in the table is a defect: IllegalTransitionError."""
        try:
            following = self.rows[state, event]
        except KeyError:
            raise IllegalTransitionError(state, event) from None
        if self.observer is not None:
            self.observer(state, event)
        return following


TABLES: Final[dict[str, Transitions[Any, Any]]] = {}
"""Every table by its name."""
