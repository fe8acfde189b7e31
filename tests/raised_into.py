"""Exceptions raised into threads that send, as time limits of dramatiq, stopit and func_timeout do."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import random
import threading
from collections import Counter
from typing import Any

from pyclient import Producer
from pyclient.buffers.delivery import Delivery
from pyclient.errors import IllegalStateError
from tests.waiting import eventually

LONGEST_S = 0.002
HANG_S = 60.0


class TimeLimit(Exception):  # noqa: N818 as theirs
    """As stopit's."""


class Interrupt(BaseException):
    """As dramatiq's and func_timeout's."""


def raise_into(thread: int, error: type[BaseException]) -> None:
    """Raise *error* in another thread, or in this one, at its next step."""
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error)) == 1


def end_transaction(producer: Producer[Any, Any]) -> None:
    """Whatever an exception has left open."""
    for end in (producer.commit_transaction, producer.abort_transaction):
        with contextlib.suppress(IllegalStateError):  # none is open, or the other call was interrupted
            end()


class Sending:
    """A thread that sends numbers, again and again stopped by an exception from outside."""

    def __init__(self, producer: Producer[Any, Any], topic: str, seed: int, *, transactions: bool = False) -> None:
        self.stored: Counter[bytes] = Counter()
        """How often each record was reported as stored."""
        self.failed: dict[bytes, BaseException] = {}
        self.accepted: list[bytes] = []
        """Records whose `send` has returned."""
        self._producer, self._topic, self._random = producer, topic, random.Random(seed)
        self._numbers = itertools.count()
        self._round = self._transact if transactions else self._send
        self._ready = self._over = False
        self._problems: list[BaseException] = []

    def run(self, times: int) -> None:
        """Raise so many exceptions into the thread, each once it has got the last one."""
        pause, chance = threading.Event(), random.Random(times)
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        assert thread.ident is not None
        for _ in range(times):
            eventually(lambda: self._ready or self._problems, HANG_S)
            if self._problems:
                raise self._problems[0]
            pause.wait(chance.uniform(0, LONGEST_S))
            self._ready = False
            raise_into(thread.ident, chance.choice([TimeLimit, Interrupt]))
        eventually(lambda: self._ready, HANG_S)
        self._over = True
        thread.join(HANG_S)
        assert not thread.is_alive()
        assert not self._problems, self._problems

    def check(self, log: list[bytes | None]) -> None:
        """Each outcome was reported once, and is true."""
        found, reported = Counter(log), self.stored + Counter(self.failed)
        assert not (twice := [value for value in reported if reported[value] > 1 or found[value] > 1]), twice
        assert set(self.accepted) <= set(reported)
        assert set(self.stored) <= set(found)
        assert not set(self.failed) & set(found)
        assert set(found) <= set(reported)

    def _work(self) -> None:
        while not self._over:
            try:
                self._ready = True
                while not self._over:
                    self._round()
            except (TimeLimit, Interrupt):
                pass
            except BaseException as error:  # noqa: BLE001 raised by `run`
                self._problems.append(error)
                return

    def _send(self) -> None:
        value = b"%d" % next(self._numbers)
        delivery = self._producer.send(self._topic, value, partition=0, on_delivery=functools.partial(self._report, value))
        self.accepted.append(value)
        if self._random.random() < 0.5:
            delivery.result(HANG_S)

    def _transact(self) -> None:
        end_transaction(self._producer)
        self._producer.begin_transaction()
        for _ in range(3):
            self._send()
        self._producer.commit_transaction()

    def _report(self, value: bytes, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self.stored[value] += 1
        else:
            assert value not in self.failed
            self.failed[value] = error
