"""Deliberate bugs of positions, fetches, fetch sessions and metadata."""
from __future__ import annotations

from typing import Any, Final

from tests.simulation.mutation import Museum, Target, nothing, returns

MUSEUM: Final = Museum()
bug = MUSEUM.bug
FETCHER: Final = "pyclient.core.fetching.fetcher:Fetcher"
POSITION: Final = "pyclient.core.fetching.positions:Position"
SESSION: Final = "pyclient.core.fetching.sessions:Session"
METADATA: Final = "pyclient.core.metadata:Metadata"
CLUSTER: Final = "pyclient.core.cluster"

# --- positions -------------------------------------------------------------------------------------------------------

bug("positions", "the position stays at fetched records", "Java 15529: position and consumed", f"{POSITION}.read")(nothing)
bug("positions", "no fetch names an epoch", "C11: KIP-320", f"{POSITION}.epoch")(returns(-1))


@bug("positions", "the position moves one offset too far", "Java 15529: position and consumed", f"{POSITION}.read")
def _(original: Target) -> Target:
    return lambda self, batches, next_offset: original(self, batches, next_offset + 1)


@bug("positions", "a position that the log lost is kept", "C10", f"{FETCHER}._out_of_range")
def _(_original: Target) -> Target:
    return lambda self, now, position, *_: self._pause_after_failure(now, position)


@bug("positions", "a truncated log is not noticed", "C11: KIP-320", f"{FETCHER}._diverged")
def _(_original: Target) -> Target:
    return lambda self, now, position, *_: self._pause_after_failure(now, position)


# --- fetches and sessions --------------------------------------------------------------------------------------------

bug("fetch", "a partition is not fetched again after an error", "franz-go: stuck partitions", f"{FETCHER}._wake")(nothing)
bug("fetch", "a drained partition is not fetched again", "Java 20780: stuck poll", "pyclient.buffers.fetch_buffer:FetchBuffer.take_drained")(returns(()))
bug("sessions", "a session goes on after a lost response", "C07: KIP-227", f"{SESSION}.renew")(nothing)
bug("sessions", "a session that the broker forgot is used again and again", "C07: KIP-227", f"{SESSION}.refused")(returns(True))


@bug("fetch", "fetches stay with the old leader", "C12", f"{FETCHER}._follow_leaders")
def _(original: Target) -> Target:
    def follow_leaders(self: Any, *rest: Any) -> None:
        if not self._view:
            original(self, *rest)
    return follow_leaders


@bug("fetch", "a response from before a seek is accepted", "franz-go: a seek undone by a late answer", f"{FETCHER}._read")
def _(original: Target) -> Target:
    def read(self: Any, now: float, node: int, message: Any) -> None:
        session = self._sources.session(node)
        positions = self.positions

        def answered(message: Any) -> list[Any]:
            found = type(session).answered(session, message)
            return [(tp, wish._replace(generation=positions[tp].generation, offset=positions[tp].offset) if tp in positions else wish, part)
                    for tp, wish, part in found]

        session.answered = answered
        try:
            original(self, now, node, message)
        finally:
            del session.answered
    return read


@bug("fetch", "errors are retried at the network's speed", "Java 20426: busy loops", f"{FETCHER}._pause_after_failure")
def _(_original: Target) -> Target:
    def pause_after_failure(self: Any, now: float, position: Any) -> None:
        position.failures += 1
    return pause_after_failure


@bug("sessions", "a session does not send a changed offset", "C07: KIP-227", f"{SESSION}._news")
def _(original: Target) -> Target:
    return lambda self, wish: {tp: new for tp, new in original(self, wish).items() if tp not in self.partitions}


@bug("sessions", "a partition that is no longer read stays in the session", "C07: KIP-227", f"{SESSION}.leave")
def _(_original: Target) -> Target:
    return lambda self, tp: self._wanted.pop(tp, None)


# --- metadata --------------------------------------------------------------------------------------------------------

bug("metadata", "a new topic is not requested at once", "M01", "pyclient.core.topic_interest:TopicInterest.unrequested")(returns(False))
bug("metadata", "a stale view is not refreshed", "M01", f"{METADATA}.request_update")(nothing)


@bug("metadata", "an older leader epoch is accepted", "M02: a stale broker's answer", f"{CLUSTER}:_newer")
def _(_original: Target) -> Target:
    return lambda _known, answered: answered


@bug("metadata", "metadata is requested at the network's speed", "Java 20854: busy loops", "pyclient.core.metadata_refresh:RefreshTimer.is_due")
def _(original: Target) -> Target:
    return lambda self, now: self.state.name == "STALE" or original(self, now)


@bug("metadata", "a failed request is the last one", "franz-go: metadata that stops", f"{METADATA}._failed")
def _(original: Target) -> Target:
    def failed(self: Any, *rest: Any) -> None:
        original(self, *rest)
        self._in_flight = True
    return failed


@bug("metadata", "the response about one topic replaces the whole view", "M01: partial updates", f"{CLUSTER}:Cluster.updated")
def _(original: Target) -> Target:
    return lambda self, answer, **_: original(self, answer, everything=True)
