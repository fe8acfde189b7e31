"""How the batches of a topic are compressed: one way for all, and another for some topics.

Knows codecs and bytes; knows neither batches nor memory.
"""
from __future__ import annotations

from collections.abc import Mapping

from pyclient.codec.compression import Compression, compress
from pyclient.errors import KafkaError
from pyclient.records import TopicPartition


class Codecs:
    """A codec and its level (None is the codec's own); ``by_topic`` has those of the topics that differ."""

    def __init__(self, codec: Compression, level: int | None, by_topic: Mapping[str, tuple[Compression, int | None]]) -> None:
        self._usual = (codec, level)
        self._by_topic = dict(by_topic)

    def of(self, topic: str) -> tuple[Compression, int | None]:
        """The codec of a topic, and its level."""
        return self._by_topic.get(topic, self._usual)

    def compressed(self, topic: str, records: memoryview) -> tuple[Compression, bytes | bytearray | memoryview]:
        """The codec used, and what it made of *records*. What does not pay is sent as it is."""
        codec, level = self.of(topic)
        if codec is Compression.NONE:
            return Compression.NONE, records
        payload = compress(codec, records, level)
        return (codec, payload) if len(payload) < len(records) else (Compression.NONE, records)

    def failure(self, where: TopicPartition, count: int, error: Exception) -> KafkaError:
        """What *count* records are told that could not be compressed."""
        codec, _ = self.of(where.topic)
        return KafkaError(f"{count} records could not be compressed with {codec.name.lower()}: {error!r}. They were not sent.",
                          topic_partition=where)
