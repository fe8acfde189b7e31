"""The selector of a loop that lends itself."""
from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from pyclient.runtime.loop_lending import LendingLoop, LendingSelector, lending_loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a loop is lent on Linux only")
DISPLACED_S = 0.05
"""Under load the scheduler keeps a thread from its system call for longer than that."""


def test_a_wakeup_while_the_loop_closes_writes_to_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Consumer.wakeup` may come from any thread, while another closes the consumer."""
    selector, write, written = LendingSelector(), os.eventfd_write, []
    closing = threading.Thread(target=selector.close)

    def displaced(descriptor: int, value: int) -> None:
        closing.start()
        closing.join(DISPLACED_S)
        write(descriptor, value)  # raises once the number is no file's
        written.append(descriptor)

    monkeypatch.setattr(os, "eventfd_write", displaced)
    selector.ring()
    closing.join()
    selector.ring()
    assert len(written) == 1


def test_a_loop_that_cannot_be_made_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program at its limit of open files tries again and again: each try would take one more of them."""
    def refused(loop: asyncio.AbstractEventLoop) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(LendingLoop, "_make_self_pipe", refused)
    monkeypatch.setattr(LendingLoop, "__del__", lambda loop: None)  # asyncio's own fails for a loop that is half made
    before = open_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        lending_loop()
    assert open_descriptors() == before


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())
