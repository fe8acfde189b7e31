"""What the exactly-once sink decides: which batches a slot has, whether to write or skip, and when neither is right.

A slot is a share of a query's rows, with a transactional id and a partition of the marker topic of its own. With the
rows of a batch its task writes a marker in the same transaction, so the last marker says what the slot has. Pure: knows
no broker and no Spark.

| Last markers of the slots, at batch N | Then |
| --- | --- |
| none, N = 0 | a new sink: write |
| all at N - 1 | write; the number of slots may change now |
| some at N, others at N - 1 | the batch was cut off: write it with the number of slots it was begun with |
| another query's, or none at N > 0 | the checkpoint or the markers are new: refuse, unless the user accepts it |
| beyond N | the checkpoint was restored from an older copy: refuse |
| before N - 1, or disagreeing | markers were lost: refuse |
"""
from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

from pyclient.errors import ConfigurationError, IllegalStateError

FORMAT: Final = 2
"""Of markers and of the way rows are divided among slots: a change of either needs a new number."""
ACCEPT: Final = "accept"
FAIL: Final = "fail"
_DIGEST_MASK: Final = 2**64 - 1


@attrs.frozen
class Batch:
    """One micro-batch of one run of a query."""

    query: str
    """Spark's id of the query, which is stored in its checkpoint."""
    run: str
    """Spark's id of this start of the query."""
    number: int


@attrs.frozen
class Tally:
    """What a task has seen of its rows: how many, and the sum of their hashes, which no order changes."""

    rows: int = 0
    digest: int = 0

    def plus(self, rows: int, digest: int) -> Tally:
        """With more rows and the sum of their hashes."""
        return Tally(self.rows + rows, (self.digest + digest) & _DIGEST_MASK)


