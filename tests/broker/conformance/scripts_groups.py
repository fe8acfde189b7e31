"""Coordinators, classic groups, and what they commit."""
from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from pyclient.codec.apis import Api
from tests.broker.conformance.preparing import topic, topic_id
from tests.broker.conformance.script import Act, Receive, Run, Script, Step, Value, all_ok, got, named

UNKNOWN_ID: Final = UUID(int=0x1234)
GROUP: Final = named("group")
OURS: Final = named("topic")
LISTS_SINCE: Final = 4
"""From this version on FindCoordinator takes several keys."""
SEVERAL_SINCE: Final = 8
"""From this version on OffsetFetch takes several groups."""
IDS_SINCE: Final = 10
"""From this version on commits name topics by id."""


def find(*keys: Value, kind: int = 0, since: int = 0, until: int = 99) -> Step:
    return Step(api=Api.FIND_COORDINATOR, fields={"key": keys[0], "key_type": kind, "coordinator_keys": list(keys)}, since=since, until=until)


READY: Final = Step(api=Api.FIND_COORDINATOR, version=6, fields={"key_type": 0, "coordinator_keys": [GROUP]}, ready=all_ok)


def coordinated() -> tuple[Act, ...]:
    """Wait until this run's group has a coordinator that has loaded it."""
    return READY, Step(api=Api.HEARTBEAT, fields=heartbeat_fields("unknown", 1), ready=lambda answer: answer["error_code"] == "unknown_member_id")


