"""The texts of clients that come in two kinds: the methods of one kind have the text of its twin of the other kind.

Written into the source, where editors show them; reading them at run time costs nothing. Paragraphs that begin with
``With threads`` or ``With asyncio`` belong to one kind: the twin neither gets nor loses them.
"""
from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

Method: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

OWN: Final = ("With threads", "With asyncio")
"""How a paragraph begins that is left out of the twin's text."""
RAISES: Final = "Raises:"
TIMEOUT: Final = "*timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit."
"""What the text of each method of `WITH_TIMEOUT` says of its timeout, where nothing else does."""
WITH_TIMEOUT: Final = ("admin/", "consumer/")
QUOTES: Final = '"""'
WIDTH: Final = 112
"""Of a docstring's lines, which are indented by 8."""
PACKAGE: Final = Path(__file__).parent.parent / "pyclient"


class Twins(NamedTuple):
    """Two classes with methods of the same names: *source* has the texts, *target* gets them."""

    source: str
    target: str
    source_file: str
    target_file: str


def _of_admin(module: str, kind: str) -> Twins:
    return Twins(f"Async{kind}", kind, f"admin/{module}.py", f"admin/{module}.py")


TWINS: Final = (
    *(_of_admin(module, f"{kind}Calls") for module, kind in (
        ("acls", "Acl"), ("cluster", "Cluster"), ("configs", "Config"), ("groups", "Group"), ("plans", "Plan"), ("records", "Record"),
        ("replicas", "Replica"), ("tokens", "Token"), ("topics", "Topic"), ("transactions", "Transaction"), ("users", "User"))),
    _of_admin("facade", "Admin"),
    Twins("Producer", "AsyncProducer", "producer/facade.py", "producer/facade.py"),
    Twins("Consumer", "AsyncConsumer", "consumer/facade.py", "consumer/async_facade.py"),
    Twins("MetadataCalls", "AsyncMetadataCalls", "consumer/metadata_calls.py", "consumer/metadata_calls.py"),
    Twins("SchemaRegistryClient", "AsyncSchemaRegistryClient", "serializers/registry.py", "serializers/registry.py"),
)
FILES: Final = tuple(sorted({file for twins in TWINS for file in (twins.source_file, twins.target_file)}))


def with_texts(file: str) -> str:
    """The source of *file*, below the package, with the texts that its methods must have."""
    source = (PACKAGE / file).read_text(encoding="utf-8")
    if file.startswith(WITH_TIMEOUT):
        for cls in {name for twins in TWINS for name, there in ((twins.source, twins.source_file), (twins.target, twins.target_file)) if there == file}:
            source = rewritten(source, cls, {name: with_timeout(method) for name, method in methods(source, cls).items()})
    for twins in TWINS:
        if twins.target_file == file:
            given = source if twins.source_file == file else with_texts(twins.source_file)
            source = rewritten(source, twins.target, dict(_twins_texts(twins, given, source)))
    return source


def _twins_texts(twins: Twins, given: str, target: str) -> Iterator[tuple[str, str]]:
    theirs = methods(given, twins.source)
    for name, method in methods(target, twins.target).items():
        if name in theirs and text_of(theirs[name]):
            yield name, text_of_twin(text_of(theirs[name]), text_of(method))


def text_of_twin(theirs: str, own: str) -> str:
    """*theirs* without the paragraphs that belong to it, and with those that belong to the text there was."""
    common = [part for part in theirs.split("\n\n") if not part.startswith(OWN)]
    return _before_errors(common, [part for part in own.split("\n\n") if part.startswith(OWN)])


def with_timeout(method: Method) -> str:
    """A method's text, which says what its timeout is."""
    text = text_of(method)
    has_one = "timeout" in {argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)}
    return _before_errors(text.split("\n\n"), [TIMEOUT]) if text and has_one and not mentions(text, "timeout") else text


def mentions(text: str, parameter: str) -> bool:
    """Whether a text names a parameter, as texts of this project do: *parameter*, ``parameter=1``."""
    return re.search(rf"(\*|``){parameter}\b", text) is not None


def _before_errors(parts: list[str], added: list[str]) -> str:
    at = next((at for at, part in enumerate(parts) if part.startswith(RAISES)), len(parts))
    return "\n\n".join([*parts[:at], *added, *parts[at:]])


# ── the source ───────────────────────────────────────────────────────────────────────────────────────────────────────


def methods(source: str, cls: str) -> dict[str, Method]:
    """The public methods of a class, and ``__init__``, by name."""
    body = next(node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == cls)
    found = [node for node in body if isinstance(node, Method)]
    return {each.name: each for each in found if each.name == "__init__" or not each.name.startswith("_")}


def text_of(method: Method) -> str:
    """Its docstring, without indentation; empty without one."""
    return inspect.cleandoc(ast.get_docstring(method) or "")


def rewritten(source: str, cls: str, texts: Mapping[str, str]) -> str:
    """*source* with these docstrings for methods of a class."""
    lines = source.split("\n")
    for name, method in reversed(methods(source, cls).items()):  # from the end: what is above keeps its line
        text, first = filled(texts.get(name, "")), method.body[0]
        if text and text != text_of(method):
            old = slice(first.lineno - 1, first.end_lineno if ast.get_docstring(method) else first.lineno - 1)
            lines[old] = _written(text, " " * first.col_offset)
    return "\n".join(lines)


def filled(text: str) -> str:
    """*text* with those paragraphs broken again that are too wide for the docstring of a method."""
    return "\n\n".join(part if part.startswith(RAISES) else _filled(part, first=not at) for at, part in enumerate(text.split("\n\n")))


def _filled(part: str, *, first: bool) -> str:
    quotes = QUOTES if first else ""
    fits = all(len(line) <= WIDTH for line in f"{quotes}{part}".split("\n"))
    return part if fits else textwrap.fill(part, WIDTH, initial_indent=quotes, break_on_hyphens=False).removeprefix(quotes)


def _written(text: str, indent: str) -> list[str]:
    lines = [f"{indent}{line}" if line else "" for line in f"{QUOTES}{text}".split("\n")]
    return [lines[0] + QUOTES] if len(lines) == 1 else [*lines, indent + QUOTES]
