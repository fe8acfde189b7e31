"""Spark finds the format automatically: its package is there, and imports little. (The README's test does it with the
wheel.)"""
from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from typing import Any

import pytest

from pyclient.integration.spark import PyclientDataSource

HEAVY = ("pyarrow", "pandas", "pyclient.consumer.facade", "pyclient.producer.facade")


@pytest.fixture
def found() -> Any:
    """What Spark takes from the module."""
    return importlib.import_module("pyspark_pyclient").DefaultSource


def test_the_class_that_spark_looks_for_is_the_format(found: Any) -> None:
    assert issubclass(found, PyclientDataSource)
    assert found.name() == "pyclient"


def test_the_class_travels_by_name(found: Any) -> None:
    """Spark pickles it in one process and uses it in others."""
    assert pickle.loads(pickle.dumps(found)) is found


def test_looking_for_formats_loads_nothing_heavy() -> None:
    """Every process that looks for formats imports it: it must be quick, and not fail where pyarrow is missing."""
    program = f"import sys, pyspark_pyclient; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
