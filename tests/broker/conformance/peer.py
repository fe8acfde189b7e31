"""Raw sockets to one broker: a script's steps are sent, answers become plain values."""
from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Final

from kio.schema.errors import ErrorCode

from pyclient.codec.apis import Api, VersionRange
from pyclient.codec.messages import decode_response, encode_request
from pyclient.codec.schemas import Message, fields_of
from tests.broker.conformance.script import Hangup, Plain, Receive, Run, Step, UntilCut

TIMEOUT_S: Final = 10.0
PREPARATION_S: Final = 20.0
CUT: Final = "the connection was cut"
SILENCE: Final = "no answer came"
CLIENT_ID: Final = "conformance"
NAMED: Final = {"client_software_name": "conformance", "client_software_version": "1"}


class Connection:
    """One connection, and the answers it owes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, TIMEOUT_S)
        self._stream: BinaryIO = self._socket.makefile("rb")
        self._sent = 0

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, step: Step, version: int, fields: Mapping[str, object]) -> None:
        self._sent += 1
        frame = bytearray(encode_request(step.api, version, self._sent, CLIENT_ID, fields))
        if step.announced is not None:
            struct.pack_into(">h", frame, 2, step.announced)
        with contextlib.suppress(ConnectionError):  # a cut is seen where the answer is read
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def receive(self, api: Api, version: int) -> Plain:
        try:
            head = self._stream.read(4)
            frame = self._stream.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
        except ConnectionError:
            return CUT
        except TimeoutError:
            return SILENCE
        return plain(decode_response(api, version, memoryview(frame))) if frame else CUT


def plain(value: Any) -> Plain:
    """Messages as mappings, durations and times in ms, error codes by name."""
    if isinstance(value, Message):
        return {name: ErrorCode(each).name if name.endswith("error_code") else plain(each) for name, each in fields_of(value).items()}
    match value:
        case tuple() | list():
            return [plain(each) for each in value]
        case timedelta():
            return value // timedelta(milliseconds=1)
        case datetime():
            return round(value.timestamp() * 1000)
        case memoryview():
            return bytes(value)
    return value


def play(run: Run, address: tuple[str, int], offered: Mapping[Api, VersionRange]) -> list[tuple[Step, int, Plain]]:
    """Play a script; the answers to be compared, each with its step and version."""
    with contextlib.ExitStack() as ends:
        return list(Player(run, address, offered, ends).play())


class Player:
    """Plays one script on one cluster."""

    def __init__(self, run: Run, address: tuple[str, int], offered: Mapping[Api, VersionRange], ends: contextlib.ExitStack) -> None:
        self._run = run
        self._address = address
        self._offered = offered
        self._ends = ends
        self._connections: dict[str, Connection] = {}
        self._owed: dict[str, Step] = {}

    def play(self) -> Iterator[tuple[Step, int, Plain]]:
        """The answers, as they come."""
        for act in self._run.script.acts:
            match act:
                case Hangup(on):
                    self._connections.pop(on).close()
                case Receive(name):
                    yield self._received(self._owed.pop(name))
                case UntilCut(step):
                    self._ask_until_cut(step)
                case Step():
                    yield from self._step(act)

    def _step(self, step: Step) -> Iterator[tuple[Step, int, Plain]]:
        version = self._run.version_of(step, self._offered)
        if self._run.left_out(step, version):
            return
        if step.ready is not None:
            self._prepare(step, version)
            return
        if not step.unsent:
            self._send(step, version)
        if step.later:
            self._owed[step.name] = step
        elif not step.silent:
            yield self._received(step)

    def _prepare(self, step: Step, version: int) -> None:
        assert step.ready is not None
        deadline = time.monotonic() + PREPARATION_S
        while True:
            self._send(step, version)
            answer = self._received(step)[2]
            if answer not in (CUT, SILENCE) and step.ready(answer):
                return
            assert time.monotonic() < deadline, f"{step.api.title} v{version} still says {answer}"

    def _ask_until_cut(self, step: Step) -> None:
        deadline = time.monotonic() + PREPARATION_S
        answer: Plain = None
        while answer != CUT:
            assert time.monotonic() < deadline, f"{step.api.title} is still admitted"
            self._send(step, self._run.version_of(step, self._offered))
            answer = self._received(step)[2]
            assert answer != SILENCE, f"{step.api.title} is not answered"

    def _send(self, step: Step, version: int) -> None:
        self._connection(step.on).send(step, version, self._run.resolve(step.fields))

    def _received(self, step: Step) -> tuple[Step, int, Plain]:
        version = self._run.version_of(step, self._offered)
        answer = self._connection(step.on).receive(step.api, version if step.answered_in is None else step.answered_in)
        self._run.answers[step.name] = answer
        if answer in (CUT, SILENCE):
            self._connections.pop(step.on)
            return step, version, answer
        return step, version, step.shown(answer)

    def _connection(self, on: str) -> Connection:
        if on not in self._connections:
            self._connections[on] = connection = Connection(self._address)
            self._ends.callback(connection.close)
        return self._connections[on]


def offered_by(address: tuple[str, int]) -> dict[Api, VersionRange]:
    """What a broker says it accepts."""
    connection = Connection(address)
    step = Step(api=Api.API_VERSIONS)
    connection.send(step, 3, NAMED)
    ranges = connection.receive(Api.API_VERSIONS, 3)["api_keys"]
    connection.close()
    known = {int(api): api for api in Api}
    return {known[each["api_key"]]: VersionRange(each["min_version"], each["max_version"]) for each in ranges if each["api_key"] in known}
