"""Simulated KIP-848 consumers: they report their partitions and reconcile when the test says so."""
from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import attrs

from pyclient.testing.fake.model.consumer_group import JOINS, LEAVES, LEAVES_FOR_NOW, HeartbeatRequest, ConsumerGroup, Moment, HeartbeatResponse, TopicView
from pyclient.testing.fake.model.reconciliation import Classic, Place
from pyclient.testing.fake.model.refusal import RefusalError

REBALANCE_MS = 60_000
FENCED_MEMBER_EPOCH = 110
UNKNOWN_MEMBER_ID = 25


class Topics:
    """The topics of a cluster without a cluster."""

    def __init__(self, **partitions: int) -> None:
        self.catalog: dict[str, TopicView] = {}
        self._ids = 0
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        self._ids += 1
        self.catalog[name] = TopicView(UUID(int=self._ids), partitions)

    def grow(self, name: str, more: int = 1) -> None:
        topic = self.catalog[name]
        self.catalog[name] = topic._replace(partitions=topic.partitions + more)

    def places(self, *names: str) -> set[Place]:
        """Every partition of these topics, as far as they are there."""
        found = [self.catalog[name] for name in names if name in self.catalog]
        return {(topic.id, index) for topic in found for index in range(topic.partitions)}

    def names(self, places: Iterable[Place]) -> list[str]:
        """Partitions as ``topic-number``; of topics that are gone, the number of the id."""
        known = {topic.id: name for name, topic in self.catalog.items()}
        return sorted(f"{known.get(topic, topic.int)}-{index}" for topic, index in places)


class Client:
    """One consumer. `target` is its last assignment; `owned`, what it reads, changes only in `reconcile`."""

    def __init__(self, group: ConsumerGroup, topics: Topics, name: str, *subscribed: str, pattern: str | None = None,
                 instance: str | None = None, assignor: str | None = None, most: int = 1000) -> None:
        self.group = group
        self.name = name
        self.subscribed = subscribed
        self.pattern = pattern
        self.instance = instance
        self.epoch = 0
        self.owned: set[Place] = set()
        self.target: set[Place] = set()
        self._topics = topics
        self._assignor = assignor
        self._most = most
        self._sends_all = True
        self._has_new_target = False
        """It received an assignment and has not reconciled yet."""
        self._reconciled = False
        """It reconciled; its next heartbeat has its partitions even when nothing changed (N03)."""

    # ---- what it does ------------------------------------------------------------------------------------------------

    def heartbeat(self, *, lost: bool = False) -> HeartbeatResponse:
        """One heartbeat; after a lost answer the next one is full.

        After it reported its partitions it must not start to read an older target: the group relies on the report.
        """
        request = self._request()
        response = self.group.heartbeat(request, Moment(self._topics.catalog, most=self._most))
        if lost:
            self._sends_all = True
            if request.owned is not None:
                self.target, self._has_new_target = set(self.owned), False
            return response
        self.epoch, self._sends_all, self._reconciled = response.member.epoch, False, False
        if response.assignment is not None:
            self.target, self._has_new_target = set(response.assignment), True
        return response

    def reconcile(self) -> None:
        """Revoke and start to read as the target says."""
        self._reconciled, self._has_new_target = self._reconciled or self._has_new_target, False
        self.owned = set(self.target)

    def step(self) -> None:
        """One step of a client: heartbeat, rejoin when fenced, reconcile."""
        try:
            self.heartbeat()
        except RefusalError as refused:
            if refused.code not in (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID):
                raise
            self.come_back_fenced()
            self.heartbeat()
        self.reconcile()

    def come_back_fenced(self) -> None:
        """Rejoin. A static member must wait for the end of its own session, which is forced here."""
        self.abandon()
        if self.instance is not None and self.name in self.group.members:
            self.group.remove([self.group.members[self.name]], self._topics.catalog)

    def abandon(self) -> None:
        """Stop reading, and join as a new member."""
        self.epoch, self.owned, self.target = JOINS, set(), set()
        self._sends_all, self._has_new_target, self._reconciled = True, False, False

    def resubscribe(self, *topics: str, pattern: str | None = None) -> None:
        self.subscribed, self.pattern, self._sends_all = topics, pattern, True

    def leave(self, *, for_now: bool = False) -> None:
        self.abandon()
        if for_now:
            self.group.leave_for_now(self.group.static_member(self.name, str(self.instance)))
        else:
            self.group.remove([self.group.member(self.name)], self._topics.catalog)
        self.epoch = LEAVES_FOR_NOW if for_now else LEAVES

    def return_as(self, name: str) -> None:
        """A static member was restarted: its process has another id."""
        self.name = name
        self.abandon()

    # ---- what it says ------------------------------------------------------------------------------------------------

    def _request(self) -> HeartbeatRequest:
        full = self._sends_all or self.epoch == JOINS
        return HeartbeatRequest(
            member_id=self.name, epoch=self.epoch, instance=self.instance, rebalance_timeout_ms=REBALANCE_MS if full else -1,
            topics=self.subscribed if full else None, pattern=(self.pattern or "") if full else None, assignor=self._assignor,
            owned=tuple(sorted(self.owned)) if full or self._reconciled else None, client_id="client", host="/host")

    def has(self) -> list[str]:
        """What it reads."""
        return self._topics.names(self.owned)


class ClassicClient(Client):
    """A cooperative classic member: it keeps its partitions while it rejoins."""

    def heartbeat(self, *, lost: bool = False) -> HeartbeatResponse:
        """Rejoin when the group requires it, and sync. No answer is lost here."""
        member = self.group.members.get(self.name)
        if member is None:
            self.abandon()
        if member is None or self._sends_all or not member.is_reconciled(self.group.assignment_epoch):
            old = self.group.newcomer(self.name)
            joining = attrs.evolve(old, instance=self.instance, topics=self.subscribed, rebalance_timeout_ms=REBALANCE_MS,
                                   classic=Classic(10_000, (("cooperative-sticky", b""),)))
            member = self.group.let_in(old, joining, tuple(sorted(self.owned)), Moment(self._topics.catalog, most=self._most))
            self.epoch, self._sends_all, self.target = member.epoch, False, set(member.assigned)
        return HeartbeatResponse(member, None)


def settle(*clients: Client, rounds: int = 12) -> None:
    """All clients step in turn until nothing changes."""
    for _ in range(rounds):
        for each in clients:
            each.step()
