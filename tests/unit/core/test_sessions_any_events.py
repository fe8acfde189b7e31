"""A fetch session against brokers, through any sequence of events: brokers read exactly what is requested (C07, C08).

Twice: against a minimal model of KIP-227, and against the fake cluster's sessions, which are compared with brokers.
"""
from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid5

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pyclient.codec.fetch import TOPIC_IDS_SINCE, FetchResponse, PartitionRequest
from pyclient.core.fetching.sessions import Session
from pyclient.errors import error_for
from pyclient.records import TopicPartition
from pyclient.testing.fake.handlers.sessions import Key, Sessions
from pyclient.testing.fake.handlers.sessions import Wish as FakeWish
from pyclient.testing.fake.model.refusal import RefusalError
from tests.unit.core.fetch_sessions import Answer, Broker, Model, Want, forgotten, wishes
from tests.unit.core.fetching import request_of, response_with
from tests.unit.core.world import topic_id

ALL = [TopicPartition(topic, number) for topic in "abc" for number in range(2)]
PLACES = st.sampled_from(ALL)

class Fake:
    """The fake cluster's sessions."""

    def __init__(self) -> None:
        self.room = True
        self._kafka = SimpleNamespace(settings=SimpleNamespace(max_incremental_fetch_session_cache_slots=1), clock=lambda: 0.0, random=Random(1))
        self._sessions = Sessions(self._kafka)  # type: ignore[arg-type]

    def answer(self, body: Any, version: int) -> Answer:
        self._kafka.settings.max_incremental_fetch_session_cache_slots = int(self.room)
        reported = {key: FakeWish(want.offset, 1, want.leader_epoch, -1) for key, want in wishes(body, version).items()}
        number, epoch, by_id = body.session_id, body.session_epoch, version >= TOPIC_IDS_SINCE
        if epoch in (0, -1):
            self._sessions.end(number)
            answers = {key: {"error_code": 0, "high_watermark": 1, "log_start_offset": 0, "records": b""} for key in reported}
            begun = self._sessions.begun(reported, answers, by_id=by_id) if epoch == 0 and reported else 0
            return Answer(0, begun, wishes(body, version), tuple(reported))
        try:
            session = self._sessions.resumed(number, epoch, reported, forgotten(body, version), by_id=by_id)
        except RefusalError as refused:
            return Answer(refused.code)
        assert session is not None, "an empty session ends: no request may read nothing"
        reads = {key: Want(cached.wish.offset, cached.wish.leader_epoch) for key, cached in session.partitions.items()}
        return Answer(0, session.id, reads, tuple(reported))

    def restart(self) -> None:
        self._sessions.expire()


class AnyEvents(RuleBasedStateMachine):
    """One session and one broker. After any trouble the next request reads what is requested then."""

    broker: Broker

    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        self.wants: dict[TopicPartition, PartitionRequest] = {}
        self.ids: dict[str, UUID | None] = {topic: topic_id(topic) for topic in "abc"}
        self.newest = 17
        self.generation = 0

    # the user

    @rule(tp=PLACES, offset=st.integers(0, 3), epoch=st.integers(0, 1))
    def want(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        self.wants[tp] = self.wish(tp, offset, epoch)
        self.session.add(tp)

    def wish(self, tp: TopicPartition, offset: int, epoch: int) -> PartitionRequest:
        topic = self.ids[tp.topic]
        return PartitionRequest(offset, 0, epoch, -1, None if topic is None else topic.bytes)

    @rule(tp=PLACES)
    def leave(self, tp: TopicPartition) -> None:
        self.wants.pop(tp, None)
        self.session.remove(tp)

    @rule(tp=PLACES)
    def is_not_to_be_read_after_all(self, tp: TopicPartition) -> None:
        self.wants.pop(tp, None)
        self.session.add(tp)

    @rule(topic=st.sampled_from("abc"), how=st.sampled_from(["recreated", "nameless"]))
    def another_id(self, topic: str, how: str) -> None:
        self.generation += 1
        self.ids[topic] = uuid5(topic_id(topic), str(self.generation)) if how == "recreated" else None
        for tp in [tp for tp in self.wants if tp.topic == topic]:
            self.wants[tp] = self.wish(tp, self.wants[tp].offset, self.wants[tp].leader_epoch)
            self.session.add(tp)

    # the broker

    @rule(restarts=st.booleans(), room=st.booleans(), newest=st.sampled_from([6, 12, 17]))
    def broker_changes(self, restarts: bool, room: bool, newest: int) -> None:
        self.broker.room = room
        if restarts or newest != self.newest:  # only a new process speaks other versions
            self.newest = newest
            self.broker.restart()

    @rule(what=st.sampled_from(["answered", "answered", "answered", "not sent", "lost", "throttled", "stranger"]), missing=st.booleans())
    def exchange(self, what: str, missing: bool) -> None:
        request = self.session.next_request(self.wants.get)
        if request is None:
            assert not self.wants
            return
        version = min(self.newest, 12) if request.by_name else self.newest
        answer = Answer() if what == "not sent" else self.send(request_of(self.session, request, version), version)
        if answer.code:
            assert request.epoch > 0, "a full request fits any broker"
            assert self.session.on_error(error_for(answer.code))
            self.exchange("answered", missing=False)
        elif what == "not sent":
            self.session.renew()
        else:
            self.reads_what_is_wanted(answer, version)
            self.hear(answer, version, what, answer.reported[int(missing and request.epoch == 0):])

    def hear(self, answer: Answer, version: int, what: str, reported: tuple[Key, ...]) -> None:
        """What of the answer reaches the client."""
        if what == "lost":
            self.session.renew()
        elif what == "throttled":
            self.session.on_response(self.message(version, answer.session if self.session.epoch else 0, ()))
        else:
            strangers = ((topic_id("z") if version >= TOPIC_IDS_SINCE else "z", 0),) if what == "stranger" else ()
            read = self.session.on_response(self.message(version, answer.session, (*reported, *strangers)))
            assert [requested for _, requested, _ in read] == [self.wants[tp] for tp, _, _ in read]
            assert len(read) == len(reported)

    def send(self, body: Any, version: int) -> Answer:
        if version < 7:
            return Answer(0, 0, wishes(body, version), tuple(wishes(body, version)))
        return self.broker.answer(body, version)

    def reads_what_is_wanted(self, answer: Answer, version: int) -> None:
        wanted = {(self.ids[tp.topic] if version >= TOPIC_IDS_SINCE else tp.topic, tp.partition): Want(
            requested.offset, requested.leader_epoch if version >= 9 else -1) for tp, requested in self.wants.items()}
        assert answer.reads == wanted

    def message(self, version: int, session: int, reported: tuple[Key, ...]) -> FetchResponse:
        topics: dict[Any, list[int]] = {}
        for topic, number in reported:
            topics.setdefault(topic, []).append(number)
        return response_with(version, topics, session_id=session)

    @invariant()
    def it_reads_while_something_is_wanted(self) -> None:
        assert self.session.reads() or not self.wants


class AgainstTheModel(AnyEvents):
    def __init__(self) -> None:
        super().__init__()
        self.broker = Model()


class AgainstTheFake(AnyEvents):
    def __init__(self) -> None:
        super().__init__()
        self.broker = Fake()


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheFake = AgainstTheFake.TestCase
TestAgainstTheModel.settings = TestAgainstTheFake.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
