"""Addresses for tests."""
from __future__ import annotations

from typing import NamedTuple

from pyclient.testing.ports import reserve_ports


class Address(NamedTuple):
    """Printed as clients take it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def unused_address() -> Address:
    """Where nothing listens, and nothing will while this process runs: another one each time.

    A port that was bound and closed again may be the next one's that anybody of this machine binds.
    """
    [port] = reserve_ports(1)
    return Address("127.0.0.1", port)
