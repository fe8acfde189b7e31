"""Deliberate bugs of positions, fetches, fetch sessions and metadata."""
from __future__ import annotations

from typing import Any, Final

from pyclient.codec.fetch import PartitionRequest
from pyclient.consumer.consumed_positions import ConsumedPositions
from pyclient.core.fetching.positions import Position
from pyclient.records import NO_LEADER_EPOCH
from tests.simulation.situations import AREAS
from tests.simulation.mutation import Museum, Target, Without, nothing, returns

MUSEUM: Final = Museum(situations=AREAS)
bug = MUSEUM.bug
LOOKUPS: Final = "pyclient.core.fetching.position_lookups:PositionLookups"
PLACEMENT: Final = "pyclient.core.fetching.placement:Placement"
RESPONSES: Final = "pyclient.core.fetching.responses:FetchResponses"
PREFERRED: Final = "pyclient.core.fetching.preferred_replicas:PreferredReplicas"
POSITION: Final = "pyclient.core.fetching.positions:Position"
SESSION: Final = "pyclient.core.fetching.sessions:Session"
CONSUMED: Final = "pyclient.consumer.consumed_positions:ConsumedPositions"
PLACED: Final = "pyclient.buffers.collect:placed"
METADATA: Final = "pyclient.core.metadata:Metadata"
CLUSTER: Final = "pyclient.core.cluster"

# --- positions -------------------------------------------------------------------------------------------------------

bug("positions", "the position stays at fetched records", "Java 15529: position and consumed", f"{POSITION}.read")(nothing)
bug("positions", "no fetch names an epoch", "C11: KIP-320", f"{POSITION}.epoch")(returns(-1))


@bug("positions", "the position moves one offset too far", "Java 15529: position and consumed", f"{POSITION}.read")
def _(original: Target) -> Target:
    return lambda self, batches, next_offset: original(self, batches, next_offset + 1)


bug("positions", "position() is behind what counts as consumed", "Java: position()", f"{CONSUMED}.position")(lambda _original: ConsumedPositions.consumed)


@bug("positions", "a position that the log lost is kept", "C10", f"{LOOKUPS}.on_out_of_range")
def _(_original: Target) -> Target:
    return lambda self, now, position, *_: self._placement.rest(position, now)


@bug("positions", "a truncated log is not noticed", "C11: KIP-320", f"{RESPONSES}._on_divergence")
def _(_original: Target) -> Target:
    return lambda self, now, position, *_: self._placement.rest(position, now)


@bug("positions", "positions are committed without an epoch", "C11: KIP-320", PLACED)
def _(original: Target) -> Target:
    return lambda offset, _epoch: original(offset, NO_LEADER_EPOCH)


@bug("positions", "positions are committed under epoch 0", "C11: KIP-320", PLACED)
def _(original: Target) -> Target:
    return lambda offset, _epoch: original(offset, 0)


@bug("positions", "the epoch of a committed position is forgotten", "C11: KIP-320", f"{LOOKUPS}._found")
def _(original: Target) -> Target:
    return lambda self, position, offset, _epoch=-1: original(self, position, offset)


# --- followers -------------------------------------------------------------------------------------------------------


@bug("followers", "what is buffered and not read counts as read when the log was cut", "C11: KIP-320", "pyclient.buffers.fetch_buffer:FetchBuffer.unread")
def _(_original: Target) -> Target:
    return lambda _self, _tp: None


@bug("followers", "a follower's end of the log is taken for a truncated log", "C09: KIP-392", f"{RESPONSES}._on_data")
def _(original: Target) -> Target:
    return lambda self, now, position, fetched, leads: original(self, now, position, fetched, leads=True)


@bug("followers", "an offset out of a follower's range is reset", "C09: KIP-392", f"{RESPONSES}._on_out_of_range")
def _(original: Target) -> Target:
    return lambda self, now, position, leads: original(self, now, position, leads=True)


@bug("followers", "a leader that is to decide hears the rack, and names the follower again", "C09: KIP-392", f"{PREFERRED}.doubt")
def _(_original: Target) -> Target:
    return lambda self, tp, _now: self.end(tp)


@bug("followers", "a follower is read on after an error", "C09: KIP-392", f"{RESPONSES}._on_partition_error")
def _(original: Target) -> Target:
    def on_partition_error(self: Any, *rest: Any) -> None:
        preferred, self._preferred = self._preferred, Without(self._preferred, "end", "doubt")
        try:
            original(self, *rest)
        finally:
            self._preferred = preferred
    return on_partition_error


bug("followers", "a follower is read on after its lease", "C09: KIP-392", f"{PREFERRED}.expire")(returns([]))
bug("followers", "a follower is read on under another leader", "C09: KIP-392", f"{PREFERRED}.follow")(returns([]))


