"""Every block of docs/recipes.md and docs/admin.md runs against the fake cluster, or with the README's.

Tables are the code's.
"""
from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest

from pyclient import Admin
from pyclient.testing import FakeCluster
from tests.distribution import ROOT, run
from tests.pages import NEEDS_A_BROKER, WRITTEN_ADDRESS, Block, Page, blocks_are_strictly_typed

PAGE: Final = Page("docs/recipes.md")
ADMIN: Final = Page("docs/admin.md")
BLOCKS: Final = [*PAGE.python, *(block for block in ADMIN.python if block.heading not in NEEDS_A_BROKER)]
BLOCK_S: Final = 120


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with FakeCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_the_python_block_runs(block: Block, address: str, installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "recipe.py"
    program.write_text(block.text.replace(WRITTEN_ADDRESS, address))
    run(sys.executable, "-W", "error::ResourceWarning", str(program), cwd=tmp_path, timeout=BLOCK_S, PYTHONPATH=str(installed))


def test_the_python_blocks_pass_strict_mypy(tmp_path: Path) -> None:
    blocks_are_strictly_typed(BLOCKS, tmp_path)


def test_every_bundled_serializer_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.section("JSON, text and numbers").partition("```")[0]))
    assert {point.name for point in entry_points(group="pyclient.serializers") if point.value.startswith("pyclient.")} <= named


@pytest.mark.parametrize(("level", "calls"), [("WARNING", {"warning"}), ("ERROR", {"error", "exception"})])
def test_every_module_that_logs_is_below_a_logger_of_the_table(level: str, calls: set[str]) -> None:
    rows = re.findall(rf"^\| {level} \| (.*?) \|", PAGE.section("Logging"), re.MULTILINE)
    named = tuple(f"{name}." for row in rows for name in re.findall(r"`([\w.]+)`", row))
    assert [name for name in loggers(calls) if not f"{name}.".startswith(named)] == []


def loggers(calls: set[str]) -> Iterator[str]:
    """The modules of the client that call one of these methods of their logger."""
    package = ROOT / "pyclient"
    folders = [package, *(each for each in package.iterdir() if each.is_symlink())]  # rglob does not follow links
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if re.search(rf"\b_?log\.({'|'.join(calls)})\(", path.read_text()) and not name.startswith("pyclient.testing"):
            yield name


def test_every_logger_of_the_table_is_a_module_or_a_folder_of_modules() -> None:
    for row in re.findall(r"^\| [A-Z]+ \| (.*?) \|", PAGE.section("Logging"), re.MULTILINE):
        for name in re.findall(r"`([\w.]+)`", row):
            importlib.import_module(name)


@pytest.mark.parametrize("target", [*PAGE.links, *ADMIN.links])
def test_the_link_leads_somewhere(target: str) -> None:
    assert (PAGE.folder / target).exists()


def calls() -> set[str]:
    return {name for name, call in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")}


def table() -> list[list[str]]:
    """The cells of each row of calls."""
    rows = re.findall(r"^\| `.*$", ADMIN.text, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in row.split("|")[1:-1]] for row in rows]


def test_every_call_of_the_admin_is_in_its_table() -> None:
    assert {len(row) for row in table()} == {4}, "each row has four cells"
    named = [row[0] for row in table()]
    assert calls() - {"close", "metrics", "start", "stop"} == set(named)
    assert len(named) == len(set(named))


def test_every_call_of_the_admin_is_made_in_a_block_of_its_page() -> None:
    made = {name for block in ADMIN.python for name in re.findall(r"\badmin\.(\w+)\(", block.text)}
    assert calls() - {"close"} <= made, "a with block closes it"


@pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning", "ignore:open_text is deprecated:DeprecationWarning")
def test_the_names_of_other_clients_in_the_table_are_theirs() -> None:
    """The other way round, a call that they have gained shows as a row with a dash and our own name."""
    from confluent_kafka.admin import AdminClient
    from kafka import KafkaAdminClient

    for column, client in ((2, KafkaAdminClient), (3, AdminClient)):
        assert {row[column] for row in table()} - {"–"} <= set(dir(client)), client
        assert not [row[0] for row in table() if row[column] == "–" and row[0] in dir(client)], client
