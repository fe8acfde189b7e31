"""State machines as data: a table of rows is the only way to change a state.

Every table of the client is in `TABLES` once its module is imported. Tests, docs and simulations list the rows and
count which of them were taken.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyclient.core.transition_rows import Rows

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class Transitions(Rows, Generic[S, E]):
    """A named table: (state, event) → the next state. ``observer(state, event)`` is called for each row taken."""

    def __init__(self, name: str, rows: Mapping[tuple[S, E], S]) -> None:
        if name in TABLES:
            raise ValueError(f"a table named {name!r} exists already")
        Rows.__init__(self, rows)
        self.name = name
        TABLES[name] = self

    if TYPE_CHECKING:
        rows: Mapping[tuple[S, E], S]
        observer: Callable[[S, E], object] | None

        def after(self, state: S, event: E) -> S:
            """As `Rows.after`."""

    def __repr__(self) -> str:
        return f"<Transitions {self.name}, {len(self.rows)} rows>"


TABLES: Final[dict[str, Transitions[Any, Any]]] = {}
"""Every table by its name."""
