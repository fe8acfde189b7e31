"""Real processes, ended in every way their starter can end."""
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pyclient.testing.process_guard import ProcessGuard, kill_group, pause
from tests.forks import fork
from tests.waiting import eventually, is_running

# a starter that starts a guarded process, prints its pid and directory, and waits
STARTER = """
import os, select, signal, subprocess, sys, threading
from pyclient.testing.process_guard import ProcessGuard
guard = ProcessGuard("test")
log = (guard.directory / "out").open("wb")
started = []
thread = threading.Thread(target=lambda: started.append(guard.start(["sh", "-c", "trap '' INT TERM; echo x; sleep 600"], output=log)))
thread.start(); thread.join()
extra = None
{then}
print(started[0].pid, guard.directory, extra, flush=True)
while not select.select([sys.stdin], [], [], 0.1)[0]:  # of a signal just before a wait, Python learns after it
    pass
"""


class Started(NamedTuple):
    starter: subprocess.Popen[str]
    pid: int
    directory: Path
    extra: str

    def gone(self) -> bool:
        return not is_running(self.pid) and not self.directory.exists()


@contextlib.contextmanager
def starter(then: str = "") -> Iterator[Started]:
    command = [sys.executable, "-c", STARTER.format(then=then)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, directory, extra = process.stdout.readline().split()
        assert is_running(int(pid))
        try:
            yield Started(process, int(pid), Path(directory), extra)
        finally:
            process.kill()


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_starter_that_is_ended_by_a_signal(ended_by: signal.Signals) -> None:
    with starter() as started:
        started.starter.send_signal(ended_by)
        eventually(started.gone)


def test_nothing_outlives_a_starter_that_forgets_to_close() -> None:
    with starter() as started:
        assert started.starter.stdin is not None
        started.starter.stdin.close()
        eventually(started.gone)


def test_a_paused_process_ends_with_its_starter_too() -> None:
    with starter() as started:
        os.kill(started.pid, signal.SIGSTOP)
        started.starter.kill()
        eventually(started.gone)


def test_a_forked_child_of_the_starter_keeps_nothing_alive() -> None:
    with starter("extra = os.fork()\nif extra == 0: signal.pause()") as started:
        child = int(started.extra)
        try:
            started.starter.kill()
            eventually(started.gone)
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_childs_close_ends_nothing_of_its_parents() -> None:
    with contextlib.closing(ProcessGuard("test")) as guard, (guard.directory / "out").open("wb") as log:
        process = guard.start(["sleep", "600"], output=log)
        child = fork()
        if child == 0:
            guard.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert process.poll() is None
        assert guard.directory.is_dir()
        kill_group(process)


def test_close_ends_processes_of_several_threads_and_removes_the_directory() -> None:
    guard = ProcessGuard("test")
    started: list[subprocess.Popen[bytes]] = []
    with (guard.directory / "out").open("wb") as log:
        threads = [threading.Thread(target=lambda: started.append(guard.start(["sleep", "600"], output=log))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        guard.close()
    eventually(lambda: all(process.poll() is not None for process in started))
    assert not guard.directory.exists()


def test_the_pid_and_exit_code_are_the_commands_own() -> None:
    with contextlib.closing(ProcessGuard("test")) as guard:
        with (guard.directory / "out").open("wb") as log:
            process = guard.start(["sh", "-c", "echo $$; exit 7"], output=log)
        assert process.wait(20) == 7
        assert int((guard.directory / "out").read_text()) == process.pid
        kill_group(process)


def test_a_command_for_afterwards_runs_when_the_starter_dies(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    with starter(f"guard.run_after_exit(['touch', {str(witness)!r}])") as started:
        assert not witness.exists()
        started.starter.kill()
        eventually(witness.exists)


def test_a_command_for_afterwards_can_be_called_off(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    with starter(f"guard.run_after_exit(['touch', {str(witness)!r}])()") as started:
        started.starter.kill()
        eventually(started.gone)
        assert not witness.exists()


def test_the_shells_error_about_a_missing_program_is_in_the_output() -> None:
    with contextlib.closing(ProcessGuard("test")) as guard:
        with (guard.directory / "out").open("wb") as log:
            process = guard.start(["/nowhere/java"], output=log)
        assert process.wait(20) == 127
        assert "/nowhere/java" in (guard.directory / "out").read_text()
        kill_group(process)


def test_a_closed_guard_starts_nothing() -> None:
    guard = ProcessGuard("test")
    guard.close()
    guard.close()
    with Path(os.devnull).open("wb") as nowhere, pytest.raises(RuntimeError, match="closed"):
        guard.start(["true"], output=nowhere)


BUSY = "import threading\nfor _ in range(8): threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the states of threads are read from Linux's /proc")
def test_no_thread_of_a_paused_process_runs_when_pause_returns() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        try:
            eventually(lambda: len(states_of_threads(process.pid)) == 9)
            for _ in range(50):
                pause(process)
                assert states_of_threads(process.pid) == ["T"] * 9
                process.send_signal(signal.SIGCONT)
        finally:
            process.kill()


def test_pausing_a_process_that_has_ended_returns() -> None:
    with subprocess.Popen(["true"]) as process:
        eventually(lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG))
        pause(process)
        process.wait()
        pause(process)


def states_of_threads(pid: int) -> list[str]:
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in sorted(Path(f"/proc/{pid}/task").glob("*/stat"))]
