"""Consumer groups of the next generation (KIP-848): members, step by step, and what others see of their groups."""
from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from tests.broker.conformance.preparing import topic, topic_id
from tests.broker.conformance.script import Act, Run, Script, Step, Value, all_ok, got, named
from tests.broker.conformance.scripts_groups import (
    GROUP,
    OURS,
    READY,
    alone,
    classic_heartbeat,
    commit,
    committed,
    delete,
    described,
    join,
    leave,
    listed,
    sync,
)

JOINS, LEAVES, LEAVES_FOR_NOW = 0, -1, -2
REBALANCE_MS: Final = 30_000
NOTHING: Final[Any] = {"topic_partitions": ()}
Owned = Mapping[str, Sequence[int]]
"""Partitions by the names of topics that this script made."""


def epoch_of(name: str) -> Value:
    """The member epoch in the last answer of this name."""
    return got(name, "member_epoch")


def parts(owned: Owned | None) -> Value:
    return None if owned is None else [{"topic_id": topic_id(each), "partitions": list(indexes)} for each, indexes in owned.items()]


def heartbeat(name: str, epoch: Value = None, *, member: Value = None, group: Value = GROUP, topics: Sequence[Value] | None = None,
          pattern: Value = None, owned: Owned | None = None, instance: str | None = None, rack: str | None = None,
          assignor: str | None = None, rebalance_ms: int = -1, step: str = "", **rules: Any) -> Step:
    """A heartbeat with the given fields only; the epoch defaults to the one of the member's last answer.

    Ids are single letters, which the broker's hash map keeps in order; each run has its own groups.
    """
    return Step(api=Api.CONSUMER_GROUP_HEARTBEAT, name=step or name, **rules, fields={
        "group_id": group, "member_id": name if member is None else member, "member_epoch": epoch_of(name) if epoch is None else epoch,
        "instance_id": instance, "rack_id": rack, "rebalance_timeout": rebalance_ms,
        "subscribed_topic_names": None if topics is None else list(topics), "subscribed_topic_regex": pattern, "server_assignor": assignor,
        "topic_partitions": parts(owned)})


def enter(name: str, *topics: str, pattern: Value = None, **said: Any) -> Step:
    """A member joins."""
    names = [named(each) for each in topics or (("topic",) if pattern is None else ())]
    return heartbeat(name, **{"epoch": JOINS, "topics": names, "pattern": pattern, "owned": {}, "rebalance_ms": REBALANCE_MS, **said})


def gone(name: str, **said: Any) -> Step:
    """A member leaves permanently."""
    return heartbeat(name, LEAVES, step="gone", **said)


def away(name: str, **said: Any) -> Step:
    """A static member leaves temporarily."""
    return heartbeat(name, LEAVES_FOR_NOW, step="gone", **said)


def wrong(step: Step) -> Step:
    """The same, expected to fail; the member's last answer stays the one before."""
    return attrs.evolve(step, name="refused")


def seen(*groups: Value, operations: bool = False, **rules: Any) -> Step:
    return Step(api=Api.CONSUMER_GROUP_DESCRIBE, **rules, fields={"group_ids": list(groups) or [GROUP],
                                                                  "include_authorized_operations": operations})


def until_assigned(step: Step) -> Step:
    """A preparation: repeat the heartbeat until it has an assignment; topic changes are noticed a little later."""
    return attrs.evolve(step, ready=lambda answer: answer["assignment"] is not None)


def until_group_epoch(epoch: int) -> Step:
    """A preparation: wait until the group is in this epoch."""
    return attrs.evolve(seen(), ready=lambda answer: answer["groups"][0]["group_epoch"] == epoch)


def coordinated() -> tuple[Act, ...]:
    """Wait until this run's group has a coordinator that has loaded it."""
    return READY, Step(api=Api.CONSUMER_GROUP_HEARTBEAT, fields=heartbeat("unknown", 1).fields,
                       ready=lambda answer: answer["error_code"] == "group_id_not_found")


