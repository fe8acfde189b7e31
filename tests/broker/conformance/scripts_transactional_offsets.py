"""Scripts: offsets that are committed with a transaction, and how they are read meanwhile."""
from __future__ import annotations

from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from tests.broker.conformance import scripts_groups_consumer
from tests.broker.conformance.preparing import topic
from tests.broker.conformance.script import Act, Script, Step, Value, got, named
from tests.broker.conformance.scripts_groups import GROUP, alone, commit, committed, coordinated, described, join, sync
from tests.broker.conformance.scripts_groups_consumer import enter
from tests.broker.conformance.scripts_transactions import NONE, OTHER, TXN, add_offsets, by, end, init, ready, settled
from tests.broker.conformance.scripts_transactions import described as state

FETCHED_IN: Final = 9
"""The version of OffsetFetch in the scripts of other APIs."""


def txn_commit(producer: tuple[Value, Value], offset: int = 3, *, partition: int = 0, name: str = "topic", txn: Value = TXN, group: Value = GROUP,
               member: Value = "", generation: Value = NONE, instance: str | None = None, metadata: str | None = "", **options: Any) -> Step:
    """TxnOffsetCommit of one partition."""
    part = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": NONE, "committed_metadata": metadata}
    return Step(api=Api.TXN_OFFSET_COMMIT, **options, fields={
        "transactional_id": txn, "group_id": group, "producer_id": producer[0], "producer_epoch": producer[1], "generation_id": generation,
        "member_id": member, "group_instance_id": instance, "topics": [{"name": named(name), "partitions": [part]}]})


def offsets(*, partitions: tuple[int, ...] | None = (0, 1, 2), stable: bool = True, **options: Any) -> Step:
    """What OffsetFetch says of this run's group."""
    return committed(GROUP, partitions=partitions, stable=stable, **options)


def offsets_then(**options: Any) -> Step:
    """The same, in one version."""
    return attrs.evolve(offsets(**options), version=FETCHED_IN)


PID: Final = by("pid")
ME: Final = got("me", "member_id")
ADDED: Final[tuple[Act, ...]] = (*topic("topic", partitions=3), *coordinated(), *ready(), add_offsets(PID))
"""A transaction that includes this run's group."""
COMMITTED: Final[tuple[Act, ...]] = (end(True, PID, version=4), settled(), offsets_then())

COMMITS: Final = Script(name="txn-commit", api=Api.TXN_OFFSET_COMMIT, acts=(
    *topic("topic", partitions=3), *coordinated(), *ready(),
    txn_commit(PID, until=4), txn_commit(by("pid", 1)), txn_commit((OTHER, 0)), txn_commit(PID, txn=named("unknown")),
    txn_commit(PID, group=""), txn_commit(PID, group=named("absent"), generation=3, since=3), state(), described(GROUP),
    add_offsets(PID), txn_commit(PID, 7), txn_commit(PID, 8, partition=1), txn_commit(PID, partition=9), txn_commit(PID, name="missing"),
    txn_commit(PID, metadata="x" * 4097), txn_commit(PID, metadata=None, partition=2), state(), described(GROUP),
    offsets_then(), offsets_then(stable=False), offsets_then(partitions=None), commit(version=9), commit(partition=2, version=9), offsets_then(),
    offsets_then(partitions=None), *COMMITTED, offsets_then(partitions=None), txn_commit(PID, 70, until=4),
    init("second"), add_offsets(by("second")), txn_commit(PID, 9), txn_commit(by("second"), 90), offsets_then(),
    end(False, by("second"), version=4), settled(), offsets_then(),
))
MEMBERS: Final = Script(name="txn-commit-member", api=Api.TXN_OFFSET_COMMIT, since=3, acts=(
    *ADDED, join("asked me", version=9), join("me", got("asked me", "member_id"), version=9), txn_commit(PID, 1, member=ME, generation=1),
    sync("synced", "me", "me"),
    txn_commit(PID, 2, member=ME, generation=1), txn_commit(PID, member=ME, generation=0), txn_commit(PID, member=ME), txn_commit(PID, member="x", generation=1),
    txn_commit(PID, member="x"), txn_commit(PID, generation=1), txn_commit(PID, instance="static"), txn_commit(PID, 4, member=ME, generation=1, instance="static"),
    *COMMITTED, init("second"), add_offsets(by("second")), txn_commit(by("second"), 8), end(True, by("second"), version=4), settled(), offsets_then(),
))
STATIC: Final = Script(name="txn-commit-static", api=Api.TXN_OFFSET_COMMIT, since=3, acts=(
    *ADDED, *alone("me", "static"), txn_commit(PID, 2, member=ME, generation=1, instance="static"), txn_commit(PID, member="x", generation=1, instance="static"),
    txn_commit(PID, member=ME, generation=1, instance="other"), txn_commit(PID, 3, instance="static"), *COMMITTED,
))
CONSUMERS: Final = Script(name="txn-commit-consumer", api=Api.TXN_OFFSET_COMMIT, since=3, acts=(
    *scripts_groups_consumer.coordinated(), *scripts_groups_consumer.shared("topic"), *ready(), add_offsets(PID), enter("a"),
    txn_commit(PID, 1, member="a", generation=got("a", "member_epoch")), txn_commit(PID, member="a", generation=9), txn_commit(PID, member="a", generation=0),
    txn_commit(PID, member="a"), txn_commit(PID, member="x", generation=1), txn_commit(PID, generation=1), txn_commit(PID, 5, partition=1), *COMMITTED,
))
FETCHES: Final = Script(name="txn-unstable", api=Api.OFFSET_FETCH, acts=(
    *ADDED, commit(version=9), txn_commit(PID, 7, version=4), txn_commit(PID, 8, partition=1, version=4),
    offsets(), offsets(stable=False), offsets(partitions=None, since=2), end(True, PID, version=4), settled(), offsets(), offsets(partitions=None, since=2),
))
NEXT_EPOCHS: Final = Script(name="txn-commit-next-epochs", api=Api.TXN_OFFSET_COMMIT, since=5, acts=(
    *topic("topic"), *coordinated(), *ready(),
    txn_commit(PID, 1), state(), end(True, PID, "one"), settled(), offsets_then(),
    txn_commit(PID, 2), txn_commit(by("one"), 3), end(False, by("one"), "two"), settled(), offsets_then(), state(),
))
SCRIPTS: Final = (COMMITS, MEMBERS, STATIC, FETCHES, NEXT_EPOCHS)
OF_CONSUMER_GROUPS: Final = (CONSUMERS,)
"""The oldest release has no such groups unless its settings say so."""
