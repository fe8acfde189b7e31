"""Deliberate bugs: while a block runs, a method or function, named by module and path, is replaced, or a state table
lacks a row.

A mutant quotes no source text, so edits of a method's body never break it. A rename does, and
`test_mutant_targets.py` reports it.
"""
from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

import attrs

from pyclient.core.transitions import TABLES
from pyclient.testing.simulation.invariants import ALONE
from tests.simulation import rewritten

Target = Callable[..., Any]
Situation = Callable[[int], bool]
"""Whether a seed has what a mutant needs to show."""
MUTANTS: Final = "/tests/simulation/mutants_of_"
DEFECTS: Final = (AttributeError, LookupError, NameError, TypeError, ValueError)


@attrs.frozen
class Patch:
    """Replace ``module:Class.name`` by what *make* returns for the original."""

    target: str
    make: Callable[[Target], Target]


@attrs.frozen
class DroppedRow:
    """A state table without one of its rows."""

    table: str
    state: str
    event: str


@attrs.frozen
class Rewrite:
    """A compiled ``module:Class.name`` with the body of another function; see `tests.simulation.rewritten`."""

    target: str
    body: Callable[..., Any]

    @property
    def module(self) -> str:
        """The compiled module."""
        return self.target.partition(":")[0]


def any_seed(_seed: int) -> bool:
    """No seed is excluded."""
    return True


@attrs.frozen
class Mutant:
    """One deliberate bug."""

    name: str
    area: str
    source: str
    """The entry of the bug museum, or the rule or table that it breaks."""
    change: Patch | DroppedRow | Rewrite
    family: str = ALONE
    """The family of seeds that must find it."""
    situation: Situation = any_seed
    """Which of them can: a bug of a protocol shows only where it is spoken."""


class StaleMutantError(Exception):
    """The mutant names something that the client no longer has."""


class _Decorator(Protocol):
    def __call__(self, make: Callable[[Target], Target], /) -> Callable[[Target], Target]: ...


class Museum:
    """The mutants of one module, declared by decorated functions."""

    def __init__(self, family: str = ALONE, situations: Mapping[str, Situation] = MappingProxyType({})) -> None:
        self.family = family
        self.situations = situations
        self.mutants: list[Mutant] = []

    def bug(self, area: str, name: str, source: str, target: str, situation: Situation | None = None) -> _Decorator:
        """Declare a mutant: the decorated function takes the original of *target* and returns the replacement.

        Without *situation*, that of its area holds.
        """
        def declare(make: Callable[[Target], Target], /) -> Callable[[Target], Target]:
            self.mutants.append(Mutant(name, area, source, Patch(target, make), self.family, situation or self.situations.get(area, any_seed)))
            return make
        return declare

    def rewrite(self, area: str, name: str, source: str, target: str, situation: Situation | None = None) -> Callable[[Target], Target]:
        """Declare a mutant in compiled code: *target* gets the body of the decorated function."""
        def declare(body: Target) -> Target:
            self.mutants.append(Mutant(name, area, source, Rewrite(target, body), self.family, situation or self.situations.get(area, any_seed)))
            return body
        return declare


class Without:
    """An object whose methods of these names do nothing; everything else is the original's."""

    def __init__(self, original: object, *names: str) -> None:
        for name in names:
            if not hasattr(original, name):
                raise StaleMutantError(f"{type(original).__name__} has no {name}")
        self._original, self._names = original, names

    def __getattr__(self, name: str) -> Any:
        return _nothing if name in self._names else getattr(self._original, name)


def _nothing(*_: object, **__: object) -> None:
    pass


def nothing(_original: Target) -> Target:
    """A replacement that does nothing."""
    return _nothing


def returns(value: object) -> Callable[[Target], Target]:
    """A replacement that returns *value* whatever it is given."""
    return lambda _original: lambda *_, **__: value


# --- applying --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[list[str]]:
    """Within the block the client has this bug. Yields a list that collects defects of the mutant itself.

    Compiled code can be replaced only before it is imported: of a mutant there it is checked that it can be compiled.
    """
    defects: list[str] = []
    if isinstance(mutant.change, Rewrite):
        try:
            compile(rewritten.source_of(mutant.change.target, mutant.change.body), mutant.name, "exec")
        except LookupError as error:
            raise StaleMutantError(str(error)) from error
        yield defects
        return
    with _replaced(mutant.change, defects) if isinstance(mutant.change, Patch) else _without(mutant.change):
        yield defects


def resolved(target: str) -> tuple[Any, str, Any]:
    """The owner of ``module:Class.name``, the last name, and what stands there now.

    Raises:
        StaleMutantError: one of the names does not exist.
    """
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
        inspect.getattr_static(owner, name)
    except (ImportError, AttributeError) as error:
        raise StaleMutantError(f"{target} does not exist: {error}") from error
    if name not in vars(owner):
        raise StaleMutantError(f"{target} is inherited: name the class that defines it")
    return owner, name, vars(owner)[name]


@contextlib.contextmanager
def _replaced(patch: Patch, defects: list[str]) -> Iterator[None]:
    owner, name, before = resolved(patch.target)
    wrapped = isinstance(before, property)
    original = before.fget if wrapped else before
    replacement = _watched(original, patch.make(original), defects)
    after = property(replacement) if wrapped else replacement
    places = [owner, *(_importers(before) if inspect.ismodule(owner) else ())]
    for each in places:
        setattr(each, name, after)
    try:
        yield
    finally:
        for each in places:
            setattr(each, name, before)


def _watched(original: Target, replacement: Target, defects: list[str]) -> Target:
    """The client reports an exception of a broken mutant as any other: note it, or the mutant would count as found."""
    def note(error: BaseException) -> None:
        ours = [each for each in traceback.extract_tb(error.__traceback__) if "/pyclient/" in each.filename or MUTANTS in each.filename]
        if ours and MUTANTS in ours[-1].filename:  # not raised by the client, nor below it
            defects.append(f"{type(error).__name__}: {error} ({ours[-1].filename}:{ours[-1].lineno})")

    if inspect.iscoroutinefunction(original):
        @functools.wraps(original)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            try:
                return await replacement(*args, **kwargs)
            except DEFECTS as error:
                note(error)
                raise
        return call_async

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return replacement(*args, **kwargs)
        except DEFECTS as error:
            note(error)
            raise
    return call


def _importers(function: object) -> list[Any]:
    """The modules that have imported a function by its name."""
    name = getattr(function, "__name__", "")
    return [module for key, module in list(sys.modules.items()) if key.startswith("pyclient.") and vars(module).get(name) is function]


@contextlib.contextmanager
def _without(row: DroppedRow) -> Iterator[None]:
    table = TABLES[row.table]
    before = table.rows
    rest = {(state, event): after for (state, event), after in before.items() if (state.name, event.name) != (row.state, row.event)}
    if len(rest) != len(before) - 1:
        raise StaleMutantError(f"{row} is not a row of its table")
    table.rows = MappingProxyType(rest)
    try:
        yield
    finally:
        table.rows = before
