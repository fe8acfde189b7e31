# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The compression of each topic's batches: `compression_type` for all, `compression_by_topic` for some.

Independent of batches and memory.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyclient.codec.compression import Compression, compress
from pyclient.errors import KafkaError, counted
from pyclient.records import TopicPartition

NONE: Final = Compression.NONE


class Codecs:
    """A codec and its level (None is the codec's default); ``by_topic`` has those of other topics."""

    def __init__(self, codec: Compression, level: int | None, by_topic: Mapping[str, tuple[Compression, int | None]]) -> None:
        self._default = (codec, level)
        self._by_topic = dict(by_topic)

    def of(self, topic: str) -> tuple[Compression, int | None]:
        """The codec of a topic, and its level."""
        return self._by_topic.get(topic, self._default)

    def compressed(self, topic: str, records: memoryview) -> tuple[Compression, bytes | bytearray | memoryview]:
        """The codec used, and the compressed *records*; NONE and *records* where compression saves nothing."""
        codec, level = self.of(topic)
        if codec is NONE:
            return NONE, records
        payload = compress(codec, records, level)
        return (codec, payload) if len(payload) < len(records) else (NONE, records)

    def failure(self, tp: TopicPartition, count: int, error: Exception) -> KafkaError:
        """The error of *count* records that could not be compressed."""
        codec, _ = self.of(tp.topic)
        return KafkaError(f"{counted(count, 'record')} could not be compressed with {codec.name.lower()}: {error!r}. Not sent.",
                          topic_partition=tp)
