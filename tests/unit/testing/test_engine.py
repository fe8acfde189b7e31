"""The check for a Docker engine leaves nothing open, whatever answers at its address."""
from __future__ import annotations

import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyclient.testing.engine import engine_answers


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """A listener that sends *answer* to everything and hangs up."""
    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                if connection.recv(65536):
                    connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def asked() -> bool:
    """The answer; fails when asking left a socket open."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers = engine_answers()
        gc.collect()
    assert [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)] == []
    return answers


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    return tmp_path / "s"


def test_a_missing_socket_means_no_engine(place: Path) -> None:
    assert not place.exists()
    assert not asked()


def test_a_socket_without_listener_means_no_engine(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
    assert not asked()


@pytest.mark.parametrize("answer", [b"", b"no HTTP\r\n\r\n"])
def test_another_server_is_not_an_engine(place: Path, answer: bytes) -> None:
    with answering(place, answer):
        assert not asked()


@pytest.mark.parametrize("status", [b"200 OK", b"400 client version is too new"])
def test_an_engine_answers_even_if_it_speaks_another_version(place: Path, status: bytes) -> None:
    with answering(place, b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK"):
        assert asked()
