"""Modules that are compiled from plain Python can be run from their source: debuggers see them, and methods can be
replaced (PYCLIENT_PURE=1).

Imports nothing of the client, so that a process which has imported nothing of it yet can import this.
"""
from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PURE: Final = os.environ.get("PYCLIENT_PURE") == "1"
needs_twins: Final = pytest.mark.skipif(not PURE, reason="changes compiled modules: `make test-pure` runs it with their twins in Python")

needs_compiled: Final = pytest.mark.skipif(PURE, reason="what only compiled modules promise: their twins in Python run here")


class TwinFinder:
    """Loads the ``.py`` of these modules."""

    def __init__(self, sources: dict[str, Path]) -> None:
        self.sources = sources

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        source = self.sources.get(name)
        return importlib.util.spec_from_file_location(name, source) if source else None


def twins() -> dict[str, Path]:
    """The compiled modules that have a twin in Python: all that need no C, as their source does not import cython."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = project["tool"]["setuptools"].get("ext-modules", [])
    return {
        module["name"]: ROOT / module["sources"][0]
        for module in modules
        if "import cython" not in (ROOT / module["sources"][0]).read_text()
    }


def use_twins() -> None:
    """From now on this process imports them."""
    sys.meta_path.insert(0, TwinFinder(twins()))
