"""``python -m pyclient.testing`` as a user runs it."""
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.testing.broker_security import LISTENERS
from pyclient.testing.probe import discover
from tests.addresses import unused_address
from tests.kafka import cache_with_jars
from tests.waiting import eventually

COMMAND = [sys.executable, "-m", "pyclient.testing"]


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    command = [*COMMAND, "broker", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            name, _, address = process.stdout.readline().strip().partition("=")
            assert name == "bootstrap.servers"
            host, _, port = address.partition(",")[0].rpartition(":")
            yield process, (host, int(port))
        finally:
            process.kill()


def answers(address: tuple[str, int]) -> bool:
    try:
        return bool(discover([address], timeout_s=0.0))
    except TimeoutError:
        return False


def test_what_a_secured_one_prints_are_the_options_of_a_client(tmp_path: Path) -> None:
    certificate = tmp_path / "ca.pem"
    command = [*COMMAND, "broker", "--secure", "--ca", str(certificate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            options: dict[str, str] = {}
            while "bootstrap.servers" not in options:
                name, _, value = process.stdout.readline().strip().partition("=")
                options[name] = value
            for trusted in (options["ssl.truststore.location"], str(certificate)):
                with Producer({**options, "ssl.truststore.location": trusted}) as producer:
                    producer.send("orders", b"paid").result(30)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert all(f"{kind}: " in said for kind in LISTENERS)
    assert not Path(options["ssl.truststore.location"]).exists(), "the credentials outlive the brokers"


def test_a_secured_fake_is_not_to_be_had_from_the_command_line() -> None:
    done = subprocess.run([*COMMAND, "broker", "--secure", "--fake"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "FakeCluster(tls=..., sasl=...)" in done.stderr) == (1, True)


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_on_the_printed_address_until_it_is_ended_and_exits_with_0(ended_by: signal.Signals) -> None:
    with serving() as (process, address):
        eventually(lambda: answers(address))
        process.send_signal(ended_by)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert f'"bootstrap.servers": "{address[0]}:{address[1]}"' in said
        assert "Traceback" not in said
    assert not answers(address)


def test_nothing_answers_any_more_after_it_was_killed() -> None:
    with serving() as (process, address):
        process.kill()
        eventually(lambda: not answers(address))


def test_of_two_that_want_one_port_at_once_one_serves_and_the_other_says_who_has_it(tmp_path: Path) -> None:
    """Their reservations do not see each other: each has a temporary directory of its own."""
    port = unused_address().port
    command = [*COMMAND, "broker", "--mode", "embedded", "--port", str(port), "--startup-timeout", "300"]
    with contextlib.ExitStack() as both:
        commands = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            process = both.enter_context(subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path / name)}))
            both.callback(process.kill)
            commands.append(process)
        eventually(lambda: any(each.poll() is not None for each in commands), limit_s=400)
        loser, winner = sorted(commands, key=lambda each: each.poll() is None)
        printed, said = loser.communicate()
        assert winner.stdout is not None
        assert winner.stdout.readline() == f"bootstrap.servers=127.0.0.1:{port}\n"
        winner.send_signal(signal.SIGINT)
        winner.communicate(timeout=60)
    assert (loser.returncode, printed) == (1, "")
    _starting, error = said.splitlines()  # and none about the start-up archive, which was not the cause
    assert error.startswith(f"error: --port {port} cannot be used: process ")
    assert "kafka.Kafka" in error


def test_settings_reach_the_broker_and_a_refused_one_is_explained() -> None:
    done = subprocess.run([*COMMAND, "broker", "--config", "num.io.threads=-3"], capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 1
    assert "num.io.threads" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_without_value_is_explained() -> None:
    done = subprocess.run([*COMMAND, "broker", "--config", "oops"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("'oops' is not NAME=VALUE")) == (1, 1)


def test_an_unknown_version_names_the_known_ones() -> None:
    done = subprocess.run([*COMMAND, "broker", "--version", "2.0"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "3.9.1" in done.stderr


@pytest.mark.proof  # `make jars` is this command
@pytest.mark.embedded
def test_prepare_names_java_jars_and_archive_and_is_content_with_what_is_there(tmp_path: Path) -> None:
    own = {**os.environ, "PYCLIENT_CACHE": str(cache_with_jars(tmp_path / "cache"))}  # other tests' brokers make and discard archives
    runs = [subprocess.run([*COMMAND, "prepare"], capture_output=True, text=True, timeout=300, check=False, env=own) for _ in range(2)]
    for done in runs:
        assert done.returncode == 0, done.stderr
        assert "Java " in done.stdout
        assert f"start-up archive: {tmp_path}" in done.stdout
    assert ["creating the start-up archive" in done.stdout for done in runs] == [True, False]
