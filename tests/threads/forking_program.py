"""A program that forks while its threads send single records: FORKS [transactions].

With ``transactions`` they send transactions of some batches.

Prints how many children were well. In a child every call is refused at once and signal handlers are the program's own;
in the parent each record is stored once.
"""
from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import warnings
from typing import Any

from pyclient import Producer
from pyclient.errors import ClientForkedError
from pyclient.testing import FakeCluster

HANG_S = 60
FULL = 8
PADDING = b" " * 300
"""Of the values of transactions: they fill a batch of a kilobyte soon."""


def handler(_number: int, _frame: object) -> None:
    """The program's own."""


def child(producer: Producer) -> int:
    """The exit code of a forked child."""
    try:
        producer.send("numbers", b"from a child")
    except ClientForkedError:
        return 0 if signal.getsignal(signal.SIGTERM) is handler else 2
    return 1


def fork(producer: Producer) -> bool:
    """Whether a child was well."""
    pid = os.fork()
    if not pid:
        code = 3
        try:
            signal.alarm(HANG_S)
            code = child(producer)
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def transact(producer: Producer, first: int) -> int:
    """Commit some numbers from *first* on; returns how many."""
    producer.begin_transaction()
    for number in range(first, first + FULL):
        producer.send("numbers", b"%d" % number + PADDING, partition=0)
    producer.commit_transaction()
    return FULL


def send_alone(producer: Producer, number: int) -> int:
    producer.send("numbers", b"%d" % number, partition=0).result(20)
    return 1


def main(forks: int, how: str) -> None:
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forks beside threads, which are the matter here
    signal.signal(signal.SIGTERM, handler)
    well = sent = 0
    forked = threading.Event()
    with FakeCluster(1) as kafka:
        kafka.create_topic("numbers")
        options: dict[str, Any] = {"transactional_id": "numbers", "batch_size": 1000} if how else {"linger_ms": 0}
        with Producer(bootstrap_servers=kafka.bootstrap_servers, **options) as producer:
            if how:
                producer.init_transactions()

            def send_until_forked() -> None:
                nonlocal sent
                while not forked.is_set():
                    sent += (transact if how else send_alone)(producer, sent)

            def fork_often() -> None:
                nonlocal well
                for _ in range(forks // 2):
                    well += fork(producer)
                forked.set()

            for here, beside in ((send_until_forked, fork_often), (fork_often, send_until_forked)):
                forked.clear()
                thread = threading.Thread(target=beside)
                thread.start()
                here()  # the main thread, which has the program's signal handlers
                thread.join()
        assert [int(record.value or b"") for record in kafka.records("numbers")] == list(range(sent))
    print(well)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
