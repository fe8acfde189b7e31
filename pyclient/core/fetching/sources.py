"""From which node each partition is read: one session per node, one request in flight to each (C02).

Knows nodes, sessions and who is under way; does not know why a partition is read from there, or not at all.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from pyclient.core.fetching.sessions import Asking, Session, Wish
from pyclient.records import TopicPartition


class Sources:
    """Puts each partition into one session at a time: what one node is just asked for, no other one is asked for."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}  # the node asked longest ago first
        self._at: dict[TopicPartition, int] = {}  # where it is wanted, or was sent last
        self._under_way: dict[int, dict[TopicPartition, None]] = {}  # and what moves elsewhere as soon as the answer is there

    def put(self, tp: TopicPartition, node: int) -> None:
        """Read this partition from *node*, with its next request."""
        old = self._at.get(tp, node)
        if old != node:
            self._sessions[old].leave(tp)
            if old in self._under_way and tp in self._sessions[old].partitions:
                self._under_way[old][tp] = None
                return
        self._at[tp] = node
        self.session(node).want(tp)

    def take(self, tp: TopicPartition) -> None:
        """Read this partition no more."""
        node = self._at.get(tp)
        if node is None:
            return
        session = self._sessions[node]
        session.leave(tp)
        if tp not in session.partitions:
            del self._at[tp]

    def session(self, node: int) -> Session:
        """The session at a node."""
        return self._sessions.setdefault(node, Session())

    def idle(self) -> list[int]:
        """The nodes that have something to read, and no request under way."""
        return [node for node, session in self._sessions.items() if node not in self._under_way and session.reads]

    def ask(self, node: int, wish: Callable[[TopicPartition], Wish | None]) -> Asking | None:
        """What to ask a node now, if anything; its request is under way from now on."""
        session = self._sessions[node]
        asking = session.next(wish)
        if asking is None:
            return None
        self._sessions[node] = self._sessions.pop(node)
        self._under_way[node] = {}
        for tp in asking.forgotten:
            if tp not in session.partitions and self._at.get(tp) == node:
                del self._at[tp]
        return asking

    def ended(self, node: int) -> list[TopicPartition]:
        """The request to this node has ended; gives what waited for that to be read elsewhere, if it is to be read still."""
        return list(self._under_way.pop(node))

    def wanted(self) -> list[TopicPartition]:
        """What the next requests add or change."""
        return [tp for session in self._sessions.values() for tp in session.wanted]

    def under_way(self) -> list[TopicPartition]:
        """What nodes are being asked for."""
        return [tp for node in self._under_way for tp in self._sessions[node].partitions]

    def outdated(self, is_true: Callable[[TopicPartition, int, Wish], bool]) -> list[TopicPartition]:
        """Partitions of which (partition, node, wish), as the node was sent it, is not true any more."""
        return [tp for node, session in self._sessions.items() for tp, wish in session.partitions.items()
                if self._at.get(tp) == node and not is_true(tp, node, wish)]

    def forget_nodes(self, alive: Callable[[int], bool]) -> None:
        """Drop the sessions of nodes that are gone and read nothing any more."""
        for node in [node for node, session in self._sessions.items()
                     if not alive(node) and node not in self._under_way and not session.reads]:
            del self._sessions[node]
            for tp in [tp for tp, at in self._at.items() if at == node]:
                del self._at[tp]

    def farewells(self) -> Iterator[tuple[int, Asking, bool]]:
        """What ends each session there is: (node, what to say, whether a request to it is under way)."""
        for node, session in self._sessions.items():
            asking = session.farewell()
            if asking is not None:
                yield node, asking, node in self._under_way
