"""Every block of docs/testing.md does what it says, and its tables are those of the code.

Blocks whose first line is ``# name.py`` are files of one folder: those called ``test_….py`` are run by pytest, the
others as programs. Blocks without a name talk to the fake cluster that the page's own command serves.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, get_args

import pytest

from pyclient.codec.apis import Api
from pyclient.testing import FakeCluster
from pyclient.testing.broker_security import LISTENERS
from pyclient.testing.fake.control import Verdict
from pyclient.testing.fake.model.profiles import PROFILES
from pyclient.testing.simulation.faults import KINDS
from tests.broker.conformance.allowed import ALLOWED
from tests.distribution import ROOT, run
from tests.pages import WRITTEN_ADDRESS, Block, Page, make_target, served, strictly_typed

PAGE: Final = Page("docs/testing.md")
FILES: Final = {block.file: block for block in PAGE.python if block.file}
TESTS: Final = sorted(name for name in FILES if name.startswith("test_"))
PROGRAMS: Final = sorted(name for name in FILES if name.startswith("simulated_"))
LOOSE: Final = [block for block in PAGE.python if not block.file]
STRICT: Final = ("-W", "error::ResourceWarning")
BLOCK_S: Final = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of the page, as a user who follows it has them."""
    made = tmp_path_factory.mktemp("service")
    for name, block in FILES.items():
        (made / name).write_text(block.text)
    return made


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A fake cluster served by the very command of the page."""
    command = next(line for line in PAGE.commands if " broker " in line).split()
    with served([sys.executable, *command[1:]], tmp_path_factory.mktemp("broker")) as printed:
        yield printed["bootstrap.servers"]


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_of_the_page_pass_under_pytest(name: str, folder: Path, installed: Path) -> None:
    said = run(sys.executable, *STRICT, "-m", "pytest", "-p", "no:cacheprovider", name, cwd=folder, timeout=BLOCK_S, PYTHONPATH=str(installed))
    assert re.search(r"\d+ passed", said)
    assert "skipped" not in said


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_of_the_page_run(name: str, folder: Path, installed: Path) -> None:
    run(sys.executable, *STRICT, name, cwd=folder, timeout=BLOCK_S, PYTHONPATH=str(installed))


@pytest.mark.parametrize("block", LOOSE, ids=lambda block: block.name)
def test_the_other_blocks_run_against_the_served_cluster(block: Block, address: str, installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block.text.replace(WRITTEN_ADDRESS, address))
    run(sys.executable, str(program), cwd=tmp_path, timeout=BLOCK_S, PYTHONPATH=str(installed))


def test_the_blocks_pass_strict_mypy_together(folder: Path) -> None:
    strictly_typed(*(folder / name for name in FILES))


def test_every_python_block_is_run_by_one_of_these() -> None:
    imported = {name for name in FILES if any(f"from {Path(name).stem} import" in block.text for block in PAGE.python)}
    assert {*TESTS, *PROGRAMS, *imported} == set(FILES)
    assert {block.language for block in PAGE.blocks} == {"python", "bash"}


# --- commands and links ----------------------------------------------------------------------------------------------


def seed(line: str) -> None:
    """It runs, and nothing breaks."""
    assert "everything held" in run(sys.executable, *line.split()[1:], timeout=BLOCK_S)


def sweep(line: str) -> None:
    """tests/simulation sweeps; here only its help must know the words."""
    assert "--seeds" in run(sys.executable, *line.split()[1:], "--help")


def served_elsewhere(line: str) -> None:
    """The fixture `address` runs it."""
    assert "--fake" in line


SHELL_RULES: Final[dict[str, Callable[[str], None]]] = {
    r"python -m pyclient\.testing broker .*": served_elsewhere,
    r"python -m pyclient\.testing\.simulation --seed \d+": seed,
    r"python -m pyclient\.testing\.simulation --seeds \d+\.\.\d+": sweep,
}


@pytest.mark.parametrize("line", PAGE.commands)
def test_the_command_runs(line: str) -> None:
    rules = [check for pattern, check in SHELL_RULES.items() if re.fullmatch(pattern, line)]
    assert rules, f"no rule knows how to check the page's command {line!r}"
    rules[0](line)


@pytest.mark.parametrize("target", PAGE.links)
def test_the_link_leads_somewhere(target: str) -> None:
    assert (PAGE.folder / target).exists()


def test_the_make_targets_it_names_exist() -> None:
    for target in re.findall(r"`make ([a-z-]+)`", PAGE.text):
        make_target(f"make {target}")


# --- tables ----------------------------------------------------------------------------------------------------------


def test_the_page_lists_where_the_model_may_differ_as_the_conformance_suite_has_it() -> None:
    rows = [f"| {'every API' if row.api is None else row.api.title} | `{row.field}` | {row.kind.value} | {row.reason} |" for row in ALLOWED]
    assert "\n".join(["| --- | --- | --- | --- |", *rows, ""]) in PAGE.text


def test_the_page_lists_every_kind_of_fault_in_its_own_words() -> None:
    rows = [f"| `{name}` | {' '.join((kind.__doc__ or '').split())} |" for name, kind in KINDS.items()]
    assert "\n".join([*rows, ""]) in PAGE.text


def test_the_page_names_every_verdict_and_every_release() -> None:
    for verdict in get_args(Verdict):
        assert f"| `{verdict.__name__}(" in PAGE.text
    assert ", ".join(PROFILES) in PAGE.text


def test_the_page_lists_every_listener_of_a_secured_cluster_with_its_protocol_and_mechanisms() -> None:
    for name, listener in LISTENERS.items():
        [row] = re.findall(rf"^\| `{name}` \| {listener.protocol} \| (.*) \|$", PAGE.text, re.MULTILINE)
        assert name == "SASL_SSL" or all(mechanism in row for mechanism in listener.mechanisms)


def test_what_the_page_says_is_not_offered_is_not_offered() -> None:
    titles = {api.title for api in Api}
    with FakeCluster() as cluster:
        offered = {api.title for api in cluster._front.rows}
    assert offered <= titles
    assert not offered & {"ShareGroupHeartbeat", "StreamsGroupHeartbeat", "CreateDelegationToken", "CreateAcls"}


def test_the_readme_links_to_the_page() -> None:
    assert "docs/testing.md" in (ROOT / "README.md").read_text()