def shared(*names: str, partitions: int = 6) -> tuple[Act, ...]:
    """Topics, of which the coordinator knows: it hears of them a little later than those who lead their partitions."""
    probe = named("probe")
    joins = enter("probe", *names, group=probe)
    return (
        *(act for name in names for act in topic(name, partitions)),
        attrs.evolve(joins, ready=lambda answer: len((answer["assignment"] or NOTHING)["topic_partitions"]) == len(names)),
        attrs.evolve(gone("probe", group=probe), ready=all_ok), attrs.evolve(delete(probe), ready=all_ok),
        *((known(*names),) if len(names) > 1 else ()),
    )


def known(*names: str) -> Step:
    """Exchange the topics' ids: they must be paired before an unordered list contains them."""
    return Step(api=Api.METADATA, fields={"topics": [{"topic_id": None, "name": named(each)} for each in names], "allow_auto_topic_creation": False,
                                          "include_topic_authorized_operations": False, "include_cluster_authorized_operations": False})


SIX: Final = ("u", "v", "w", "x", "y", "z")
"""So many topics that two maps hardly ever have them in the same order."""
PREPARED: Final = (*coordinated(), *shared("topic"))
ONE: Final = Script(name="consumer-alone", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, seen(), enter("a"), seen(), heartbeat("a"), heartbeat("a", owned={"topic": range(6)}), heartbeat("a", owned={}),
    heartbeat("a", topics=[OURS]), heartbeat("a", topics=[OURS], rebalance_ms=REBALANCE_MS, owned={"topic": range(6)}), enter("a"), seen(),
    gone("a"), seen(), gone("a"), wrong(heartbeat("a", 1)), enter("a"), gone("a"), seen(operations=True),
))
THREE: Final = Script(name="consumer-reconciling", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, enter("a"), enter("b"), seen(), heartbeat("b"), heartbeat("a"), seen(), heartbeat("b"), heartbeat("a"), heartbeat("a", owned={"topic": range(6)}),
    heartbeat("a", owned={"topic": range(3)}), seen(), heartbeat("b"), seen(), heartbeat("b", owned={"topic": range(3, 6)}), heartbeat("a"),
    enter("c"), seen(), heartbeat("a"), heartbeat("b"), seen(), heartbeat("a", owned={"topic": (0, 1)}), heartbeat("c"), seen(),
    heartbeat("b", owned={"topic": (3, 4)}), heartbeat("c"), seen(),
    gone("b"), seen(), heartbeat("a"), heartbeat("c"), heartbeat("a"), seen(), gone("a"), heartbeat("c"), seen(), gone("c"), seen(),
))
UNEVEN: Final = Script(name="consumer-uneven", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *coordinated(), *shared("topic", partitions=5), enter("a"), enter("b"), heartbeat("a"), heartbeat("a", owned={"topic": range(3)}), heartbeat("b"), seen(),
    enter("c"), heartbeat("a"), heartbeat("b"), heartbeat("a", owned={"topic": range(2)}), heartbeat("b", owned={"topic": (3, 4)}), heartbeat("c"), seen(),
    enter("d"), heartbeat("a"), heartbeat("b"), heartbeat("a", owned={"topic": (0,)}), heartbeat("b", owned={"topic": (3,)}), heartbeat("c"), heartbeat("d"), seen(),
    gone("c"), heartbeat("a"), heartbeat("b"), heartbeat("d"), seen(),
))
MANY: Final = Script(name="consumer-many-topics", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *coordinated(), *shared(*SIX, partitions=2), enter("a", *SIX), seen(), heartbeat("a", owned=dict.fromkeys(SIX, (0, 1))), seen(), gone("a"),
))
STATIC: Final = Script(name="consumer-static", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, enter("a", instance="one"), wrong(enter("b", instance="one")), wrong(heartbeat("b", 1, instance="one")),
    wrong(heartbeat("a", instance="two")),
    enter("b"), heartbeat("a", instance="one"), heartbeat("a", owned={"topic": range(3)}, instance="one"), heartbeat("b"), seen(),
    away("a", instance="one"), seen(), heartbeat("b"), wrong(heartbeat("a", instance="one")),
    enter("c", instance="one"), seen(), wrong(heartbeat("a", instance="one")), heartbeat("c", instance="one"), wrong(gone("a", instance="one")),
    wrong(gone("c", instance="two")), gone("c", instance="one"), seen(), heartbeat("b"), gone("b"), seen(),
    enter("d", instance="one"), away("d", instance="one"), enter("d", instance="one"), seen(), gone("d", instance="one"),
))
FENCED: Final = Script(name="consumer-fencing", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, enter("a"), wrong(heartbeat("a", 3)), wrong(heartbeat("a", 7, owned={"topic": range(6)})), wrong(heartbeat("unknown", 1)), heartbeat("a", 2),
    enter("b"), heartbeat("a"), heartbeat("a", owned={"topic": range(3)}), heartbeat("b"), seen(),
    wrong(heartbeat("a", 2)), wrong(heartbeat("a", 2, owned={"topic": range(6)})), wrong(heartbeat("a", 2, owned={"topic": (4,)})),
    heartbeat("a", 2, owned={"topic": (0,)}), heartbeat("a", 2, owned={}), heartbeat("a", 3), wrong(heartbeat("a", 4)), enter("a"), seen(),
    gone("b"), heartbeat("a"), wrong(heartbeat("a", 2, owned={})), heartbeat("a", 3, owned={"topic": (0,)}), seen(),
))
WRONG: Final = Script(name="consumer-wrong", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED,
    enter("a", group=""), enter("a", group="  "), enter("a", instance=""), enter("a", rack=""), enter("a", rebalance_ms=-1),
    enter("a", owned=None), enter("a", owned={"topic": (0,)}), enter("a", topics=None), enter("a", assignor="nonsense"), enter("a", assignor=""),
    heartbeat("a", -3), heartbeat("a", LEAVES_FOR_NOW), heartbeat("a", 1), heartbeat("a", 1, instance="one"), heartbeat("a", LEAVES), heartbeat("a", 1, assignor="odd"),
    heartbeat("x", 1, member=""), heartbeat("x", LEAVES, member=""), heartbeat("x", LEAVES_FOR_NOW, member="", instance="one"),
    enter("x", member="", until=0), enter("x", member="", since=1), enter("x", member=" "),
    seen(), seen("unknown"), seen(""), seen(GROUP, GROUP, operations=True),
))
ASSIGNORS: Final = Script(name="consumer-assignors", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *coordinated(), *shared("topic", "other"), enter("a", "topic", "other", assignor="range"), seen(), enter("b", "topic", "other", assignor="range"),
    heartbeat("a"), heartbeat("a", owned={"topic": range(3), "other": range(3)}), heartbeat("b"), seen(),
    enter("c", "topic", "other", assignor="range"), heartbeat("a"), heartbeat("b"),
    heartbeat("a", owned={"topic": range(2), "other": range(2)}), heartbeat("b", owned={}), heartbeat("c"), heartbeat("b"), seen(),
    heartbeat("a", assignor="uniform"), heartbeat("b", assignor="uniform"), seen(), gone("c"), seen(),
))
SUBSCRIPTIONS: Final = Script(name="consumer-subscriptions", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *coordinated(), *shared("topic", "other"), enter("a", topics=[]), seen(), heartbeat("a", topics=[OURS]), heartbeat("a", topics=[OURS]),
    heartbeat("a", topics=[named("other"), OURS], owned={"topic": range(6)}), heartbeat("a", topics=[OURS, named("other")]), seen(),
    heartbeat("a", topics=[named("other")]), seen(), heartbeat("a"), heartbeat("a", owned={"other": range(6)}), seen(),
    heartbeat("a", topics=[named("missing")]), heartbeat("a", owned={}), seen(), heartbeat("a", topics=[]), seen(),
    heartbeat("a", topics=[OURS, OURS]), enter("b", "other"), heartbeat("b"), seen(), heartbeat("b", topics=[OURS], owned={"other": range(6)}),
    heartbeat("b", owned={}), heartbeat("a"), seen(), gone("b"), gone("a"),
))


