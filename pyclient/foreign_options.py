"""Names and values of other clients' options (Kafka 0.8 … 4.3, librdkafka, kafka-python), and what becomes of each here."""
from __future__ import annotations

from collections.abc import Mapping


def native(role: str, key: str, value: object, *, known: Mapping[str, str]) -> list[tuple[str, object]] | None:
    """Our names and values for a setting, [] when it is ignored, None when nobody knows the name."""
    return [(key, value)] if key in known else None
