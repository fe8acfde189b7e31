"""Deliberate bugs: a piece of a function's source is replaced, or a row of a state table dropped, while a block runs."""
from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import attrs

from pyclient.core.transitions import TABLES
from pyclient.testing.simulation.invariants import ALONE


@attrs.frozen
class Edit:
    """Replace *old*, which must stand there exactly once, by *new* in the function at ``module:Class.name``."""

    target: str
    old: str
    new: str


@attrs.frozen
class DroppedRow:
    """A state table without one of its rows."""

    table: str
    state: str
    event: str


@attrs.frozen
class Mutant:
    """One deliberate bug, and where the idea comes from."""

    name: str
    area: str
    source: str
    """The entry of the bug museum, the rule, or the table it stands for."""
    changes: tuple[Edit | DroppedRow, ...]
    survives: str = ""
    """Why no seed can find it, where none can."""
    family: str = ALONE
    """The runs that look for it."""


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The client has this bug within the block."""
    with contextlib.ExitStack() as stack:
        for change in mutant.changes:
            stack.enter_context(_edited(change) if isinstance(change, Edit) else _without(change))
        yield


@contextlib.contextmanager
def _edited(edit: Edit) -> Iterator[None]:
    owner, name, function = _found(edit.target)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(edit.old) != 1:
        raise ValueError(f"{edit.target} holds {edit.old!r} {source.count(edit.old)} times: the mutant is stale")
    before = owner.__dict__[name]
    changed = _compiled(function, source.replace(edit.old, edit.new))
    places = [owner, *_importers(before)]
    for each in places:
        setattr(each, name, changed)
    try:
        yield
    finally:
        for each in places:
            setattr(each, name, before)


def _importers(function: object) -> list[Any]:
    """The modules that have imported a module's function by its name."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("pyclient.")]
    return [module for module in modules if inspect.isfunction(function) and function.__name__ in vars(module) and vars(module)[function.__name__] is function]


def _found(target: str) -> tuple[Any, str, Callable[..., object]]:
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    found: Any = inspect.getattr_static(owner, name)
    function: Any = found.fget if isinstance(found, property) else found
    return owner, name, function


def _compiled(function: Callable[..., object], source: str) -> object:
    """The changed function, with the globals of the old one; properties and class methods are wrapped by their decorators."""
    names: dict[str, Any] = {}
    code = compile("from __future__ import annotations\n" + source, inspect.getfile(function), "exec")
    exec(code, function.__globals__, names)
    made = names[function.__name__]
    if getattr(made, "__closure__", None) is None and getattr(function, "__closure__", None):
        raise ValueError(f"{function.__qualname__} uses its class by super(): choose another function")
    return made


@contextlib.contextmanager
def _without(row: DroppedRow) -> Iterator[None]:
    table = TABLES[row.table]
    before = table.rows
    rest = {(state, event): after for (state, event), after in before.items() if (state.name, event.name) != (row.state, row.event)}
    if len(rest) != len(before) - 1:
        raise ValueError(f"{row} is no row of its table: the mutant is stale")
    table.rows = MappingProxyType(rest)
    try:
        yield
    finally:
        table.rows = before
