"""Kafka for tests and first steps: real brokers, a fake cluster, faults for both. Names are imported on first use."""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyclient.testing.assignor_laws import check_assignor
    from pyclient.testing.common.certificates import Certificate, CertificateAuthority
    from pyclient.testing.cluster import LocalCluster
    from pyclient.testing.credentials import ClientCertificate, Credentials, Pem, User
    from pyclient.testing.common.errors import (
        BrokerStartError,
        ContainersUnavailableError,
        FakeClusterError,
        JarsUnavailableError,
        JavaNotFoundError,
        LocalClusterError,
        NotControllableError,
    )
    from pyclient.testing.fake.cluster import FakeCluster
    from pyclient.testing.fake.control import Answer, Bytes, Change, Cut, Delay, Drop, Fail, Silence, Throttle
    from pyclient.testing.fake.view import GroupView, MemberView
    from pyclient.testing.proxy import FaultProxy
    from pyclient.testing.registry import FakeSchemaRegistry, RegistryRequest
    from pyclient.testing.security import Security
    from pyclient.testing.simulation.faults import Fault
    from pyclient.testing.simulation.world import World
    from pyclient.testing.tokens import TokenIssuer, TokenRequest

_HOMES: Final = {
    "Answer": "fake.control",
    "BrokerStartError": "common.errors",
    "Bytes": "fake.control",
    "Change": "fake.control",
    "ClientCertificate": "credentials",
    "Certificate": "common.certificates",
    "CertificateAuthority": "common.certificates",
    "ContainersUnavailableError": "common.errors",
    "Credentials": "credentials",
    "Cut": "fake.control",
    "Delay": "fake.control",
    "Drop": "fake.control",
    "Fail": "fake.control",
    "FakeCluster": "fake.cluster",
    "FakeClusterError": "common.errors",
    "FakeSchemaRegistry": "registry",
    "Fault": "simulation.faults",
    "FaultProxy": "proxy",
    "GroupView": "fake.view",
    "JarsUnavailableError": "common.errors",
    "JavaNotFoundError": "common.errors",
    "LocalCluster": "cluster",
    "LocalClusterError": "common.errors",
    "MemberView": "fake.view",
    "NotControllableError": "common.errors",
    "Pem": "credentials",
    "RegistryRequest": "registry",
    "Security": "security",
    "Silence": "fake.control",
    "Throttle": "fake.control",
    "TokenIssuer": "tokens",
    "TokenRequest": "tokens",
    "User": "credentials",
    "World": "simulation.world",
    "check_assignor": "assignor_laws",
}

__all__ = [
    "Answer",
    "BrokerStartError",
    "Bytes",
    "Certificate",
    "CertificateAuthority",
    "Change",
    "ClientCertificate",
    "ContainersUnavailableError",
    "Credentials",
    "Cut",
    "Delay",
    "Drop",
    "Fail",
    "FakeCluster",
    "FakeClusterError",
    "FakeSchemaRegistry",
    "Fault",
    "FaultProxy",
    "GroupView",
    "JarsUnavailableError",
    "JavaNotFoundError",
    "LocalCluster",
    "LocalClusterError",
    "MemberView",
    "NotControllableError",
    "Pem",
    "RegistryRequest",
    "Security",
    "Silence",
    "Throttle",
    "TokenIssuer",
    "TokenRequest",
    "User",
    "World",
    "check_assignor",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
