"""Kafka as a source and sink of PySpark, without any JAR. Names are loaded on first use, so looking for formats is
cheap.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyclient.integration.spark.datasource import PyclientDataSource, register
    from pyclient.integration.spark.progress import LagListener, QueryLag
    from pyclient.integration.spark.producers import shared_producer
    from pyclient.integration.spark.registry_columns import from_registry, to_registry
    from pyclient.integration.spark.sink import KafkaSink

_HOMES: Final = {
    "KafkaSink": "sink",
    "LagListener": "progress",
    "PyclientDataSource": "datasource",
    "QueryLag": "progress",
    "from_registry": "registry_columns",
    "register": "datasource",
    "shared_producer": "producers",
    "to_registry": "registry_columns",
}

__all__ = ["KafkaSink", "LagListener", "PyclientDataSource", "QueryLag", "from_registry", "register", "shared_producer", "to_registry"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
