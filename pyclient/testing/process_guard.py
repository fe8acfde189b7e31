"""Ties processes and a work directory to this process: when it ends, even by SIGKILL, they are removed.

One pipe per guard. This process holds the writing end and never writes; watchers wait for its end-of-file, which the
kernel delivers on exit, SIGKILL included, and from whatever thread the processes were started. A shell starts the
watcher and then becomes the process (``exec``), so the process is never without one, and keeps its own pid. A watcher
kills its process *group*: while it lives, the kernel cannot give that number to another process.
"""
from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

REMOVAL_TIMEOUT_S: Final = 10.0
HANDSHAKE_TIMEOUT_S: Final = 10.0
PAUSE_TIMEOUT_S: Final = 10.0

# fd 3 keeps the pipe: a shell gives its background jobs /dev/null as standard input. Standard error shows that the
# watcher exists: it ends when watcher and shell have both turned away from it.
_START = (
    "exec 3<&0; (trap '' INT TERM HUP; cat <&3; kill -9 -$$) >/dev/null 2>&1 & "
    'exec "$@" </dev/null 3<&- 2>&1'
)
_REMOVE = (
    "trap '' INT TERM HUP; cat >/dev/null; n=0; "
    'while [ -e "$1" ] && [ $n -lt 100 ]; do rm -rf "$1" 2>/dev/null; n=$((n+1)); sleep 0.05; done'
)

_RUN_AFTER_EXIT = "trap '' INT TERM HUP; cat >/dev/null; exec \"$@\""

_open_ends: weakref.WeakSet[ProcessGuard] = weakref.WeakSet()


class ProcessGuard:
    """A work directory and processes; none of them outlives this object or its process."""

    def __init__(self, name: str) -> None:
        self.directory: Final = Path(tempfile.gettempdir()).resolve() / f"pyclient-{name}-{uuid.uuid4().hex[:12]}"
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._reading, self._writing = os.pipe()
        self._end = weakref.finalize(self, _close_quietly, self._writing, self._reading)
        self._end.atexit = False  # the kernel closes it anyway, and later: after other exit handlers used the cluster
        _open_ends.add(self)
        self._remover = self._spawn(["sh", "-c", _REMOVE, "sh", str(self.directory)])
        self.directory.mkdir(mode=0o700)  # after its remover, so that no moment is left uncovered

    def start(self, command: Sequence[str], *, output: IO[bytes], env: Mapping[str, str] | None = None,
             cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """Start *command*; both its output streams go to *output*. The pid is the command's own."""
        ready, watched = os.pipe()
        try:
            try:
                process = self._spawn(["sh", "-c", _START, "sh", *command], output=output, error=watched, env=env, cwd=cwd)
            finally:
                os.close(watched)
            _await_end(ready)  # a process paused before that would have no watcher
        finally:
            os.close(ready)
        return process

    def run_after_exit(self, command: Sequence[str]) -> Callable[[], None]:
        """Run *command* when this process ends without `close`; the returned function cancels that."""
        waiting = self._spawn(["sh", "-c", _RUN_AFTER_EXIT, "sh", *command])
        return functools.partial(kill_group, waiting)

    def close(self) -> None:
        """Kill what still runs and remove the directory. Calling again does nothing; nor does a forked child."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if not self._end.alive:
                return
            self._end()
        try:
            self._remover.wait(REMOVAL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            kill_group(self._remover)
        shutil.rmtree(self.directory, ignore_errors=True)

    def release_in_child(self) -> None:
        """Close the pipe in a forked child, so that only the parent keeps the processes alive."""
        if self._end.detach() is not None:
            _close_quietly(self._writing, self._reading)

    def _spawn(self, command: Sequence[str], *, output: IO[bytes] | int = subprocess.DEVNULL, error: int = subprocess.DEVNULL,
               env: Mapping[str, str] | None = None, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        with self._lock:
            if not self._end.alive:
                raise RuntimeError(f"{self.directory} is closed: its processes were ended, new ones need a new cluster")
            return subprocess.Popen(command, stdin=self._reading, stdout=output, stderr=error, env=env, cwd=cwd,
                                    start_new_session=True)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL *process* and its watcher, and collect it; once per process: afterwards its number may be another's.

    Needed after a normal end too: the watcher remains, and holds the group's number until this ends it.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def pause(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP *process*, and return once all its threads have stopped (or it has ended): they do not stop together."""
    process.send_signal(signal.SIGSTOP)
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return
    deadline = time.monotonic() + PAUSE_TIMEOUT_S
    with contextlib.suppress(ChildProcessError):  # it has ended and was collected
        while os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {process.pid} runs on {PAUSE_TIMEOUT_S:.0f} s after SIGSTOP")
            time.sleep(0.001)


def _await_end(handle: int) -> None:
    """Return when the pipe has no writer any more, at most after HANDSHAKE_TIMEOUT_S."""
    deadline = time.monotonic() + HANDSHAKE_TIMEOUT_S
    while select.select([handle], [], [], max(0.0, deadline - time.monotonic()))[0] and os.read(handle, 1024):
        pass  # what a shell has to say before its program begins


def _close_quietly(*handles: int) -> None:
    for handle in handles:
        with contextlib.suppress(OSError):
            os.close(handle)


def _release_in_child() -> None:
    for guard in list(_open_ends):
        guard.release_in_child()


os.register_at_fork(after_in_child=_release_in_child)
