"""The rules of the house that a program can see, each failing with the line and the cure."""
from __future__ import annotations

import ast
import graphlib
import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

import pytest

from tests.leaks import collect_leaks_of_earlier_tests
from tests.twins import CIMPORT

import pyclient

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("assignors", "integration", "partitioners", "serializers")
PRODUCT = ("pyclient", *MAPPED)
EVERYTHING = (*PRODUCT, "tests", "benchmarks", "examples", "tools", ".ci", "docs")

BANNED_IN_CORE = {
    "asyncio": "the runtime waits; core gets events",
    "concurrent": "the runtime has the executors",
    "random": "take a seeded Random as an argument (its type may be imported under TYPE_CHECKING)",
    "select": "the runtime has the sockets",
    "selectors": "the runtime has the sockets",
    "socket": "the runtime has the sockets",
    "ssl": "the runtime has the sockets",
    "threading": "core belongs to one loop; locks live in buffers",
    "time": "time is the argument `now`",
}
BANNED_WORDS: Final = {
    r"anew": "again, once more",
    r"whoever": "the thread, the caller, the member ... that",
    r"nobody": "no waiter, no caller; as a value None, unset",
    r"(?<!\.)tell|tells|told|telling": "return, report, send, notify, raise, say which",
    r"by (?:it|them)sel(?:f|ves)": "automatically, on its own, alone",
    r"for good": "permanently",
    r"(?:what|that)(?: has| had)? became of": "the outcome, the result",
    r"felt": "noticed, observed, on_...",
    r"pulses?": "heartbeat",
}
"""Words that readers stumbled over, and what to write. ``_`` and a capital begin a new word in identifiers."""
BANNED: Final = re.compile(
    "|".join(rf"(?P<w{number}>(?<![A-Za-z])(?i:{word})(?![a-z]))" for number, word in enumerate(BANNED_WORDS)))
