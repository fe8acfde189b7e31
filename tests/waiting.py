"""Waiting for a condition instead of for time."""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path


def eventually(condition: Callable[[], object], limit_s: float = 20.0, every_s: float = 0.01) -> None:
    """Return when *condition* holds; fail after *limit_s*."""
    deadline = time.monotonic() + limit_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {limit_s} s"
        pause.wait(every_s)


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie that somebody has yet to collect."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
