"""Scripts: transactional ids, their epochs and states, and the batches and offsets of transactions."""
from __future__ import annotations

from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from pyclient.codec.encode import encode_batch
from pyclient.testing.fake.model.batch import Batch
from pyclient.testing.fake.model.validation import batches_in
from tests.broker.conformance.preparing import fetch_all, topic, topic_id
from tests.broker.conformance.script import Act, Plain, Run, Script, Step, Value, all_ok, got, named
from tests.broker.conformance.scripts_produce import produce

TRANSACTION: Final = 1
NONE: Final = -1
OTHER: Final = 987_654
"""A producer id that no broker gave."""
TXN: Final = named("txn")
GROUP: Final = named("group")
SETTLED: Final = ("Empty", "CompleteCommit", "CompleteAbort")


def is_settled(answer: Plain) -> bool:
    """Whether all markers are written."""
    return answer["transaction_states"][0]["transaction_state"] in SETTLED


def init(name: str = "init", txn: Value = TXN, producer: tuple[Value, Value] = (NONE, NONE), timeout_ms: int = 60_000, **options: Any) -> Step:
    return Step(api=Api.INIT_PRODUCER_ID, name=name, **options, fields={
        "transactional_id": txn, "transaction_timeout": timeout_ms, "producer_id": producer[0], "producer_epoch": producer[1]})


def ready(txn: Value = TXN) -> tuple[Act, ...]:
    """A coordinator that answers; the id has an epoch then."""
    return (
        Step(api=Api.FIND_COORDINATOR, ready=all_ok, version=3, fields={"key": txn, "key_type": TRANSACTION, "coordinator_keys": [txn]}),
        init("warm", named("warm"), ready=all_ok), init("pid"),
    )


def settled(txn: Value = TXN) -> Step:
    """Until the markers of the last end are written."""
    return Step(api=Api.DESCRIBE_TRANSACTIONS, ready=is_settled, fields={"transactional_ids": [txn]})


def described(*txns: Value) -> Step:
    """What DescribeTransactions says."""
    return Step(api=Api.DESCRIBE_TRANSACTIONS, fields={"transactional_ids": list(txns or (TXN,))})


def by(step: str = "pid", epoch: int = 0) -> tuple[Value, Value]:
    """The producer id of an answer, and its epoch or another one."""
    return got(step, "producer_id"), lambda run: got(step, "producer_epoch")(run) + epoch


def end(commit: bool, producer: tuple[Value, Value], name: str = "", txn: Value = TXN, **options: Any) -> Step:
    return Step(api=Api.END_TXN, name=name, **options, fields={
        "transactional_id": txn, "producer_id": producer[0], "producer_epoch": producer[1], "committed": commit})


def add(producer: tuple[Value, Value], *places: tuple[Value, list[int]], txn: Value = TXN, verify: bool = False, **options: Any) -> Step:
    topics = [{"name": name, "partitions": indexes} for name, indexes in places or ((named("topic"), [0]),)]
    return Step(api=Api.ADD_PARTITIONS_TO_TXN, **options, fields={
        "v3_and_below_transactional_id": txn, "v3_and_below_producer_id": producer[0], "v3_and_below_producer_epoch": producer[1],
        "v3_and_below_topics": topics, "transactions": [
            {"transactional_id": txn, "producer_id": producer[0], "producer_epoch": producer[1], "verify_only": verify, "topics": topics}]})


def add_old(producer: tuple[Value, Value], *places: tuple[Value, list[int]], **options: Any) -> Step:
    """As clients of protocol V1 add partitions, whatever version is under test."""
    return add(producer, *places, version=3, **options)


def add_offsets(producer: tuple[Value, Value], txn: Value = TXN, group: Value = GROUP, **options: Any) -> Step:
    return Step(api=Api.ADD_OFFSETS_TO_TXN, **options, fields={
        "transactional_id": txn, "producer_id": producer[0], "producer_epoch": producer[1], "group_id": group})


