"""Who leads a partition: the controller's reactions to broker failures, and elections on request."""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pyclient.errors import IllegalStateError
from pyclient.testing.fake.model.replication import MS

if TYPE_CHECKING:
    from pyclient.testing.fake.model.kafka import Kafka
    from pyclient.testing.fake.model.partition import Partition

NO_LEADER: Final = -1


class Elections:
    """Chooses the leader of one partition; `Partition.lead` and `Partition.set_isr` apply the choice."""

    def __init__(self, partition: Partition, kafka: Kafka) -> None:
        self._partition = partition
        self._kafka = kafka
        self._undetected: dict[int, asyncio.TimerHandle] = {}
        """Killed brokers whose failure the controller has not detected yet."""

    # ---- on request --------------------------------------------------------------------------------------------------

    def move_leader(self, to: int) -> None:
        """Make a live in-sync replica the leader. Nothing happens when it leads already.

        Raises:
            IllegalStateError: it is not in sync, or its broker does not run.
        """
        it = self._partition
        if to not in it.isr or not it.is_alive(to):
            raise IllegalStateError(f"broker {to} cannot lead {it.name}: in sync are {it.isr}, running {self._kafka.alive}")
        if to != it.leader:
            it.lead(to)

    def elect_preferred(self) -> bool:
        """Make the first replica the leader if possible; returns whether it leads now."""
        first = self._partition.replicas[0]
        if first in self._partition.isr and self._partition.is_alive(first):
            self.move_leader(first)
        return self._partition.leader == first

    def elect_unclean(self, to: int) -> None:
        """Make a live replica the leader even if it is not in sync; records that it lacks are lost.

        Raises:
            IllegalStateError: it is no replica, or its broker does not run.
        """
        it = self._partition
        if to not in it.replicas or not it.is_alive(to):
            raise IllegalStateError(f"broker {to} cannot lead {it.name}: replicas are {it.replicas}, running {self._kafka.alive}")
        if to in it.isr:
            self.move_leader(to)
        else:
            self._lead_unclean(to)

    # ---- failures ----------------------------------------------------------------------------------------------------

    def broker_down(self, broker: int) -> None:
        """A replica's broker was killed; the controller detects it after ``failure_detection_ms``."""
        delay_ms = self._kafka.settings.failure_detection_ms
        if delay_ms:
            self._undetected[broker] = asyncio.get_running_loop().call_later(delay_ms * MS, self._detect, broker)
        else:
            self._detect(broker)

    def broker_up(self, broker: int) -> None:
        """A replica's broker restarted; a failure that was not detected yet is detected now."""
        if broker in self._undetected:
            self._undetected[broker].cancel()
            self._detect(broker, restarted=True)

    def cancel(self) -> None:
        """The topic was deleted."""
        for timer in self._undetected.values():
            timer.cancel()

    def _detect(self, broker: int, *, restarted: bool = False) -> None:
        """The controller detects that a broker is down, or was."""
        self._undetected.pop(broker, None)
        it = self._partition
        rest = [each for each in it.isr if each != broker]
        if rest and broker in it.isr:
            it.set_isr(rest)
        if it.leader == broker:
            self.elect(without=broker if restarted and rest else NO_LEADER)
        elif it.leader != NO_LEADER:
            it.advance()

    def elect(self, without: int = NO_LEADER) -> None:
        """Choose a leader among the live in-sync replicas; among all live ones where that is allowed."""
        it = self._partition
        live = [each for each in it.replicas if it.is_alive(each) and each != without]
        chosen = next((each for each in live if each in it.isr), NO_LEADER)
        if chosen != NO_LEADER:
            it.lead(chosen)
        elif live and self._may_be_unclean():
            self._lead_unclean(live[0])
        elif it.leader != NO_LEADER:
            it.lead(NO_LEADER)

    def _may_be_unclean(self) -> bool:
        default = str(self._kafka.settings.unclean_leader_election_enable)
        return self._partition.topic.config.get("unclean.leader.election.enable", default).lower() == "true"

    def _lead_unclean(self, broker: int) -> None:
        self._partition.set_isr([broker])
        self._partition.lead(broker, clean=False)
