"""The folders, the links and the build configuration agree."""
from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.twins import PURE, twins

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
MAPPED = ("assignors", "integration", "partitioners", "serializers")


def folder(package: str) -> Path:
    """Where the build takes *package* from: its own entry of package-dir, or its parent's folder."""
    directories: dict[str, str] = SETUPTOOLS["package-dir"]
    if package in directories:
        return ROOT / directories[package]
    parent, _, name = package.rpartition(".")
    return folder(parent) / name if parent else ROOT / name


def packages_on_disk() -> set[str]:
    """Every folder with an __init__.py, by the name it is imported under."""
    tops = {"pyclient": ROOT / "pyclient", **{f"pyclient.{name}": ROOT / name for name in MAPPED}}
    found = {"pyspark_pyclient"}
    for name, top in tops.items():
        for init in top.rglob("__init__.py"):
            inside = init.parent.relative_to(top).parts
            if not set(inside) & {*MAPPED, "spark_autoload"}:
                found.add(".".join((name, *inside)))
    return found


def test_every_package_on_disk_is_built_and_every_built_one_exists() -> None:
    """An unlisted subpackage would be silently missing from the wheel."""
    assert set(SETUPTOOLS["packages"]) == packages_on_disk()


@pytest.mark.parametrize("name", MAPPED)
def test_the_link_shows_tools_the_folder_that_is_built(name: str) -> None:
    link = ROOT / "pyclient" / name
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{name}"
    assert link.resolve() == folder(f"pyclient.{name}")


@pytest.mark.parametrize("name", MAPPED)
def test_no_mapped_folder_is_importable_under_a_second_name(name: str) -> None:
    assert importlib.util.find_spec(name) is None


@pytest.mark.parametrize("name", ["pyclient", *(f"pyclient.{name}" for name in MAPPED)])
def test_the_editable_install_works_from_elsewhere(name: str, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"import {name} as module; print(module.__file__)"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )
    assert Path(found.stdout.strip()).resolve() == (folder(name) / "__init__.py").resolve()


def test_a_checker_in_another_project_sees_the_types_with_the_checkout_on_its_path(tmp_path: Path) -> None:
    """An editable install is an import hook, which type checkers do not run; the links let them read the checkout."""
    user = tmp_path / "user.py"
    user.write_text("from pyclient.records import TopicPartition\nreveal_type(TopicPartition('t', 0).partition)\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(user)],
        cwd=tmp_path, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )
    assert 'Revealed type is "int"' in checked.stdout.replace("builtins.", ""), checked.stdout + checked.stderr


def test_each_compiled_module_has_its_source_where_the_build_looks() -> None:
    for module in SETUPTOOLS.get("ext-modules", []):
        package, _, name = module["name"].rpartition(".")
        assert ROOT / module["sources"][0] == folder(package) / f"{name}.py", module["name"]
        assert module["extra-compile-args"] == ["-O3", "-g0"], module["name"]


def test_each_compiled_module_says_that_it_needs_no_GIL() -> None:
    """Else a free-threaded interpreter takes the GIL back for the whole process. Cython reads the first lines."""
    for module in SETUPTOOLS["ext-modules"]:
        directives = itertools.takewhile(lambda line: line.startswith("#"), (ROOT / module["sources"][0]).read_text().splitlines())
        assert any(line.startswith("# cython:") and "freethreading_compatible=True" in line for line in directives), module["name"]


def test_each_compiled_module_runs_as_what_was_asked_for() -> None:
    """The binary; with PYCLIENT_PURE=1 the twin of those that have one. Else figures and tests would be about the
    other."""
    for module in SETUPTOOLS.get("ext-modules", []):
        name = module["name"]
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        assert spec.origin is not None, name
        assert spec.origin.endswith(".py") == (PURE and name in twins()), f"{name} runs from {spec.origin}; run `make setup`"
