"""Loads the base of kio's types without hypothesis.

Where hypothesis is installed, kio imports it to register strategies for its types: a third of the import time of a
client, and only tests of kio's types need them. Programs that import hypothesis before pyclient still get them.
"""
from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from importlib.machinery import ModuleSpec


class _Refusing:
    """Refuses one module to the thread that has made this, as if it were not installed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """What the import system asks of a finder; None: another finder may know it."""
        if name == self._name and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)
        return None


def load_without_hypothesis() -> None:
    """Import the module of kio that looks for hypothesis, once for the process."""
    refusing = _Refusing("hypothesis")
    sys.meta_path.insert(0, refusing)
    try:
        with contextlib.suppress(ImportError):  # a private module, which another release of kio may not have
            importlib.import_module("kio.static._phantom")
    finally:
        sys.meta_path.remove(refusing)
