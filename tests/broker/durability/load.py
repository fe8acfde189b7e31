"""Producers that offer numbered records at a rate, whatever the brokers do; every Delivery is kept."""
from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from pyclient import Delivery, Producer
from pyclient.errors import DeliveryError
from pyclient.testing import LocalCluster
from tests.broker.durability.numbering import Stream, acknowledged, value

TICK_S: Final = 0.01


class Load:
    """*producers* threads, each with a client of its own, offer *rate* records/s together until they are stopped.

    A sender that had to wait for memory catches up afterwards, so *rate* is what is offered over the whole time.
    """

    def __init__(self, cluster: LocalCluster, topic: str, *, partitions: int, producers: int, rate: float, **options: Any) -> None:
        self.deliveries: dict[Stream, list[Delivery]] = {
            Stream(producer, partition): [] for producer in range(producers) for partition in range(partitions)}
        self.faults: list[BaseException] = []
        self.metrics: list[dict[str, float]] = []
        self._topic, self._partitions, self._rate = topic, partitions, rate / producers
        self._options = {"bootstrap_servers": cluster.bootstrap_servers, **options}
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._guard, args=(each,)) for each in range(producers)]
        self.lasted_s = 0.0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more, and wait until all is settled."""
        self.lasted_s = time.monotonic() - self._began
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def sent(self) -> dict[Stream, int]:
        return {stream: len(deliveries) for stream, deliveries in self.deliveries.items()}

    @property
    def offered(self) -> float:
        """Records per second, after the end."""
        return sum(self.sent.values()) / self.lasted_s

    def acknowledged(self) -> dict[Stream, list[int]]:
        return acknowledged(self.deliveries)

    def progress(self) -> Callable[[], bool]:
        """A condition: a record of each stream that is sent from now on was acknowledged."""
        already = {stream: len(deliveries) for stream, deliveries in self.deliveries.items()}
        return lambda: all(len(deliveries) > already[stream] and deliveries[already[stream]].done() for stream, deliveries in self.deliveries.items())

    def _guard(self, producer: int) -> None:
        try:
            with contextlib.suppress(DeliveryError), Producer(**self._options) as client:  # each Delivery is looked at later
                self._send(client, producer)
                self.metrics.append(client.metrics())
        except BaseException as fault:  # noqa: BLE001 raised in the test
            self.faults.append(fault)

    def _send(self, client: Producer, producer: int) -> None:
        streams = [(stream, deliveries.append, client.send) for stream, deliveries in self.deliveries.items() if stream.producer == producer]
        sent, number = 0, 0
        while not self._stop.wait(TICK_S):
            due = (time.monotonic() - self._began) * self._rate
            while sent < due and not self._stop.is_set():
                for stream, keep, send in streams:
                    keep(send(self._topic, value(stream, number), partition=stream.partition))
                number += 1
                sent += len(streams)


@contextlib.contextmanager
def load(cluster: LocalCluster, topic: str, **options: Any) -> Iterator[Load]:
    """Load that runs in the block and is settled after it; raises its own failures."""
    running = Load(cluster, topic, **options)
    running.start()
    try:
        yield running
    finally:
        running.stop()
    if running.faults:
        raise running.faults[0]
