"""Forks by tests that are about forks. Python 3.12 and later warn of each one beside threads.

Nothing else may fork, so elsewhere the warning stays an error.
"""
from __future__ import annotations

import os
import warnings
from typing import Final

OPTIONS: Final = ("-W", "ignore:This process:DeprecationWarning")
"""Of a Python that runs a program that forks."""


def fork() -> int:
    """As `os.fork`, without that warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        return os.fork()