def stored(producer: tuple[Value, Value], sequence: int = 0, *, count: int = 1, partition: int = 0, transactional: bool = True,
           txn: Value = TXN, where: str = "topic", **options: Any) -> Step:
    def records(run: Run) -> bytes:
        now = int(run.began * 1000)  # as that of markers: brokers begin another segment for much newer records
        return encode_batch([(now, None, b"in a transaction", [])] * count, producer_id=run.resolve(producer[0]), producer_epoch=run.resolve(producer[1]),
                     base_sequence=sequence, transactional=transactional)
    return Step(api=Api.PRODUCE, **options, fields=produce((named(where), topic_id(where), partition, records), transactional_id=txn))


def log(name: str = "topic", partition: int = 0) -> Step:
    """What a partition holds: the heads of its batches, and its ended transactions."""
    return attrs.evolve(fetch_all(name, partition, isolation_level=1), shown=_heads)


def _heads(answer: Plain) -> Plain:
    found = answer["responses"][0]["partitions"][0]
    heads = [(each.base_offset, each.producer_id, each.producer_epoch, each.base_sequence, each.attributes,
              each.is_control and each.marker()) for each in map(Batch.of, batches_in(found["records"]))]
    return {**answer, "responses": [{"partitions": [{**found, "records": heads}]}]}


def both_ends(producer: tuple[Value, Value], txn: Value = TXN) -> tuple[Act, ...]:
    return end(False, producer, txn=txn), end(True, producer, txn=txn)


