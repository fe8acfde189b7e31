"""The registry's clients, sync and async: caches, several URLs, logins, and errors that say what to do."""
from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient.errors import ConfigurationError, SchemaRegistryError, SchemaRegistryUnavailableError
from pyclient.plugins import OAuthToken
from pyclient.serializers.registry import AsyncSchemaRegistryClient, RegistrySchema, SchemaReference, SchemaRegistryClient
from pyclient.testing import CertificateAuthority, FakeSchemaRegistry, TokenIssuer
from tests.secrets import assert_no_local_shows

ORDER = RegistrySchema('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')
OTHER = RegistrySchema('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}')
PASSWORD = "marker-secret-1"
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def registry() -> Iterator[FakeSchemaRegistry]:
    with FakeSchemaRegistry() as running:
        yield running


class _Both:
    """The async client as a sync one: each rule is tested with both."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = AsyncSchemaRegistryClient(*args, **options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            try:
                return await getattr(self._client, name)(*args, **options)
            finally:
                await self._client.close()

        return lambda *args, **options: asyncio.run(call(*args, **options))


@pytest.fixture
def connect() -> Iterator[Callable[..., SchemaRegistryClient]]:
    """Makes sync clients and closes them."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(SchemaRegistryClient(*args, **options))


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest, connect: Any) -> Any:
    return connect if request.param == "sync" else _Both


def test_a_schema_is_registered_once_and_found_by_id_version_and_guid(registry: FakeSchemaRegistry, make: Any) -> None:
    client = make(registry.url)
    made = client.register("orders-value", ORDER)
    assert client.register("orders-value", ORDER) == made
    assert [each.method for each in registry.requests] == ["POST"]
    assert client.schema(made.id).schema == ORDER
    assert client.schema(made.guid).schema == ORDER
    assert client.version("orders-value", 1).id == client.latest("orders-value").id == client.lookup("orders-value", ORDER).id == made.id
    assert (client.subjects(), client.versions("orders-value")) == (["orders-value"], [1])
    assert client.delete("orders-value") == [1]
    assert client.subjects() == []


def test_compatibility_is_checked_before_and_enforced_at_registration(registry: FakeSchemaRegistry, make: Any) -> None:
    client = make(registry.url)
    client.register("orders-value", ORDER)
    assert client.compatibility_level("orders-value") == "BACKWARD"
    found = client.check_compatibility("orders-value", OTHER)
    assert not found.is_compatible
    assert "string" in " ".join(found.messages)
    with pytest.raises(SchemaRegistryError, match="HTTP 409.*subject 'orders-value'") as caught:
        client.register("orders-value", OTHER)
    assert (caught.value.status, caught.value.subject) == (409, "orders-value")
    client.set_compatibility_level("none", "orders-value")
    assert client.register("orders-value", OTHER).id == 2


def test_references_and_odd_subjects_arrive_as_they_are(registry: FakeSchemaRegistry, connect: Any) -> None:
    client = connect(registry.url)
    client.register("a/b c%", ORDER)
    user = RegistrySchema('{"type": "record", "name": "Two", "fields": [{"name": "order", "type": "Order"}]}', references=(SchemaReference("Order", "a/b c%", 1),))
    made = client.register("list", user)
    assert connect(registry.url).schema(made.id).schema == user
    assert client.subjects() == ["a/b c%", "list"]


def test_what_the_registry_does_not_have_is_an_error_with_status_code_and_subject(registry: FakeSchemaRegistry, make: Any) -> None:
    client = make(registry.url)
    with pytest.raises(SchemaRegistryError, match=r"GET /schemas/ids/9 with HTTP 404 \(Schema 9 not found.\)") as caught:
        client.schema(9)
    assert (caught.value.status, caught.value.error_code) == (404, 40403)
    with pytest.raises(SchemaRegistryError, match="Subject 'nothing' not found"):
        client.latest("nothing")
    with pytest.raises(SchemaRegistryError, match="HTTP 422"):
        client.register("bad", RegistrySchema("{}"))
    assert not isinstance(caught.value, SchemaRegistryUnavailableError)


