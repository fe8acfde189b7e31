"""The errors of batches that are given up.

They contain the broker's last error, what was tried, and whether the records may be stored (P17, P18).
"""
from __future__ import annotations

from pyclient.buffers.batch import Batch, BatchState
from pyclient.core.sending.produce_outcome import GiveUp, ProduceOutcome
from pyclient.errors import DeliveryTimeoutError, KafkaError, counted, raisable, sentence


def in_doubt(batch: Batch) -> bool:
    """Whether the broker may have it."""
    return batch.in_doubt or batch.state is BatchState.IN_FLIGHT


def given_up(batch: Batch, error: KafkaError) -> KafkaError:
    """The broker's last error, with the partition and the number of attempts."""
    stored = "may or may not be stored; given up" if batch.in_doubt else f"{_were(batch)} not stored"
    failure = _reworded(error, f"{counted(batch.count, 'record')} {stored} after {_attempts(batch)}: {error.message}")
    failure.topic_partition = batch.queue.topic_partition
    return failure


def record_errors(outcome: ProduceOutcome) -> dict[int, KafkaError] | None:
    """The broker's reasons against single records of the batch, by their index (P24)."""
    if not isinstance(outcome, GiveUp):
        return None
    return {index: _reworded(outcome.error, f"the broker refuses this record: {reason}") for index, reason in outcome.records.items()} or None


def expired(batch: Batch, now: float, delivery_timeout: float, last_error: KafkaError | None, leader: int | None) -> KafkaError:
    """The batch is older than *delivery_timeout* seconds.

    *last_error* is the last one that may explain it, *leader* the partition's leader now.
    """
    reason = f"the last error was: {last_error}" if last_error is not None else _why_unsent(leader)
    return DeliveryTimeoutError(
        f"{counted(batch.count, 'record')} {_were(batch)} not acknowledged within delivery_timeout_ms="
        f"{round(delivery_timeout * 1000)} ({now - batch.created:.1f} s, {_attempts(batch)}); {sentence(reason)} "
        f"{'It' if batch.count == 1 else 'They'} {'may or may not be' if in_doubt(batch) else f'{_were(batch)} not'} stored. Check the brokers, or raise delivery_timeout_ms.",
        topic_partition=batch.queue.topic_partition)


def _why_unsent(leader: int | None) -> str:
    return "its partition has no leader" if leader is None else f"node {leader}, its leader, gave no answer"


def _reworded(error: KafkaError, message: str) -> KafkaError:
    """The same error with another message."""
    other = raisable(error)
    other.args = (message,)
    return other


def _attempts(batch: Batch) -> str:
    return counted(batch.attempts, "attempt")


def _were(batch: Batch) -> str:
    return "was" if batch.count == 1 else "were"
