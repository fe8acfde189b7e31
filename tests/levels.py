"""Which tests `make test` leaves to `make test-all`: the one place that says so.

`make test` covers units, the fake cluster, a real broker's main paths, the README and Spark's demo in a few minutes. What a
user meets less often, or takes long for what it adds, is extended. Tests marked ``proof`` are left to `make proof` by both.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXTENDED: Final[Mapping[str, str]] = {
    "tests/containers": "brokers in containers; embedded ones behave alike, and conformance compares them",
}
"""A folder, a file or ``file::function`` → the reason."""


def is_extended(nodeid: str) -> bool:
    """Whether the table names the test, its file or a folder above it."""
    file, _, rest = nodeid.partition("::")
    places = file.split("/")
    function = rest.rpartition("::")[2].partition("[")[0]
    prefixes = {"/".join(places[:end]) for end in range(1, len(places) + 1)}
    return not EXTENDED.keys().isdisjoint(prefixes | {f"{file}::{function}"})
