"""Ctrl-C by real signals, anywhere inside the calls of a client: `interrupted_program` says what must hold."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from pyclient.consumer.single_user import was_interrupted

ROUNDS = os.environ.get("PYCLIENT_INTERRUPT_ROUNDS", "100")
PROGRAM = Path(__file__).with_name("interrupted_program.py")


@pytest.mark.parametrize(("share", "how"), [(1, []), (1, ["alone"]), (25, ["transactions"])], ids=["batches", "lone records", "transactions"])
def test_ctrl_c_inside_any_call_leaves_no_lock_held_and_loses_no_record(share: int, how: list[str]) -> None:
    rounds = int(ROUNDS) // share + 1  # a transaction is four calls
    done = subprocess.run([sys.executable, PROGRAM, str(rounds), "1", *how], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > rounds


def test_a_call_that_is_over_and_did_not_release_the_consumer_counts_as_released() -> None:
    def call(user: object) -> tuple[object, FrameType]:
        return user, sys._getframe()

    over, here = call(1), sys._getframe()
    assert was_interrupted(over, (1, here))
    assert not was_interrupted((1, here), (1, here))  # a call within a call
    assert not was_interrupted(over, (2, here))  # another thread's: it may be running
    assert not was_interrupted(("task", here), ("task", here))
