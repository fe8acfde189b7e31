"""``python -m pyclient.testing broker --fake`` as a user runs it."""
from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from pyclient import Admin

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
    assert f'Producer(bootstrap_servers="{servers}")' in said


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
