"""Values by what they describe, most of them taken and returned by `Admin`.

Users import them from `pyclient.admin`; topics and the cluster from `pyclient`, assignments from `pyclient.plugins`.
"""
from __future__ import annotations

import enum


class KafkaEnum(enum.IntEnum):
    """Kafka's numbers of something; each has an ``UNKNOWN`` for those that this client does not know."""

    @classmethod
    def _missing_(cls, value: object) -> KafkaEnum | None:
        return cls.__members__.get("UNKNOWN")
