"""A group of consumers in processes of their own, some of which are killed, and the records that they processed."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pyclient import TopicPartition
from pyclient.testing import LocalCluster
from tests.broker.durability import member
from tests.broker.durability.numbering import Found
from tests.broker.durability.processes import Member, Processes, reading
from tests.kafka import consumer


class Readers:
    """Members that commit by hand and automatically, sync and async, in turn."""

    def __init__(self, cluster: LocalCluster, topic: str, strategy: str, processes: Processes) -> None:
        self.topic, self.processes = topic, processes
        self._cluster = cluster
        self._running: list[Member] = []
        self._options = reading(cluster.bootstrap_servers, topic, strategy) | {"max_poll_records": 2000, "auto_commit_interval_ms": 500}

    def begin(self) -> None:
        """One more member."""
        number = self.processes.count
        manual = number % 2 == 0
        self._running.append(self.processes.start({
            "file": str(self.processes.folder / f"{number}.done"), "manual": manual, "use_async": number % 3 == 2,
            "options": {**self._options, "enable_auto_commit": not manual}}))

    def kill(self) -> None:
        """Kill the oldest member and start a new one."""
        self.processes.kill(self._running.pop(0))
        self.begin()

    def end(self) -> None:
        """All members leave the group and end."""
        self.processes.end(self._running)

    def all_committed(self, partitions: list[TopicPartition]) -> bool:
        """Whether the group has committed everything there is."""
        with consumer(self._cluster, group_id=self.topic, enable_auto_commit=False) as looker:
            committed = looker.committed(partitions)
            return {tp: found.offset if found else 0 for tp, found in committed.items()} == looker.end_offsets(partitions)

    def found(self) -> tuple[int, Iterator[Found]]:
        """How often records were read, and each of them once, in order of the partitions and offsets."""
        lines: dict[int, set[tuple[int, bytes]]] = {}
        count = 0
        for file in self.processes.folder.glob("*.done"):
            for line in file.read_bytes().split(b"\n")[:-1]:  # of one that was killed the last may be half a line
                partition, offset, value = line.split(b" ", 2)
                lines.setdefault(int(partition), set()).add((int(offset), value))
                count += 1
        return count, (Found(partition, offset, value) for partition in sorted(lines) for offset, value in sorted(lines[partition]))


@contextlib.contextmanager
def readers(cluster: LocalCluster, topic: str, folder: Path, strategy: str, members: int) -> Iterator[Readers]:
    """A group of *members* that reads in the block."""
    with Processes(member.__name__, folder) as processes:
        group = Readers(cluster, topic, strategy, processes)
        for _ in range(members):
            group.begin()
        yield group
        group.end()
