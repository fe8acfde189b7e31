"""read_committed: which batches belong to aborted transactions (C05). Pure over one answer's batches."""
from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

from pyclient.codec.batches import RecordBatch


def committed_only(batches: Iterable[RecordBatch], aborted: Iterable[Any]) -> list[RecordBatch]:
    """The data batches without those of aborted transactions and without control batches.

    *aborted* has ``producer_id`` and ``first_offset``; some brokers send it unsorted.
    """
    starts = [(each.first_offset, each.producer_id) for each in aborted]
    heapq.heapify(starts)
    aborting: set[int] = set()
    kept: list[RecordBatch] = []
    for batch in batches:
        while starts and starts[0][0] <= batch.last_offset:
            aborting.add(heapq.heappop(starts)[1])
        if batch.is_control:
            if batch.control_type() == "ABORT":
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            kept.append(batch)
    return kept
