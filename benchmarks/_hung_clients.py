"""A producer and a member of a group in a process of its own, and when something of theirs went through.

``python -m benchmarks._hung_clients`` reads a job as a line of JSON, says ``ready`` once records go through and a
commit succeeded, works until the next line, and prints what happened. Times are those of the machine's monotonic clock.
"""
from __future__ import annotations

import contextlib
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import confluent_kafka

from pyclient import Consumer, Producer
from pyclient.errors import KafkaError

PARTITIONS: Final = 2
COMMIT_EVERY_S: Final = 0.2
SETTLE_S: Final = 15.0


class Job(NamedTuple):
    """Which client, where, and with which settings (by Kafka's names)."""

    client: str
    bootstrap: str
    topic: str
    group: str
    rate: float
    producer: Mapping[str, Any]
    consumer: Mapping[str, Any]


class Seen:
    """What went through, and when; one list for each kind of progress."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {"acknowledged": [], "read": [], "committed": []}
        self.failed = 0
        self.again = 0
        self.errors: list[str] = []
        self._next: dict[int, int] = {}

    def note(self, what: str) -> None:
        self.times[what].append(time.monotonic())

    def failure(self, error: object) -> None:
        self.errors.append(f"{time.monotonic():.1f} {error}")

    def delivered(self, error: object) -> None:
        """A record was acknowledged, or failed permanently."""
        if error is None:
            self.note("acknowledged")
        else:
            self.failed += 1

    def read(self, partition: int, offset: int) -> None:
        """A record came; one that had come before is read again."""
        self.again += offset < self._next.get(partition, 0)
        self._next[partition] = max(self._next.get(partition, 0), offset + 1)
        self.note("read")

    @property
    def in_flight(self) -> bool:
        return all(self.times.values())


class Ours:
    """pyclient's producer and consumer."""

    def __init__(self, job: Job, seen: Seen) -> None:
        self._topic, self._seen = job.topic, seen
        access = {"bootstrap.servers": job.bootstrap}
        self._producer = Producer({**access, **job.producer})
        self._consumer = Consumer({**access, **job.consumer, "group.id": job.group, "auto.offset.reset": "earliest", "enable.auto.commit": False})

    def send(self, value: bytes, partition: int) -> None:
        self._producer.send(self._topic, value, partition=partition, on_delivery=lambda each: self._seen.delivered(each.exception()))

    def subscribe(self) -> None:
        self._consumer.subscribe([self._topic])

    def poll(self) -> None:
        for record in self._consumer.poll(0.1):
            self._seen.read(record.partition, record.offset)

    def commit(self) -> None:
        self._consumer.commit()

    def close_producer(self) -> None:
        self._producer.close(timeout=SETTLE_S)

    def close_consumer(self) -> None:
        self._consumer.close()


class Confluents:
    """The same of confluent-kafka."""

    def __init__(self, job: Job, seen: Seen) -> None:
        self._topic, self._seen = job.topic, seen
        access = {"bootstrap.servers": job.bootstrap}
        self._producer = confluent_kafka.Producer({**access, **job.producer})
        self._consumer = confluent_kafka.Consumer({**access, **job.consumer, "group.id": job.group, "auto.offset.reset": "earliest", "enable.auto.commit": False})

    def send(self, value: bytes, partition: int) -> None:
        self._producer.produce(self._topic, value, partition=partition, on_delivery=lambda error, _: self._seen.delivered(error))
        self._producer.poll(0)

    def subscribe(self) -> None:
        self._consumer.subscribe([self._topic])

    def poll(self) -> None:
        for record in self._consumer.consume(500, 0.1):
            if record.error() is None:
                self._seen.read(record.partition() or 0, record.offset() or 0)

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close_producer(self) -> None:
        self._producer.flush(SETTLE_S)

    def close_consumer(self) -> None:
        self._consumer.close()


CLIENTS: Final[Mapping[str, Callable[[Job, Seen], Ours | Confluents]]] = {"pyclient": Ours, "confluent": Confluents}
REFUSED: Final = (KafkaError, confluent_kafka.KafkaException, RuntimeError)


def produce(client: Ours | Confluents, seen: Seen, rate: float, stop: threading.Event) -> None:
    """Offer records at a rate, to the partitions in turns."""
    began = time.monotonic()
    for number in itertools.count():
        if stop.wait(max(0.0, began + number / rate - time.monotonic())):
            break
        try:
            client.send(b"%d" % number, number % PARTITIONS)
        except (*REFUSED, BufferError) as error:
            seen.failed += 1
            seen.failure(error)
    client.close_producer()


def consume(client: Ours | Confluents, seen: Seen, stop: threading.Event) -> None:
    """Read, and commit several times a second, each time waiting for the answer."""
    client.subscribe()
    covered, commit_at = 0, 0.0
    while not stop.is_set():
        try:
            client.poll()
            if len(seen.times["read"]) > covered and time.monotonic() >= commit_at:
                covered, commit_at = len(seen.times["read"]), time.monotonic() + COMMIT_EVERY_S
                client.commit()
                seen.note("committed")
        except REFUSED as error:
            seen.failure(f"{type(error).__name__}: {error}")
    with contextlib.suppress(*REFUSED):
        client.close_consumer()


def main() -> None:
    """One job."""
    job = Job(**json.loads(sys.stdin.readline()))
    seen, stop = Seen(), threading.Event()
    client = CLIENTS[job.client](job, seen)
    threads = [threading.Thread(target=produce, args=(client, seen, job.rate, stop)), threading.Thread(target=consume, args=(client, seen, stop))]
    for thread in threads:
        thread.start()
    while not seen.in_flight:
        time.sleep(0.05)
    print("ready", flush=True)
    sys.stdin.readline()
    stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"times": seen.times, "failed": seen.failed, "again": seen.again, "errors": seen.errors}), flush=True)


if __name__ == "__main__":
    main()
