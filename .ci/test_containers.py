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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import DockerException
from junit import ROOT, cases_of

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
NOT_PROVED: Final = 2
"""Stands in the file of pytest's exit code in place of it: a second try of failed tests cannot excuse this run."""
LABEL: Final = "pyclient"
"""The label that LocalCluster puts on its containers."""


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
    found = list(cases_of(junit))
    skipped = [case for case in found if case.outcome == "skipped"]
    for case in skipped:
        print(f"skipped, but nothing may be: {case}")
    images = ", ".join(sorted(starts.images)) or "none"
    passed, failed = (sum(case.outcome == outcome for case in found) for outcome in ("passed", "failed"))
    print(
        f"test-containers: engine {engine}, image {images}, {starts.images.total()} broker containers started, "
        f"{passed} passed, {failed} failed, {len(skipped)} skipped"
    )
    proved = passed and not skipped and starts.images
    if not proved:
        junit.with_suffix(".exit").write_text(str(NOT_PROVED))
    sys.exit(code or (0 if proved and not failed else 1))


if __name__ == "__main__":
    main(sys.argv[1:])