@attrs.frozen(kw_only=True)
class Marker:
    """The last batch of a slot."""

    query: str
    run: str
    """The run that may write now; older ones find another here, and stop."""
    batch: int
    """-1: none yet."""
    slots: int
    """Among how many slots this batch was divided."""
    tally: Tally = Tally()

    def to_bytes(self) -> bytes:
        """As stored in the marker topic."""
        return json.dumps({"format": FORMAT, **attrs.asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes | None) -> Marker:
        """The marker of a record.

        Raises:
            IllegalStateError: it is no marker, or of a newer release.
        """
        try:
            fields: dict[str, Any] = json.loads(value or b"")
            if fields.pop("format") != FORMAT:
                raise ValueError("another format")
            return cls(**{**fields, "tally": Tally(**fields["tally"])})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IllegalStateError(f"a record of the marker topic is no marker of this release: {value!r}. Give the sink a marker topic of its own.") from error


# ---- on the driver --------------------------------------------------------------------------------------------------


def slots_of(markers: Sequence[Marker | None], batch: Batch, wanted: int, *, accept: bool) -> int:
    """Among how many slots *batch* is divided: *wanted*, unless it was begun with another number.

    Raises:
        ConfigurationError: the markers are those of another query, or lost, and *accept* is off.
        IllegalStateError: the batch cannot be written exactly once.
    """
    own = {slot: each for slot, each in enumerate(markers) if each is not None and each.query == batch.query}
    others = of_others(markers, batch)
    if others and not accept:
        raise _another_query(batch, others)
    if not own:
        if batch.number > 0 and not accept:
            raise _no_markers(batch)
        return wanted
    newest = max(each.batch for each in own.values())
    if newest > batch.number:
        raise IllegalStateError(
            f"the sink has batch {newest} already, and Spark asks for batch {batch.number} again: the checkpoint was restored from an older copy. "
            "Batches in between would be skipped or written twice. Restore the newer checkpoint, or begin a new one with another "
            "transactional_id_prefix.")
    if newest < batch.number - 1 and not accept:
        raise _lost_markers(f"batch {newest} is the last that has one, and Spark asks for batch {batch.number}")
    return wanted if newest < batch.number - 1 else _begun_with(own, newest, batch, wanted, accept=accept)


def of_others(markers: Iterable[Marker | None], batch: Batch) -> list[Marker]:
    """The markers of other queries."""
    return [each for each in markers if each is not None and each.query != batch.query]


def _begun_with(own: Mapping[int, Marker], newest: int, batch: Batch, wanted: int, *, accept: bool) -> int:
    counts = {each.slots for each in own.values() if each.batch == newest}
    if len(counts) > 1:
        raise _lost_markers(f"they disagree about the number of slots of batch {newest}: {sorted(counts)}")
    recorded = counts.pop()
    behind = [slot for slot in range(recorded) if (own[slot].batch if slot in own else -1) < batch.number - 1]
    if behind and not (accept and newest < batch.number):  # a start that was accepted, and cut off, has given markers to some slots only
        raise _lost_markers(f"batch {batch.number - 1} has none in slots {behind}")
    return recorded if newest == batch.number else wanted


def needs_first_marker(marker: Marker | None, batch: Batch) -> bool:
    """Whether a slot of *batch* has no marker of this query yet, or one from before the number of slots fell."""
    return marker is None or marker.query != batch.query or marker.batch < batch.number - 1


def _another_query(batch: Batch, others: Iterable[Marker]) -> ConfigurationError:
    listed = ", ".join(f"{query} (last batch {number})" for query, number in sorted({each.query: each.batch for each in others}.items()))
    return ConfigurationError(
        f"the markers belong to another query: {listed}; this one is {batch.query}. Its checkpoint was deleted or replaced, or two queries share a "
        "transactional_id_prefix. Give each query a prefix of its own. If the old query has ended and what it wrote may be followed by "
        f"this one's batches from {batch.number} on, start once with new_checkpoint={ACCEPT!r}.", option="new_checkpoint")


def _no_markers(batch: Batch) -> ConfigurationError:
    return ConfigurationError(
        f"the marker topic has no marker, but the query is at batch {batch.number}: the topic was deleted, or transactional_id_prefix was changed, or the "
        "query wrote with another sink before. A part of this batch may be in the topic already. If that is impossible, or duplicates of one "
        f"batch are acceptable, start once with new_checkpoint={ACCEPT!r}.", option="new_checkpoint")


def _lost_markers(what: str) -> IllegalStateError:
    return IllegalStateError(f"the markers are not complete: {what}. The marker topic was changed by hand, or lost data. Compare what was written with the "
                             "source, then begin with another transactional_id_prefix.")


# ---- in a task ------------------------------------------------------------------------------------------------------


def is_written(marker: Marker | None, batch: Batch, slot: int) -> bool:
    """Whether the slot has *batch* already; False: it is to be written now.

    Raises:
        IllegalStateError: another run has taken the slots over, or the marker fits no state that this run can be in.
    """
    if marker is None:
        raise _lost_markers(f"slot {slot} has none any more")
    if (marker.query, marker.run) != (batch.query, batch.run):
        raise IllegalStateError(
            f"slot {slot} belongs to run {marker.run} of query {marker.query} now, and this is run {batch.run} of query {batch.query}: the query was started "
            "again, or another one has the same transactional_id_prefix. This task writes nothing.")
    if marker.batch not in (batch.number - 1, batch.number):
        raise _lost_markers(f"slot {slot} is at batch {marker.batch}, and batch {batch.number} is due")
    return marker.batch == batch.number


def check_replay(marker: Marker, seen: Tally, slot: int) -> None:
    """A slot is skipped: its rows must be those that were written.

    Raises:
        IllegalStateError: they are others, so rows are lost or doubled.
    """
    if marker.tally != seen:
        raise IllegalStateError(
            f"batch {marker.batch} is not what it was when slot {slot} was written: {seen.rows} rows now, {marker.tally.rows} then"
            f"{'' if seen.rows != marker.tally.rows else ', with other contents'}. Rows may be lost or doubled. The query gives other rows when it is "
            "repeated (rand, uuid, a table that changed, data that the source no longer has), or its code was changed between.")


# ---- the walk over slots --------------------------------------------------------------------------------------------


class Slots(Protocol):
    """The slots as a driver sees them."""

    def fence(self, slot: int) -> None:
        """End what older producers of the slot have begun, and keep them from beginning again."""

    def marker(self, slot: int) -> Marker | None:
        """Its last committed marker."""

    def commit(self, slot: int, marker: Marker) -> None:
        """Write a marker alone; the slot is fenced, and its producer is this one."""


def claim(slots: Slots, count: int, batch: Batch, wanted: int, *, accept: bool) -> int:
    """Take all *count* slots over for a run, then return the number of slots of *batch*.

    A slot's last marker is written again with the new run's id. So a task of an older run, wherever it was held up,
    finds that it must stop. Only then the markers are judged. Those of another query, which may be running, are looked
    at before.
    """
    if not accept and (others := of_others(map(slots.marker, range(count)), batch)):
        raise _another_query(batch, others)
    found = [_take_over(slots, slot, batch) for slot in range(count)]
    number = slots_of(found, batch, wanted, accept=accept)
    recorded = next((each.slots for each in found if each is not None and each.query == batch.query and each.batch == batch.number - 1), number)
    for slot in range(number):
        if needs_first_marker(found[slot], batch):
            slots.fence(slot)
            slots.commit(slot, Marker(query=batch.query, run=batch.run, batch=batch.number - 1, slots=recorded))
    return number


def _take_over(slots: Slots, slot: int, batch: Batch) -> Marker | None:
    slots.fence(slot)
    marker = slots.marker(slot)
    if marker is not None:
        slots.commit(slot, attrs.evolve(marker, run=batch.run))
    return marker
