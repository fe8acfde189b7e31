"""Steps that many scripts begin with: topics, batches, what to wait for."""
from __future__ import annotations

from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.codec.encode import encode_batch
from tests.broker.conformance.script import Act, Step, Value, all_ok, got, named
from tests.kafka import WRITTEN_AT

NO_EPOCH: Final = -1
LATEST: Final = -1


def topic(name: str = "topic", partitions: int = 1, replicas: int = 1, **configs: str) -> tuple[Act, ...]:
    """Make a topic of this run and wait until its partitions are served."""
    rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    made = {"name": named(name), "num_partitions": partitions, "replication_factor": replicas, "assignments": [], "configs": rows}
    return (
        Step(api=Api.CREATE_TOPICS, name=f"made {name}", version=7, fields={"topics": [made], "timeout": 10_000, "validate_only": False},
             ready=lambda answer: answer["topics"][0]["error_code"] == "none"),
        Step(api=Api.LIST_OFFSETS, version=7, fields=list_offsets([(named(name), index) for index in range(partitions)]), ready=all_ok),
    )


def list_offsets(partitions: list[tuple[Value, int]], timestamp: Value = LATEST, **fields: Value) -> dict[str, Value]:
    """A ListOffsets request about some partitions."""
    topics = [{"name": name, "partitions": [{"partition_index": index, "current_leader_epoch": NO_EPOCH, "timestamp": timestamp}]}
              for name, index in partitions]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 5_000, **fields}


def batch(*values: bytes, **fields: Any) -> bytes:
    """One batch of records without keys."""
    return encode_batch([(WRITTEN_AT + index, None, value, []) for index, value in enumerate(values)], **fields)


def topic_id(name: str = "topic") -> Value:
    """The id of a topic that `topic` made."""
    return got(f"made {name}", "topics", 0, "topic_id")


def fetch(*partitions: Value, **fields: Value) -> dict[str, Value]:
    """A Fetch request; partitions are made with `wish`."""
    return {"replica_id": -1, "replica_state": {"replica_id": -1, "replica_epoch": -1}, "cluster_id": None, "max_wait": 0, "min_bytes": 0,
            "max_bytes": 2**31 - 1, "isolation_level": 0, "session_id": 0, "session_epoch": -1, "topics": list(partitions),
            "forgotten_topics_data": [], "rack_id": "", **fields}


def wish(partition: int = 0, offset: Value = 0, name: str = "topic", **fields: Value) -> dict[str, Value]:
    """One partition of a Fetch request, of a topic of this run."""
    one = {"partition": partition, "current_leader_epoch": NO_EPOCH, "fetch_offset": offset, "last_fetched_epoch": NO_EPOCH,
           "log_start_offset": -1, "partition_max_bytes": 2**20, "replica_directory_id": None, "high_watermark": 2**63 - 1, **fields}
    return {"topic": named(name), "topic_id": topic_id(name), "partitions": [one]}


def fetch_all(name: str = "topic", partition: int = 0, offset: int = 0, isolation_level: int = 0) -> Step:
    """Everything a partition holds."""
    return Step(api=Api.FETCH, fields=fetch(wish(partition, offset, name), isolation_level=isolation_level))


def all_partitions(name: str, timestamp: int, partitions: int = 1) -> Step:
    """What ListOffsets says of a topic's partitions."""
    return Step(api=Api.LIST_OFFSETS, fields=list_offsets([(named(name), index) for index in range(partitions)], timestamp))
