"""The requests of a transaction, and how their responses are read. Which comes when, `Transactions` decides."""
from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.acl_errors import error_of
from pyclient.core.calls import Again, Call, CallOutcome, Coordinator, Done, Finish, KeyType
from pyclient.core.group.offsets import commit_topics
from pyclient.core.transactions.meaning import Meaning, answer_meaning
from pyclient.errors import ConcurrentTransactionsError, KafkaError, UnknownServerError
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

SOON: Final = 0.02
"""Seconds until the first request of a transaction is repeated while the one before is still being finished."""
BUMPS: Final = VersionRange(3, SPOKEN[Api.INIT_PRODUCER_ID].high)
"""Of InitProducerId: it takes the present producer id and epoch, and gives the next (KIP-360)."""
OPTIONAL: Final = VersionRange(12, SPOKEN[Api.PRODUCE].high)
"""Of Produce: the broker adds the partition to the transaction (KIP-890)."""


Early: TypeAlias = Callable[[], object] | None
"""Of the first request of a transaction: called if the one before is still being finished. None for a later one."""


class Protocol(NamedTuple):
    """The versions of requests that one transaction protocol allows (T05)."""

    name: str
    produce: VersionRange
    offsets: VersionRange
    end: VersionRange


V1: Final = Protocol("1", VersionRange(3, 11), VersionRange(0, 4), VersionRange(0, 4))
V2: Final = Protocol("2", OPTIONAL, VersionRange(5, 5), VersionRange(5, 5))


class ProducerId(NamedTuple):
    """By which brokers recognize a producer."""

    id: int
    epoch: int


NO_ID: Final = ProducerId(-1, -1)


class OpenTransaction(NamedTuple):
    """What every request of a transaction names."""

    transactional_id: str
    producer: ProducerId

    @property
    def coordinator(self) -> Coordinator:
        """The transaction's."""
        return Coordinator(self.transactional_id, KeyType.TRANSACTION)

    def fields(self) -> dict[str, object]:
        """In the words of all requests but AddPartitionsToTxn."""
        return {"transactional_id": self.transactional_id, "producer_id": self.producer.id, "producer_epoch": self.producer.epoch}

    def outcome(self, api: Api, code: int, result: Any = None, **about: Any) -> CallOutcome:
        """Of a response with this error code."""
        if not code:
            return Done(result)
        error = error_of(api, code, f"transactional id {self.transactional_id!r}", transactional_id=self.transactional_id, **about)
        match answer_meaning(api, error):
            case Meaning.FIND:
                return Again(error, elsewhere=True)
            case Meaning.RETRY:
                return Again(error)
        return error


def init_call(transactional_id: str, timeout: float, finish: Finish, *, present: ProducerId = NO_ID, deadline: float | None = None) -> Call:
    """Get a producer id for *transactional_id*: fences older producers, and ends what they left open.

    With *present*, the same producer gets its next epoch. *timeout* is transaction_timeout_ms in seconds.
    """
    transaction = OpenTransaction(transactional_id, present)

    def fields(version: int) -> dict[str, object]:
        return {**transaction.fields(), "transaction_timeout": datetime.timedelta(seconds=timeout)}

    def classify(message: Any) -> CallOutcome:
        return transaction.outcome(Api.INIT_PRODUCER_ID, message.error_code, ProducerId(message.producer_id, message.producer_epoch))

    return Call(what=f"getting a producer id for transactional id {transactional_id!r}", api=Api.INIT_PRODUCER_ID, target=transaction.coordinator,
                fields=fields, classify=classify, finish=finish, deadline=deadline, versions=None if present is NO_ID else BUMPS)


