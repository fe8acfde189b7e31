"""Modules that are compiled from plain Python can be run from their source: debuggers see them, and methods can be
replaced (PYCLIENT_PURE=1).

Imports nothing of the client, so that a process which has imported nothing of it yet can import this.
"""
from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
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

CIMPORT: Final = re.compile(r"from (?:cython\.cimports\.)?(pyclient[\w.]+) (?:cimport|import)")


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
    """The compiled modules that have a twin in Python: all that need no C, and whose fields no other's C reads.

    A source that imports cython needs C.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sources = {module["name"]: ROOT / module["sources"][0] for module in project["tool"]["setuptools"].get("ext-modules", [])}
    to_follow = [name for name, source in sources.items() if "import cython" in source.read_text()]
    compiled = set(to_follow)
    while to_follow:
        read = cimported(sources[to_follow.pop()]) & sources.keys() - compiled
        compiled |= read
        to_follow += read
    return {name: source for name, source in sources.items() if name not in compiled}


def cimported(source: Path) -> set[str]:
    """The modules whose C interface a compiled one uses."""
    interface = source.with_suffix(".pxd")
    texts = [line for line in source.read_text().splitlines() if "cython.cimports" in line]
    return set(CIMPORT.findall("\n".join([*texts, interface.read_text() if interface.exists() else ""])))


def use_twins() -> None:
    """From now on this process imports them."""
    sys.meta_path.insert(0, TwinFinder(twins()))
