"""Run tests against brokers in containers, and prove that they did. By default: the tests that embedded brokers cannot
stand for.

The proof comes from the engine's own event stream, not from the tests: how many broker containers started, from which
image. Ends with one closing line; fails when a test was skipped, when none ran, or when no broker was started.
"""
from __future__ import annotations

import collections
import os
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import docker
from docker.errors import DockerException

ROOT: Final = Path(__file__).resolve().parent.parent
SECURED: Final = "tests/broker/test_secured_cluster.py"
DIFFERENT: Final = (
    "tests/containers", "tests/broker/test_local_cluster.py",
    f"{SECURED}::test_bad_certificates_are_presented_as_configured",
    f"{SECURED}::test_a_token_that_is_wrong_for_the_listener_is_refused",
    f"{SECURED}::test_a_session_has_the_configured_length_and_is_closed_afterwards",
    f"{SECURED}::test_javas_client_logs_in_with_the_same_files",
    f"{SECURED}::test_every_listener_names_every_broker_and_none_twice",
    f"{SECURED}::test_no_secret_is_in_logs_or_reprs",
    f"{SECURED}::test_a_secured_cluster_takes_settings_leaves_nothing_and_logs_nothing_secret")
"""What depends on the backend: set-up, addresses, files, kills. Other tests send the same requests to the same jars."""
LEFT_TO_NIGHTLY: Final = ("tests/containers/test_flights_demo.py",)
"""Spark's job meets the backend only as an address."""
LABEL: Final = "pyclient"
"""The label that LocalCluster puts on its containers."""


class Outcome(NamedTuple):
    tests: int
    failed: int
    skipped: list[str]

    @property
    def passed(self) -> int:
        return self.tests - self.failed - len(self.skipped)


class Starts:
    """Counts the broker containers that start while the tests run, per image, by listening to the engine."""

    def __init__(self, client: Any) -> None:
        self.images: collections.Counter[str] = collections.Counter()
        self._stream = client.events(decode=True, filters={"type": "container", "event": "start", "label": LABEL})
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for event in self._stream:
            self.images[event["Actor"]["Attributes"].get("image", "unknown image")] += 1

    def close(self) -> None:
        self._stream.close()
        self._listener.join(timeout=10)


def outcome(junit: Path) -> Outcome:
    """Read a JUnit file of pytest; errors of fixtures count as failures."""
    cases = list(ET.parse(junit).getroot().iter("testcase"))
    skipped = [f"{case.get('classname')}.{case.get('name')}" for case in cases if case.find("skipped") is not None]
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    return Outcome(len(cases), failed, skipped)


def connect() -> Any:
    try:
        client = docker.from_env(timeout=30)
        client.ping()
    except (DockerException, OSError) as fault:
        sys.exit(f"no Docker engine answers ({fault}); `bash .ci/docker.sh` installs and starts one")
    return client


def default_tests() -> list[str]:
    """The tests of the closing line when the command names none."""
    return [*DIFFERENT, *(f"--ignore={file}" for file in LEFT_TO_NIGHTLY)]


def run_tests(arguments: Sequence[str]) -> int:
    environment = {**os.environ, "PYCLIENT_BROKERS": "container"}
    environment.pop("PYCLIENT_BOOTSTRAP", None)
    named = [] if any(argument.startswith("tests/") for argument in arguments) else default_tests()
    command = [str(Path(sys.executable).with_name("pytest")), *named, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main(arguments: Sequence[str]) -> None:
    junit = next(Path(argument.partition("=")[2]) for argument in arguments if argument.startswith("--junitxml="))
    junit.unlink(missing_ok=True)
    client = connect()
    engine = f"Docker {client.version()['Version']}"
    starts = Starts(client)
    code = run_tests(arguments)
    starts.close()
    client.close()
    if not junit.exists():
        sys.exit(code or f"pytest wrote no {junit}")
    result = outcome(junit)
    for name in result.skipped:
        print(f"skipped, but nothing may be: {name}")
    images = ", ".join(sorted(starts.images)) or "none"
    print(
        f"test-containers: engine {engine}, image {images}, {starts.images.total()} broker containers started, "
        f"{result.passed} passed, {result.failed} failed, {len(result.skipped)} skipped"
    )
    sys.exit(code or (1 if result.failed or result.skipped or not result.passed or not starts.images else 0))


if __name__ == "__main__":
    main(sys.argv[1:])