def patterned(*bad: str) -> tuple[Step, ...]:
    return tuple(wrong(enter("x", pattern=each)) for each in bad)


PATTERNS: Final = Script(name="consumer-patterns", api=Api.CONSUMER_GROUP_HEARTBEAT, since=1, acts=(
    *PREPARED, *patterned("[", "(", ")", "*", "a**", "a{2,1}", "a{1001}", "(?=a)", "(?!a)", "(?<=a)", "\\1", "\\8", "a\\", "[b-a]", "[[:odd:]]",
                          "\\p{Odd}", "(?P<n>a)(?P<n>b)", "(?P<n", "(?P=n)", "\\y", "(?z)", "(?i", "a++", "\\C", "\\Z", "[a", "(?>a)"),
    enter("a", pattern=named("topi[a-d]")), until_group_epoch(2), seen(), heartbeat("a"), seen(), heartbeat("a", pattern=named("topi[a-d]")),
    enter("b", pattern=named("topi[a-d]")), seen(), heartbeat("a"), heartbeat("a", owned={"topic": range(3)}), heartbeat("b"), seen(),
    heartbeat("b", pattern="", topics=[OURS]), seen(), heartbeat("b", topics=[]), heartbeat("b", owned={}), seen(),
    heartbeat("a"), gone("b"), heartbeat("a"), seen(), heartbeat("a", pattern=""), heartbeat("a", owned={}), seen(), gone("a"), seen(),
))
# Brokers do not reassign when a pattern is replaced by one that matches nothing: partitions stay unowned for a while.
STRANDED: Final = Script(name="consumer-stranded", api=Api.CONSUMER_GROUP_HEARTBEAT, since=1, acts=(
    *PREPARED, enter("a"), enter("b", pattern=named("topi[a-d]")), until_group_epoch(3), heartbeat("a"), heartbeat("a", owned={"topic": range(3)}),
    heartbeat("b"), heartbeat("b", owned={"topic": range(3, 6)}), seen(), heartbeat("b", pattern="nothing", owned={"topic": range(3, 6)}), heartbeat("b", owned={}),
    *(step for _ in range(30) for step in (heartbeat("a"), heartbeat("b"))), seen(),
))
# Replaced before its member heard of the target: the group is stable without those partitions.
STRANDED_EARLY: Final = Script(name="consumer-stranded-early", api=Api.CONSUMER_GROUP_HEARTBEAT, since=1, acts=(
    *PREPARED, enter("a", pattern=named("topi[a-d]")), until_group_epoch(2), enter("b", assignor="range"), heartbeat("a", pattern="nothing"), seen(),
    *(step for _ in range(30) for step in (heartbeat("a"), heartbeat("b"))), seen(),
))


