"""A program whose main thread gets real Ctrl-C signals at random moments inside the client's calls.

Its arguments are ROUNDS SEED [alone|transactions|full].

With ``alone`` each record is sent and awaited alone (linger_ms=0); with ``transactions`` each is aborted and then
committed, and must be there exactly once; with ``full`` several are, which fill batches that leave before the commit.

Prints how many came. Fails when a call hangs, a lock stays held, or a record is lost or doubled.
"""
from __future__ import annotations

import contextlib
import faulthandler
import functools
import random
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from pyclient import Consumer, Producer, TopicPartition
from pyclient.errors import IllegalStateError
from pyclient.testing import FakeCluster

T = TypeVar("T")
OWN = __file__
RECORDS = 40
LONGEST_S = 0.003
HANG_S = 120
FULL = 8
PADDING = b" " * 300
"""Of values that fill a batch of a kilobyte soon."""
TP = TopicPartition("numbers", 0)


class Striker:
    """Sends SIGINT to the main thread, once per `arm`, after a random time."""

    def __init__(self, seed: int) -> None:
        self.longest = LONGEST_S
        """Seconds after which a call is broken off at the latest."""
        self.interrupts = 0
        self._counts = False
        """Whether a call of the client is under way."""
        self._random = random.Random(seed)
        self._armed = threading.Event()
        self._never = threading.Event()
        signal.signal(signal.SIGINT, self._handle)
        threading.Thread(target=self._strike, args=(threading.get_ident(),), daemon=True).start()

    def call(self, function: Callable[[], T]) -> T | None:
        """Call *function* with a signal on its way; None when that broke it off."""
        self._armed.set()
        self._counts = True
        try:
            return function()
        except KeyboardInterrupt:
            return None
        finally:
            self._counts = False

    def stop(self) -> None:
        """No signal counts from now on."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _strike(self, main: int) -> None:
        while True:
            self._armed.wait()
            self._armed.clear()
            self._never.wait(self._random.uniform(0, self.longest))
            signal.pthread_kill(main, signal.SIGINT)

    def _handle(self, _number: int, frame: FrameType | None) -> None:
        """As Python's own handler, but not between the lines of this program, which would lose what a call returned."""
        if self._counts and frame is not None and frame.f_code.co_filename != OWN:
            self.interrupts += 1
            raise KeyboardInterrupt


def send(striker: Striker, producer: Producer, numbers: range) -> None:
    """Send these numbers, each until its call is not broken off; what was accepted before is doubled then."""
    for number in numbers:
        while striker.call(lambda number=number: producer.send("numbers", b"%d" % number, partition=0)) is None:  # type: ignore[misc]
            pass


def send_alone(striker: Striker, producer: Producer, numbers: range) -> None:
    """Send these numbers, and wait for each, until that is not broken off."""
    for number in numbers:
        while (delivery := striker.call(lambda number=number: producer.send("numbers", b"%d" % number, partition=0))) is None:  # type: ignore[misc]
            pass
        while striker.call(lambda delivery=delivery: delivery.result(20)) is None:  # type: ignore[misc]
            pass


def transact(striker: Striker, producer: Producer, numbers: range, together: int = 1) -> None:
    """Commit each of these numbers once, and abort as many, so many *together*, each call until it is not broken off.
    """
    for first in numbers[::together]:
        for end in (producer.abort_transaction, producer.commit_transaction):
            settle(striker, producer.begin_transaction)
            while not accepted(striker, producer, range(first, first + together)):
                settle(striker, producer.abort_transaction)
                settle(striker, producer.begin_transaction)
            settle(striker, end)


def accepted(striker: Striker, producer: Producer, numbers: range) -> bool:
    """Whether no `send` of these numbers was broken off, so that each is in the transaction once."""
    padding = PADDING if len(numbers) > 1 else b""
    return all(striker.call(lambda number=number: producer.send("numbers", b"%d" % number + padding, partition=0)) is not None  # type: ignore[misc]
               for number in numbers)


def settle(striker: Striker, call: Callable[[], object]) -> None:
    """Make a call until it is not broken off, or is refused: what was broken off has happened."""
    def settled() -> bool:
        with contextlib.suppress(IllegalStateError):
            call()
        return True

    while not striker.call(settled):
        pass


def flush(striker: Striker, producer: Producer) -> None:
    """Flush until that is not broken off."""
    def flushed() -> bool:
        producer.flush(20)
        return True

    while not striker.call(flushed):
        pass


def read(striker: Striker, consumer: Consumer, begin: int, end: int) -> list[int]:
    """The offsets that polls return, from *begin* to before *end*."""
    offsets: list[int] = []
    consumer.seek(TP, begin)
    while not offsets or offsets[-1] + 1 < end:
        offsets += [record.offset for record in striker.call(lambda: consumer.poll(0.05)) or ()]
    return offsets


def main(rounds: int, seed: int, how: str) -> None:
    ways: dict[str, dict[str, Any]] = {
        "": {}, "alone": {"linger_ms": 0}, "transactions": {"transactional_id": "numbers"}, "full": {"transactional_id": "numbers", "batch_size": 1000}}
    options = ways[how]
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    striker = Striker(seed)
    with FakeCluster(1) as kafka:
        kafka.create_topic("numbers")
        servers = kafka.bootstrap_servers
        with Producer(bootstrap_servers=servers, **options) as producer, Consumer(bootstrap_servers=servers, fetch_max_wait_ms=5) as consumer:
            if how in TRANSACTIONAL:
                producer.init_transactions()
            consumer.assign([TP])
            try:
                for turn in range(rounds):
                    take_turn(striker, kafka, how, producer, consumer, range(turn * RECORDS, (turn + 1) * RECORDS))
            finally:
                striker.stop()
    print(striker.interrupts)


def take_turn(striker: Striker, kafka: FakeCluster, how: str, producer: Producer, consumer: Consumer, numbers: range) -> None:
    """Send some numbers and read them."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    WAYS[how](striker, producer, numbers)
    flush(striker, producer)
    stored = [int(record.value or b"") for record in kafka.records("numbers")]
    if how in TRANSACTIONAL:
        assert stored == list(range(numbers.stop))
        return
    assert list(dict.fromkeys(stored))[-RECORDS:] == list(numbers)
    begin, end = stored.index(numbers[0]), len(stored)
    assert read(striker, consumer, begin, end) == list(range(begin, end))


WAYS: dict[str, Callable[[Striker, Producer, range], None]] = {
    "": send, "alone": send_alone, "transactions": transact, "full": functools.partial(transact, together=FULL)}
TRANSACTIONAL = ("transactions", "full")

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