def add_partitions_call(transaction: OpenTransaction, partitions: Iterable[TopicPartition], finish: Finish, *, early: Early, deadline: float | None) -> Call:
    """Add partitions to the transaction."""
    wanted, topics = list(partitions), defaultdict[str, list[int]](list)
    for tp in wanted:
        topics[tp.topic].append(tp.partition)
    names = {f"v3_and_below_{name}": value for name, value in transaction.fields().items()}

    def fields(version: int) -> dict[str, object]:
        return {**names, "v3_and_below_topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()]}

    def classify(message: Any) -> CallOutcome:
        codes = {TopicPartition(topic.name, each.partition_index): each.partition_error_code
                 for topic in message.results_by_topic_v3_and_below for each in topic.results_by_partition}
        return _soon(_of_partitions(transaction, Api.ADD_PARTITIONS_TO_TXN, codes, wanted), early)

    return Call(what=f"adding partitions to the transaction of {transaction.transactional_id!r}", api=Api.ADD_PARTITIONS_TO_TXN,
                target=transaction.coordinator, fields=fields, classify=classify, finish=finish, deadline=deadline)


def _soon(outcome: CallOutcome, early: Early) -> CallOutcome:
    if early is not None and isinstance(outcome, Again) and isinstance(outcome.error, ConcurrentTransactionsError):
        early()
        return Again(outcome.error, pause=SOON)
    return outcome


def _of_partitions(transaction: OpenTransaction, api: Api, codes: Mapping[TopicPartition, int], wanted: Iterable[TopicPartition],
                   **about: Any) -> CallOutcome:
    """The outcome of a request about several partitions: a final error comes before one that may be retried."""
    refused = [transaction.outcome(api, code, tp=tp, **about) for tp, code in codes.items() if code]
    refused += [Again(UnknownServerError(f"the {api.title} response lacks {tp}", topic_partition=tp)) for tp in wanted if tp not in codes]
    return next((each for each in refused if isinstance(each, KafkaError)), refused[0] if refused else Done(None))


def add_offsets_call(transaction: OpenTransaction, group: str, finish: Finish, *, early: Early, deadline: float | None) -> Call:
    """Add a group's offsets to the transaction; `offsets_call` sends them."""

    def fields(version: int) -> dict[str, object]:
        return {**transaction.fields(), "group_id": group}

    def classify(message: Any) -> CallOutcome:
        return _soon(transaction.outcome(Api.ADD_OFFSETS_TO_TXN, message.error_code, group=group), early)

    return Call(what=f"adding the offsets of group {group!r} to the transaction of {transaction.transactional_id!r}", api=Api.ADD_OFFSETS_TO_TXN,
                target=transaction.coordinator, fields=fields, classify=classify, finish=finish, deadline=deadline)


def offsets_call(transaction: OpenTransaction, member: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata], protocol: Protocol,
                 finish: Finish, *, early: Early, deadline: float | None) -> Call:
    """Commit offsets of a group as part of the transaction, as the member of *member* (T04, KIP-447)."""

    def fields(version: int) -> dict[str, object]:
        return {**transaction.fields(), "group_id": member.group_id, "generation_id": member.generation_id, "member_id": member.member_id,
                "group_instance_id": member.group_instance_id, "topics": commit_topics(offsets)}

    def classify(message: Any) -> CallOutcome:
        codes = {TopicPartition(topic.name, each.partition_index): each.error_code for topic in message.topics for each in topic.partitions}
        return _soon(_of_partitions(transaction, Api.TXN_OFFSET_COMMIT, codes, offsets, group=member.group_id), early)

    return Call(what=f"committing {len(offsets)} offsets of group {member.group_id!r} in the transaction of {transaction.transactional_id!r}",
                api=Api.TXN_OFFSET_COMMIT, target=Coordinator(member.group_id), fields=fields, classify=classify, finish=finish, deadline=deadline,
                versions=protocol.offsets)


def end_call(transaction: OpenTransaction, protocol: Protocol, finish: Finish, *, commit: bool) -> Call:
    """Commit or abort; the result is the producer id for the next transaction, or `NO_ID` if it stays the same."""

    def fields(version: int) -> dict[str, object]:
        return {**transaction.fields(), "committed": commit}

    def classify(message: Any) -> CallOutcome:
        following = ProducerId(getattr(message, "producer_id", -1), getattr(message, "producer_epoch", -1))
        return transaction.outcome(Api.END_TXN, message.error_code, following)

    return Call(what=f"{'committing' if commit else 'aborting'} the transaction of {transaction.transactional_id!r}", api=Api.END_TXN,
                target=transaction.coordinator, fields=fields, classify=classify, finish=finish, deadline=None, versions=protocol.end)
