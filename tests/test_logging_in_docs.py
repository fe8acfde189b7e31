"""Every block of docs/logging-in.md does what it says: programs against a fake cluster that wants logins, its own
mechanism on a connection."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from pyclient.plugin_loading import available_plugins
from pyclient.testing import FakeCluster
from tests.distribution import ROOT, run
from tests.pages import WRITTEN_ADDRESS, Block, Page, blocks_are_strictly_typed, extras
from tests.simulation.logins import Client, logins, world
from tests.simulation.logins import run as simulated

PAGE: Final = Page("docs/logging-in.md")
PROGRAMS: Final = [block for block in PAGE.python if block.file is None]
USERS: Final = {"anna": "anna's secret"}


@pytest.fixture
def address() -> Iterator[str]:
    with FakeCluster(sasl=USERS) as fake:
        fake.create_topic("orders")
        yield fake.bootstrap_servers
        assert [each.value for each in fake.records("orders")] == [b"value"]


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_the_programs_run(block: Block, address: str, installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block.text.replace(WRITTEN_ADDRESS, address))
    run(sys.executable, "-W", "error::ResourceWarning", str(program), cwd=tmp_path, timeout=60, PYTHONPATH=str(installed))


def test_the_blocks_pass_strict_mypy(tmp_path: Path) -> None:
    blocks_are_strictly_typed(PAGE.python, tmp_path)


def test_the_mechanism_of_ones_own_logs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in PAGE.python if block.file is not None]
    module = ModuleType("corporate")
    exec(compile(block.text, "corporate.py", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "corporate", module)
    place = world(users=USERS)

    async def test(client: Client) -> None:
        ours = logins(client, "corporate:Plain")
        await client.log_in(ours)
        assert await client.answered()
        assert ours.may_change

    simulated(place, test)


def test_the_table_has_every_mechanism_there_is_and_its_extras_exist() -> None:
    table = PAGE.section("Logging in (SASL)")
    assert all(f"`{name}`" in table for name in available_plugins("sasl mechanism"))
    assert {"aws", "oidc", "gssapi"} <= set(extras())


def test_every_link_leads_somewhere() -> None:
    assert all((ROOT / "docs" / target).exists() for target in PAGE.links)
