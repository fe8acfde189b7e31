"""Limits of replication in files: what a program that was killed must know to restore what was set before."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyclient.descriptions.configs import ConfigResource, ResourceType
from pyclient.descriptions.replicas import ReassignmentPlan, ReplicationThrottle
from pyclient.records import TopicPartition


def write_throttle(path: str | os.PathLike[str], throttle: ReplicationThrottle) -> None:
    """Keep a limit, with its plan, in a file of JSON; on disk when this returns. Call it before the limit begins.

    Raises:
        FileExistsError: the file may be that of a limit that has not ended: end it, remove the file.
        OSError: the file cannot be written.
    """
    moves = [{"topic": tp.topic, "partition": tp.partition, "before": throttle.plan.before[tp], "after": after, "size": throttle.plan.sizes.get(tp)}
             for tp, after in throttle.plan.after.items()]
    earlier = [{"type": resource.type.name, "name": resource.name, "configs": dict(configs)} for resource, configs in throttle.before.items()]
    text = json.dumps({"bytes_per_second": throttle.bytes_per_second, "plan": moves, "before": earlier}, indent=1)
    with Path(path).open("x", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_throttle(path: str | os.PathLike[str]) -> ReplicationThrottle:
    """Read such a file, for `Admin.end_throttle`.

    Raises:
        ValueError: the file was not written by `write_throttle`, or not to its end.
        OSError: the file cannot be read.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        return _throttle(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)} is no file of write_throttle: {error!r}") from error


def _throttle(found: Mapping[str, Any]) -> ReplicationThrottle:
    moves = {TopicPartition(each["topic"], each["partition"]): each for each in found["plan"]}
    plan = ReassignmentPlan(
        {tp: tuple(each["before"]) for tp, each in moves.items()}, {tp: tuple(each["after"]) for tp, each in moves.items()},
        {tp: each["size"] for tp, each in moves.items() if each["size"] is not None})
    before = {ConfigResource(ResourceType[each["type"]], each["name"]): dict(each["configs"]) for each in found["before"]}
    return ReplicationThrottle(plan, int(found["bytes_per_second"]), before)