INITS: Final = Script(name="txn-init", api=Api.INIT_PRODUCER_ID, acts=(
    *ready(),
    init("again"), init("third"),
    init(timeout_ms=0), init(timeout_ms=-5), init(timeout_ms=900_001), init(timeout_ms=900_000),
    init("fourth", producer=by("third", 1), since=3),
    init("repeated", producer=by("third", 1), since=3),
    init(producer=by("pid"), since=3), init(producer=by("fourth", 7), since=3),
    init(producer=(OTHER, 0), since=3), init("new", named("new"), (OTHER, 3), since=3),
    init(txn=""),
    described(), described(named("unknown"), TXN), described(""),
))
"""Epochs of a transactional id without any transaction."""
INIT_ABORTS: Final = Script(name="txn-init-aborts", api=Api.INIT_PRODUCER_ID, acts=(
    *topic("topic", partitions=2), *ready(),
    add_old(by("pid")),
    init(), settled(), described(), init("after"), described(),
    add_old(by("pid")), stored(by("pid"), version=11), end(True, by("pid"), version=4), end(True, by("pid")),
    add_old(by("after")), stored(by("after"), version=11), init(), settled(), init("end"), described(), log(),
))
"""A producer that initializes aborts what is open."""
OWNERS_ABORT: Final = Script(name="txn-owner-aborts", api=Api.INIT_PRODUCER_ID, since=3, acts=(
    *topic("topic"), *ready(),
    add_old(by("pid")), init(producer=by("pid", 3)), settled(), described(), init("second"),
    add_old(by("second")), init(producer=by("second", 3)), settled(), described(), init("third", producer=by("second", 1)),
    add_old(by("third")), init(producer=by("third")), settled(), init(producer=by("third")), init("end"), described(), log(),
))
"""Also the owner itself (KIP-360), and one of another epoch."""
ENDS: Final = Script(name="txn-end", api=Api.END_TXN, acts=(
    *topic("topic", partitions=2), *ready(),
    *both_ends(by("pid", 5)), *both_ends((OTHER, 0)), *both_ends(by("pid"), named("unknown")), *both_ends(by("pid"), ""),
    end(True, by("pid")), end(False, by("pid"), "empty"), settled(), described(), init("second"),
    add_old(by("second")), described(),
    *both_ends(by("second", -1)), *both_ends(by("second", 1)), *both_ends((OTHER, 0)),
    end(True, by("second"), "committed"), settled(),
    described(),
    end(True, by("second")), end(False, by("second")),
    init("third"), add_old(by("third")), end(False, by("third"), "aborted"), settled(), described(),
    end(False, by("third")), end(True, by("third")),
    init("fourth"), described(),
))
"""Every end in every state."""
NEXT_EPOCHS: Final = Script(name="txn-next-epochs", api=Api.END_TXN, since=5, acts=(
    *topic("topic", partitions=2), *ready(),
    stored(by("pid")), stored(by("pid"), 1), end(True, by("pid"), "one"), settled(),
    end(False, by("one"), "none"), settled(), end(False, by("one")), end(True, by("one")), end(True, by("none")), end(False, by("none"), "none again"), settled(),
    stored(by("none again", -1), partition=1), stored(by("none again"), partition=1), described(),
    end(False, by("none again"), "two"), settled(),
    stored(by("none again")), stored(by("two"), 5), stored(by("two")), end(True, by("two"), "three"), settled(),
    init("again", producer=by("three")), init("old", producer=by("two")),
    described(), log("topic"), log("topic", 1),
))
"""Protocol V2: each end begins an epoch, and the first batch adds its partition."""
ADDITIONS: Final = Script(name="txn-add", api=Api.ADD_PARTITIONS_TO_TXN, acts=(
    *topic("topic", partitions=2), *topic("other"), *ready(),
    add(by("pid", 3)), add((OTHER, 0)), add(by("pid"), txn=named("unknown")), add(by("pid"), txn=""),
    add(by("pid"), (named("topic"), [0, 9]), (named("missing"), [0])), add(by("pid"), ("__consumer_offsets", [0]), (named("other"), [0]), until=3),
    add(by("pid"), verify=True, since=4),
    described(),
    add(by("pid")), add(by("pid")), add(by("pid"), (named("topic"), [0, 1]), (named("other"), [0])), described(),
    add(by("pid"), (named("topic"), [0, 1]), verify=True, since=4), add(by("pid", 1), verify=True, since=4), add(by("pid", -1)), add(by("pid", 1)),
    end(True, by("pid"), version=4), settled(), add(by("pid"), verify=True, since=4), add(by("pid")), described(), end(False, by("pid"), version=4), settled(),
))
OFFSETS_ADDED: Final = Script(name="txn-add-offsets", api=Api.ADD_OFFSETS_TO_TXN, acts=(
    *ready(),
    add_offsets(by("pid", 3)), add_offsets((OTHER, 0)), add_offsets(by("pid"), txn=named("unknown")), add_offsets(by("pid"), txn=""),
    add_offsets(by("pid")), add_offsets(by("pid")), add_offsets(by("pid"), group=named("other")),
    described(),
    end(False, by("pid"), version=4), settled(), described(),
))
BATCHES: Final = Script(name="txn-produce", api=Api.PRODUCE, acts=(
    *topic("topic", partitions=3), *ready(),
    stored(by("pid"), txn=None), stored(by("pid"), transactional=False, partition=2),
    stored(by("pid"), until=11), stored(by("pid", 1)), stored((OTHER, 0)), stored(by("pid"), txn=named("unknown")),
    described(),
    add_old(by("pid")), stored(by("pid", 1)), stored(by("pid", -1)), stored(by("pid"), 2), stored(by("pid"), 0, count=2),
    stored(by("pid"), 2), stored(by("pid"), 3), stored(by("pid"), 2), stored(by("pid"), 9), stored(by("pid"), 4, transactional=False),
    stored(by("pid"), partition=1, until=11), stored(by("pid"), 4, partition=1, since=12), stored(by("pid"), partition=1, since=12),
    described(), log("topic"), log("topic", 1),
    end(True, by("pid"), version=4), settled(),
    stored(by("pid"), 4, until=11), stored(by("pid"), 4, since=12), described(),
    add_old(by("pid")), stored(by("pid"), 5), stored(by("pid"), 4), end(False, by("pid"), "end", version=4), settled(),
    init("next"), stored(by("pid"), 5), add_old(by("next")), stored(by("next"), 3), stored(by("next")), end(True, by("next"), version=4), settled(),
    log("topic"),
))
DESCRIBED: Final = Script(name="txn-describe", api=Api.DESCRIBE_TRANSACTIONS, acts=(
    *topic("topic", partitions=3), *ready(), described(), described(named("unknown")), described(""), described(TXN, TXN),
    add_old(by("pid"), (named("topic"), [0, 2])), add_offsets(by("pid")), described(), end(True, by("pid"), version=4), settled(), described(),
))


