"""`ExactlyOnce` in worker processes that are killed: each input has one committed output."""
from __future__ import annotations

import subprocess
import sys
from collections import Counter
from random import Random

from pyclient import Consumer, Producer
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, read
from tests.waiting import eventually

INPUTS = 3000
KILLS = 4
WORKER = """
import sys
from pyclient import Consumer, Producer, Record
from pyclient.processing import ExactlyOnce, Output

servers, source, target, name = sys.argv[1:]
consumer = Consumer(topics=[source], group_id=source, group_instance_id=name, enable_auto_commit=False, isolation_level="read_committed",
                    auto_offset_reset="earliest", max_poll_records=5, session_timeout_ms=6000, bootstrap_servers=servers)
producer = Producer(transactional_id=f"{source}-{name}", bootstrap_servers=servers)
with consumer, producer:
    ExactlyOnce(consumer, producer, lambda record: Output(target, record.value)).run()
"""


def test_workers_that_are_killed_leave_each_input_with_one_output(kafka_cluster: LocalCluster, topic: str) -> None:
    target, random = f"{topic}-out", Random(1)
    sources = make_topic(kafka_cluster, topic, 4)
    partitions = make_topic(kafka_cluster, target, 2)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        for number in range(INPUTS):
            producer.send(topic, b"%d" % number, partition=number % 4)

    def start(name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", WORKER, kafka_cluster.bootstrap_servers, topic, target, name])

    workers = {name: start(name) for name in ("one", "two")}
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=topic) as observer:
        try:
            for kill in range(1, KILLS + 1):
                eventually(lambda kill=kill: sum(observer.end_offsets(partitions).values()) >= kill * INPUTS // (KILLS + 2), limit_s=120)  # type: ignore[misc]
                name = random.choice(list(workers))
                workers[name].kill()
                workers[name].wait()
                workers[name] = start(name)
            eventually(lambda: sum(each.offset for each in observer.committed(sources).values() if each is not None) == INPUTS, limit_s=120)
        finally:
            for each in workers.values():
                each.kill()
                each.wait()
    found = Counter(int(record.value or b"") for record in read(kafka_cluster, partitions, INPUTS, isolation_level="read_committed"))
    assert found == Counter(range(INPUTS))