@bug("followers", "fetches from followers name no epoch", "C11: KIP-320", "pyclient.core.fetching.fetcher:Fetcher._request_of")
def _(original: Target) -> Target:
    def request_of(self: Any, now: float, tp: Any) -> Any:
        request = original(self, now, tp)
        if request is None or self._preferred.of(tp) is None:
            return request
        return PartitionRequest(request.offset, request.generation, request.leader_epoch, NO_LEADER_EPOCH, request.topic_id)
    return request_of


@bug("followers", "the epochs of what was read are forgotten with a change of the replica", "C11: KIP-320", f"{RESPONSES}._follow_preferred_replica")
def _(original: Target) -> Target:
    def follow_preferred_replica(self: Any, now: float, position: Any, replica: int) -> None:
        position.history.clear()
        original(self, now, position, replica)
    return follow_preferred_replica


# --- fetches and sessions --------------------------------------------------------------------------------------------

bug("fetch", "a partition is not fetched again after an error", "franz-go: stuck partitions", f"{PLACEMENT}.end_rests")(returns([]))
bug("fetch", "a drained partition is not fetched again", "Java 20780: stuck poll", "pyclient.buffers.fetch_buffer:FetchBuffer.take_drained")(returns(()))
bug("sessions", "a session goes on after a lost response", "C07: KIP-227", f"{SESSION}.renew")(nothing)
bug("sessions", "a session that the broker forgot is used again and again", "C07: KIP-227", f"{SESSION}.on_error")(returns(True))


@bug("fetch", "fetches stay with the old leader", "C12", f"{PLACEMENT}.follow_metadata")
def _(original: Target) -> Target:
    def follow_metadata(self: Any, *rest: Any) -> None:
        if not self._followed.version:
            original(self, *rest)
    return follow_metadata


def as_if_new(requested: PartitionRequest, position: Position) -> PartitionRequest:
    """As if the request had been for this position."""
    return PartitionRequest(position.offset, position.generation, requested.leader_epoch, requested.last_epoch, requested.topic_id)


@bug("fetch", "a response from before a seek is accepted", "franz-go: a seek undone by a late answer", f"{RESPONSES}._on_response")
def _(original: Target) -> Target:
    def read(self: Any, now: float, node: int, session: Any, message: Any) -> None:
        positions = self._positions.by_partition

        def on_response(message: Any) -> list[Any]:
            found = type(session).on_response(session, message)
            return [(tp, as_if_new(each, positions[tp]) if tp in positions else each, data) for tp, each, data in found]

        session.on_response = on_response
        try:
            original(self, now, node, session, message)
        finally:
            del session.on_response
    return read


@bug("fetch", "errors are retried at the network's speed", "Java 20426: busy loops", f"{PLACEMENT}.rest")
def _(_original: Target) -> Target:
    def rest(_self: Any, position: Any, _now: float) -> None:
        position.failures += 1
    return rest


@bug("fetch", "a failed partition is fetched again with any new view of the cluster", "busy loops", f"{PLACEMENT}.follow_metadata")
def _(original: Target) -> Target:
    def follow_metadata(self: Any) -> None:
        if self._followed is not self._view.cluster:
            for tp in [*self._resting]:
                del self._resting[tp]
                self.place(tp)
        original(self)
    return follow_metadata


@bug("sessions", "a session does not send a changed offset", "C07: KIP-227", f"{SESSION}._changes")
def _(original: Target) -> Target:
    return lambda self, request_of: {tp: new for tp, new in original(self, request_of).items() if tp not in self.partitions}


@bug("sessions", "a partition that is no longer read stays in the session", "C07: KIP-227", f"{SESSION}.remove")
def _(_original: Target) -> Target:
    return lambda self, tp: self._added.pop(tp, None)


# --- metadata --------------------------------------------------------------------------------------------------------

bug("metadata", "a new topic is not requested at once", "M01", "pyclient.core.topic_interest:TopicInterest.unrequested")(returns(False))
bug("metadata", "a failed request is the last one", "franz-go: metadata that stops", f"{METADATA}._failed")(nothing)
bug("metadata", "a stale view is not refreshed", "M01", f"{METADATA}.request_update")(nothing)


@bug("metadata", "an older leader epoch is accepted", "M02: a stale broker's answer", f"{CLUSTER}:_newer")
def _(_original: Target) -> Target:
    return lambda _known, answered: answered


@bug("metadata", "metadata is requested at the network's speed", "Java 20854: busy loops", "pyclient.core.metadata_refresh:RefreshTimer.is_due")
def _(original: Target) -> Target:
    return lambda self, now: self.state.name == "STALE" or original(self, now)


@bug("metadata", "the response about one topic replaces the whole view", "M01: partial updates", f"{CLUSTER}:Cluster.updated")
def _(original: Target) -> Target:
    return lambda self, answer, **_: original(self, answer, everything=True)
