"""What other clients leave behind."""
from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def sockets_that_kafka_python_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect them with the test that made them: pytest would blame any later test of ours for the warning."""
    yield
    if "python" in request.node.name:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
