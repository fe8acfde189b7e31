"""Pages of documentation and their blocks of code, for the tests that run them; a user's ``site-packages`` to run them
with."""
from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.distribution import ROOT, clean_environment, run

FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED: Final = re.compile(r"# ([\w/]+\.py)\n")
WRITTEN_ADDRESS: Final = "localhost:9092"
NEEDS_A_BROKER: Final = ("Security", "Replicas", "The cluster")
"""Headings of docs/admin.md whose blocks run against a real broker: the fake cluster has none of these requests."""


class Block(NamedTuple):
    """One fenced block of a page."""

    line: int
    heading: str
    language: str
    text: str

    @property
    def name(self) -> str:
        """The heading it stands under and its line, for the test's id."""
        return f"line {self.line} under {self.heading!r}"

    @property
    def file(self) -> str | None:
        """The file it is said to be: its first line is ``# name.py``."""
        named = NAMED.match(self.text)
        return named[1] if named else None


class Page:
    """A page of the documentation."""

    def __init__(self, path: str) -> None:
        self.text: Final = (ROOT / path).read_text()
        self.folder: Final = (ROOT / path).parent
        self.blocks: Final = list(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        for found in FENCE.finditer(self.text):
            above = self.text[: found.start()]
            yield Block(above.count("\n") + 1, re.findall(r"^#+ (.*)$", above, re.MULTILINE)[-1], found[1], found[2])

    @property
    def python(self) -> list[Block]:
        """The blocks of Python."""
        return [block for block in self.blocks if block.language == "python"]

    @property
    def commands(self) -> list[str]:
        """The lines of the shell blocks."""
        return [line for block in self.blocks if block.language == "bash" for line in block.text.splitlines() if line]

    @property
    def links(self) -> list[str]:
        """Links to files of the project, without their anchors."""
        return sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)", self.text)))

    def section(self, heading: str) -> str:
        """What stands under a heading of the second level."""
        return self.text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def strictly_typed(*programs: Path) -> None:
    """Users copy it, so it must be accepted. (The client's own sources are `make check`'s affair.)"""
    settings = ("--config-file", str(ROOT / "pyproject.toml"), "--follow-imports", "silent")
    cache = ROOT / ".mypy_cache" / "documentation"
    run(sys.executable, "-m", "mypy", *settings, "--cache-dir", str(cache), *map(str, programs))


def blocks_are_strictly_typed(blocks: Sequence[Block], folder: Path) -> None:
    """In one run of mypy, which takes seconds to read what they import."""
    programs = [folder / f"block_{number}_of_line_{block.line}.py" for number, block in enumerate(blocks)]
    for program, block in zip(programs, blocks, strict=True):
        program.write_text(block.text)
    strictly_typed(*programs)


def make_target(line: str) -> None:
    """The target exists; `.ci/run` and tests of their own run what is behind it."""
    target = line.split()[1]
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def extras() -> dict[str, list[str]]:
    """The extras that a user can install."""
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return found


@contextlib.contextmanager
def served(command: list[str], cwd: Path) -> Iterator[dict[str, str]]:
    """Run a page's broker command; yields the options it prints, the address last, then presses Ctrl-C and expects a
    clean end."""
    stderr_path = cwd / "broker.err"  # a file: a secured broker prints its users' passwords there
    with stderr_path.open("a") as stderr:
        process = subprocess.Popen(
            command, cwd=cwd, env=clean_environment(), stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True,
        )
    try:
        assert process.stdout is not None
        printed: dict[str, str] = {}
        while "bootstrap.servers" not in printed:
            name, found, value = process.stdout.readline().strip().partition("=")
            assert found, f"the broker ended without printing its address: see {stderr_path}"
            printed[name] = value
        yield printed
    except BaseException:
        process.kill()
        raise
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
