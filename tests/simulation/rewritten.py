"""Deliberate bugs in compiled modules: a copy of the module in which one body is another one is compiled, and loaded in
its place by a process that has imported nothing of the client yet.

Imports nothing of the client, so that such a process can import this.
"""
from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.util
import inspect
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "mutants"


def source_of(target: str, body: Callable[..., Any]) -> str:
    """The source of the compiled module in which ``module:Class.name`` has the body of this function, and its own
    parameters.

    Raises:
        LookupError: the target does not exist, or has other parameters.
    """
    module, _, path = target.partition(":")
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    there = _found(ast.parse(source), path.split("."), target)
    text = textwrap.dedent(inspect.getsource(body))
    ours = next(each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    if [each.arg for each in ours.args.args] != [each.arg for each in there.args.args]:
        raise LookupError(f"{target} has other parameters")
    new = textwrap.dedent("\n".join(text.splitlines()[ours.body[0].lineno - 1:]))
    lines = source.splitlines()
    lines[there.body[0].lineno - 1:there.end_lineno] = textwrap.indent(new, " " * there.body[0].col_offset).splitlines()
    return "\n".join(lines) + "\n"


def _found(tree: Any, names: Sequence[str], target: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    for name in names:
        tree = next((each for each in tree.body if getattr(each, "name", None) == name), None)
        if tree is None:
            raise LookupError(f"{target} does not exist")
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    return tree


def compiled(target: str, body: Callable[..., Any]) -> Path:
    """The extension module with that body, compiled unless it is there."""
    module, source = target.partition(":")[0], source_of(target, body)
    package = Path(*module.split(".")[:-1])
    fields = "".join(each.read_text() for each in sorted((ROOT / package).glob("*.pxd")))
    place = BUILD / hashlib.sha256((source + fields).encode()).hexdigest()[:16]
    made = place / f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not made.exists():
        (place / package).mkdir(parents=True, exist_ok=True)
        for folder in [package, *package.parents][:-1]:
            (place / folder / "__init__.py").touch()
        for each in (ROOT / package).glob("*.pxd"):
            shutil.copy(each, place / package)
        copy = place / f"{module.replace('.', '/')}.py"
        copy.write_text(source)
        c = copy.with_suffix(".c")
        subprocess.run([sys.executable, "-m", "cython", "-3", str(copy.relative_to(place)), "-o", str(c.relative_to(place))], cwd=place, check=True)
        subprocess.run(["gcc", "-O1", "-w", "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}", f"-I{ROOT / package}", str(c), "-o", str(made)], check=True)
    return made


class Instead(importlib.abc.MetaPathFinder):
    """Finds one module in another file."""

    def __init__(self, module: str, path: Path) -> None:
        self._module, self._path = module, path

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Only that module."""
        return importlib.util.spec_from_file_location(fullname, self._path) if fullname == self._module else None


def load(module: str, path: Path) -> None:
    """Have this process import *module* from *path*."""
    assert module not in sys.modules, f"{module} was imported before"
    sys.meta_path.insert(0, Instead(module, path))


def is_loaded(module: str) -> bool:
    """Whether this process runs a copy."""
    return Path(sys.modules[module].__file__ or "").is_relative_to(BUILD)
