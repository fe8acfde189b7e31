# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Where batches are sealed: in the step that sends them; large ones that are compressed in a thread of their own."""
from __future__ import annotations

import logging
from concurrent.futures import Executor

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch
from pyclient.codec.compression import Compression
from pyclient.errors import KafkaError
from pyclient.runtime.environment import Environment

_log = logging.getLogger(__name__)
NONE = Compression.NONE


class BatchSealer:
    """Compresses and checksums the batches of one producer."""

    def __init__(self, accumulator: Accumulator, environment: Environment) -> None:
        self._accumulator = accumulator
        self._environment = environment
        self._inline_bytes = environment.seal_inline_bytes
        self._workers: Executor | None = None

    def seal(self, batch: Batch) -> None:
        """Seal it, now or soon; the Accumulator reports its queue as ready when that is done."""
        if batch.appended <= self._inline_bytes or self._accumulator.codec(batch.queue.topic)[0] is NONE:
            self._accumulator.seal(batch)
        else:
            self._seal_in_worker(batch)

    def close(self) -> None:
        """Wait for the batches that are being sealed."""
        if self._workers is not None:
            self._workers.shutdown(wait=True)

    def _seal_in_worker(self, batch: Batch) -> None:
        self._workers = self._workers or self._environment.workers("pyclient-seal")
        try:
            self._workers.submit(self._seal_or_fail, batch)
        except RuntimeError:  # the interpreter is shutting down and starts no threads
            self._seal_or_fail(batch)

    def _seal_or_fail(self, batch: Batch) -> None:
        try:
            self._accumulator.seal(batch)
        except Exception as error:  # noqa: BLE001 MemoryError or a defect of a codec: the records must fail, not wait forever
            _log.exception("sealing %r failed", batch)
            failed = KafkaError(f"the batch could not be compressed: {error!r}", topic_partition=batch.queue.topic_partition)
            self._accumulator.give_up_unsealed(batch, failed)
        finally:
            self._accumulator.on_ready()
