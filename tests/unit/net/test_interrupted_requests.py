"""Exceptions raised into the thread that writes a request: its outcome is reported once, and never as "not sent" of one
that may have arrived.
"""
from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.codec.messages import encode_request
from pyclient.core.manager import NotSent, Reply, Request, Unknown, Use
from pyclient.net.connection import Connection
from pyclient.reactor.channels import PlainChannel
from tests.interrupted_at import interrupted_at
from tests.twins import needs_twins
from tests.unit.net.peers import Conversation, Peer, muted_after_introduction
from tests.unit.net.test_connection import until
from tests.unit.net.test_pool import Rig, at, rig, run
from tests.unit.net.written import Written


class Interrupt(BaseException):
    """As func_timeout's."""


def raise_interrupt() -> None:
    raise Interrupt


class Outcomes(dict[float, Any]):
    """Of one request, by the time. Noted without a step of Python, where an exception might be raised."""

    def __init__(self) -> None:
        super().__init__()
        self.done: Any = self.__setitem__

    @property
    def one(self) -> Any:
        assert len(self) == 1
        return next(iter(self.values()))


def send(here: Rig, outcomes: Outcomes, *, answered: bool) -> None:
    frame = encode_request(Api.METADATA, 12, 1, "tests", {
        "topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False})
    request = Written(lambda *_: [frame], node=1, use=Use.CONTROL, api=Api.METADATA, timeout=30, done=outcomes.done, answered=answered)
    request.done = outcomes.done  # type: ignore[method-assign]  # compiled, it has no line at which an exception could come
    here.connections.send(request)


@needs_twins
@pytest.mark.parametrize("answered", [True, False])
def test_an_exception_at_any_line_of_writing_a_request_leaves_one_true_outcome(monkeypatch: pytest.MonkeyPatch, *, answered: bool) -> None:
    arrived: list[Api] = []
    number, going_on, reported = 1, True, set()
    whole = Connection.send

    async def listen(conversation: Conversation) -> None:
        await conversation.introduce()
        try:
            while True:
                arrived.append((await conversation.question()).api)
        except asyncio.IncompleteReadError:
            pass

    def interrupted(connection: Connection, request: Request) -> None:
        nonlocal going_on
        going_on = interrupted_at(number, lambda: whole(connection, request), handler=raise_interrupt, where="line")

    async def one() -> None:
        arrived.clear()
        async with Peer(listen) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            connection = here.connections._connection(1, Use.CONTROL)
            assert connection is not None
            outcomes = Outcomes()
            monkeypatch.setattr(Connection, "send", interrupted)
            with contextlib.suppress(Interrupt):
                send(here, outcomes, answered=answered)
            monkeypatch.setattr(Connection, "send", whole)
            if going_on:
                await until(lambda: outcomes)
                await until(lambda: isinstance(outcomes.one, NotSent) or connection.ending is not None)
                assert isinstance(outcomes.one, NotSent | Unknown | Reply)
                assert not (isinstance(outcomes.one, NotSent) and arrived)
                reported.add(type(outcomes.one))
            await here.connections.close()
            assert len(outcomes) == 1

    while going_on:
        run(one())
        number += 1
    assert number > 20
    assert {NotSent, Unknown} <= reported


@needs_twins
def test_a_defect_while_a_request_is_written_is_reported_once_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(channel: PlainChannel, pieces: Any) -> bool:
        write(channel, pieces)
        raise RuntimeError

    write = PlainChannel.write

    async def test() -> None:
        async with Peer(muted_after_introduction) as peer, rig() as here:
            here.connections.update_nodes({1: at(peer)})
            await here.slots(1)
            monkeypatch.setattr(PlainChannel, "write", breaks)
            outcomes = Outcomes()
            send(here, outcomes, answered=True)
            await until(lambda: outcomes)
            assert isinstance(outcomes.one, Unknown)
            assert outcomes.one.cause.retriable

    run(test())