CURES: Final = tuple(BANNED_WORDS.values())
LONGEST_PROSE: Final = 120
TEXTS: Final = {".cfg", ".md", ".py", ".pyi", ".sh", ".toml", ".yaml", ".yml"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
UNCODED = re.compile(r"#\s*(type:\s*ignore(?!\[)|noqa(?!:\s*[A-Z]+\d)|ruff:\s*noqa(?!:))")


@pytest.fixture(autouse=True, scope="module")
def leaks_of_earlier_tests() -> None:
    """These tests allocate much, so a collection here would fail a rule."""
    collect_leaks_of_earlier_tests()


class Source(NamedTuple):
    path: Path
    text: str
    tree: ast.Module

    @classmethod
    def of(cls, path: Path) -> Self:
        text = path.read_text()
        return cls(path, text, ast.parse(text))

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"


def sources(*folders: str, mention: str = "") -> Iterator[Source]:
    """The modules in these folders whose text this pattern is found in: to parse all of them takes seconds."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if re.search(mention, path.read_text()):
                yield Source.of(path)


def imports(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "." * node.level


def comments(source: Source) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def typing_only(source: Source) -> set[int]:
    """The lines under ``if TYPE_CHECKING:``."""
    nodes = ast.walk(source.tree) if "TYPE_CHECKING" in source.text else ()
    blocks = [node for node in nodes if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {line for block in blocks for line in range(block.lineno, (block.end_lineno or block.lineno) + 1)}


def test_core_imports_no_sockets_clock_threads_or_chance() -> None:
    wrong = []
    for source in sources("pyclient/core"):
        excused = typing_only(source)
        for line, name in imports(source):
            if (cure := BANNED_IN_CORE.get(name.partition(".")[0])) and line not in excused:
                wrong.append(f"{source.at(line)} imports {name}: {cure}")
    assert not wrong, "\n".join(wrong)


def test_core_reads_no_clock_through_datetime() -> None:
    wrong = [
        f"{source.at(node.lineno)}: time is the argument `now`"
        for source in sources("pyclient/core")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"} and "date" in ast.unparse(node.value)
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_mapped_names_are_imported_from_mapped_folders() -> None:
    wrong = [
        f"{source.at(line)} imports {name}: write pyclient.{name}"
        for source in sources(*EVERYTHING, mention=rf"\b(?:{'|'.join(MAPPED)})\b|\bfrom\s+\.")
        for line, name in imports(source)
        if name.partition(".")[0] in MAPPED or name.startswith(".")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_through_others() -> None:
    """Imports made while a module loads; inside functions and for types only they may point back."""
    known = {module_name(source.path): source for source in sources(*PRODUCT)}
    needs = {name: {found for found in loaded_by(source, known) if found != name} for name, source in known.items()}
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as found:
        pytest.fail(f"cycle: {' <- '.join(found.args[1])}; move what both need below them")


def test_no_folder_imports_itself_through_others() -> None:
    """All imports count, those for types only too. A module directly in pyclient counts as a folder."""
    known = {folder_of(module_name(path)) for path in modules_and_interfaces()}
    needs: dict[str, dict[str, str]] = {}
    for path in modules_and_interfaces():
        for line, name in all_imports(path):
            user, used = (folder if folder in known else "pyclient" for folder in map(folder_of, (module_name(path), name)))
            if user != used:
                needs.setdefault(user, {}).setdefault(used, f"{path.relative_to(ROOT)}:{line} imports {name}")
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as found:
        cycle = found.args[1]
        examples = [needs[user][used] for used, user in itertools.pairwise(cycle)]
        pytest.fail("\n".join([f"cycle: {' <- '.join(cycle)}; move what both need below them", *examples]))


def folder_of(module: str) -> str:
    """What stands directly below pyclient; "pyclient" for the package's own names."""
    return ".".join(module.split(".")[:2])


def modules_and_interfaces() -> Iterator[Path]:
    """The product's modules, and the types and C interfaces of compiled ones."""
    for folder in PRODUCT:
        yield from (path for path in sorted((ROOT / folder).rglob("*.p*")) if path.suffix in {".py", ".pyi", ".pxd"})


def all_imports(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the full name of each import of the product."""
    text = path.read_text()
    if path.suffix == ".pxd":
        text = "\n".join(f"import {found[1]}" if (found := CIMPORT.match(line)) else "" for line in text.splitlines())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = (f"{base}{alias.name}".removeprefix("cython.cimports.") for alias in node.names)
            yield from ((node.lineno, name) for name in names if name.partition(".")[0] == "pyclient")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    inside = parts if parts[0] == "pyclient" else ("pyclient", *parts)
    return ".".join(inside).removesuffix(".__init__")


def loaded_by(source: Source, known: Mapping[str, object]) -> Iterator[str]:
    """The modules of the product that load with *source*."""
    excused = typing_only(source)
    for node in at_load_time(source.tree.body):
        if node.lineno in excused:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif node.module:
            inner = [name for alias in node.names if (name := f"{node.module}.{alias.name}") in known]
            yield from inner or ([node.module] if node.module in known else [])


def at_load_time(body: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from at_load_time(ast.iter_child_nodes(node))


def test_tests_wait_for_conditions_and_never_sleep() -> None:
    wrong = [
        f"{source.at(node.lineno)}: wait for the condition with a deadline instead"
        for source in sources("tests", mention=r"\bsleep\b")
        if "simulation" not in source.path.parts  # time is virtual there
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "sleep"
        and not ast.unparse(node.func).endswith(("poller.sleep", "inner.sleep", "world.sleep"))  # which an event ends; where time is played
        and (not node.args or ast.unparse(node.args[-1]) not in {"0", "LIMIT_S", "ticks"})  # a pass, not time; which is cancelled
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_unfinished_is_left_in_comments() -> None:
    wrong = [
        f"{source.at(line)}: finish it, or write it into an issue: {text}"
        for source in sources(*EVERYTHING, mention=UNFINISHED.pattern)
        for line, text in comments(source)
        if UNFINISHED.search(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_silenced_check_names_the_check() -> None:
    wrong = [
        f"{source.at(line)}: name the code, as in `type: ignore[arg-type]` or `noqa: F401`"
        for source in sources(*EVERYTHING, mention=UNCODED.pattern)
        for line, text in comments(source)
        if UNCODED.search(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_of_the_product_says_what_it_decides() -> None:
    wrong = [f"{source.at(1)}: begin with a docstring" for source in sources(*PRODUCT) if not ast.get_docstring(source.tree)]
    assert not wrong, "\n".join(wrong)


def public_definitions(body: list[ast.stmt], inside: str = "") -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield f"{inside}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{node.name}.")


PUBLIC_MODULES = (
    "__init__", "admin/acls", "admin/cluster", "admin/configs", "admin/facade", "admin/groups", "admin/plans", "admin/records", "admin/replicas", "admin/tokens", "admin/topics", "admin/transactions", "admin/users", "client/facade_base", "consumer/facade", "consumer/facade_base", "errors/base", "errors/broker", "errors/client", "plugin_loading",
    "column_serializers", "consumer/async_facade", "consumer/metadata_calls", "descriptions/assignments", "descriptions/topics", "plugins", "producer/facade", "records/__init__",
)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_every_public_class_and_method_is_documented(name: str) -> None:
    source = Source.of(ROOT / "pyclient" / f"{name}.py")
    wrong = [
        f"{source.at(node.lineno)} {full}: say when it waits, units, errors"
        for full, node in public_definitions(source.tree.body)
        if not ast.get_docstring(node) and not is_overload_or_property_setter(node)
    ]
    assert not wrong, "\n".join(wrong)


def is_overload_or_property_setter(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
    return bool(marks & {"overload", "setter"})


@pytest.mark.parametrize("name", ["Admin", "AsyncAdmin", "AsyncConsumer", "AsyncProducer", "Consumer", "Producer"])
def test_every_public_method_of_a_facade_is_defined_in_a_public_module(name: str) -> None:
    """Otherwise no check sees its docstring, and "go to definition" leads into internals."""
    facade = getattr(pyclient, name)
    public = {f"pyclient.{module.replace('/', '.')}" for module in PUBLIC_MODULES}
    wrong = [
        f"{name}.{method} is inherited from {home}: define it in {facade.__module__}"
        for method in dir(facade) if not method.startswith("_")
        for home in [next(base.__module__ for base in facade.__mro__ if method in vars(base))]
        if home not in public
    ]
    assert not wrong, "\n".join(wrong)


def checked_files(*suffixes: str) -> Iterator[Path]:
    """The files of the repository with these suffixes, or names."""
    names = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in EVERYTHING:
        names += (ROOT / folder).rglob("*")
    for path in sorted(set(names)):
        if path.is_file() and (path.suffix in suffixes or path.name in suffixes):
            yield path


def test_banned_words_are_not_used() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]!r}: write {CURES[int((found.lastgroup or 'w0')[1:])]}"
        for path in checked_files(*TEXTS, "Makefile") if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for found in BANNED.finditer(line)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line", ["built anew", "self._told = 1", "Told(1)", "tell_one()", "it runs by itself", "what became of a seed", "nobody_waits", "a_pulse"])
def test_the_check_of_words_finds(line: str) -> None:
    assert BANNED.search(line)


@pytest.mark.parametrize("line", ["file.tell()", "impulse", "a foretold end", "fortelling", "itself", "intelligent"])
def test_the_check_of_words_lets_pass(line: str) -> None:
    assert not BANNED.search(line)


def docstrings(source: Source) -> Iterator[int]:
    """The lines of texts that stand alone: docstrings, and notes below an attribute."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def long_prose_of_python(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are too long in docstrings, and comments on lines of their own."""
    text = path.read_text()
    long = {number: line for number, line in enumerate(text.splitlines(), 1) if is_long(line)}
    if not long:
        return
    source = Source.of(path)
    prose = set(docstrings(source))
    if any(line.lstrip().startswith("#") for line in long.values()):
        prose |= {number for number, comment in comments(source) if long.get(number, "").strip() == comment}
    yield from ((number, line) for number, line in long.items() if number in prose)


def prose_of_markdown(path: Path) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith("|"):
            yield number, line


def is_long(line: str) -> bool:
    return len(line) > LONGEST_PROSE and "://" not in line and not line.lstrip().startswith("|")


def test_lines_of_prose_are_short() -> None:
    """Comments on lines of their own, docstrings and Markdown; not tables, code fences and lines that hold a link."""
    lines = [(path, each) for path in checked_files(".py", ".pyi") for each in long_prose_of_python(path)]
    lines += [(path, each) for path in checked_files(".md") for each in prose_of_markdown(path)]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {len(text)} characters: break the line at {LONGEST_PROSE} or before"
        for path, (number, text) in lines
        if is_long(text)
    ]
    assert not wrong, "\n".join(wrong)
