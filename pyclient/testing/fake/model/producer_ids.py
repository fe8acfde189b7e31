"""Producer ids: the controller hands them to brokers in blocks."""
from __future__ import annotations

from typing import Final

import attrs

from pyclient.testing.fake.model.kafka import Kafka

BLOCK: Final = 1000


class Blocks:
    """The controller hands out ids by the thousand."""

    def __init__(self, _kafka: Kafka) -> None:
        self._next = 0

    def take(self) -> int:
        """The first id of a new block."""
        first, self._next = self._next, self._next + BLOCK
        return first


@attrs.define
class Ids:
    """What is left of a broker's block."""

    next: int
    left: int


def fresh_id(kafka: Kafka, broker: int) -> int:
    """An unused id."""
    parts = kafka.brokers[broker].parts
    ids = parts.get(Ids)
    if ids is None or not ids.left:
        ids = parts[Ids] = Ids(kafka.part(Blocks).take(), BLOCK)
    ids.next, ids.left = ids.next + 1, ids.left - 1
    return int(ids.next - 1)
