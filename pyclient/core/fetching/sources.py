# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""From which node each partition is read: one session per node, one request in flight to each (C02).

Knows nodes, sessions and requests under way; does not know why a partition is read from a node, or not at all.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from pyclient.codec.fetch import PartitionRequest
from pyclient.core.fetching.sessions import RequestOf, Session, SessionRequest
from pyclient.records import TopicPartition


class Sources:
    """Keeps each partition in one session at a time: while a request to one node names it, no other node gets one."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}  # by node, the one with the oldest last request first
        self._nodes: dict[TopicPartition, int] = {}  # the node of the session that a partition is in, or leaves
        self._in_flight: dict[int, dict[TopicPartition, None]] = {}  # by node: what moves to another when the response comes

    def add(self, tp: TopicPartition, node: int) -> None:
        """Read this partition from *node*, with its next request."""
        old = self._nodes.get(tp, node)
        if old != node:
            self._sessions[old].remove(tp)
            if old in self._in_flight and tp in self._sessions[old].partitions:
                self._in_flight[old][tp] = None
                return
        self._nodes[tp] = node
        self.session(node).add(tp)

    def remove(self, tp: TopicPartition) -> None:
        """Do not read this partition any more."""
        node = self._nodes.get(tp)
        if node is None:
            return
        session = self._sessions[node]
        session.remove(tp)
        if tp not in session.partitions:
            del self._nodes[tp]

    def session(self, node: int) -> Session:
        """The session at a node."""
        found = self._sessions.get(node)
        if found is None:
            found = self._sessions[node] = Session()
        return found

    def idle(self) -> list[int]:
        """The nodes that have something to read, and no request under way."""
        found = []
        for node, session in self._sessions.items():
            if node not in self._in_flight and session.reads():
                found.append(node)
        return found

    def next_request(self, node: int, request_of: RequestOf) -> SessionRequest | None:
        """The next request to a node, if it would read anything; it is under way until `ended`."""
        session = self._sessions[node]
        request = session.next_request(request_of)
        if request is None:
            return None
        self._sessions[node] = self._sessions.pop(node)
        self._in_flight[node] = {}
        for tp in request.forgotten:
            if tp not in session.partitions and self._nodes.get(tp) == node:
                del self._nodes[tp]
        return request

    def ended(self, node: int) -> list[TopicPartition]:
        """The request to this node has ended; returns what waited for that to be read from another node."""
        return list(self._in_flight.pop(node))

    def pending(self) -> list[TopicPartition]:
        """What the next requests add or change."""
        return [tp for session in self._sessions.values() for tp in session.pending]

    def in_flight(self) -> list[TopicPartition]:
        """The partitions of the requests under way."""
        return [tp for node in self._in_flight for tp in self._sessions[node].partitions]

    def outdated(self, is_current: Callable[[TopicPartition, int, PartitionRequest], bool]) -> list[TopicPartition]:
        """The partitions for which *is_current* (partition, node, what the node was sent) returns False."""
        return [tp for node, session in self._sessions.items() for tp, requested in session.partitions.items()
                if self._nodes.get(tp) == node and not is_current(tp, node, requested)]

    def forget_nodes(self, alive: Callable[[int], bool]) -> None:
        """Drop the sessions of nodes that are gone and read nothing any more."""
        for node in [node for node, session in self._sessions.items()
                     if not alive(node) and node not in self._in_flight and not session.reads()]:
            del self._sessions[node]
            for tp in [tp for tp, at in self._nodes.items() if at == node]:
                del self._nodes[tp]

    def closing_requests(self) -> Iterator[tuple[int, SessionRequest, bool]]:
        """What ends each session there is: (node, request, whether another request to the node is under way)."""
        for node, session in self._sessions.items():
            request = session.closing_request()
            if request is not None:
                yield node, request, node in self._in_flight
