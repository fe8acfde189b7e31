"""Every option of the clients, declared once; ``declaration`` says how, `pyclient.option_types` lists them."""
from __future__ import annotations

from pyclient.config.addresses import Address, parse_addresses
from pyclient.config.admin import AdminConfig
from pyclient.config.client import ClientConfig
from pyclient.config.consumer import ConsumerConfig
from pyclient.config.declaration import NotYet, Option, Rule
from pyclient.config.producer import ProducerConfig
from pyclient.foreign_options import OptionWarning

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