def grow(count: int) -> Step:
    return Step(api=Api.CREATE_PARTITIONS, fields={"timeout": 10_000, "validate_only": False, "topics": [
        {"name": OURS, "count": count, "assignments": None}]}, ready=lambda answer: answer["results"][0]["error_code"] == "none")


DROP: Final = Step(api=Api.DELETE_TOPICS, version=5, fields={"topic_names": [OURS], "timeout": 10_000}, ready=all_ok)
TOPICS: Final = Script(name="consumer-topics", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *coordinated(), enter("a"), seen(), *topic("topic", 2), until_assigned(heartbeat("a")), seen(), enter("b"), heartbeat("a"),
    heartbeat("a", owned={"topic": (0,)}), heartbeat("b"), seen(),
    grow(4), until_assigned(heartbeat("a")), seen(), heartbeat("b"), seen(), DROP, until_assigned(heartbeat("a")), seen(),
    heartbeat("a", owned={}), heartbeat("b", owned={}), seen(),
))
LATE: Final = Script(name="consumer-late", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, enter("a", rebalance_ms=1000), enter("b"), heartbeat("a"), heartbeat("b"), seen(),
    attrs.evolve(seen(), ready=lambda answer: len(answer["groups"][0]["members"]) == 1), seen(), wrong(heartbeat("a")), heartbeat("b"), seen(),
))


