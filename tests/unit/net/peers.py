"""TCP peers that follow a script, on the loop of the test: brokers that are old, broken or hostile.

A script is a coroutine that is given one `Conversation` for each connection; what it says decides what the client sees.
(`raw_peers` has peers in threads of their own, for clients that block.)
"""
from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeAlias

from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.messages import encode_response
from pyclient.testing.common.listener import Listener

NO_THROTTLE = datetime.timedelta()


class Question:
    """A request as it stands on the wire."""

    def __init__(self, frame: bytes) -> None:
        key, self.version, self.correlation_id = struct.unpack_from(">hhi", frame)
        self.api = Api(key)
        self.frame = frame

    def __repr__(self) -> str:
        return f"<{self.api.title} v{self.version} {self.correlation_id}>"


class Conversation:
    """One connection of a client, seen from the peer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.here: tuple[str, int] = writer.get_extra_info("sockname")[:2]

    async def question(self) -> Question:
        """The next request. Raises IncompleteReadError when the client has hung up."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return Question(await self._reader.readexactly(size))

    async def end(self) -> None:
        """Returns when the client has hung up."""
        while await self._reader.read(65_536):
            pass

    def say(self, raw: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(raw)

    def frame(self, body: bytes) -> None:
        """Send bytes as one answer."""
        self.say(len(body).to_bytes(4, "big") + body)

    def answer(self, question: Question, *, version: int | None = None, **fields: object) -> None:
        """Answer with these fields, encoded in the question's version unless given."""
        written_in = question.version if version is None else version
        self.frame(encode_response(question.api, written_in, question.correlation_id, fields))

    def hang_up(self, *, reset: bool = False) -> None:
        """End the connection, in order or with a reset."""
        if reset:
            connection = self._writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        else:
            self._writer.close()

    async def introduce(self, **fields: Any) -> Question:
        """Answer ApiVersions as a broker does that speaks all this client speaks."""
        question = await self.question()
        assert question.api is Api.API_VERSIONS
        self.answer(question, **{**versions(), **fields})
        return question


Script: TypeAlias = Callable[[Conversation], Awaitable[None]]


class Peer:
    """Listens and runs a script for each connection: the first for the first one, the last for all further ones."""

    def __init__(self, *scripts: Script, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._scripts = scripts
        self._host = host
        self._port = port
        self._listener: Listener
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.faults: list[BaseException] = []

    @property
    def port(self) -> int:
        return self._port

    @property
    def address(self) -> str:
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def open(self) -> int:
        """How many clients are connected now."""
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = Listener(
            socket.create_server((self._host, self._port), family=family),
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._serve), self._tls)
        self._port = self._listener.port
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self.faults:
            raise self.faults[0]

    async def stop(self) -> None:
        """Hang up on everybody and listen no more."""
        self._listener.close()
        await self._listener.all_entered()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        try:
            await script(Conversation(reader, writer))
        except (OSError, EOFError, asyncio.CancelledError):  # the client hung up, or the test is over
            pass
        except Exception as fault:  # noqa: BLE001 raised by the test that ends the peer
            self.faults.append(fault)
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()


# ---- answers --------------------------------------------------------------------------------------------------------


def versions(**limits: tuple[int, int]) -> dict[str, Any]:
    """The fields of an ApiVersions answer: everything this client speaks, save the APIs given with other limits."""
    offered = {api: limits.get(api.name.lower(), SPOKEN[api]) for api in SPOKEN}
    return {
        "error_code": 0, "throttle_time": NO_THROTTLE,
        "api_keys": [{"api_key": int(api), "min_version": low, "max_version": high} for api, (low, high) in offered.items()],
    }


def metadata(*brokers: tuple[int, str, int], **fields: object) -> dict[str, Any]:
    """The fields of a Metadata answer that knows these brokers (id, host, port) and no topics."""
    return {
        "throttle_time": NO_THROTTLE, "cluster_id": "scripted", "controller_id": brokers[0][0] if brokers else -1, "topics": [],
        "brokers": [{"node_id": number, "host": host, "port": port, "rack": None} for number, host, port in brokers],
        "error_code": 0, **fields,
    }


# ---- scripts --------------------------------------------------------------------------------------------------------


async def broker(conversation: Conversation) -> None:
    """Answers ApiVersions, then Metadata with itself as the only broker, until the client disconnects."""
    await conversation.introduce()
    while True:
        conversation.answer(await conversation.question(), **metadata((1, *conversation.here)))


async def silence(conversation: Conversation) -> None:
    """Takes everything and says nothing."""
    await conversation.end()


async def muted_after_introduction(conversation: Conversation) -> None:
    """Answers ApiVersions, and nothing more."""
    await conversation.introduce()
    await conversation.end()
