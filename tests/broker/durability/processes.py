"""Programs that are members of a group, in processes of their own: started, killed, ended, and what each reported."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.waiting import eventually

LIMIT_S: Final = 120
SESSION_MS: Final = 6000
"""The shortest that brokers allow, by default."""
RUNNING: Final = "running"
"""What a program reports once SIGTERM ends it in order; before, that signal would end the process at once."""


def report(*words: Any) -> None:
    """A line of what a program reports; only programs call this."""
    print(*words, flush=True)


def reading(bootstrap_servers: str, topic: str, strategy: str) -> dict[str, Any]:
    """The options of a member's consumer. The group has the name of the topic."""
    return {
        "bootstrap_servers": bootstrap_servers, "group_id": topic, "topics": [topic], "auto_offset_reset": "earliest",
        "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500, "request_timeout_ms": 3000, "assignors": [strategy]}


class Member(NamedTuple):
    """A process, and the file of what it reports."""

    process: subprocess.Popen[bytes]
    reported: Path

    def is_running(self) -> bool:
        """Whether its program has reported `RUNNING`."""
        return self.reported.read_text().startswith(RUNNING)


class Processes:
    """Processes of the program in *module*, numbered as they start; those that still run behind the block are killed.

    A program's argument is a wish, as JSON. *folder* keeps its output and its standard error.
    """

    def __init__(self, module: str, folder: Path) -> None:
        self.killed = 0
        self.folder = folder
        self._module = module
        self._started: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._started:
            each.process.kill()
            each.process.wait()

    @property
    def count(self) -> int:
        """How many were started; the number of the next one."""
        return len(self._started)

    def start(self, wish: Mapping[str, Any]) -> Member:
        reported, errors = (self.folder / f"{self.count}.{kind}" for kind in ("reported", "errors"))
        with reported.open("wb") as output, errors.open("wb") as failures:
            process = subprocess.Popen([sys.executable, "-m", self._module, json.dumps(wish)], stdout=output, stderr=failures)
        self._started.append(Member(process, reported))
        return self._started[-1]

    def alive(self, member: Member) -> subprocess.Popen[bytes]:
        """Its process; fails when it has ended."""
        code = member.process.poll()
        assert code is None, f"process {member.reported.stem} ended, with {code}:\n{self.errors}"
        return member.process

    def kill(self, member: Member) -> None:
        """Kill it with SIGKILL."""
        process = self.alive(member)
        process.kill()
        process.wait()
        self.killed += 1

    def end(self, members: Iterable[Member]) -> None:
        """These leave their group at SIGTERM, and end."""
        ending = list(members)
        eventually(lambda: all(each.is_running() for each in ending), LIMIT_S)
        for each in ending:
            each.process.terminate()
        self.wait(ending, 0)

    def wait(self, members: Iterable[Member], code: int) -> None:
        """Return when these have ended; each must have ended with *code*."""
        codes = [each.process.wait(LIMIT_S) for each in members]
        assert set(codes) <= {code}, f"processes ended with {codes}, not with {code}:\n{self.errors}"

    @property
    def reported(self) -> dict[str, list[str]]:
        """The lines that each has reported."""
        return {file.stem: file.read_text().splitlines() for file in sorted(self.folder.glob("*.reported"))}

    @property
    def errors(self) -> str:
        """What they wrote to standard error: warnings, and the end of those that failed."""
        return "".join(file.read_text() for file in sorted(self.folder.glob("*.errors")))