def test_the_next_url_is_used_at_once_when_one_does_not_answer(registry: FakeSchemaRegistry, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    client = make([NOWHERE, registry.url])
    assert client.subjects() == []
    assert "127.0.0.1:1 cannot be reached" in caplog.text
    caplog.clear()
    assert client.subjects() == []
    assert not caplog.text


def test_temporary_failures_are_tried_again_three_times(registry: FakeSchemaRegistry, make: Any) -> None:
    client = make(registry.url)
    registry.fail(503, 2)
    assert client.subjects() == []
    registry.fail(500, 3)
    with pytest.raises(SchemaRegistryUnavailableError, match=r"HTTP 500 \(a failure that the test asked for\)") as caught:
        client.subjects()
    assert caught.value.retriable
    assert [each.status for each in registry.requests] == [503, 503, 200, 500, 500, 500]


def test_no_registry_is_an_error_that_names_url_and_request(make: Any) -> None:
    with pytest.raises(SchemaRegistryUnavailableError, match="http://127.0.0.1:1 cannot be reached for GET /subjects/x/versions/latest, subject 'x'"):
        make(NOWHERE).latest("x")


def test_a_slow_registry_is_an_error_after_the_timeout(registry: FakeSchemaRegistry, make: Any) -> None:
    registry.delay_s = 60
    with pytest.raises(SchemaRegistryUnavailableError, match="did not answer GET /subjects within 0.1 s"):
        make(registry.url, timeout_ms=100).subjects()


def test_known_schemas_need_no_registry(connect: Any) -> None:
    with FakeSchemaRegistry() as registry:
        client = connect(registry.url)
        made = client.register("orders-value", ORDER)
        client.schema(made.id)
        client.latest("orders-value")
    assert client.register("orders-value", ORDER) == made
    assert client.schema(made.id).schema == client.latest("orders-value").schema == ORDER
    with pytest.raises(SchemaRegistryUnavailableError):
        client.schema(made.id + 1)


def test_a_wrong_password_is_an_error_at_once_and_shows_nowhere(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeSchemaRegistry(users={"alice": PASSWORD}) as registry:
        assert make(registry.url, basic_auth=("alice", PASSWORD)).subjects() == []
        with pytest.raises(SchemaRegistryError, match="HTTP 401 .*check basic_auth") as caught:
            make(registry.url, basic_auth=("alice", "marker-secret-2")).subjects()
        assert [each.status for each in registry.requests] == [200, 401]
        assert_no_local_shows(caught.value, "marker-secret-2")
    assert "marker-secret" not in caplog.text


def test_tokens_are_sent_and_a_refused_one_is_fetched_again(make: Any) -> None:
    tokens = iter(["marker-secret-old", "marker-secret-new"])
    with FakeSchemaRegistry(users={"Bearer": "marker-secret-new"}) as registry:
        client = make(registry.url, bearer_token=lambda: OAuthToken(next(tokens), 4e9))
        with pytest.raises(SchemaRegistryError, match="HTTP 401"):
            client.subjects()
        assert client.subjects() == client.subjects() == []
        assert make(registry.url, bearer_token="marker-secret-new").subjects() == []


def test_tokens_come_from_a_token_endpoint(connect: Any) -> None:
    with TokenIssuer({"alice": PASSWORD}) as issuer, FakeSchemaRegistry(users={"Bearer": "marker-secret"}) as registry:
        client = connect(registry.url, oauth={
            "sasl_oauthbearer_token_endpoint_url": issuer.token_endpoint_url, "sasl_oauthbearer_client_credentials_client_id": "alice",
            "sasl_oauthbearer_client_credentials_client_secret": PASSWORD})
        with pytest.raises(SchemaRegistryError, match="HTTP 401"):
            client.subjects()
        assert [each.status for each in issuer.requests] == [200]


def test_a_certificate_that_is_not_trusted_is_an_error_at_once(make: Any, tmp_path: Path) -> None:
    authority = CertificateAuthority()
    trust = tmp_path / "trust.pem"
    trust.write_text(authority.pem)
    with FakeSchemaRegistry(ssl_context=authority.server_context("127.0.0.1")) as registry:
        assert make(registry.url, ssl_truststore_location=str(trust)).subjects() == []
        with pytest.raises(SchemaRegistryError, match="certificate of the schema registry https.* is not accepted.*ssl_truststore_location") as caught:
            make(registry.url).subjects()
        assert not caught.value.retriable
        with pytest.raises(SchemaRegistryError):
            make(registry.url.replace("https", "http"), timeout_ms=500).subjects()


def test_another_server_is_recognized(registry: FakeSchemaRegistry, make: Any) -> None:
    with pytest.raises(SchemaRegistryError, match="HTTP 404"):
        make(f"{registry.url}/elsewhere").subjects()


@pytest.mark.parametrize(("options", "match"), [
    ({"url": "localhost:8081"}, "expected http://host:port"),
    ({"url": []}, "expected the URL"),
    ({"url": "http://user:marker-secret@localhost"}, "set basic_auth instead"),
    ({"url": NOWHERE, "basic_auth": ("a", "b"), "bearer_token": "c"}, "keep one"),
    ({"url": NOWHERE, "basic_auth": "alice"}, "expected .user, password"),
    ({"url": NOWHERE, "timeout_ms": 0}, "positive"),
    ({"url": NOWHERE, "oauth": {}}, "sasl_oauthbearer_token_endpoint_url is not set"),
    ({"url": NOWHERE, "ssl_truststore_location": "/nowhere.pem"}, "cannot be read"),
])
def test_wrong_options_are_refused_when_the_client_is_made(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        SchemaRegistryClient(**options)


def test_the_async_client_has_the_methods_of_the_sync_one() -> None:
    for name, method in inspect.getmembers(SchemaRegistryClient, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(AsyncSchemaRegistryClient, name)) == inspect.signature(method), name


def test_an_unknown_guid_is_an_error(registry: FakeSchemaRegistry, connect: Any) -> None:
    with pytest.raises(SchemaRegistryError, match="HTTP 404"):
        connect(registry.url).schema(uuid.uuid4())
