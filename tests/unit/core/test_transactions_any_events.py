"""Transactions under any calls and answers: one request at a time, the gate follows the state, no hang (T01, T02)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.codec.apis import Api
from pyclient.core.transactions.progress import Pending
from pyclient.core.transactions.states import TransactionState
from pyclient.errors import IllegalStateError, KafkaError, error_for
from tests.unit.core.transacting import A0, A1, MEMBER, OFFSETS, Transacting, refuse
from tests.unit.core.world import Sent

CODES = st.sampled_from([0, 0, 0, 0, 51, 14, 16, 120, 29, 3, 25])
WAITS = (TransactionState.INITIALIZING, TransactionState.COMMITTING, TransactionState.ABORTING)


class AnyEvents(RuleBasedStateMachine):
    """One producer; its records fail or are stored, coordinators answer as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.it = Transacting(1)
        self.waiting: list[Pending] = []

    @property
    def state(self) -> TransactionState:
        return self.it.transactions.state

    @rule(call=st.sampled_from(["initialize", "commit", "abort"]))
    def calls(self, call: str) -> None:
        self._try(lambda: self.waiting.append(getattr(self.it.transactions, call)()))

    @rule()
    def begins(self) -> None:
        self._try(lambda: self.it.transactions.begin(self.it.world.now))

    @rule()
    def sends_offsets(self) -> None:
        self._try(lambda: self.waiting.append(self.it.transactions.send_offsets(OFFSETS, MEMBER)))

    def _try(self, call: Callable[[], object]) -> None:
        before = self.state
        error = _error_of(call)
        assert error is None or error.abortable or error.fatal or isinstance(error, IllegalStateError)
        assert not isinstance(error, IllegalStateError) or self.state is before

    @rule(level=st.integers(1, 2))
    def finalizes(self, level: int) -> None:
        self.it.finalize(level)

    @rule(tp=st.sampled_from([A0, A1]))
    def a_batch_wants_to_leave(self, tp: Any) -> None:
        if self.it.transactions.admits(tp, self.it.world.now, repeated=False):
            assert self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING)
            self.it.transactions.left(tp, self.it.world.now)
            self.it.records.flying += 1

    @precondition(lambda self: self.it.records.flying)
    @rule(failed=st.booleans(), code=st.sampled_from([10, 47, 45]))
    def a_batch_ends(self, failed: bool, code: int) -> None:
        self.it.records.flying -= 1
        if failed:
            self.it.transactions.batch_failed(error_for(code))

    @rule(code=CODES)
    def a_coordinator_answers(self, code: int) -> None:
        for sent in list(self.it.world.in_flight):
            self._answer(sent, code)

    def _answer(self, sent: Sent, code: int) -> None:
        match sent.api:
            case Api.FIND_COORDINATOR:
                where: dict[str, Any] = {"node_id": 2, "host": "broker-2", "port": 9092, "error_code": 0}
                sent.reply(coordinators=[{"key": key, **where} for key in sent.body.coordinator_keys])
            case Api.INIT_PRODUCER_ID:
                self.it.gives_id(sent, code if code in (0, 51, 14, 16) else 0)
            case Api.END_TXN:
                self.it.ends(sent, code if code in (0, 51, 14, 16) else 0)
            case _:
                refuse(sent, code)

    @rule(seconds=st.sampled_from([0.1, 5.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.it.world.after(seconds)

    @invariant()
    def one_request_at_a_time(self) -> None:
        self.it.world.turn(self.it.transactions, self.it.calls)
        assert sum(sent.api is not Api.FIND_COORDINATOR for sent in self.it.world.in_flight) <= 1

    @invariant()
    def the_gate_is_open_in_a_transaction_only(self) -> None:
        assert (self.it.transactions.gate() is None) == (self.state is TransactionState.IN_TRANSACTION)
        assert not self.it.gates or (self.it.gates[-1] is None) == (self.state is TransactionState.IN_TRANSACTION)

    def teardown(self) -> None:
        """When all answers are good, every call ends."""
        self.it.records.flying = 0
        for _ in range(100):
            for sent in self.it.world.in_flight + self.it.turn():
                if sent in self.it.world.in_flight:
                    self._answer(sent, 0)
            self.it.world.after(100.0)
        assert self.state not in WAITS
        assert all(pending.done for pending in self.waiting)


def _error_of(call: Callable[[], object]) -> KafkaError | None:
    try:
        call()
    except KafkaError as error:
        return error
    return None


AnyEvents.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyEvents = AnyEvents.TestCase
