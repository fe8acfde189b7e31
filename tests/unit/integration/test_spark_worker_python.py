"""Spark's processes on one machine start Python without the archive that is compiled at each start."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import pyspark
import pytest

from pyclient.integration.spark import java_home, worker_python

HOME = Path(pyspark.__file__).parent
ARCHIVE, CORE = f"{HOME}/python/lib/pyspark.zip", f"{HOME}/jars/spark-core_2.13-4.3.0.jar"
ASKED = "import json, os, sys; print(json.dumps([sys.executable, sys.argv[1:], os.environ['PYTHONPATH']]))"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYCLIENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def started(path: Sequence[str], *arguments: str, python: Path | None = None) -> tuple[str, list[str], list[str]]:
    """What a process sees that Spark starts with that ``PYTHONPATH``: its Python, arguments and path."""
    script = python or worker_python.local_python()
    answer = subprocess.run([script, "-c", ASKED, *arguments], env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, capture_output=True, text=True, timeout=60, check=True)
    executable, given, seen = json.loads(answer.stdout)
    return executable, given, seen.split(os.pathsep)


def test_sparks_archive_and_its_jar_are_taken_off_the_path() -> None:
    assert started([ARCHIVE, "/a", CORE, "/b"])[2] == ["/a", "/b"]


def test_everything_else_stays_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "a.zip").touch()  # what a shell would put in place of the pattern
    kept = ["/elsewhere/pyspark.zip", "/with a space", f"{tmp_path}/*.zip", f"{HOME}/python/lib/py4j-0.10.9.9-src.zip", f"{HOME}/jars/other.jar"]
    assert started(kept)[2] == kept


def test_the_process_is_this_python_and_gets_its_arguments_unchanged() -> None:
    odd = ["a b", "", "$HOME `id` 'q' \"d\"", "*", "x:y"]
    assert started([ARCHIVE], *odd)[:2] == (sys.executable, odd)


def test_a_folder_with_an_odd_name_is_matched_literally(tmp_path: Path) -> None:
    home = tmp_path / "odd name's [x]*"
    script = worker_python.executable("python", worker_python._script([home], Path(sys.executable)))
    assert started([f"{home}/python/lib/pyspark.zip", "/a", f"{home}/jars/spark-core_2.13-4.2.0.jar", "/b"], python=script)[2] == ["/a", "/b"]


def test_the_script_lies_in_the_cache_and_is_written_once(own_cache: Path) -> None:
    first = worker_python.local_python()
    written = first.stat().st_mtime_ns
    assert first.is_relative_to(own_cache.resolve())
    assert worker_python.local_python() == first
    assert first.stat().st_mtime_ns == written


def test_a_pyspark_that_only_this_process_would_find_keeps_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder was put on ``sys.path`` by the program."""
    package = tmp_path / "pyspark" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: ModuleSpec("pyspark", None, origin=str(package)))
    assert worker_python.local_python() == Path(sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert worker_python.local_python() != Path(sys.executable)


@pytest.mark.parametrize("local", [False, True])
def test_only_a_local_spark_gets_the_script(monkeypatch: pytest.MonkeyPatch, local: bool) -> None:
    """On other machines the script does not exist."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    java_home.prepare_environment(local=local)
    wanted = worker_python.local_python() if local else Path(sys.executable)
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == str(wanted)
