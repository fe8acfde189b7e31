"""Every block of docs/serializers.md runs against the fake cluster and the registry for tests."""
from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pyclient.testing import FakeCluster, FakeSchemaRegistry
from tests.distribution import run
from tests.pages import WRITTEN_ADDRESS, Block, Page, extras, strictly_typed

PAGE: Final = Page("docs/serializers.md")
WRITTEN_REGISTRY: Final = "http://localhost:8081"
SCHEMA_FILE: Final = "order.avsc"
BLOCK_S: Final = 120


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """Those that the page writes, and where they are in this test."""
    with FakeCluster() as cluster, FakeSchemaRegistry() as registry:
        yield {WRITTEN_ADDRESS: cluster.bootstrap_servers, WRITTEN_REGISTRY: registry.url}


@pytest.mark.parametrize("block", PAGE.python, ids=lambda block: block.name)
def test_the_python_block_runs(block: Block, addresses: dict[str, str], installed: Path, tmp_path: Path) -> None:
    text = block.text
    for written, address in addresses.items():
        text = text.replace(written, address)
    (tmp_path / "program.py").write_text(text)
    (tmp_path / SCHEMA_FILE).write_text(schema())
    run(sys.executable, "-W", "error::ResourceWarning", "program.py", cwd=tmp_path, timeout=BLOCK_S, PYTHONPATH=str(installed))


def schema() -> str:
    """The page's only block of JSON is the file that its programs read."""
    [text] = [block.text for block in PAGE.blocks if block.language == "json"]
    assert json.loads(text)["name"] == "Order"
    return text


def test_the_python_blocks_pass_strict_mypy(tmp_path: Path) -> None:
    programs = [tmp_path / f"program_{block.line}.py" for block in PAGE.python]
    for program, block in zip(programs, PAGE.python, strict=True):
        program.write_text(block.text)
    strictly_typed(*programs)


def test_there_are_no_other_blocks() -> None:
    assert {block.language for block in PAGE.blocks} == {"python", "json"}


@pytest.mark.parametrize("target", PAGE.links)
def test_the_link_leads_somewhere(target: str) -> None:
    assert (PAGE.folder / target).exists()


def test_each_extra_that_the_page_names_is_one() -> None:
    named = {part for line in PAGE.text.split("pip install 'pyclient-kafka[")[1:] for part in line.partition("]")[0].split(",")}
    assert named <= set(extras())
    assert {"avro", "msgspec", "pydantic", "registry"} <= named
