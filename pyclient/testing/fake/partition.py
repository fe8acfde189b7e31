"""One partition: its replicas, who leads, and since which epoch."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.testing.fake.bell import Bell

if TYPE_CHECKING:
    from pyclient.testing.fake.model import Kafka, Topic

NOBODY: Final = -1


class Partition:
    """A partition of a topic of the model."""

    def __init__(self, kafka: Kafka, topic: Topic, index: int, replicas: list[int]) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas
        self.isr = list(replicas)
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.changed = Bell()
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"<{self.topic.name}-{self.index} leader {self.leader} epoch {self.leader_epoch} isr {self.isr}>"

    def move_leader(self, to: int) -> None:
        """Make a live in-sync replica the leader."""
        self.leader = to
        self.leader_epoch += 1
        self.changed.ring()

    def broker_down(self, broker: int) -> None:
        """A broker was killed: another in-sync replica leads, or nobody does."""
        if self.leader == broker:
            live = [each for each in self.isr if each in self._kafka.alive]
            self.leader = live[0] if live else NOBODY
            self.leader_epoch += 1
            self.changed.ring()

    def broker_up(self, broker: int) -> None:
        """A broker came back."""
        if self.leader == NOBODY and broker in self.isr:
            self.move_leader(broker)

    def delete(self) -> None:
        """The topic is gone."""
        self.leader = NOBODY
        self.changed.ring()

    @property
    def offline(self) -> list[int]:
        """Replicas whose broker does not run."""
        return [each for each in self.replicas if each not in self._kafka.alive]
