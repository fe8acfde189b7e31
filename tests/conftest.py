"""What holds for every test: where helpers are imported from, which build runs, and which tests run on which brokers.

Helpers are imported by their path from the checkout: ``from tests.reference_codec import ...``.
"""
from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from tests.distribution import Distribution

ROOT: Final = Path(__file__).resolve().parent.parent
PURE: Final = os.environ.get("PYCLIENT_PURE") == "1"
ON_CONTAINERS: Final = os.environ.get("PYCLIENT_BROKERS") == "container"


# --- imports ---------------------------------------------------------------------------------------------------------


def offer_folders_of_the_checkout(*names: str) -> None:
    """Make folders importable that are not installed, without putting the checkout on sys.path.

    (There ``partitioners`` and the other mapped folders would become importable under a second name.)
    """
    for name in names:
        module = ModuleType(name)
        module.__path__ = [str(ROOT / name)]
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__spec__.submodule_search_locations = module.__path__
        sys.modules.setdefault(name, module)


class TwinFinder:
    """Loads the ``.py`` of compiled modules that have a twin, so that debugger and coverage see them (PYCLIENT_PURE=1)."""

    def __init__(self, sources: dict[str, Path]) -> None:
        self.sources = sources

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        source = self.sources.get(name)
        return importlib.util.spec_from_file_location(name, source) if source else None


def twins() -> dict[str, Path]:
    """The compiled modules outside codec and buffers: those two use C memory and have no twin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = project["tool"]["setuptools"].get("ext-modules", [])
    return {
        module["name"]: ROOT / module["sources"][0]
        for module in modules
        if not module["name"].startswith(("pyclient.codec", "pyclient.buffers"))
    }


offer_folders_of_the_checkout("tests", "benchmarks", "examples")
if PURE:
    sys.meta_path.insert(0, TwinFinder(twins()))


# --- what users install ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Distribution:
    """The wheel and sdist of this checkout; one build for all workers of a parallel run."""
    from tests.distribution import built

    base = tmp_path_factory.getbasetemp()
    parallel = hasattr(request.config, "workerinput")
    return built((base.parent if parallel else base) / "distribution")


# --- containers ------------------------------------------------------------------------------------------------------


@functools.cache
def engine_fault() -> str | None:
    """Why containers cannot run here, None when a Docker engine answers."""
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=5)
    except DockerException as fault:
        return f"{fault}".splitlines()[0]
    try:
        client.ping()
    except (DockerException, OSError) as fault:
        return f"{fault}".splitlines()[0]
    finally:
        client.close()
    return None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "embedded: about the embedded JVM itself; left out when brokers are containers")


def pytest_report_header() -> list[str]:
    return [f"pyclient: {'pure Python twins' if PURE else 'compiled'}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out_embedded(config, items)
    containers = [item for item in items if (ROOT / "tests" / "containers") in item.path.parents]
    if not containers or ON_CONTAINERS or engine_fault() is None:
        return
    reason = f"no Docker engine answers ({engine_fault()}); `bash .ci/docker.sh` installs and starts one"
    for item in containers:
        item.add_marker(pytest.mark.skip(reason=reason))


def leave_out_embedded(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect, not skip: what is about the JVM on this machine has no meaning on containers."""
    if not ON_CONTAINERS:
        return
    left_out = [item for item in items if item.get_closest_marker("embedded")]
    items[:] = [item for item in items if not item.get_closest_marker("embedded")]
    config.hook.pytest_deselected(items=left_out)
