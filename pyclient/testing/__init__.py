"""Real Kafka for tests and first steps, and faults for both. Names are loaded when first used: plugins import this."""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyclient.testing.cluster import LocalCluster
    from pyclient.testing.errors import (
        BrokerStartFailed,
        ContainersUnavailable,
        JarsUnavailable,
        JavaNotFound,
        LocalClusterError,
        NotControllable,
    )
    from pyclient.testing.proxy import FaultProxy

_HOMES: Final = {
    "BrokerStartFailed": "errors",
    "ContainersUnavailable": "errors",
    "FaultProxy": "proxy",
    "JarsUnavailable": "errors",
    "JavaNotFound": "errors",
    "LocalCluster": "cluster",
    "LocalClusterError": "errors",
    "NotControllable": "errors",
}

__all__ = [
    "BrokerStartFailed",
    "ContainersUnavailable",
    "FaultProxy",
    "JarsUnavailable",
    "JavaNotFound",
    "LocalCluster",
    "LocalClusterError",
    "NotControllable",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
