"""Signals at any line of the client, for tests of what an interrupt leaves behind."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class Strike:
    """Calls *act* at the n-th line of the client that this thread runs."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.left = at
        self.act = act

    def __call__(self, frame: Any, event: str, _arg: object) -> Any:
        if "pyclient" not in frame.f_code.co_filename or "/testing/" in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                self.act()
        return self

    def during(self, work: Callable[[], object]) -> bool:
        """Whether *work* ran that many lines."""
        sys.settrace(self)
        try:
            work()
        finally:
            sys.settrace(None)
        return self.left <= 0
