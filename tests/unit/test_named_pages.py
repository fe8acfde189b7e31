"""What errors, warnings and docstrings name can be opened by who installed the wheel: it has no pages of docs/."""
from __future__ import annotations

import ast
import functools
import pydoc
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
FOLDERS: Final = ("pyclient", "assignors", "integration", "partitioners", "serializers")
SOURCES: Final = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
    if not any(parent.is_symlink() for parent in path.parents)
)


@functools.cache
def texts(path: Path) -> list[str]:
    """The strings of a module, docstrings included."""
    return [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_no_string_names_a_page_that_is_not_installed() -> None:
    assert not [(str(path), text) for path in SOURCES for text in texts(path) if re.search(r"\bdocs/|\w\.md\b", text)]


def test_what_help_is_named_for_exists() -> None:
    named = {target for path in SOURCES for text in texts(path) for target in re.findall(r"help\('([\w.]+)'\)", text)}
    assert {"pyclient.Producer", "pyclient.option_types.ConsumerOptions"} <= named
    for target in named:
        assert pydoc.locate(target) is not None, target
        assert pydoc.render_doc(target).strip()
    assert all(pydoc.locate(f"pyclient.option_types.{role}Options") for role in ("Admin", "Consumer", "Producer"))