# ---- others ----------------------------------------------------------------------------------------------------------

DESCRIBED: Final = Script(name="consumer-group-describe", api=Api.CONSUMER_GROUP_DESCRIBE, acts=(
    *PREPARED, seen(), seen("", "unknown"), commit(version=9), seen(),
    enter("a", rack="r1", assignor="uniform"), seen(), enter("b", instance="one"), seen(operations=True), heartbeat("a"), seen(GROUP, "unknown", GROUP),
    gone("a"), away("b", instance="one"), seen(), gone("b", instance="one"), seen(), delete(GROUP), seen(),
))
LISTED: Final = Script(name="consumer-list-groups", api=Api.LIST_GROUPS, acts=(
    *PREPARED, enter("a"), listed(), enter("b"), listed("Reconciling", since=4), listed("stable", since=4),
    listed(kinds=("classic",), since=5), listed(kinds=("Consumer",), since=5), listed("Assigning", kinds=("consumer",), since=5),
    gone("b"), listed("Assigning", since=4), listed(), gone("a"), listed("Empty", since=4), delete(GROUP), listed(),
))
DELETED: Final = Script(name="consumer-delete-groups", api=Api.DELETE_GROUPS, acts=(
    *PREPARED, enter("a"), commit("a", epoch_of("a"), version=9), delete(GROUP), gone("a"), committed(GROUP),
    delete(GROUP), delete(GROUP), committed(GROUP), seen(),
))
COMMITS: Final = Script(name="consumer-commits", api=Api.OFFSET_COMMIT, acts=(
    *PREPARED, enter("a"), commit("a", epoch_of("a")), commit("a", 0), commit("a", 3),
    commit("a", -1), commit(), commit("", 1), commit("unknown", 1), commit("a", epoch_of("a"), instance="one", since=7),
    enter("b"), heartbeat("a"), commit("a", epoch_of("a"), partition=5), commit("a", epoch_of("a"), partition=5), committed(GROUP),
    heartbeat("a", owned={"topic": range(3)}), commit("a", 2), commit("a", 1), commit("a", epoch_of("a")), commit("b", epoch_of("b"), partition=5),
    commit("b", 2, partition=5), heartbeat("b"), commit("b", 3, partition=5), commit("a", 2, partition=5), commit("a", 2, metadata="x" * 4097),
    commit("a", 2, metadata="x" * 4097, partition=5), committed(GROUP),
    gone("a"), gone("b"), commit(), commit("a", 3), committed(GROUP), delete(GROUP),
))


def asked(member: Value, epoch: Value, **rules: Any) -> Step:
    """Offsets, asked for by a member."""
    group = {"group_id": GROUP, "member_id": member, "member_epoch": epoch,
             "topics": [{"name": OURS, "topic_id": topic_id(), "partition_indexes": [0, 1]}]}
    return Step(api=Api.OFFSET_FETCH, since=9, fields={"group_id": GROUP, "topics": group["topics"], "require_stable": True, "groups": [group]},
                **rules)


FETCHED: Final = Script(name="consumer-offset-fetch", api=Api.OFFSET_FETCH, since=8, acts=(
    *PREPARED, asked("a", 1), asked(None, -1), enter("a"), commit("a", epoch_of("a"), version=9),
    committed(GROUP), asked("a", epoch_of("a")), asked("a", 0), asked("a", 3), asked("a", -1), asked("unknown", 2),
    asked("", -1), asked(None, -1), gone("a"), asked("a", 2), asked(None, -1), committed(GROUP, partitions=None),
))
UNWANTED: Final = Script(name="consumer-offset-delete", api=Api.OFFSET_DELETE, acts=(
    *PREPARED, enter("a"), commit("a", epoch_of("a"), version=9),
    *(step for _ in range(2) for step in (
        Step(api=Api.OFFSET_DELETE, fields={"group_id": GROUP, "topics": [{"name": OURS, "partitions": [{"partition_index": 0}]}]}),
        committed(GROUP), heartbeat("a", LEAVES, step="gone"))),
))

