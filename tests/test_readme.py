"""Every Python block of the README, docs/groups.md and a part of docs/admin.md runs against a real broker.

Every command runs or is known to exist. Each Python block runs in its own process, with the built wheel first on the
path. Blocks are written for the ports that the README's commands take; where one was taken, its real address replaces
it. A shell line without a rule here is a failure.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest

from tests.distribution import ROOT, run
from tests.pages import NEEDS_A_BROKER, WRITTEN_ADDRESS, Block, Page, blocks_are_strictly_typed, extras, make_target, served

README: Final = Page("README.md")
ADMIN: Final = [block for block in Page("docs/admin.md").python if block.heading in NEEDS_A_BROKER]
PYTHON: Final = [*README.python, *Page("docs/groups.md").python, *ADMIN]
BLOCK_S: Final = 180
FAST_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of Spark's JVM, whose start is most of its block
SECURED_ADDRESS: Final = "localhost:9093"
ORDER: Final = [
    "Install", "First message in under a minute", "Produce", "Consume", "Topics", "Async", "Secured clusters", "Plugins", "Spark",
    "What is guaranteed", "Where each package is used", "Platforms", "Links",
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The README's addresses and the real ones: brokers started by the README's own commands."""
    plain, secured = (line.split() for line in README.commands if "pyclient.testing broker" in line)
    assert (plain[0], secured) == ("python", [*plain, "--secure", "--ca", "ca.pem"])
    folder = tmp_path_factory.mktemp("broker")
    with served([sys.executable, *plain[1:]], folder) as open_one, served([sys.executable, *secured[1:]], folder) as closed:
        real = {WRITTEN_ADDRESS: open_one["bootstrap.servers"], SECURED_ADDRESS: closed["bootstrap.servers"]}
        yield {"ca.pem": str(folder / "ca.pem"), **{shown: at for shown, at in real.items() if not same_port(shown, at)}}


def same_port(shown: str, real: str) -> bool:
    """Whether the block runs as it stands: ``localhost`` is where the broker listens."""
    return shown.rpartition(":")[2] == real.rpartition(":")[2]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_the_python_block_runs(block: Block, written: dict[str, str], installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "readme.py"
    text = block.text
    for shown, real in written.items():
        text = text.replace(shown, real)
    program.write_text(text)
    run(sys.executable, "-W", "error::ResourceWarning", str(program), cwd=tmp_path, timeout=BLOCK_S, PYTHONPATH=str(installed),
        JDK_JAVA_OPTIONS=FAST_START)


def test_the_python_blocks_pass_strict_mypy(tmp_path: Path) -> None:
    blocks_are_strictly_typed(PYTHON, tmp_path)


def pip_install(line: str) -> None:
    """Pip resolves the line from the checkout without installing. The extras must exist: pip only warns otherwise."""
    wanted = re.findall(r"\[([\w,]+)\]", line)
    assert {name for each in wanted for name in each.split(",")} <= set(extras())
    arguments = [word.strip("'") for word in line.split()[3:]]
    run(sys.executable, "-m", "pip", *arguments, "--dry-run", "--no-deps", "--no-build-isolation")


def broker(line: str) -> None:
    """The fixture `written` runs the command; here its help must list the options."""
    said = run(sys.executable, *line.split()[1:], "--help")
    assert all(word in said for word in line.split()[3:] if word.startswith("--"))


SHELL_RULES: Final[dict[str, Callable[[str], None]]] = {
    r"python -m pip install .*": pip_install,
    r"make [a-z-]+": make_target,
    r"python -m pyclient\.testing broker( --secure --ca ca\.pem)?": broker,
}


@pytest.mark.parametrize("line", README.commands)
def test_the_command_does_what_it_says(line: str) -> None:
    rules = [check for pattern, check in SHELL_RULES.items() if re.fullmatch(pattern, line)]
    assert rules, f"no rule knows how to check the README's command {line!r}"
    rules[0](line)


def test_every_block_has_a_language_that_the_tests_run() -> None:
    assert {block.language for block in README.blocks} == {"python", "bash"}
    for page in ("docs/admin.md", "docs/groups.md"):
        assert {block.language for block in Page(page).blocks} == {"python"}, page


def test_each_heading_whose_blocks_need_a_broker_is_one_of_the_page() -> None:
    """Blocks under other headings run against the fake cluster: in tests/test_recipes_docs.py."""
    assert {block.heading for block in ADMIN} == set(NEEDS_A_BROKER)


def test_the_first_screen_names_the_two_commands_of_a_checkout() -> None:
    first = README.text.partition("\n## ")[0]
    assert re.findall(r"^\| `(make [a-z-]+)` \|", first, re.MULTILINE) == ["make demo", "make test"]


def test_every_extra_is_named_where_the_page_says_how_to_install() -> None:
    assert set(extras()) <= set(re.findall(r"`(\w+)`", README.section("Install")))


def test_the_sections_are_in_order() -> None:
    assert re.findall(r"^## (.*)$", README.text, re.MULTILINE) == ORDER


def test_the_blocks_name_only_the_ports_that_the_commands_take() -> None:
    """Which the help promises, when they are free."""
    said = " ".join(run(sys.executable, "-m", "pyclient.testing", "broker", "--help").split())
    assert "9092, with --secure 9093; another one if that is taken" in said
    shown = {address for block in PYTHON for address in re.findall(r"localhost:\d+", block.text)}
    assert shown == {WRITTEN_ADDRESS, SECURED_ADDRESS}


def test_every_bundled_serializer_is_named() -> None:
    bundled = {point.name for point in entry_points(group="pyclient.serializers") if point.value.startswith("pyclient.")}
    assert bundled <= set(re.findall(r"`(\w+)`", README.section("Produce")))


@pytest.mark.parametrize("target", README.links)
def test_the_link_leads_somewhere(target: str) -> None:
    assert (README.folder / target).exists()


def test_each_file_in_the_table_of_packages_exists() -> None:
    table = README.section("Where each package is used")
    rows = [row.split("|")[1:-1] for row in table.splitlines() if row.startswith("|")][2:]
    assert {"kafka-python", "confluent-kafka", "mmh3", "tenacity", "avro, fastavro", "pytest", "testcontainers", "pyspark"} <= {
        row[0].strip() for row in rows
    }
    for package, files, _role, extra in rows:
        for file in re.findall(r"`([^`]+)`", files):
            assert (ROOT / file).exists(), f"{package.strip()}: {file}"
        assert {*re.findall(r"`(\w+)`", extra)} <= set(extras()), package


def test_nothing_keeps_running_after_ctrl_c(tmp_path: Path) -> None:
    """The README's broker ends with its command: later connections are refused."""
    import socket

    with served([sys.executable, "-m", "pyclient.testing", "broker"], tmp_path) as printed:
        host, _, port = printed["bootstrap.servers"].rpartition(":")
        socket.create_connection((host, int(port)), timeout=10).close()
    with pytest.raises(OSError):
        socket.create_connection((host, int(port)), timeout=10).close()
