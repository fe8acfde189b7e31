"""A plugin of pytest: the whole session runs with one deliberate bug, the one that PYCLIENT_MUTANT names."""
from __future__ import annotations

import contextlib
import os
from typing import Final

VARIABLE: Final = "PYCLIENT_MUTANT"
_applied: Final = contextlib.ExitStack()


def pytest_configure() -> None:
    """Before any test is imported, and after all plugins: Hypothesis must not be imported before its own."""
    from tests.simulation.mutants import named
    from tests.simulation.mutation import applied

    _applied.enter_context(applied(named(os.environ[VARIABLE])))


def pytest_unconfigure() -> None:
    """After the last test."""
    _applied.close()
