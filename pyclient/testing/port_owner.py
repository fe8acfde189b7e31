"""Which process listens on a TCP port of this machine, by the /proc of Linux; on other systems none is named."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
_LISTENS: Final = "0A"  # the state in /proc/net/tcp
_LONGEST: Final = 100


class Listener(NamedTuple):
    """A process and its command: the program and the last two arguments, which name a Java program and its file."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def listener_on(port: int) -> Listener | None:
    """The process that listens on *port*; None: none does, it is another user's, or there is no /proc."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not sockets:
        return None
    return next((Listener(pid, _command(pid)) for pid in _pids() if sockets & _open_files(pid)), None)


def port_taken(port: int) -> str:
    """Why *port* of the option ``--port`` cannot be used, and what to type."""
    found = listener_on(port)
    owner = f"{found} listens there. Type `kill {found.pid}`" if found else "another process or cluster has it. End that"
    return f"--port {port} cannot be used: {owner}, or give another --port, or leave --port out: then a free one is found"


def _inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        for row in _read(PROC / "net" / table).splitlines()[1:]:
            columns = row.split()
            if columns[3] == _LISTENS and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]


def _pids() -> Iterator[int]:
    return (int(folder.name) for folder in PROC.iterdir() if folder.name.isdecimal())


def _open_files(pid: int) -> set[str]:
    """Names of the open files of a process, sockets among them; empty for another user's, or one that has ended."""
    found = set()
    with contextlib.suppress(OSError):
        for link in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.add(str(link.readlink()))
    return found


def _command(pid: int) -> str:
    program, *rest = _read(PROC / str(pid) / "cmdline").rstrip("\0").split("\0")
    shown = [Path(program).name, *(["…"] if len(rest) > 2 else []), *rest[-2:]]
    return " ".join(shown)[:_LONGEST]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
