"""Forks beside threads that act in place of the client's own: `forking_program` says what must hold."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FORKS = 40
PROGRAM = Path(__file__).with_name("forking_program.py")


def test_a_child_that_is_forked_while_lone_records_are_sent_refuses_calls_and_has_its_own_signal_handlers() -> None:
    done = subprocess.run([sys.executable, PROGRAM, str(FORKS)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == FORKS
