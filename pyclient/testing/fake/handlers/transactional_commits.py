"""TxnOffsetCommit: offsets that are committed with a transaction (KIP-98, KIP-447)."""
from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from pyclient.testing.fake.handlers.commits import check_epoch, commit_answer, every_partition, is_too_large
from pyclient.testing.fake.model.coordinator import AnyGroup, Coordinator
from pyclient.testing.fake.model.group import Committed, Group
from pyclient.testing.fake.model.homes import OFFSETS_TOPIC, offsets_partition
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.membership import Membership, current
from pyclient.testing.fake.model.pending_offsets import Pending
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.request import Fields, Request
from pyclient.testing.fake.model.transaction_coordinator import TransactionCoordinator
from pyclient.testing.fake.model.transactions import Producer

ADDS_SINCE: Final = 5
"""From this version on the first commit of a transaction adds the group (KIP-890)."""
ABORTABLE_SINCE: Final = 4
"""From this version on producers know TRANSACTION_ABORTABLE."""
LOADS_SINCE: Final = 2
"""From this version on clients know COORDINATOR_LOAD_IN_PROGRESS."""
VERIFIES_FIRST_SINCE: Final = "4.0"
"""Before this release a group was made before its commit was refused."""
NONE: Final = -1


def txn_offset_commit(kafka: Kafka, request: Request) -> Fields:
    """Offsets that count when the transaction commits; until then the partitions are unstable."""
    return commit_answer(every_partition(kafka, request, _Judge(kafka, request)))


def refuse_txn_offset_commit(request: Request, code: int) -> Fields:
    """The error for every partition."""
    return {"throttle_time": 0, "topics": [
        {"name": topic.name, "partitions": [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions]}
        for topic in request.body.topics]}


class _Judge:
    """Commits one known partition after the other; the request is checked with the first."""

    def __init__(self, kafka: Kafka, request: Request) -> None:
        self._kafka = kafka
        self._request = request
        self._group: AnyGroup | None = None
        self._refused = 0

    def __call__(self, topic: str, part: Any) -> int:
        if self._group is None and not self._refused:
            try:
                self._group = _committer(self._kafka, self._request)
            except RefusalError as refused:
                self._refused = _spelled(refused.code, self._request.version)
        if self._group is None:
            return self._refused
        return _commit(self._kafka, self._group, topic, part, self._request)


def _spelled(code: int, version: int) -> int:
    loads = code == ErrorCode.coordinator_load_in_progress and version < LOADS_SINCE
    return ErrorCode.coordinator_not_available if loads else code


def _committer(kafka: Kafka, request: Request) -> AnyGroup:
    """The group, once the transaction includes it, if the sender may commit to it."""
    body, version = request.body, request.version
    if not body.group_id:
        raise RefusalError(ErrorCode.invalid_group_id)
    group = kafka.part(Coordinator).find(request.broker, body.group_id)
    generation = getattr(body, "generation_id", NONE)
    if group is None and generation < 0 and not kafka.profile.is_since(VERIFIES_FIRST_SINCE):
        group = kafka.part(Membership).made(body.group_id)
    place = OFFSETS_TOPIC, offsets_partition(body.group_id, kafka.settings.offsets_topic_num_partitions)
    kafka.part(TransactionCoordinator).join(body.transactional_id, Producer(body.producer_id, body.producer_epoch), place,
                                            adds=version >= ADDS_SINCE, knows_abortable=version >= ABORTABLE_SINCE)
    if group is None and generation >= 0:
        raise RefusalError(ErrorCode.illegal_generation)
    group = group or kafka.part(Membership).made(body.group_id)
    _check_member(kafka, group, request)
    return group


def _check_member(kafka: Kafka, group: AnyGroup, request: Request) -> None:
    """Clients that send no member may commit, as those of before KIP-447 do."""
    body = request.body
    generation, member_id = getattr(body, "generation_id", NONE), getattr(body, "member_id", "")
    instance = getattr(body, "group_instance_id", None)
    if generation < 0 and (group.is_empty or (not member_id and instance is None)):
        return
    if isinstance(group, Group):
        current(group, member_id, instance, generation)
        return
    try:
        check_epoch(kafka, group, request, generation)
    except RefusalError as refused:
        raise RefusalError(ErrorCode.illegal_generation if refused.code == ErrorCode.stale_member_epoch else refused.code) from None


def _commit(kafka: Kafka, group: AnyGroup, topic: str, part: Any, request: Request) -> int:
    if is_too_large(kafka, part):
        return ErrorCode.offset_metadata_too_large
    committed = Committed(part.committed_offset, getattr(part, "committed_leader_epoch", NONE), part.committed_metadata or "")
    place = topic, part.partition_index
    kafka.part(Coordinator).pending.add(group.id, request.body.producer_id, place, Pending(committed, request.client_id))
    kafka.report("offset pending", group=group.id, transaction=request.body.transactional_id, topic=topic, partition=part.partition_index,
                 offset=committed.offset, client=request.client_id)
    return 0
