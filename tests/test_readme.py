"""Every block of the README does what it says: Python runs against a real broker, commands run or are known to exist.

Python blocks run as a user's programs, in processes of their own, with the built wheel in front of the path and the
address of a broker in the place of ``localhost:9092``. A shell line that no rule here knows is a failure.
"""
from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.distribution import ROOT, Distribution, clean_environment, run

README: Final = (ROOT / "README.md").read_text()
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN_ADDRESS: Final = "localhost:9092"
FIRST_START_S: Final = 300
"""Bound for a broker's start; covers the first download of Kafka on a slow line."""
BLOCK_S: Final = 180
ORDER: Final = [
    "Install", "First message in under a minute", "Produce", "Consume", "Async", "Plugins", "Spark",
    "What is guaranteed", "Where each package is used", "Platforms", "Links",
]


class Block(NamedTuple):
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """The heading it stands under and its line, for the test's id."""
        above = README[: README.index(self.text)]
        heading = re.findall(r"^#+ (.*)$", above, re.MULTILINE)[-1]
        return f"line {self.line} under {heading!r}"


def blocks() -> list[Block]:
    return [Block(README[: found.start()].count("\n") + 1, found[1], found[2]) for found in FENCE.finditer(README)]


PYTHON: Final = [block for block in blocks() if block.language == "python"]
COMMANDS: Final = [line for block in blocks() if block.language == "bash" for line in block.text.splitlines() if line]


@pytest.fixture(scope="module")
def installed(distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's contents, to be put in front of the path: what a user has in site-packages."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(distribution.wheel))
    return folder


@contextlib.contextmanager
def served(command: list[str], cwd: Path) -> Iterator[str]:
    """Run the README's broker command; yields the address it prints, then presses Ctrl-C and expects a clean end."""
    process = subprocess.Popen(
        command, cwd=cwd, env=clean_environment(), stdout=subprocess.PIPE, text=True, start_new_session=True,
    )
    try:
        assert process.stdout is not None
        printed = next((line for line in process.stdout if line.startswith("bootstrap.servers=")), None)
        assert printed, "the broker ended without printing its address"
        yield printed.strip().partition("=")[2]
    except BaseException:
        process.kill()
        raise
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker started by the very command of the README."""
    command = next(line for line in COMMANDS if "pyclient.testing broker" in line).split()
    assert command[0] == "python"
    with served([sys.executable, *command[1:]], tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_the_python_block_runs(block: Block, address: str, installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "readme.py"
    program.write_text(block.text.replace(WRITTEN_ADDRESS, address))
    run(sys.executable, "-W", "error::ResourceWarning", str(program), cwd=tmp_path, timeout=BLOCK_S, PYTHONPATH=str(installed))


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_the_python_block_passes_strict_mypy(block: Block, tmp_path: Path) -> None:
    """As users are told to write it, so it must be accepted. (The client's own sources are `make check`'s affair.)"""
    program = tmp_path / "readme.py"
    program.write_text(block.text)
    settings = ("--config-file", str(ROOT / "pyproject.toml"), "--follow-imports", "silent")
    run(sys.executable, "-m", "mypy", *settings, "--cache-dir", str(ROOT / ".mypy_cache" / "readme"), str(program))


def pip_install(line: str) -> None:
    """Let pip resolve it from the checkout without installing; the extras must exist, or pip only warns."""
    extras = re.findall(r"\[([\w,]+)\]", line)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name for each in extras for name in each.split(",")} <= set(known)
    arguments = [word.strip("'") for word in line.split()[3:]]
    run(sys.executable, "-m", "pip", *arguments, "--dry-run", "--no-deps", "--no-build-isolation")


def make_target(line: str) -> None:
    """The target exists; `.ci/run` and tests of their own run what is behind it."""
    target = line.split()[1]
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def broker(line: str) -> None:
    """The fixture `address` runs it for the Python blocks; here only its help must know the words."""
    assert "broker" in run(sys.executable, *line.split()[1:], "--help")


SHELL_RULES: Final[dict[str, Callable[[str], None]]] = {
    r"python -m pip install .*": pip_install,
    r"make [a-z-]+": make_target,
    r"python -m pyclient\.testing broker": broker,
}


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_does_what_it_says(line: str) -> None:
    rules = [check for pattern, check in SHELL_RULES.items() if re.fullmatch(pattern, line)]
    assert rules, f"no rule knows how to check the README's command {line!r}"
    rules[0](line)


def test_there_is_no_block_that_nobody_runs() -> None:
    assert {block.language for block in blocks()} == {"python", "bash"}


def test_the_sections_stand_in_the_promised_order() -> None:
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == ORDER


def test_the_first_sections_are_all_a_newcomer_needs(address: str) -> None:
    """The address printed by the broker is what the blocks are told to use."""
    assert re.fullmatch(r"[\w.:\[\]-]+:\d+", address)
    assert "bootstrap.servers=" in README


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)", README))))
def test_the_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def test_each_file_in_the_table_of_packages_exists() -> None:
    table = README.partition("## Where each package is used")[2].partition("\n## ")[0]
    rows = [row.split("|")[1:-1] for row in table.splitlines() if row.startswith("|")][2:]
    assert {"kafka-python", "confluent-kafka", "mmh3", "tenacity", "avro, fastavro", "pytest", "testcontainers", "pyspark"} <= {
        row[0].strip() for row in rows
    }
    for package, files, _role, extra in rows:
        for file in re.findall(r"`([^`]+)`", files):
            if not files.strip().startswith("planned"):
                assert (ROOT / file).exists(), f"{package.strip()}: {file}"
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert {*re.findall(r"`(\w+)`", extra)} <= set(known), package


def test_nothing_keeps_running_after_ctrl_c(tmp_path: Path) -> None:
    """The broker of the README ends with its command; whoever connects afterwards is refused."""
    import socket

    with served([sys.executable, "-m", "pyclient.testing", "broker"], tmp_path) as where:
        host, _, port = where.rpartition(":")
        socket.create_connection((host, int(port)), timeout=10).close()
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)), timeout=10).close()