# ---- the other kind --------------------------------------------------------------------------------------------------

OTHER_KIND: Final = Script(name="consumer-and-classic", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, enter("a"), classic_heartbeat("a", 2), classic_heartbeat("", 1), leave(("unknown", None)), leave(("", "one")), described(GROUP),
    sync("synced", "joined", member="a", generation=2), commit("a", epoch_of("a"), version=9), enter("b", instance="one"),
    leave(("x", "one")), leave(("", "one"), ("a", None)), seen(), described(GROUP), *alone(), described(GROUP), committed(GROUP), seen(), wrong(heartbeat("b", 1)), wrong(gone("b")),
    leave((got("me", "member_id"), None)), described(GROUP), wrong(heartbeat("b", 1)), enter("b"), described(GROUP), seen(), committed(GROUP),
    gone("b"), commit(), seen(), delete(GROUP), commit(version=9), enter("c"), committed(GROUP), seen(), gone("c"),
))


def said(owned: Sequence[int] = (), version: int = 1) -> Value:
    """A classic member's subscription to this run's topic, with what it has."""
    def written(run: Run) -> bytes:
        name = run.name("topic").encode()
        mine = struct.pack(f">ih{len(name)}si{len(owned)}i", 1, len(name), name, len(owned), *owned) if owned else struct.pack(">i", 0)
        return struct.pack(f">hih{len(name)}si", version, 1, len(name), name, -1) + mine
    return written


def handed(indexes: Sequence[int]) -> Value:
    """An assignment of partitions of this run's topic."""
    def written(run: Run) -> bytes:
        name = run.name("topic").encode()
        return struct.pack(f">hih{len(name)}si{len(indexes)}ii", 1, 1, len(name), name, len(indexes), *indexes, -1)
    return written


def classic_join(name: str, member: Value = None, *, owned: Sequence[int] = (), instance: str | None = None, protocol: str = "range",
          metadata: Value = None, **rules: Any) -> Step:
    """A JoinGroup of a classic member with its id."""
    step = join(name, got(name, "member_id") if member is None else member, instance=instance)
    return attrs.evolve(step, **rules, fields={**step.fields, "protocols": [
        {"name": protocol, "metadata": said(owned) if metadata is None else metadata}]})


def heard(name: str, assigned: Sequence[int] = (), *, instance: str | None = None, leads: bool = False, **wrong: Any) -> Step:
    """A SyncGroup of a classic member; one that leads hands out what it has itself."""
    step = sync("synced", name, *((name,) if leads else ()), instance=instance, **wrong)
    mine = [{"member_id": got(name, "member_id"), "assignment": handed(assigned)}] if leads else []
    return attrs.evolve(step, fields={**step.fields, "assignments": mine})


def alive(name: str, generation: Value = None, instance: str | None = None) -> Step:
    """A Heartbeat of a classic member."""
    return classic_heartbeat(got(name, "member_id"), got(name, "generation_id") if generation is None else generation, instance=instance)


