"""Requests to token endpoints and schema registries go through ``proxy_url``, as the connections to brokers do."""
from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from pyclient.errors import ConfigurationError, SaslAuthenticationError, SchemaRegistryUnavailableError, TokenUnavailableError
from pyclient.plugins import Surroundings
from pyclient.sasl.oidc import token_source
from pyclient.serializers.registry import AsyncSchemaRegistryClient, RegistrySchema, SchemaRegistryClient
from pyclient.testing import CertificateAuthority, FakeSchemaRegistry
from tests.unit.net.test_proxied import PASSWORD, Manners, Proxy, closing, http, socks5, through
from tests.unit.sasl.endpoint import Endpoint
from tests.unit.sasl.exchanges import options

KINDS = pytest.mark.parametrize(("scheme", "manners"), [("socks5", socks5), ("socks5h", socks5), ("http", http)])
USERS = {"ann": PASSWORD}
LOGIN = f"ann:{PASSWORD}@"
TEXT = RegistrySchema('"string"')


def source(url: str, proxy_url: str) -> Any:
    return token_source(options(
        sasl_oauthbearer_token_endpoint_url=url, sasl_oauthbearer_client_credentials_client_id="a", sasl_oauthbearer_client_credentials_client_secret="b",
        sasl_login_retry_backoff_max_ms=1, proxy_url=proxy_url), Surroundings())


def port(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


@KINDS
def test_a_token_is_fetched_through_the_proxy(scheme: str, manners: Manners) -> None:
    with Proxy(manners, USERS) as proxy, Endpoint() as endpoint:
        assert source(endpoint.url, through(scheme, proxy, LOGIN))().value == "abc"
        assert [at for _, at in proxy.asked] == [port(endpoint.url)]


@KINDS
def test_an_https_endpoint_is_checked_through_the_proxy(scheme: str, manners: Manners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = CertificateAuthority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with Proxy(manners, USERS) as proxy, Endpoint(tls=authority.server_context("127.0.0.1")) as endpoint:
        assert source(endpoint.url, through(scheme, proxy, LOGIN))().value == "abc"
        assert len(proxy.asked) == 1
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(SaslAuthenticationError, match="certificate of the token endpoint"):
            source(endpoint.url, through(scheme, proxy, LOGIN))()


@KINDS
@pytest.mark.parametrize("kind", [SchemaRegistryClient, AsyncSchemaRegistryClient])
def test_a_registry_is_asked_through_the_proxy(scheme: str, manners: Manners, kind: type[Any]) -> None:
    async def ask(client: Any) -> Any:
        found = client.register("orders-value", TEXT)
        return found if kind is SchemaRegistryClient else await found

    async def steps() -> None:
        client = kind(registry.url, proxy_url=through(scheme, proxy, LOGIN))
        assert (await ask(client)).id > 0
        closed = client.close()
        if closed is not None:
            await closed

    with Proxy(manners, USERS) as proxy, FakeSchemaRegistry() as registry:
        asyncio.run(steps())
        assert proxy.asked
        assert {at for _, at in proxy.asked} == {port(registry.url)}


def test_a_registrys_token_is_fetched_through_its_proxy() -> None:
    oauth = {"sasl_oauthbearer_client_credentials_client_id": "a", "sasl_oauthbearer_client_credentials_client_secret": "b"}
    with Proxy(socks5) as proxy, Endpoint() as endpoint, FakeSchemaRegistry() as registry, SchemaRegistryClient(
            registry.url, oauth={**oauth, "sasl_oauthbearer_token_endpoint_url": endpoint.url}, proxy_url=through("socks5", proxy)) as client:
        client.register("orders-value", TEXT)
        assert {at for _, at in proxy.asked} == {port(endpoint.url), port(registry.url)}


@pytest.mark.parametrize(("scheme", "manners"), [("socks5", socks5), ("http", http), ("socks5", closing), ("http", closing)])
def test_a_proxy_that_refuses_is_an_error_that_does_not_show_its_password(scheme: str, manners: Manners) -> None:
    with Proxy(manners, {"bob": "x"}) as proxy, Endpoint() as endpoint, FakeSchemaRegistry() as registry:
        url = through(scheme, proxy, LOGIN)
        with pytest.raises(TokenUnavailableError) as token:
            source(endpoint.url, url)()
        with SchemaRegistryClient(registry.url, proxy_url=url) as client, pytest.raises(SchemaRegistryUnavailableError) as refused:
            client.register("orders-value", TEXT)
        assert PASSWORD not in f"{token.value}{refused.value}{client!r}"
        assert not endpoint.asked


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx_socks", None)
    for make in (lambda: SchemaRegistryClient("http://127.0.0.1:1", proxy_url="socks5://127.0.0.1:1"), lambda: source("https://idp.example/", "socks5://a:1")):
        with pytest.raises(ConfigurationError, match=r"pip install 'pyclient-kafka\[proxy\]'"):
            make()


def test_a_wrong_address_of_a_proxy_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigurationError, match="expected a URL as socks5://host:1080") as caught:
        SchemaRegistryClient("http://127.0.0.1:1", proxy_url=f"ftp://{LOGIN}a:1", ssl_context=ssl.create_default_context())
    assert PASSWORD not in str(caught.value)
