"""Transactions with their calls in a world, a stub of the records, and the coordinators' answers."""
from __future__ import annotations

from typing import Any

import attrs

from pyclient.codec.apis import Api
from pyclient.core.calls import Calls
from pyclient.core.handshake import Features
from pyclient.core.transactions.manager import FEATURE, Transactions
from pyclient.core.transactions.progress import Pending
from pyclient.errors import KafkaError
from pyclient.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.unit.core.world import DOUBLING, Sent, World, answer, make_metadata, view

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
MEMBER = ConsumerGroupMetadata("g", 4, "m", "i")
OFFSETS = {A0: OffsetAndMetadata(5, "note", 3)}
TIMEOUT = 60.0
ID = 4000


@attrs.define
class Held:
    """The records of the transaction: *open* ones have not left, *flying* ones have."""

    open: int = 0
    flying: int = 0
    flushed: bool = False
    in_doubt: bool = False
    failed: list[KafkaError] = attrs.field(factory=list)

    def flush(self) -> None:
        self.flushed = True

    def fail_unsent(self, error: KafkaError) -> bool:
        self.failed += [error] * self.open
        self.open = 0
        return self.in_doubt

    def idle(self) -> bool:
        return not (self.open or self.flying)

    def abandon(self, error: KafkaError) -> None:
        self.failed += [error] * (self.open + self.flying)
        self.open = self.flying = 0


class Transacting:
    """One producer's transactions. Coordinators are found at once."""

    def __init__(self, level: int = 2) -> None:
        self.world = World()
        metadata = make_metadata()
        metadata.hint(metadata.cluster.updated(answer(Api.METADATA, 13, **view(nodes=(1, 2, 3), controller=1))))
        self.calls = Calls(metadata, request_timeout=30.0, backoff=DOUBLING)
        self.features = Features(1, {FEATURE: level})
        self.gates: list[KafkaError | None] = []
        self.records = Held()
        self.transactions = Transactions("x", TIMEOUT, self.calls, lambda: self.features)
        self.transactions.records = self.records
        self.transactions.on_gate = self.gates.append
        self.epoch = 0
        self.coordinator = 2

    def finalize(self, level: int) -> None:
        """The cluster's administrator changes the transaction version."""
        self.features = Features(self.features.epoch + 1, {FEATURE: level})

    def turn(self) -> list[Sent]:
        """The requests that are sent now; look-ups of coordinators are answered."""
        sent: list[Sent] = []
        while new := self.world.turn(self.transactions, self.calls):
            for each in new:
                if each.api is Api.FIND_COORDINATOR:
                    where: dict[str, Any] = {"node_id": self.coordinator, "host": "a broker", "port": 9092, "error_code": 0}
                    each.reply(coordinators=[{"key": key, **where} for key in each.body.coordinator_keys])
                else:
                    sent.append(each)
        return sent

    def after(self, seconds: float) -> list[Sent]:
        self.world.after(seconds)
        return self.turn()

    def one(self, api: Api) -> Sent:
        """The only request that is sent now."""
        (sent,) = self.turn()
        assert sent.api is api
        return sent

    def ready(self) -> Transacting:
        """Initialized."""
        pending = self.transactions.initialize()
        self.gives_id(self.one(Api.INIT_PRODUCER_ID))
        assert self.transactions.take(pending)
        return self

    def begun(self) -> Transacting:
        """In a transaction."""
        self.ready().transactions.begin(self.world.now)
        return self

    def sends(self, tp: TopicPartition = A0) -> bool:
        """A batch of this partition leaves if it may; in protocol V1 it is added first."""
        if not self.transactions.admits(tp, self.world.now, repeated=False):
            added(self.one(Api.ADD_PARTITIONS_TO_TXN))
        admitted = self.transactions.admits(tp, self.world.now, repeated=False)
        if admitted:
            self.transactions.left(tp, self.world.now)
        return admitted

    def gives_id(self, sent: Sent, code: int = 0) -> None:
        self.epoch += 1
        sent.reply(error_code=code, producer_id=-1 if code else ID, producer_epoch=-1 if code else self.epoch)

    def ends(self, sent: Sent, code: int = 0) -> None:
        """EndTxn is answered: with the next epoch in protocol V2."""
        self.epoch += sent.version >= 5 and not code
        sent.reply(error_code=code, producer_id=-1 if code else ID, producer_epoch=-1 if code else self.epoch)

    def commits(self) -> Pending:
        """The whole commit."""
        pending = self.transactions.commit()
        self.ends(self.one(Api.END_TXN))
        return pending

    def again(self, *, commits: bool = True) -> None:
        """The transaction is committed or aborted once its records are stored, and the next one begins."""
        self.records.flying = 0
        pending = self.transactions.commit() if commits else self.transactions.abort()
        self.ends(self.one(Api.END_TXN))
        assert self.transactions.take(pending)
        self.transactions.begin(self.world.now)


def added(sent: Sent, code: int = 0) -> None:
    """AddPartitionsToTxn is answered."""
    sent.reply(results_by_topic_v3_and_below=[
        {"name": topic.name, "results_by_partition": [{"partition_index": number, "partition_error_code": code} for number in topic.partitions]}
        for topic in sent.body.v3_and_below_topics])


def committed(sent: Sent, code: int = 0) -> None:
    """TxnOffsetCommit is answered."""
    sent.reply(topics=[{"name": topic.name, "partitions": [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions]}
                       for topic in sent.body.topics])


def refuse(sent: Sent, code: int) -> None:
    """Any request of a transaction is answered with this error."""
    match sent.api:
        case Api.ADD_PARTITIONS_TO_TXN:
            added(sent, code)
        case Api.TXN_OFFSET_COMMIT:
            committed(sent, code)
        case _:
            sent.reply(error_code=code, producer_id=-1, producer_epoch=-1)
