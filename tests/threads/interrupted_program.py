"""A program whose main thread gets real Ctrl-C signals at random moments inside the client's calls.

Its arguments are ROUNDS SEED [alone].

With ``alone`` each record is sent and awaited alone (linger_ms=0), which the thread does in place of the client's own.

Prints how many came. Fails when a call hangs, a lock stays held, or a record is lost or doubled.
"""
from __future__ import annotations

import faulthandler
import random
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from pyclient import Consumer, Producer, TopicPartition
from pyclient.testing import FakeCluster

T = TypeVar("T")
OWN = __file__
RECORDS = 40
LONGEST_S = 0.003
HANG_S = 120
TP = TopicPartition("numbers", 0)


class Striker:
    """Sends SIGINT to the main thread, once per `arm`, after a random time."""

    def __init__(self, seed: int) -> None:
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
            self._never.wait(self._random.uniform(0, LONGEST_S))
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


def main(rounds: int, seed: int, *, alone: bool) -> None:
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    striker = Striker(seed)
    with FakeCluster(1) as kafka:
        kafka.create_topic("numbers")
        servers = kafka.bootstrap_servers
        with Producer(bootstrap_servers=servers, linger_ms=0 if alone else 1) as producer, Consumer(bootstrap_servers=servers, fetch_max_wait_ms=5) as consumer:
            consumer.assign([TP])
            try:
                for turn in range(rounds):
                    take_turn(striker, kafka, send_alone if alone else send, producer, consumer, range(turn * RECORDS, (turn + 1) * RECORDS))
            finally:
                striker.stop()
    print(striker.interrupts)


def take_turn(striker: Striker, kafka: FakeCluster, send: Callable[[Striker, Producer, range], None], producer: Producer, consumer: Consumer,
              numbers: range) -> None:
    """Send some numbers and read them."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    send(striker, producer, numbers)
    flush(striker, producer)
    stored = [int(record.value or b"") for record in kafka.records("numbers")]
    assert list(dict.fromkeys(stored))[-RECORDS:] == list(numbers)
    begin, end = stored.index(numbers[0]), len(stored)
    assert read(striker, consumer, begin, end) == list(range(begin, end))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), alone="alone" in sys.argv)
