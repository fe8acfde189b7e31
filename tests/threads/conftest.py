"""Fixtures of every thread test: frequent switches by a printed seed, and no thread left running.

``PYCLIENT_THREADS_SEEDS`` chooses the seeds: ``7`` is one seed, ``0:500`` five hundred (`make threads-long`).
Unset, a few run. ``PYCLIENT_INTERRUPT_SEEDS`` chooses those of the programs that get real signals in the same way.
"""
from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from pyclient.testing import FakeCluster
from tests.threads.edges import Coin, put_edges
from tests.threads.team import assert_none_left

SEEDS: Final = os.environ.get("PYCLIENT_THREADS_SEEDS", "0:4")
INTERRUPT_SEEDS: Final = os.environ.get("PYCLIENT_INTERRUPT_SEEDS", "1")
SWITCH_S: Final = 1e-6


def seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    return range(int(first), int(last) if colon else int(first) + 1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, chosen in (("seed", SEEDS), ("interrupt_seed", INTERRUPT_SEEDS)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, seeds(chosen), ids=lambda seed: f"seed{seed}")


@pytest.fixture(autouse=True)
def _restless() -> Iterator[None]:
    """Threads may switch after each microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def _none_left(_restless: None) -> Iterator[None]:
    """No thread outlives the test that started it."""
    before = set(threading.enumerate())
    yield
    assert_none_left(before)


@pytest.fixture
def coin(seed: int, monkeypatch: pytest.MonkeyPatch) -> Coin:
    """Decides which thread yields; clients and buffers of the test toss it at the edges of their locks."""
    print(f"\nPYCLIENT_THREADS_SEEDS={seed} repeats this")
    made = Coin(seed)
    put_edges(monkeypatch, made)
    return made


@pytest.fixture
def cluster(_none_left: None) -> Iterator[FakeCluster]:
    """A cluster of the test's own, behind real sockets."""
    with FakeCluster() as made:
        yield made