def heartbeat_fields(member: Value, generation: Value, group: Value = GROUP, instance: str | None = None) -> dict[str, Value]:
    return {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": instance}


def classic_heartbeat(member: Value, generation: Value, group: Value = GROUP, instance: str | None = None, since: int = 0) -> Step:
    return Step(api=Api.HEARTBEAT, since=since, fields=heartbeat_fields(member, generation, group, instance))


def subscription(data: str) -> Value:
    """A consumer's subscription to this run's topic, as its first version is written; a coordinator reads it."""
    def written(run: Run) -> bytes:
        name = run.name("topic").encode()
        return struct.pack(f">hih{len(name)}si{len(data)}s", 0, 1, len(name), name, len(data), data.encode())
    return written


def join(name: str, member: Value = "", *, instance: str | None = None, group: Value = GROUP, protocols: tuple[str, ...] = ("range",),
         session: int = 30_000, kind: str = "consumer", on: str = "first", later: bool = False, version: int | None = None,
         since: int = 0, says: str = "") -> Step:
    return Step(api=Api.JOIN_GROUP, name=name, on=on, later=later, version=version, since=since, fields={
        "group_id": group, "session_timeout": session, "rebalance_timeout": 60_000, "member_id": member, "group_instance_id": instance,
        "protocol_type": kind, "protocols": [{"name": each, "metadata": subscription(each + says)} for each in protocols],
        "reason": "a test"})


def sync(name: str, joined: str, *members: str, member: Value = None, generation: Value = None, instance: str | None = None,
         on: str = "first", later: bool = False, protocol: str | None = "range", kind: str | None = "consumer",
         group: Value = GROUP) -> Step:
    """SyncGroup of the member whose JoinGroup answer is *joined*; with *members* it is the leader."""
    assignments = [{"member_id": got(each, "member_id"), "assignment": b"assignment of " + each.encode()} for each in members]
    return Step(api=Api.SYNC_GROUP, name=name, on=on, later=later, fields={
        "group_id": group, "generation_id": got(joined, "generation_id") if generation is None else generation,
        "member_id": got(joined, "member_id") if member is None else member, "group_instance_id": instance,
        "protocol_type": kind, "protocol_name": protocol, "assignments": assignments})


def leave(*members: tuple[Value, str | None], group: Value = GROUP, since: int = 0) -> Step:
    return Step(api=Api.LEAVE_GROUP, since=since, fields={
        "group_id": group, "member_id": members[0][0],
        "members": [{"member_id": member, "group_instance_id": instance, "reason": "done"} for member, instance in members]})


def alone(name: str = "me", instance: str | None = None) -> tuple[Act, ...]:
    """One member, joined and synced, by the newest versions."""
    return (join(f"asked {name}", instance=instance, version=9), *(
        (join(name, got(f"asked {name}", "member_id"), version=9),) if instance is None else (join(name, instance=instance, version=9),)),
        Step(api=Api.SYNC_GROUP, version=5, name=f"synced {name}", fields=sync("", name, name, instance=instance).fields))


COORDINATORS: Final = Script(name="find-coordinator", api=Api.FIND_COORDINATOR, acts=(
    *coordinated(), find(GROUP), find(GROUP, "another", since=LISTS_SINCE),
    find("", until=LISTS_SINCE - 1), find("", since=LISTS_SINCE), find(GROUP, kind=7, since=1), find(GROUP, GROUP, since=LISTS_SINCE),
))
JOINING: Final = Script(name="join", api=Api.JOIN_GROUP, acts=(
    *coordinated(),
    join("asked"), join("joined", got("asked", "member_id"), since=4), join("again", got("asked", "member_id"), since=4),
    join("late", "somebody-else"), join("no group", group=""), join("impatient", session=1), join("patient", session=2_000_000_000),
    join("other kind", kind="connect"), join("other protocol", protocols=("sticky",)), join("none", protocols=()), join("no kind", kind=""),
    join("static", instance="one", since=5, group=named("static")), join("static", instance="one", since=5, group=named("static")),
    join("fenced", "wrong", instance="one", since=5, group=named("static")),
    join("unknown", "wrong", instance="two", since=5, group=named("static")),
))
TWO_MEMBERS: Final = Script(name="two-members", api=Api.JOIN_GROUP, acts=(
    *coordinated(),
    join("asked a", version=9), join("a", got("asked a", "member_id")), sync("synced a", "a", "a"),
    classic_heartbeat(got("a", "member_id"), got("a", "generation_id")),
    join("asked b", version=9, on="second"), join("b", got("asked b", "member_id"), on="second", later=True, says=" of b"),
    Step(api=Api.HEARTBEAT, fields=heartbeat_fields(got("a", "member_id"), got("a", "generation_id")),
         ready=lambda answer: answer["error_code"] == "rebalance_in_progress"),
    join("a", got("a", "member_id"), protocols=("range", "sticky")), Receive("b"),
    sync("early", "b", on="second", later=True), sync("synced a", "a", "a", "b"), Receive("early"),
    classic_heartbeat(got("a", "member_id"), got("a", "generation_id")), classic_heartbeat(got("b", "member_id"), got("b", "generation_id")),
    classic_heartbeat(got("a", "member_id"), 1), classic_heartbeat(got("a", "member_id"), 99),
    Step(api=Api.DESCRIBE_GROUPS, fields={"groups": [GROUP], "include_authorized_operations": False}),
    leave((got("b", "member_id"), None)), classic_heartbeat(got("a", "member_id"), got("a", "generation_id")),
    join("last", got("a", "member_id")), leave((got("last", "member_id"), None)),
    Step(api=Api.DESCRIBE_GROUPS, fields={"groups": [GROUP], "include_authorized_operations": False}),
))
STATIC: Final = Script(name="static", api=Api.JOIN_GROUP, since=5, acts=(
    *coordinated(),
    join("first", instance="one"), sync("s1", "first", "first", instance="one"),
    join("second", instance="one"),
    classic_heartbeat(got("first", "member_id"), got("first", "generation_id"), instance="one"),
    classic_heartbeat(got("second", "member_id"), got("second", "generation_id"), instance="one"),
    sync("s2", "second", "second", instance="one"), sync("s3", "first", instance="one"),
    join("fenced", got("first", "member_id"), instance="one"),
    Step(api=Api.DESCRIBE_GROUPS, fields={"groups": [GROUP], "include_authorized_operations": True}),
    leave(("", "two")), leave((got("first", "member_id"), "one")), leave(("", "one")),
))
SYNCING: Final = Script(name="sync", api=Api.SYNC_GROUP, acts=(
    *coordinated(),
    join("asked", version=9), join("me", got("asked", "member_id"), version=9),
    sync("wrong generation", "me", "me", generation=77), sync("wrong member", "me", "me", member="unknown"),
    sync("wrong protocol", "me", "me", protocol="sticky"), sync("wrong kind", "me", "me", kind="connect"),
    sync("no protocol", "me", "me", protocol=None, kind=None), sync("no group", "me", "me", group=""),
    sync("good", "me", "me"), sync("repeated", "me", "me"), sync("unknown group", "me", group="unknown"),
))
HEARTBEATS: Final = Script(name="heartbeat", api=Api.HEARTBEAT, acts=(
    *coordinated(), *alone(),
    classic_heartbeat(got("me", "member_id"), got("me", "generation_id")), classic_heartbeat(got("me", "member_id"), 99), classic_heartbeat(got("me", "member_id"), -1),
    classic_heartbeat("unknown", got("me", "generation_id")), classic_heartbeat("", 1), classic_heartbeat(got("me", "member_id"), 1, group="unknown"), classic_heartbeat("me", 1, group=""),
    classic_heartbeat(got("me", "member_id"), got("me", "generation_id"), instance="unknown", since=3),
))
LEAVING: Final = Script(name="leave", api=Api.LEAVE_GROUP, acts=(
    *coordinated(), *alone(),
    leave(("unknown", None)), leave((got("me", "member_id"), None), group="unknown"), leave((got("me", "member_id"), None), group=""),
    leave((got("me", "member_id"), "unknown"), since=3), leave(("unknown", None), (got("me", "member_id"), None), since=3),
    leave((got("me", "member_id"), None)), *alone("you"), leave((got("you", "member_id"), None)), leave((got("you", "member_id"), None)),
    *alone("us", "instance"), leave(("", "instance"), ("", "other"), ("wrong", "instance"), since=3),
))


def commit(member: Value = "", generation: Value = -1, *, offset: int = 5, metadata: str | None = "note", name: Value = OURS,
           its_id: Value = None, partition: int = 0, group: Value = GROUP, instance: str | None = None, since: int = 0, until: int = 99,
           version: int | None = None) -> Step:
    return Step(api=Api.OFFSET_COMMIT, since=since, until=until, version=version, fields={
        "group_id": group, "generation_id_or_member_epoch": generation, "member_id": member, "group_instance_id": instance,
        "retention_time": -1, "topics": [{"name": name, "topic_id": topic_id() if its_id is None else its_id, "partitions": [
            {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": 0, "committed_metadata": metadata}]}]})


def committed(*groups: Value, partitions: tuple[int, ...] | None = (0, 1), since: int = 0, until: int = 99, name: Value = OURS,
              its_id: Value = None, stable: bool = False) -> Step:
    topics = None if partitions is None else [
        {"name": name, "topic_id": topic_id() if its_id is None else its_id, "partition_indexes": list(partitions)}]
    return Step(api=Api.OFFSET_FETCH, since=since, until=until, fields={
        "group_id": groups[0], "topics": topics, "require_stable": stable,
        "groups": [{"group_id": each, "member_id": None, "member_epoch": -1, "topics": topics} for each in groups]})


COMMITS: Final = Script(name="offset-commit", api=Api.OFFSET_COMMIT, acts=(
    *topic("topic", 2), *coordinated(),
    commit(), commit(offset=7, metadata=None), commit(partition=1, metadata=""), committed(GROUP), commit(partition=9),
    commit(metadata="x" * 4096), commit(metadata="x" * 4097), commit(offset=-1), commit(offset=-5),
    commit(name="unknown", its_id=UNKNOWN_ID), commit(name="a b", until=IDS_SINCE - 1), commit("somebody", 1), commit("", 1), commit(group=""),
    commit("", 0, group=named("none")),
    *alone(), commit(), commit(got("me", "member_id"), got("me", "generation_id"), offset=9), commit(got("me", "member_id"), 99),
    commit("unknown", got("me", "generation_id")), commit(got("me", "member_id"), got("me", "generation_id"), instance="one", since=7),
    committed(GROUP), leave((got("me", "member_id"), None)), commit(offset=11), committed(GROUP),
))
FETCHED: Final = Script(name="offset-fetch", api=Api.OFFSET_FETCH, acts=(
    *topic("topic", 2), *coordinated(),
    committed(GROUP), committed(GROUP, partitions=None, since=2), commit(version=9), committed(GROUP), committed(GROUP, partitions=(0,)),
    committed(GROUP, partitions=(7, 0)), committed(GROUP, partitions=()), committed(GROUP, partitions=None, since=2),
    committed("unknown"), committed(""), committed(GROUP, stable=True, since=7),
    committed(GROUP, "unknown", since=SEVERAL_SINCE), committed(GROUP, GROUP, since=SEVERAL_SINCE),
    committed(GROUP, name="unknown", its_id=UNKNOWN_ID),
))
DELETED_OFFSETS: Final = Script(name="offset-delete", api=Api.OFFSET_DELETE, acts=(
    *topic("topic", 2), *coordinated(), commit(version=9), *(
        Step(api=Api.OFFSET_DELETE, fields={"group_id": group, "topics": [{"name": name, "partitions": [{"partition_index": index}]}]})
        for group, name, index in ((GROUP, named("topic"), 0), (GROUP, named("topic"), 1), (GROUP, named("topic"), 9),
                                   (GROUP, "unknown", 0), ("unknown", named("topic"), 0), ("", named("topic"), 0))),
    committed(GROUP), commit(version=9), *alone(),
    Step(api=Api.OFFSET_DELETE, fields={"group_id": GROUP, "topics": [{"name": named("topic"), "partitions": [{"partition_index": 0}]}]}),
    committed(GROUP), leave((got("me", "member_id"), None)),
))


def described(*groups: Value, operations: bool = False, since: int = 0) -> Step:
    return Step(api=Api.DESCRIBE_GROUPS, since=since, fields={"groups": list(groups), "include_authorized_operations": operations})


DESCRIBED: Final = Script(name="describe-groups", api=Api.DESCRIBE_GROUPS, acts=(
    *topic("topic"), *coordinated(),
    described(GROUP), described("unknown", ""), described(), commit(version=9), described(GROUP),
    join("asked", version=9), described(GROUP), join("me", got("asked", "member_id"), version=9), described(GROUP),
    sync("synced", "me", "me"), described(GROUP), described(GROUP, operations=True, since=3), described(GROUP, GROUP),
    leave((got("me", "member_id"), None)), described(GROUP),
))


def listed(*states: str, kinds: tuple[str, ...] = (), since: int = 0) -> Step:
    return Step(api=Api.LIST_GROUPS, since=since, fields={"states_filter": list(states), "types_filter": list(kinds)})


LISTED: Final = Script(name="list-groups", api=Api.LIST_GROUPS, acts=(
    *topic("topic"), *coordinated(), commit(version=9), listed(), *alone(), listed(), listed("Stable", since=4), listed("stable", since=4),
    listed("Empty", since=4), listed("Nonsense", since=4), listed(kinds=("classic",), since=5), listed(kinds=("Consumer",), since=5),
    listed(kinds=("nonsense",), since=5), listed("Stable", kinds=("Classic",), since=5), leave((got("me", "member_id"), None)),
    Step(api=Api.DELETE_GROUPS, fields={"groups_names": [GROUP]}), listed(),
))


def delete(*groups: Value) -> Step:
    return Step(api=Api.DELETE_GROUPS, fields={"groups_names": list(groups)})


DELETED: Final = Script(name="delete-groups", api=Api.DELETE_GROUPS, acts=(
    *topic("topic"), *coordinated(), delete("unknown"), delete(""), delete(), commit(version=9), delete(GROUP), committed(GROUP), delete(GROUP),
    *alone(), delete(GROUP), delete(GROUP, "unknown"), leave((got("me", "member_id"), None)), delete(GROUP, GROUP), described(GROUP),
))
SCRIPTS: Final = (COORDINATORS, JOINING, TWO_MEMBERS, STATIC, SYNCING, HEARTBEATS, LEAVING, COMMITS, FETCHED, DELETED_OFFSETS, DESCRIBED,
                  LISTED, DELETED)
