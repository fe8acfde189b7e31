"""Scripts for three brokers. Requests go to broker 1, for topics that broker 2 leads; topics are not auto-created."""
from __future__ import annotations

from typing import Final

from pyclient.codec.apis import Api
from tests.broker.conformance.preparing import batch, fetch, list_offsets, wish
from tests.broker.conformance.script import Act, Script, Step, all_ok, named
from tests.broker.conformance.scripts_admin import create, grow, new, partitions_of
from tests.broker.conformance.scripts_cluster import by_name, metadata
from tests.broker.conformance.scripts_produce import stored
from tests.broker.conformance.scripts_reading import epoch

LED_BY_2: Final = (2, 1, 3)
"""The replicas, the preferred leader first."""


def elsewhere() -> tuple[Act, ...]:
    """A topic that broker 2 leads; broker 1 has heard of it, and follows."""
    return (
        Step(api=Api.CREATE_TOPICS, name="made topic", version=7, fields=create(new(named("topic"), -1, -1, (LED_BY_2,))).fields,
             ready=lambda answer: answer["topics"][0]["error_code"] == "none"),
        Step(api=Api.LIST_OFFSETS, version=7, fields=list_offsets([(named("topic"), 0)]),
             ready=lambda answer: answer["topics"][0]["partitions"][0]["error_code"] == "not_leader_or_follower"),
        Step(api=Api.FETCH, version=17, fields=fetch(wish()), ready=all_ok),
    )


METADATA: Final = Script(name="metadata-of-three", api=Api.METADATA, acts=(
    *elsewhere(), Step(api=Api.METADATA, fields=metadata(by_name(named("topic")))),
    *(Step(api=Api.METADATA, fields=metadata(by_name(named("unknown")), creates=True)) for _ in range(2)),
))
TOPICS: Final = Script(name="topics-of-three", api=Api.CREATE_TOPICS, acts=(
    create(new(named("many"), 1, 4)), create(new(named("uneven"), -1, -1, ((1, 2), (1,)))), create(new(named("unknown"), -1, -1, ((1, 4),))),
    create(new(named("two"), -1, -1, ((1, 2), (2, 3)))), create(new(named("three"), 2, 3)),
))
PARTITIONS: Final = Script(name="partitions-of-three", api=Api.CREATE_PARTITIONS, acts=(
    *elsewhere(), grow(2, placed=((1, 2),)), grow(2, placed=((1, 2, 3, 4),)), grow(2, placed=((3, 2, 1),)),
    Step(api=Api.DESCRIBE_TOPIC_PARTITIONS, fields=partitions_of(named("topic")).fields,
         ready=lambda answer: len(answer["topics"][0]["partitions"]) == 2),
    partitions_of(named("topic")),
))
PRODUCE: Final = Script(name="produce-elsewhere", api=Api.PRODUCE, acts=(
    *elsewhere(), *(stored(batch(b"one"), acks=acks) for acks in (-1, 1)), stored(batch(b"one"), partition=1),
))
FETCH: Final = Script(name="fetch-elsewhere", api=Api.FETCH, acts=(
    *elsewhere(), Step(api=Api.FETCH, until=10, fields=fetch(wish())), Step(api=Api.FETCH, since=11, fields=fetch(wish())),
    Step(api=Api.FETCH, since=9, fields=fetch(wish(current_leader_epoch=0))), Step(api=Api.FETCH, since=9, fields=fetch(wish(current_leader_epoch=9))),
    Step(api=Api.FETCH, fields=fetch(wish(offset=5))), Step(api=Api.FETCH, since=11, fields=fetch(wish(), rack_id="a")),
))
OFFSETS: Final = Script(name="offsets-elsewhere", api=Api.LIST_OFFSETS, acts=(
    *elsewhere(), *(Step(api=Api.LIST_OFFSETS, fields=list_offsets([(named("topic"), 0)], timestamp)) for timestamp in (-1, -2, 5)),
    Step(api=Api.LIST_OFFSETS, fields=list_offsets([(named("topic"), 0)], replica_id=-2)),
))
EPOCHS: Final = Script(name="epochs-elsewhere", api=Api.OFFSET_FOR_LEADER_EPOCH, acts=(*elsewhere(), epoch(0), epoch(0, current=5)))
DELETING: Final = Script(name="delete-elsewhere", api=Api.DELETE_RECORDS, acts=(*elsewhere(), Step(api=Api.DELETE_RECORDS, fields={
    "timeout": 5_000, "topics": [{"name": named("topic"), "partitions": [{"partition_index": 0, "offset": -1}]}]})))
CLUSTER: Final = Script(name="cluster-of-three", api=Api.DESCRIBE_CLUSTER, acts=(
    Step(api=Api.DESCRIBE_CLUSTER, fields={
        "include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}),
))
SCRIPTS: Final = (METADATA, TOPICS, PARTITIONS, PRODUCE, FETCH, OFFSETS, EPOCHS, DELETING, CLUSTER)
