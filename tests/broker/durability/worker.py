"""A worker under test, as a program: an exactly-once loop that copies a topic by record, async or by Arrow."""
from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer, Record
from pyclient.errors import KafkaError
from pyclient.processing import AsyncExactlyOnce, ExactlyOnce, Output
from tests.broker.durability.processes import RUNNING, report

FENCED: Final = 3
"""Its exit code after a fatal error."""


class Program:
    """*wish*: ``way``, ``target``, and the options of ``consumer`` and ``producer``."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self._target = wish["target"]
        self._options = wish["consumer"], wish["producer"]
        self.run: Callable[[], None] = {"records": self._by_record, "async": self._async, "tables": self._by_table}[wish["way"]]

    def _by_record(self) -> None:
        with_consumer, with_producer = self._options
        with Consumer(**with_consumer) as consumer, Producer(**with_producer) as producer:
            self._loop(ExactlyOnce(consumer, producer, self._output), producer)

    def _by_table(self) -> None:
        with_consumer, with_producer = self._options
        with Consumer(**with_consumer) as consumer, Producer(**with_producer) as producer:
            copying = ExactlyOnce.of_tables(consumer, producer, lambda table: table, self._target, partition_column="partition")
            self._loop(copying, producer)

    def _loop(self, processing: ExactlyOnce, producer: Producer) -> None:
        producer.init_transactions()
        signal.signal(signal.SIGTERM, lambda *_: processing.stop())
        report(RUNNING)
        processing.run()
        report(processing.progress)

    def _async(self) -> None:
        asyncio.run(self._loop_async())

    async def _loop_async(self) -> None:
        with_consumer, with_producer = self._options
        async with AsyncConsumer(**with_consumer) as consumer, AsyncProducer(**with_producer) as producer:
            processing = AsyncExactlyOnce(consumer, producer, self._output)
            await producer.init_transactions()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, processing.stop)
            report(RUNNING)
            await processing.run()
            report(processing.progress)

    def _output(self, record: Record) -> Output:
        return Output(self._target, record.value, partition=record.partition)


def main() -> None:
    try:
        Program(json.loads(sys.argv[1])).run()
    except KafkaError as error:
        if not error.fatal:
            raise
        report("fatal", repr(error))
        sys.exit(FENCED)


if __name__ == "__main__":
    main()
