"""One scenario of producer, consumer and transactions over {plain, TLS, simulated} x {sync, async} x {none, lz4} gives
the same records, metrics and log lines.

What is expected is what the first cell gives: plain, sync, without compression. Compression may change the size of
batches, and its ratio to the size of their records (`outcome.BY_CODEC`), and nothing else: these values are compared
with those of the first cell that has the codec. All names of metrics are compared; of their values all but times,
rates, and what `outcome.NOT_COMPARED` and `outcome.RACING` list, each with its reason.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pytest

from pyclient.testing import LocalCluster, Security
from tests.broker.matrix.cells import CELLS, CODECS, Cell, outcome_of
from tests.broker.matrix.outcome import Outcome, differences

pytestmark = pytest.mark.kafka(security=Security())

First: TypeAlias = Mapping[str, Outcome]
"""The outcomes of the first cell with each codec."""


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_each_cell_gives_the_same_records_metrics_and_log_lines(cell: Cell, kafka_cluster: LocalCluster, first: First) -> None:
    outcome = outcome_of(cell, kafka_cluster)
    different = differences(outcome, first["none"])
    assert not different, "\n".join(different)
    assert outcome.sizes == first[cell.codec].sizes


def test_compression_makes_the_batches_smaller(first: First) -> None:
    sizes, smaller = (first[codec].sizes["producer"] for codec in CODECS)
    assert [name for name in sizes if smaller[name] >= sizes[name]] == []


@pytest.fixture
def first(kafka_cluster: LocalCluster, outcomes: dict[str, Outcome]) -> First:
    if not outcomes:
        cells = [Cell("plain", "sync", codec) for codec in CODECS]
        outcome_of(cells[0], kafka_cluster)  # a new broker's coordinators are not ready, and refuse some requests
        outcomes |= {cell.codec: outcome_of(cell, kafka_cluster) for cell in cells}
    return outcomes


@pytest.fixture(scope="session")
def outcomes() -> dict[str, Outcome]:
    """Filled once."""
    return {}
