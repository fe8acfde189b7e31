"""Pausing a container that does not let itself be frozen at once."""
from __future__ import annotations

from collections.abc import Iterable

import docker.errors
import pytest

from pyclient.testing.containers import freeze

BUSY = docker.errors.APIError("Cannot pause container: OCI runtime pause failed: unable to freeze: unknown")
GONE = docker.errors.NotFound("No such container")


class _Container:
    def __init__(self, failures: Iterable[Exception]) -> None:
        self._failures = list(failures)
        self.tries = 0

    def pause(self) -> None:
        self.tries += 1
        if self._failures:
            raise self._failures.pop(0)


def test_a_container_that_cannot_be_frozen_at_once_is_frozen_by_another_try() -> None:
    container = _Container([BUSY, BUSY])
    freeze(container)
    assert container.tries == 3


def test_a_container_that_cannot_be_frozen_raises_the_engines_message() -> None:
    with pytest.raises(docker.errors.APIError, match="unable to freeze"):
        freeze(_Container([BUSY] * 1000), limit_s=0.2)


def test_other_errors_are_raised_at_once() -> None:
    container = _Container([GONE])
    with pytest.raises(docker.errors.NotFound):
        freeze(container)
    assert container.tries == 1
