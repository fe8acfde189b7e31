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

HEAVY = ("pyarrow", "pandas", "hypothesis", "kio", "asyncio", "pyclient.consumer.facade", "pyclient.producer.facade", "pyclient.admin.facade")
SPARK = "pyclient.integration.spark"
DECLARED = ("pyclient.config.admin", "pyclient.config.consumer", "pyclient.config.producer")
NEVER = ("pandas", "hypothesis", "importlib.metadata._adapters")
"""The last one parses e-mails, which only names of plugins need."""
LEFT_OUT = {
    "datasource": (*HEAVY, *NEVER, *DECLARED),
    "options": (*HEAVY, *NEVER, *DECLARED),
    "source": (*HEAVY, *NEVER, *DECLARED),  # in the process that plans a stream, and the one that checks options
    "sink": (*HEAVY, *NEVER, *DECLARED),
    "topics": (*NEVER, "pyarrow", "crc32c", "pyclient.config.producer", "pyclient.consumer.facade", "pyclient.producer.facade"),
    "reading": ("pandas", "hypothesis", "pyclient.config.producer", "pyclient.producer.facade", "pyclient.admin.facade"),
    "rows": (*NEVER, "pyclient.config.consumer", "pyclient.consumer.facade", "pyclient.producer.facade", "pyclient.admin.facade"),
}
"""What each module of ours must not load: Spark starts several processes for a query, and each pays for its imports."""


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
    assert loaded("pyspark_pyclient", HEAVY) == []


@pytest.mark.parametrize("module", LEFT_OUT)
def test_a_process_of_spark_loads_only_the_clients_it_opens(module: str) -> None:
    assert loaded(f"{SPARK}.{module}", LEFT_OUT[module]) == []


def test_a_task_returns_what_it_has_written_without_pandas() -> None:
    program = ("import sys, pyarrow as pa; from pyclient.integration.spark.columns import one_row;"
               " batch = one_row({'slot': pa.int32(), 'rows': pa.int64(), 'written': pa.bool_(), 'skipped': pa.bool_()}, 7, -(1 << 40), True, False);"
               " print('pandas' in sys.modules, batch.to_pylist())")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True).stdout.strip()
    assert found == f"False {[{'slot': 7, 'rows': -(1 << 40), 'written': True, 'skipped': False}]}"


def loaded(module: str, those: tuple[str, ...]) -> list[str]:
    """Which of *those* are there after *module* was imported."""
    program = f"import sys, {module}; print(*[name for name in {those} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True).stdout.split()
