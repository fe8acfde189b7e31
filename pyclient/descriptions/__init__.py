"""Values that `Admin` takes and returns, by what they describe; users import them from `pyclient.admin`."""
from __future__ import annotations

import enum


class KafkaEnum(enum.IntEnum):
    """Kafka's numbers of something; each has an ``UNKNOWN`` for those that this client does not know."""

    @classmethod
    def _missing_(cls, value: object) -> KafkaEnum | None:
        return cls.__members__.get("UNKNOWN")
