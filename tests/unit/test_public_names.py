"""The names users import: all there, and none loaded before it is used."""
from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import pyclient
import pyclient.testing
from pyclient.net.connect import CLIENT_INFO


@pytest.mark.parametrize("module", [pyclient, pyclient.testing])
def test_every_public_name_loads_and_is_listed(module: object) -> None:
    names: list[str] = module.__all__  # type: ignore[attr-defined]  # a module
    assert {getattr(module, name).__name__ for name in names} == set(names)
    assert set(names) <= set(dir(module))


@pytest.mark.parametrize("module", [pyclient, pyclient.testing])
def test_an_unknown_name_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = module.Nonsense  # type: ignore[attr-defined]  # that is the point


def test_the_package_and_its_pytest_plugin_load_nothing_of_the_client() -> None:
    program = "import sys, pyclient, pyclient.testing.pytest_plugin; print(*(n for n in sys.modules if n.startswith(('pyclient', 'kio', 'docker'))))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(loaded) == ["pyclient", "pyclient.testing", "pyclient.testing.pytest_plugin"]


def test_the_version_brokers_see_is_the_one_of_the_package() -> None:
    assert (pyclient.__version__, CLIENT_INFO.version) == (importlib.metadata.version("pyclient-kafka"),) * 2
