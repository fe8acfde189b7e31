"""Addresses where no broker answers: every client says within its timeout what it tried and what each address said."""
from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin, Consumer, Producer, TopicPartition
from pyclient.errors import BootstrapFailed
from pyclient.testing import FaultProxy

UNRESOLVABLE = "broker.invalid:9092"  # RFC 6761: this name never resolves
WHERE = TopicPartition("flights", 0)


@pytest.fixture(scope="module")
def nobody() -> str:
    """A port where nothing listens, and nothing will: it is bound, not listened on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture(scope="module")
def mute() -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with FaultProxy(("127.0.0.1", 1)) as proxy, socket.create_server(("127.0.0.1", 0)) as upstream:
        proxy.upstream = upstream.getsockname()
        proxy.hang()
        yield proxy.address


@pytest.fixture(scope="module")
def http_server() -> Iterator[str]:
    """A port that speaks HTTP."""
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class names it so
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def send(servers: str, limit_s: float) -> None:
    with Producer(bootstrap_servers=servers, max_block_ms=round(limit_s * 1000)) as producer:
        producer.send("flights", b"")


def look_up(servers: str, limit_s: float) -> None:
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.end_offsets([WHERE], timeout=limit_s)


def list_topics(servers: str, limit_s: float) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.list_topics(timeout=limit_s)


CALLS = [send, look_up, list_topics]


@pytest.mark.parametrize("call", CALLS)
def test_where_nothing_listens_the_error_says_so_within_the_timeout(call: Callable[[str, float], None], nobody: str) -> None:
    with pytest.raises(BootstrapFailed) as failure:
        call(nobody, 0.3)
    assert f"Tried {nobody}: Connection refused" in str(failure.value)
    assert list(failure.value.causes) == [nobody]
