"""Forks beside threads that send: `forking_program` says what must hold."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.errors import ClientForkedError
from pyclient.testing import FakeCluster
from tests.forks import fork

FORKS = 40
HANG_S = 20
PROGRAM = Path(__file__).with_name("forking_program.py")


@pytest.mark.parametrize("how", [[], ["transactions"]], ids=["single records", "transactions"])
def test_a_child_that_is_forked_while_records_are_sent_refuses_calls_and_has_its_own_signal_handlers(how: list[str]) -> None:
    done = subprocess.run([sys.executable, PROGRAM, str(FORKS), *how], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == FORKS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("count", [50, 3000], ids=["that fit into the buffer", "that do not"])
def test_a_child_that_is_forked_by_the_values_of_a_bulk_is_refused_and_does_not_wait(fake_cluster: FakeCluster, count: int) -> None:
    """The call began before the fork. It returned deliveries that never ended, or waited for memory."""
    forked: list[int] = []

    def values() -> Iterator[bytes]:
        for number in range(count):
            if number == 20:
                forked.append(fork())
            yield b"%030d" % number

    fake_cluster.create_topic("t")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, transactional_id="x", batch_size=1000, buffer_memory=20_000, linger_ms=60_000) as producer:
        with producer.transaction():
            producer.send("t", b"first")
        producer.begin_transaction()
        accepted = 1
        try:
            deliveries = producer.send_many("t", values(), partition=0)
            if forked == [0] and isinstance(deliveries[-1].exception(0), ClientForkedError):
                accepted = 0
        finally:
            if forked == [0]:
                os._exit(accepted)
        assert wait_for(*forked) == 0
        producer.commit_transaction()
    assert [record.value for record in fake_cluster.records("t")] == [b"first", *(b"%030d" % number for number in range(count))]


def wait_for(child: int) -> int:
    """Its exit code; one that hangs is killed."""
    previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(HANG_S)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
