"""The levels of tests: each entry of the table names something that exists, and entries do not overlap."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.levels import EXTENDED, SHARING, is_extended, left_to_nightly, order, together

ROOT = Path(__file__).resolve().parents[3]


def exists(entry: str) -> bool:
    """A folder, a file, or a function of a file."""
    file, _, function = entry.partition("::")
    if not function:
        return (ROOT / file).exists()
    functions = (node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return function in functions


def test_each_entry_names_a_folder_a_file_or_a_function_that_exists() -> None:
    assert [entry for entry in EXTENDED if not exists(entry)] == []


def test_no_entry_is_covered_by_another() -> None:
    assert [entry for entry in EXTENDED for other in EXTENDED if entry != other and entry.startswith((f"{other}/", f"{other}::"))] == []


def test_a_folder_a_file_and_a_function_cover_their_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.levels.EXTENDED", {"tests/a": "", "tests/b/test_one.py": "", "tests/b/test_two.py::test_slow": ""})
    covered = ["tests/a/test_x.py::test_y", "tests/a/deep/test_x.py::test_y[1]", "tests/b/test_one.py::test_y", "tests/b/test_two.py::test_slow[a::b]",
               "tests/b/test_two.py::TestClass::test_slow"]
    others = ["tests/ab/test_x.py::test_y", "tests/b/test_two.py::test_slower", "tests/b/test_onex.py::test_y"]
    assert [each for each in covered if not is_extended(each)] == []
    assert [each for each in others if is_extended(each)] == []


def test_when_its_time_is_over_ci_leaves_out_no_unit_main_path_or_simulation() -> None:
    extended = [entry for entry in EXTENDED if not left_to_nightly(entry)]
    assert extended
    assert all(entry.startswith(("tests/unit/", "tests/simulation/")) for entry in extended)
    assert left_to_nightly("tests/threads/test_signals.py::test_a")
    assert not left_to_nightly("tests/broker/test_consumer.py::test_a")


def test_workers_begin_with_main_files_on_brokers_and_end_with_what_ci_may_leave_to_nightly() -> None:
    files = {"tests/fuzz/test_c.py": "", "tests/interop/test_e.py": "one", "tests/interop/test_f.py": "three",
             "tests/broker/test_failover.py": "three", "tests/unit/test_avro.py": "", "tests/test_readme.py": "",
             "tests/simulation/test_seeds.py": "", "tests/broker/test_b.py": "three", "tests/broker/test_d.py": "one"}
    assert sorted(files, key=lambda file: order(file, files[file])) == [
        "tests/broker/test_d.py", "tests/broker/test_b.py", "tests/test_readme.py", "tests/simulation/test_seeds.py",
        "tests/unit/test_avro.py", "tests/broker/test_failover.py", "tests/interop/test_e.py", "tests/interop/test_f.py",
        "tests/fuzz/test_c.py"]


def test_files_that_share_expensive_clusters_run_in_one_worker_and_each_other_file_alone() -> None:
    assert all((ROOT / file).exists() for file in SHARING)
    assert together("tests/broker/test_failover.py::test_a[1]") == together("tests/broker/test_admin_replicas.py::test_b")
    assert together("tests/broker/test_failover.py::test_a") != together("tests/broker/test_secure_refusals.py::test_b")
    assert together("tests/unit/ci/test_levels.py::test_a[x::y]") == "tests/unit/ci/test_levels.py"
