"""``python -m pyclient.testing broker --fake`` as a user runs it."""
from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys

import pytest

from pyclient import Admin
from pyclient.testing import FakeCluster
from tests.addresses import unused_address

COMMAND = [sys.executable, "-m", "pyclient.testing", "broker", "--fake"]


def test_it_serves_the_requested_topics_until_ctrl_c() -> None:
    with subprocess.Popen([*COMMAND, "--brokers", "3", "--topic", "orders:4", "--topic", "bills"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name, _, servers = process.stdout.readline().strip().partition("=")
        assert (name, servers.count(",")) == ("bootstrap.servers", 2)
        with Admin(bootstrap_servers=servers) as admin:
            topics = admin.describe_topics(["orders", "bills"])
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert {each: len(topics[each].partitions) for each in topics} == {"orders": 4, "bills": 1}
    assert process.returncode == 0, said
    assert f'KAFKA = {{\n    "bootstrap.servers": "{servers}",\n}}\nproducer = Producer(KAFKA)\n' in said


@pytest.mark.parametrize(("options", "reason"), [
    (["--config", "no.such=1"], "'no.such' is no setting of a fake cluster"),
    (["--topic", "a/b"], "topic name"),
    (["--brokers", "0"], "at least one"),
])
def test_a_mistake_is_explained_in_one_line(options: list[str], reason: str) -> None:
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_it_takes_the_port_it_is_asked_for_and_says_when_that_is_taken() -> None:
    address = unused_address()
    with subprocess.Popen([*COMMAND, "--port", str(address.port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == f"bootstrap.servers={address}"
        second = subprocess.run([*COMMAND, "--port", str(address.port)], capture_output=True, text=True, timeout=30, check=False)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert second.returncode == 1
    assert f"--port {address.port} cannot be used: process {process.pid} (" in second.stderr


def test_without_port_it_takes_9092_or_another_one_when_that_is_taken() -> None:
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.enter_context(socket.create_server(("127.0.0.1", 9092)))
        with FakeCluster(port=9092) as cluster:
            assert not cluster.bootstrap_servers.endswith(":9092")
