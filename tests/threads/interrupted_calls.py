"""A program whose main thread gets real Ctrl-C signals inside calls that wait for the client, and inside closes.

Its arguments are ROUNDS SEED. Prints how many signals came. Fails when a call hangs, when the call after an interrupted
one does not work, when a record is lost, or when a close leaves a thread of the client behind.
"""
from __future__ import annotations

import faulthandler
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

from pyclient import Admin, Consumer, Producer, TopicPartition
from pyclient.processing import ExactlyOnce, Output
from pyclient.testing import FakeCluster
from tests.threads.interrupted_program import HANG_S, LONGEST_S, TP, Striker
from tests.waiting import eventually

CALLS = 5
"""Per round and kind of call."""
INPUTS = 20


def until_done(striker: Striker, call: Callable[[], object]) -> None:
    """Make a call until it is not broken off, each time with more time for it: it may take long on a busy machine."""
    def done() -> bool:
        call()
        return True

    for attempt in itertools.count():
        striker.longest = LONGEST_S * 1.2 ** attempt
        if striker.call(done):
            return


def take_turn(striker: Striker, kafka: FakeCluster) -> None:
    """Open the three clients, call them, send a record, and close them."""
    servers = kafka.bootstrap_servers
    producer, consumer, admin = Producer(bootstrap_servers=servers), Consumer(bootstrap_servers=servers, group_id="g"), Admin(bootstrap_servers=servers)
    consumer.assign([TP])
    calls: list[Callable[[], Any]] = [
        producer.metrics, lambda: producer.partitions_for("numbers"), lambda: producer.flush(20), consumer.metrics, lambda: consumer.poll(0.001),
        lambda: consumer.end_offsets([TP]), lambda: consumer.commit({TP: 0}), lambda: consumer.commit_async({TP: 0}), lambda: consumer.position(TP),
        admin.metrics, admin.list_topics]
    for call in calls * CALLS:
        until_done(striker, call)
    while (delivery := striker.call(lambda: producer.send("numbers", b"x", partition=0))) is None:
        pass
    until_done(striker, lambda: producer.flush(20))  # a close that is broken off gives up what is not delivered
    for client in (producer, consumer, admin):
        until_done(striker, client.close)
    assert delivery.result(0).offset in [record.offset for record in kafka.records("numbers")]


def take_member_turn(striker: Striker, kafka: FakeCluster, group: str) -> None:
    """As a member of a group: join it, read, commit, change the subscription, and leave."""
    consumer = Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group, auto_offset_reset="earliest", fetch_max_wait_ms=5)
    listener = Listener(consumer)
    until_done(striker, lambda: consumer.subscribe(["numbers"], rebalance_listener=listener))
    found: list[int] = []

    def read() -> None:
        while not found:
            found.extend(record.offset for record in consumer.poll(0.05))

    until_done(striker, read)
    for call in (consumer.commit, consumer.commit_async, lambda: consumer.committed([TP]), lambda: consumer.seek(TP, 0), lambda: consumer.pause(TP),
                 lambda: consumer.resume(TP), consumer.lag, consumer.enforce_rebalance, lambda: consumer.poll(0.01), consumer.unsubscribe,
                 lambda: consumer.subscribe(["numbers"]), lambda: consumer.poll(0.01), consumer.close):
        until_done(striker, call)


class Listener:
    """Uses the consumer, as listeners may."""

    def __init__(self, consumer: Consumer[Any, Any]) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Any) -> None:
        """Asks for each position."""
        for each in partitions:
            self._consumer.position(each)

    def on_partitions_revoked(self, partitions: Any) -> None:
        """Commits."""
        self._consumer.commit()


def process(striker: Striker, kafka: FakeCluster, turn: int) -> None:
    """Copy some records exactly once, with a loop that is broken off and run again."""
    inputs, outputs = f"inputs-{turn}", f"outputs-{turn}"
    for topic in (inputs, outputs):
        kafka.create_topic(topic)
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        producer.send_many(inputs, [b"%d" % number for number in range(INPUTS)])
    options: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": inputs, "auto_offset_reset": "earliest",
                               "enable_auto_commit": False, "isolation_level": "read_committed", "max_poll_records": 4, "fetch_max_wait_ms": 5}
    consumer, producer = Consumer(topics=[inputs], **options), Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=inputs)
    copied: list[bytes | None] = []

    loop = ExactlyOnce(consumer, producer, lambda record: Output(outputs, record.value))

    def stop() -> None:
        eventually(lambda: sum(each.offset for each in kafka.committed(inputs).values()) == INPUTS, HANG_S / 2)
        loop.stop()

    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    until_done(striker, loop.run)
    stopper.join()
    for client in (consumer, producer):
        until_done(striker, client.close)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.assign([TopicPartition(outputs, 0)])
        while len(copied) < INPUTS:
            copied += [record.value for record in reader.poll(1)]
        copied += [record.value for record in reader.poll(0.05)]
    assert copied == [b"%d" % number for number in range(INPUTS)], copied


def main(rounds: int, seed: int) -> None:
    striker = Striker(seed)
    with FakeCluster(1) as kafka:
        kafka.create_topic("numbers")
        before = set(threading.enumerate())
        for turn in range(rounds):
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            take_turn(striker, kafka)
            take_member_turn(striker, kafka, f"members-{turn}")
            process(striker, kafka, turn)
            # Not at once: until Python 3.13 a `join` that Ctrl-C ends counts the thread as ended (bpo-45274).
            eventually(lambda: not [each for each in threading.enumerate() if each not in before and each.name.startswith("pyclient-")], HANG_S / 2)
        striker.stop()
    print(striker.interrupts)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
