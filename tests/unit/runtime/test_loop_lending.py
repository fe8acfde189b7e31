"""The selector of a loop that lends itself."""
from __future__ import annotations

import os
import sys
import threading

import pytest

from pyclient.runtime.loop_lending import LendingSelector

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