def listed(*states: str, ids: tuple[Value, ...] = (), longer_than_ms: int = NONE, pattern: Value = None, **options: Any) -> Step:
    """What ListTransactions says of this script's transactional ids."""
    return Step(api=Api.LIST_TRANSACTIONS, shown=_own, **options, fields={
        "state_filters": list(states), "producer_id_filters": list(ids), "duration_filter": longer_than_ms, "transactional_id_pattern": pattern})


def _own(answer: Plain) -> Plain:
    own = [each for each in answer["transaction_states"] if each["transactional_id"].startswith("txn.txn-list.")]
    return {**answer, "transaction_states": sorted(own, key=str)}


LISTED: Final = Script(name="txn-list", api=Api.LIST_TRANSACTIONS, acts=(
    *topic("topic"), *ready(), listed(), listed("Ongoing"), listed("Empty"), listed("Empty", "Strange"), listed("Strange"),
    add_old(by("pid")), listed("Ongoing"), listed("Empty"), listed("Ongoing", ids=(got("pid", "producer_id"), OTHER)), listed(ids=(OTHER,)),
    listed("Ongoing", longer_than_ms=3_600_000, since=1),
    listed("Ongoing", pattern="txn.*", since=2), listed(pattern="nothing", since=2), listed(pattern="", since=2), listed(pattern="(", since=2),
    end(True, by("pid"), version=4), settled(), listed("Ongoing"), listed("CompleteCommit"), listed(longer_than_ms=3_600_000, since=1),
))


def producers_of(*places: tuple[Value, list[int]], **options: Any) -> Step:
    """What DescribeProducers says."""
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in places or ((named("topic"), [0]),)]
    return Step(api=Api.DESCRIBE_PRODUCERS, **options, fields={"topics": topics})


DESCRIBED_PRODUCERS: Final = Script(name="producers", api=Api.DESCRIBE_PRODUCERS, acts=(
    *topic("topic", partitions=2), *ready(), producers_of(), producers_of((named("topic"), [0, 1, 7]), (named("unknown"), [0])),
    add_old(by("pid")), stored(by("pid"), version=11), producers_of(), stored(by("pid"), 1, count=3, version=11), producers_of(),
    end(True, by("pid"), version=4), settled(), producers_of(), init("next"), producers_of(),
    add_old(by("next")), stored(by("next"), version=11), producers_of(), end(False, by("next"), version=4), settled(), producers_of(),
))


def marked(producer: tuple[Value, Value], *places: tuple[Value, list[int]], commits: bool = False, coordinator_epoch: int = 0, **options: Any) -> Step:
    """A marker, as an administrator writes it."""
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in places or ((named("topic"), [0]),)]
    return Step(api=Api.WRITE_TXN_MARKERS, **options, fields={"markers": [
        {"producer_id": producer[0], "producer_epoch": producer[1], "transaction_result": commits, "coordinator_epoch": coordinator_epoch,
         "topics": topics}]})


MARKERS: Final = Script(name="txn-markers", api=Api.WRITE_TXN_MARKERS, until=1, acts=(
    *topic("topic", partitions=2), *ready(), init("next"),
    add_old(by("next"), (named("topic"), [0, 1])), stored(by("next"), version=11), stored(by("next"), partition=1, version=11),
    marked(by("next", -1)), marked(by("next"), (named("topic"), [0, 7]), (named("unknown"), [0])), producers_of((named("topic"), [0, 1])), log(), log("topic", 1),
    marked(by("next"), (named("topic"), [1]), commits=True), producers_of((named("topic"), [1])), log("topic", 1),
    end(False, by("next"), version=4), settled(), log(),
))
SCRIPTS: Final = (
    INITS, INIT_ABORTS, OWNERS_ABORT, ENDS, NEXT_EPOCHS, ADDITIONS, OFFSETS_ADDED, BATCHES, DESCRIBED, LISTED, DESCRIBED_PRODUCERS, MARKERS)
