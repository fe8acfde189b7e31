"""Threads of one process: a producer that they share, and consumers of their own. Run it with and without a GIL.

It measures the interpreter that runs it: ``python -m benchmarks.threads`` with each that is to be compared, in turn,
and ``PYCLIENT_BOOTSTRAP`` set to the same broker. Values have 100 bytes; a figure is the median of the rounds: records
a second of all threads together, and CPU of the process for a record.
"""
from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition

RECORDS: Final = 1_600_000
"""Of all threads of a round."""
VALUE: Final = b"x" * 100
THREADS: Final = (1, 2)


@contextmanager
def broker() -> Iterator[str]:
    """The address of the running broker that was named, else of a new one."""
    if given := os.environ.get("PYCLIENT_BOOTSTRAP"):
        yield given
        return
    from pyclient.testing import LocalCluster

    with LocalCluster() as made:
        yield made.bootstrap_servers


class Figure(NamedTuple):
    """Of one round."""

    rate: float
    """Records a second."""
    cpu_us: float
    """CPU of the process for a record, microseconds."""


def measured(threads: int, work: Callable[[int], object]) -> Figure:
    """What so many threads do with ``work(number)``, all begun at once."""
    gate = threading.Barrier(threads + 1)

    def run(number: int) -> None:
        gate.wait()
        work(number)
        gate.wait()

    for number in range(threads):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    gate.wait()
    began, cpu = time.perf_counter(), time.process_time()
    gate.wait()
    return Figure(RECORDS / (time.perf_counter() - began), (time.process_time() - cpu) / RECORDS * 1e6)


def produce(servers: str, topic: str, threads: int) -> Figure:
    """Until all are acknowledged."""
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_and_wait(topic, VALUE, partition=0)

        def send(number: int) -> None:
            for _ in range(RECORDS // threads):
                producer.send(topic, VALUE, partition=number)
            producer.flush()

        return measured(threads, send)


def consume(servers: str, topic: str, threads: int) -> Figure:
    """Each thread has a consumer, reads a partition of its own and looks at every value."""
    consumers = [Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") for _ in range(threads)]

    def read(number: int) -> None:
        left = RECORDS // threads
        consumers[number].assign([TopicPartition(topic, number)])
        while left > 0:
            for record in consumers[number].poll(5.0):
                left -= len(record.value or b"") == len(VALUE)

    try:
        return measured(threads, read)
    finally:
        for consumer in consumers:
            consumer.close()


def has_gil() -> bool:
    """Whether one is enabled."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """As every benchmark."""
    parser.add_argument("--rounds", type=int, default=3)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """As every benchmark."""
    figures: dict[str, list[Figure]] = {}
    with broker() as servers, Admin(bootstrap_servers=servers) as admin:
        for number in range(arguments.rounds):
            for threads in THREADS:
                topic = f"threads-{os.getpid()}-{number}-{threads}"
                admin.create_topics([NewTopic(topic, partitions=max(THREADS))])
                figures.setdefault(f"produce, {threads}", []).append(produce(servers, topic, threads))
                figures.setdefault(f"consume, {threads}", []).append(consume(servers, topic, threads))
                admin.delete_topics([topic])
    print(f"Python {sys.version.split()[0]}, {'with' if has_gil() else 'without'} a GIL, load {os.getloadavg()[0]:.0f}")
    for name, found in figures.items():
        rate, cpu_us = map(statistics.median, zip(*found, strict=True))
        print(f"| {name} | {rate:,.0f} | {cpu_us:.3f} |")
    return {"records a second": figures}


if __name__ == "__main__":  # where the packages of the other benchmarks are missing
    options = argparse.ArgumentParser(prog="python -m benchmarks.threads")
    add_arguments(options)
    run(options.parse_args())
