"""A group of consumers in processes of their own, some of which are killed, and the records that they processed."""
from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pyclient import TopicPartition
from pyclient.testing import LocalCluster
from tests.broker.durability import member
from tests.broker.durability.numbering import Found
from tests.kafka import consumer
from tests.waiting import eventually

LIMIT_S: Final = 120
SESSION_MS: Final = 6000
"""The shortest that brokers allow, by default."""


class Started(NamedTuple):
    """A member's process, and the file of what it reports."""

    process: subprocess.Popen[bytes]
    reported: Path

    def handles_signals(self) -> bool:
        """Whether SIGTERM lets it leave the group; before, it would end the process at once."""
        return self.reported.read_text().startswith(member.RUNNING)


class Readers:
    """Members that commit by hand and automatically, sync and async, in turn."""

    def __init__(self, cluster: LocalCluster, topic: str, folder: Path, strategy: str) -> None:
        self.topic = topic
        self.killed = 0
        self._cluster = cluster
        self._folder = folder
        self._running: list[Started] = []
        self._numbers = itertools.count()
        self._options = {
            "bootstrap_servers": cluster.bootstrap_servers, "group_id": topic, "topics": [topic], "auto_offset_reset": "earliest",
            "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 500, "max_poll_records": 2000, "request_timeout_ms": 3000,
            "auto_commit_interval_ms": 500, "assignors": [strategy]}

    def begin(self) -> None:
        """One more member."""
        number = next(self._numbers)
        manual = number % 2 == 0
        wish = {"file": str(self._folder / f"{number}.done"), "manual": manual, "use_async": number % 3 == 2,
                "options": {**self._options, "enable_auto_commit": not manual}}
        path = self._folder / f"{number}.reported"
        with path.open("wb") as reported, (self._folder / f"{number}.errors").open("wb") as errors:
            process = subprocess.Popen([sys.executable, member.__file__, json.dumps(wish)], stdout=reported, stderr=errors)
        self._running.append(Started(process, path))

    def kill(self) -> None:
        """Kill the oldest member with SIGKILL and start a new one."""
        oldest = self._running.pop(0).process
        assert oldest.poll() is None, "it ended before it was killed"
        oldest.kill()
        oldest.wait()
        self.killed += 1
        self.begin()

    def end(self) -> None:
        """All members leave the group and end."""
        eventually(lambda: all(each.handles_signals() for each in self._running), LIMIT_S)
        for each in self._running:
            each.process.terminate()
        codes = [each.process.wait(LIMIT_S) for each in self._running]
        assert codes == [0] * len(codes), f"members ended with {codes}\n{self.errors}"

    def abandon(self) -> None:
        """The test has failed: end every process."""
        for each in self._running:
            each.process.kill()
            each.process.wait()

    @property
    def reported(self) -> dict[str, list[str]]:
        """The calls of each member's listener, and its refused commits."""
        return {file.stem: file.read_text().splitlines() for file in sorted(self._folder.glob("*.reported"))}

    @property
    def errors(self) -> str:
        """What they wrote to standard error: warnings, and the end of those that failed."""
        return "".join(file.read_text() for file in sorted(self._folder.glob("*.errors")))

    def all_committed(self, partitions: list[TopicPartition]) -> bool:
        """Whether the group has committed everything there is."""
        with consumer(self._cluster, group_id=self.topic, enable_auto_commit=False) as looker:
            committed = looker.committed(partitions)
            return {tp: found.offset if found else 0 for tp, found in committed.items()} == looker.end_offsets(partitions)

    def found(self) -> tuple[int, Iterator[Found]]:
        """How often records were read, and each of them once, in order of the partitions and offsets."""
        lines: dict[int, set[tuple[int, bytes]]] = {}
        count = 0
        for file in self._folder.glob("*.done"):
            for line in file.read_bytes().split(b"\n")[:-1]:  # of one that was killed the last may be half a line
                partition, offset, value = line.split(b" ", 2)
                lines.setdefault(int(partition), set()).add((int(offset), value))
                count += 1
        return count, (Found(partition, offset, value) for partition in sorted(lines) for offset, value in sorted(lines[partition]))


@contextlib.contextmanager
def readers(cluster: LocalCluster, topic: str, folder: Path, strategy: str, members: int) -> Iterator[Readers]:
    """A group of *members* that reads in the block."""
    group = Readers(cluster, topic, folder, strategy)
    try:
        for _ in range(members):
            group.begin()
        yield group
        group.end()
    except BaseException:
        group.abandon()
        raise
