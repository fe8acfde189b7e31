"""Every option of the clients, declared once; ``declaration`` says how, `pyclient.option_types` lists them.

Names are loaded when first used: a process that only reads declares no options of the producer.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyclient.config.addresses import Address, parse_addresses
    from pyclient.config.admin import AdminConfig
    from pyclient.config.client import ClientConfig
    from pyclient.config.consumer import ConsumerConfig
    from pyclient.config.declaration import NotYet, Option, Rule
    from pyclient.config.producer import ProducerConfig
    from pyclient.foreign_options import OptionWarning

_HOMES: Final = {
    "Address": "pyclient.config.addresses",
    "AdminConfig": "pyclient.config.admin",
    "ClientConfig": "pyclient.config.client",
    "ConsumerConfig": "pyclient.config.consumer",
    "NotYet": "pyclient.config.declaration",
    "Option": "pyclient.config.declaration",
    "OptionWarning": "pyclient.foreign_options",
    "ProducerConfig": "pyclient.config.producer",
    "Rule": "pyclient.config.declaration",
    "parse_addresses": "pyclient.config.addresses",
}

__all__ = [
    "Address",
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "NotYet",
    "Option",
    "OptionWarning",
    "ProducerConfig",
    "Rule",
    "parse_addresses",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
