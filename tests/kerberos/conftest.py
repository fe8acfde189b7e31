"""A realm, and a broker whose SASL listeners take Kerberos' tickets, for all tests of this folder."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient.testing import LocalCluster, Security
from tests.realm import HOST, SERVICE, Realm, jaas, realm

SESSION_MS: Final = 1500


@pytest.fixture(scope="session")
def kerberos() -> Iterator[Realm]:
    """The realm, which this process and those that it starts know."""
    with realm() as made, pytest.MonkeyPatch.context() as patch:
        for name in ("KRB5_KTNAME", "KRB5_CLIENT_KTNAME", "KRB5CCNAME"):
            patch.delenv(name, raising=False)
        for name, value in made.environment().items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="session")
def keytabs(kerberos: Realm) -> dict[str, Path]:
    """Of the users; and of a service that is in the realm but no broker."""
    return {name: kerberos.keytab(name) for name in ("alice", "bob", f"other/{HOST}")}


@pytest.fixture(scope="session")
def cluster(kerberos: Realm) -> Iterator[LocalCluster]:
    """SASL_PLAINTEXT, and SASL_SSL with sessions of `SESSION_MS`, accept tickets; alice has all rights, bob none."""
    login = jaas(kerberos.keytab(SERVICE), SERVICE)
    config: dict[str, object] = {"listener.name.sasl_ssl.connections.max.reauth.ms": SESSION_MS}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}."
        config |= {f"{prefix}sasl.enabled.mechanisms": "GSSAPI", f"{prefix}gssapi.sasl.jaas.config": login, f"{prefix}sasl.kerberos.service.name": "kafka"}
    with LocalCluster(mode="embedded", security=Security(), config=config) as running:  # files of this machine: no containers
        yield running


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tickets are kept; there is none yet."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    return tmp_path / "tickets"


@pytest.fixture
def options(cluster: LocalCluster, cache: Path) -> dict[str, Any]:
    """What a client of SASL_PLAINTEXT is given; GSSAPI is the default."""
    return {"bootstrap_servers": cluster.bootstrap("SASL_PLAINTEXT"), "security_protocol": "SASL_PLAINTEXT", "sasl_kerberos_service_name": "kafka"}


@pytest.fixture
def over_tls(cluster: LocalCluster, options: dict[str, Any]) -> dict[str, Any]:
    """What a client of SASL_SSL is given, where sessions are short."""
    return options | {"bootstrap_servers": cluster.bootstrap("SASL_SSL"), "security_protocol": "SASL_SSL",
                      "ssl_truststore_location": cluster.credentials.ca.path}


@pytest.fixture
def by_keytab(monkeypatch: pytest.MonkeyPatch, keytabs: dict[str, Path]) -> Callable[[str], None]:
    """Be this user from now on, by the key in a file."""
    return lambda user: monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytabs[user]))