CLASSIC: Final = (classic_join("k", "", version=9), classic_join("k"), heard("k", range(6), leads=True))
UPGRADE: Final = Script(name="consumer-upgrade", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, *CLASSIC, alive("k"), described(GROUP), commit(got("k", "member_id"), 1, version=9),
    wrong(heartbeat("n", 1)), enter("n"), seen(), described(GROUP), listed(kinds=("consumer",)),
    alive("k"), heard("k"), commit(got("k", "member_id"), 1, partition=5), commit(got("k", "member_id"), 2), commit(got("k", "member_id"), 1, version=8),
    classic_join("k", owned=range(6)), alive("k"), heard("k"), seen(), classic_join("k", owned=range(3)), alive("k", 1), alive("k"), heard("k"), heartbeat("n"), seen(),
    classic_join("c", "", version=9), classic_join("c"), heard("c"), alive("c"), alive("k"), classic_join("k", owned=range(3)), heard("k"), heartbeat("n"),
    classic_join("k", owned=range(2)), heard("k"), heartbeat("n", owned={"topic": (3, 4)}), alive("c"), classic_join("c"), heard("c"), alive("c"), seen(),
    heard("c", protocol="sticky"), heard("c", kind="connect"), heard("c", generation=77), alive("c", 77), classic_heartbeat("unknown", 3), classic_heartbeat("n", 3),
    classic_join("d", "", protocol="sticky"), classic_join("d", "", metadata=said((), 0)),
    # n leaves before c's two partitions are assigned: the hash of k's id, which is random, would decide between k and n
    leave((got("c", "member_id"), None)), seen(), alive("k"), gone("n"), described(GROUP), seen(), alive("k"), classic_join("k", owned=range(2)), heard("k", range(6), leads=True), alive("k"), described(GROUP),
    leave((got("k", "member_id"), None)),
))
STATIC_UPGRADE: Final = Script(name="consumer-static-upgrade", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, classic_join("k", "", instance="one"), heard("k", range(6), instance="one", leads=True), alive("k", instance="one"),
    enter("n", instance="one"), seen(), alive("k", instance="one"), classic_heartbeat("n", 2, instance="one"),
    classic_join("l", "", instance="two"), heard("l", instance="two"), heartbeat("n", instance="one"), heartbeat("n", owned={"topic": range(3)}, instance="one"),
    alive("l", instance="two"), classic_join("l", instance="two"), heard("l", instance="two"), alive("l", instance="two"), seen(),
    classic_join("l", "wrong", instance="two"), classic_join("m", "", instance="two"), seen(), alive("m", instance="two"), heard("m", instance="two"),
    classic_join("k", "", instance="one"), described(GROUP), alive("k", instance="one"), heard("k", instance="one"), alive("m", instance="two"),
    leave(("", "one"), ("", "two")), described(GROUP),
))
NOT_UPGRADED: Final = Script(name="consumer-no-upgrade", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, *alone(), wrong(enter("n")), described(GROUP), leave((got("me", "member_id"), None)),
    join("asked", kind="connect", version=9), join("w", got("asked", "member_id"), kind="connect", version=9), wrong(enter("n")),
    leave((got("w", "member_id"), None)),
))
CLASSIC_MEMBERS: Final = Script(name="consumer-classic-members", api=Api.JOIN_GROUP, acts=(
    *PREPARED, enter("n"), classic_join("c", "", version=9), classic_join("c"), heard("c"), seen(), classic_join("s", "", instance="one", since=5),
    leave((got("c", "member_id"), None)), classic_join("x", "unknown"), classic_join("x", "unknown", instance="five", since=5), seen(), gone("n"), described(GROUP),
    leave(("unknown", None), ("", "one")), described(GROUP),
))
SCRIPTS: Final = (ONE, THREE, UNEVEN, MANY, STATIC, FENCED, WRONG, ASSIGNORS, SUBSCRIPTIONS, PATTERNS, STRANDED, STRANDED_EARLY, TOPICS, LATE, DESCRIBED, LISTED, DELETED, COMMITS, FETCHED,
                  UNWANTED, OTHER_KIND, UPGRADE, STATIC_UPGRADE, NOT_UPGRADED, CLASSIC_MEMBERS)

# ---- with an interval between target assignments ---------------------------------------------------------------------

ASSIGNING: Final = Script(name="consumer-assigning", api=Api.CONSUMER_GROUP_HEARTBEAT, acts=(
    *PREPARED, enter("a"), seen(), enter("b"), seen(), heartbeat("a"), heartbeat("b"), seen(), heartbeat("a", topics=[]), seen(), heartbeat("a", owned={}), seen(),
    enter("c", instance="one"), away("c", instance="one"), enter("d", instance="one"), seen(), gone("b"), seen(), heartbeat("d", instance="one"),
    gone("a"), gone("d", instance="one"), seen(),
))
SLOW: Final = (ASSIGNING,)
