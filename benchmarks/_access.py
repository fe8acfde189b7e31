"""How the measured clients reach a listener: one description, and each client's own options for it.

The description is sent in a job, as JSON.
"""
from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pyclient.testing import LocalCluster

Access: TypeAlias = Mapping[str, str]
"""``protocol``; with TLS also ``ca``; with a login also ``mechanism``, and ``user`` and ``password`` or ``token``."""
OPEN: Final[Access] = {}
Login: TypeAlias = tuple[str, str | None]
"""A protocol, which is also the name of the broker's listener, and a mechanism."""
PLAINTEXT: Final[Login] = ("PLAINTEXT", None)
TLS: Final[Login] = ("SASL_SSL", "SCRAM-SHA-512")
USER: Final = "alice"


def access(cluster: LocalCluster, protocol: str, mechanism: str | None = None) -> Access:
    """To a listener of a secured cluster, as a user who may do everything."""
    given = {"protocol": protocol}
    if protocol.endswith("SSL"):
        given["ca"] = cluster.credentials.ca.path
    if mechanism == "OAUTHBEARER":
        given |= {"mechanism": mechanism, "token": cluster.credentials.users[USER].token()}
    elif mechanism is not None:
        given |= {"mechanism": mechanism, "user": USER, "password": cluster.credentials.users[USER].password}
    return given


def servers(cluster: LocalCluster, to: Access) -> str:
    """The brokers' addresses for it."""
    return cluster.bootstrap(to["protocol"]) if to else cluster.bootstrap_servers


def ours(to: Access) -> dict[str, Any]:
    """As options of pyclient."""
    names = {"protocol": "security_protocol", "ca": "ssl_truststore_location", "mechanism": "sasl_mechanism", "user": "sasl_plain_username", "password": "sasl_plain_password"}
    options: dict[str, Any] = {names[name]: value for name, value in to.items() if name in names}
    return options | ({"sasl_token_provider": lambda: _token(to)} if "token" in to else {})


def confluents(to: Access) -> dict[str, Any]:
    """The same for librdkafka."""
    names = {"protocol": "security.protocol", "ca": "ssl.ca.location", "mechanism": "sasl.mechanism", "user": "sasl.username", "password": "sasl.password"}
    options: dict[str, Any] = {names[name]: value for name, value in to.items() if name in names}
    return options | ({"oauth_cb": lambda _config: _token(to)} if "token" in to else {})


def aiokafkas(to: Access) -> dict[str, Any]:
    """The same for aiokafka, which takes no token here."""
    names = {"protocol": "security_protocol", "mechanism": "sasl_mechanism", "user": "sasl_plain_username", "password": "sasl_plain_password"}
    options: dict[str, Any] = {names[name]: value for name, value in to.items() if name in names}
    return options | ({"ssl_context": ssl.create_default_context(cafile=to["ca"])} if "ca" in to else {})


def _token(to: Access) -> tuple[str, float]:
    return to["token"], time.time() + 3000
