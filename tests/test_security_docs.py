"""Every block of docs/security.md does what it says: those called ``test_….py`` are run by pytest, in a folder with the
others."""
from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest

from pyclient import errors
from pyclient.config import ProducerConfig
from tests.distribution import ROOT, run
from tests.pages import Page, extras, strictly_typed

PAGE: Final = Page("docs/security.md")
FILES: Final = {block.file: block for block in PAGE.python if block.file}
TESTS: Final = sorted(name for name in FILES if name.startswith("test_"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of the page, as a user who follows it has them."""
    made = tmp_path_factory.mktemp("secured")
    for name, block in FILES.items():
        (made / name).write_text(block.text)
    return made


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_of_the_page_pass_under_pytest(name: str, folder: Path) -> None:
    said = run(sys.executable, "-W", "error::ResourceWarning", "-m", "pytest", "-p", "no:cacheprovider", name, cwd=folder, timeout=300, PYTHONPATH=str(ROOT))
    assert re.search(r"\d+ passed", said)
    assert "skipped" not in said


def test_the_blocks_pass_strict_mypy_together(folder: Path) -> None:
    strictly_typed(*(folder / name for name in FILES))


def test_every_python_block_is_run() -> None:
    assert len(FILES) == len(PAGE.python)
    assert {block.language for block in PAGE.blocks} == {"python"}


@pytest.mark.parametrize("target", PAGE.links)
def test_the_link_leads_somewhere(target: str) -> None:
    assert (PAGE.folder / target).exists()


def test_the_options_and_errors_it_names_exist_and_no_option_of_tls_is_left_out() -> None:
    declared = {option.name for option in ProducerConfig.fields()}
    named = set(re.findall(r"`(ssl_\w+|security_protocol|socket_\w+_ms)", PAGE.text))
    assert named - {"ssl_cafile", "ssl_"} <= declared
    assert {name for name in declared if name.startswith("ssl_")} <= named
    for name in re.findall(r"`(\w+(?:Error|Lost|TimedOut|Failed))`", PAGE.text):
        assert hasattr(errors, name), name


def test_the_extra_it_names_exists() -> None:
    assert set(re.findall(r"pyclient-kafka\[(\w+)\]", PAGE.text)) <= set(extras())
