"""What is generated from the declarations is what they say now, and type checkers agree with it."""
from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import pytest

from pyclient import option_types
from tools.pages import CLIENTS, PAGES, main, wrapped
from pyclient.metrics import DECLARED
from pyclient.plugins import STICKY
from pyclient.option_types import AdminOptions, ConsumerOptions, ProducerOptions
from pyclient.testing import check_assignor

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", PAGES)
def test_the_generated_file_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text("utf-8") == PAGES[path](), "run: python -m tools.pages"


def test_the_generator_writes_every_page(tmp_path: Path) -> None:
    main(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(PAGES)


def test_paragraphs_and_list_items_are_wrapped_but_tables_and_code_are_not() -> None:
    words = " ".join(["word"] * 50)
    kept = f"| {words} |\n\n```\n{words}\n```\n"
    page = wrapped(f"{words}\n\n- {words}\n- short\n\n{kept}")
    prose = page.removesuffix(kept).splitlines()
    assert page.endswith(kept)
    assert max(map(len, prose)) <= 120
    assert [line for line in prose if line.startswith("- ")][1] == "- short"
    assert " ".join(" ".join(prose).split()) == f"{words} - {words} - short"


@pytest.mark.parametrize(("client", "options"), [("Producer", ProducerOptions), ("Consumer", ConsumerOptions), ("Admin", AdminOptions)])
def test_the_typed_keywords_are_every_option_that_is_no_parameter(client: str, options: type) -> None:
    declared = {option.name for option in CLIENTS[client].fields() if not option.explicit}
    assert set(get_type_hints(options, vars(option_types))) == declared


def test_every_metric_stands_in_its_page_by_its_names() -> None:
    page = PAGES["docs/metrics.md"]()
    for metric in DECLARED:
        assert all(f"`{name}`" in page for name in metric.names())


def test_the_partitioner_of_the_page_is_one() -> None:
    names: dict[str, Any] = {}
    exec(PAGES["docs/partitioners.md"]().split("```python")[1].split("```")[0], names)
    partition = names["ByRegion"]().partition
    assert partition("t", b"eu/1", None, range(50)) == partition("t", b"eu/2", None, range(50)) != partition("t", b"us/1", None, range(50))
    assert partition("t", None, None, range(50)) is STICKY


def test_the_assignor_of_the_page_is_one() -> None:
    names: dict[str, Any] = {}
    exec(PAGES["docs/assignors.md"]().split("```python")[1].split("```")[0], names)
    check_assignor(names["OneReader"])


def test_every_option_and_error_stands_in_its_page() -> None:
    page = PAGES["docs/options.md"]()
    for config in CLIENTS.values():
        for option in config.fields():
            assert f"| `{option.name}` |" in page
