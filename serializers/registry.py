"""Clients of a schema registry, sync and async: the REST API that Confluent's registry and compatible ones serve.

Decides nothing: `registry_core` has the requests, `registry_http` how they travel. Needs the extra ``registry``.
"""
from __future__ import annotations

import asyncio
import functools
import json
import ssl
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

import tenacity

from pyclient.errors import SchemaRegistryError, SchemaRegistryUnavailableError
from pyclient.sasl.proxied_http import client_arguments, proxy_refusal
from pyclient.serializers.registry_core import (
    Compatibility,
    RegisteredSchema,
    RegistryCore,
    RegistrySchema,
    Request,
    Response,
    SchemaReference,
    SchemaRule,
    Steps,
)
from pyclient.serializers.registry_http import Body, RegistryOptions, failure, httpx_module, registry_options, retry_settings

__all__ = ["AsyncSchemaRegistryClient", "Compatibility", "RegisteredSchema", "RegistrySchema", "SchemaReference", "SchemaRegistryClient", "SchemaRule"]
T = TypeVar("T")
TIMEOUT_MS: Final = 5_000


class _Client:
    """What both clients share: options, the cache, and the order of URLs."""

    def __init__(self, url: str | Sequence[str], *, basic_auth: tuple[str, str] | None = None, bearer_token: str | Callable[[], Any] | None = None,
                 oauth: Mapping[str, Any] | None = None, ssl_context: ssl.SSLContext | None = None, ssl_truststore_location: str | None = None,
                 ssl_keystore_location: str | None = None, ssl_key_password: str | None = None, timeout_ms: int = TIMEOUT_MS, proxy_url: str | None = None) -> None:
        self._httpx = httpx_module()
        self._options: Final[RegistryOptions] = registry_options(
            url, basic_auth=basic_auth, bearer_token=bearer_token, oauth=oauth, ssl_context=ssl_context, ssl_truststore_location=ssl_truststore_location,
            ssl_keystore_location=ssl_keystore_location, ssl_key_password=ssl_key_password, timeout_ms=timeout_ms, proxy_url=proxy_url)
        self.core: Final = RegistryCore()
        self._at = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._options.urls)}>"

    def __reduce__(self) -> str:
        raise TypeError(f"{type(self).__name__} cannot be pickled: it has connections; create one in each process")

    def _http(self, kind: Any) -> Any:
        through = client_arguments(self._httpx, self._options.proxy_url, self._options.verify, is_async=kind is self._httpx.AsyncClient)
        return kind(**through, timeout=self._httpx.Timeout(self._options.timeout_s), follow_redirects=False)

    @property
    def _url(self) -> str:
        return self._options.urls[self._at % len(self._options.urls)]

    def _arguments(self, url: str, request: Request, headers: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {"method": request.method, "url": f"{url}/{request.path}", "headers": headers}
        if request.body is not None:
            found |= {"content": json.dumps(request.body).encode(), "headers": {**headers, "Content-Type": "application/vnd.schemaregistry.v1+json"}}
        return found

    def _judged(self, outcome: Response | Exception, url: str, request: Request) -> Response:
        """Move on to the next URL after a failure; raised here, so that no frame of httpx with a request is kept."""
        if isinstance(outcome, Response):
            if (by_proxy := proxy_refusal(outcome.status, self._options.proxy_url)) is not None:
                raise SchemaRegistryUnavailableError(f"the schema registry {url} cannot be reached for {request.shown}: {by_proxy}", subject=request.subject)
            if outcome.status == 401:
                self._options.drop_token()
            return outcome
        self._at += 1
        if isinstance(outcome, SchemaRegistryError):
            raise outcome
        raise failure(outcome, url, request, self._options)


class SchemaRegistryClient(_Client):
    """A schema registry. Threads may share it; schemas that were read once are remembered.

    Args:
        url: the registry's URL, or several that are tried in this order.
        basic_auth: user and password.
        bearer_token: a token, or a function that returns one (called again before it expires).
        oauth: the ``sasl_oauthbearer_`` options of a token endpoint, as for the login at brokers.
        ssl_context: replaces the other TLS options.
        ssl_truststore_location: a PEM file of trusted authorities; left out, those of the system.
        ssl_keystore_location: a PEM file with certificate and key of this client.
        ssl_key_password: of that key.
        timeout_ms: the longest time of one attempt. Temporary failures are tried three times at each URL.
        proxy_url: a proxy for these requests, and those for tokens, as clients' option of that name (extra ``proxy``).

    Raises:
        ConfigurationError: an option is wrong, or the extra ``registry`` is missing.

    All methods raise SchemaRegistryError for a refusal (``status``, ``error_code`` and ``subject`` say which), and
    SchemaRegistryUnavailableError, a kind of it, when no registry answers.
    """

    @functools.cached_property
    def _client(self) -> Any:
        return self._http(self._httpx.Client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        if (client := self.__dict__.pop("_client", None)) is not None:
            client.close()

    def register(self, subject: str, schema: RegistrySchema, *, normalize: bool = False) -> RegisteredSchema:
        """Register *schema* under *subject*; if it is there already, that is returned.

        With *normalize* the registry compares schemas in its canonical form.
        """
        return self._run(self.core.register(subject, schema, normalize))

    def lookup(self, subject: str, schema: RegistrySchema, *, normalize: bool = False) -> RegisteredSchema:
        """The version of *schema* under *subject*. An error with status 404 if it is not registered.

        With *normalize* the registry compares schemas in its canonical form.
        """
        return self._run(self.core.lookup(subject, schema, normalize))

    def schema(self, schema_id: int | uuid.UUID, *, subject: str | None = None) -> RegisteredSchema:
        """The schema with the id *schema_id*, or that GUID.

        With *subject* the registry looks in the context of that subject.
        """
        return self._run(self.core.by_guid(schema_id) if isinstance(schema_id, uuid.UUID) else self.core.by_id(schema_id, subject))

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """The *version* of *subject* with this number."""
        return self._run(self.core.version(subject, version))

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of *subject*, remembered for a minute."""
        return self._run(self.core.latest(subject))

    def check_compatibility(self, subject: str, schema: RegistrySchema, *, version: int | str = "latest") -> Compatibility:
        """Whether *schema* could be registered under *subject*, by its compatibility level.

        *version* is the one to compare with: a number, or ``latest``.

        *version* is the one to compare with: a number, or ``latest``.
        """
        return self._run(self.core.compatibility(subject, schema, version))

    def subjects(self) -> list[str]:
        """All subjects."""
        return self._run(self.core.list_of(Request("GET", "subjects"), str))

    def versions(self, subject: str) -> list[int]:
        """The versions of *subject*."""
        return self._run(self.core.list_of(_versions(subject), int))

    def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete *subject*; returns its versions. ``permanent`` works after a deletion that is not."""
        return self._run(self.core.delete(subject, permanent))

    def compatibility_level(self, subject: str | None = None) -> str:
        """The level of *subject*, or the global one: ``BACKWARD``, ``FULL_TRANSITIVE``, ``NONE`` and so on."""
        return self._run(self.core.compatibility_level(subject))

    def set_compatibility_level(self, level: str, subject: str | None = None) -> None:
        """Set the *level* of *subject*, or the global one: ``BACKWARD``, ``FULL_TRANSITIVE``, ``NONE`` and so on."""
        self._run(self.core.set_compatibility_level(level, subject))

    def _run(self, steps: Steps[T]) -> T:
        try:
            request = next(steps)
            while True:
                request = steps.send(self._send(request))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return] # the generator's own result

    def _send(self, request: Request) -> Response:
        return tenacity.Retrying(**retry_settings(len(self._options.urls)))(self._once, request)

    def _once(self, request: Request) -> Response:
        url = self._url
        return self._judged(self._outcome(url, request, self._options.headers()), url, request)

    def _outcome(self, url: str, request: Request, headers: dict[str, str]) -> Response | Exception:
        body = Body(url, request, self._options.timeout_s)
        try:
            with self._client.stream(**self._arguments(url, request, headers)) as answer:
                for piece in answer.iter_raw():
                    body.add(piece)
                return body.response(answer.status_code)
        except Exception as error:  # noqa: BLE001 raised by the caller
            return error.with_traceback(None)


class AsyncSchemaRegistryClient(_Client):
    """`SchemaRegistryClient` for one event loop: the same arguments, methods and errors, awaited."""

    @functools.cached_property
    def _client(self) -> Any:
        return self._http(self._httpx.AsyncClient)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        if (client := self.__dict__.pop("_client", None)) is not None:
            await client.aclose()

    async def register(self, subject: str, schema: RegistrySchema, *, normalize: bool = False) -> RegisteredSchema:
        """Register *schema* under *subject*; if it is there already, that is returned.

        With *normalize* the registry compares schemas in its canonical form.
        """
        return await self._run(self.core.register(subject, schema, normalize))

    async def lookup(self, subject: str, schema: RegistrySchema, *, normalize: bool = False) -> RegisteredSchema:
        """The version of *schema* under *subject*. An error with status 404 if it is not registered.

        With *normalize* the registry compares schemas in its canonical form.
        """
        return await self._run(self.core.lookup(subject, schema, normalize))

    async def schema(self, schema_id: int | uuid.UUID, *, subject: str | None = None) -> RegisteredSchema:
        """The schema with the id *schema_id*, or that GUID.

        With *subject* the registry looks in the context of that subject.
        """
        return await self._run(self.core.by_guid(schema_id) if isinstance(schema_id, uuid.UUID) else self.core.by_id(schema_id, subject))

    async def version(self, subject: str, version: int) -> RegisteredSchema:
        """The *version* of *subject* with this number."""
        return await self._run(self.core.version(subject, version))

    async def latest(self, subject: str) -> RegisteredSchema:
        """The latest version of *subject*, remembered for a minute."""
        return await self._run(self.core.latest(subject))

    async def check_compatibility(self, subject: str, schema: RegistrySchema, *, version: int | str = "latest") -> Compatibility:
        """Whether *schema* could be registered under *subject*, by its compatibility level.

        *version* is the one to compare with: a number, or ``latest``.

        *version* is the one to compare with: a number, or ``latest``.
        """
        return await self._run(self.core.compatibility(subject, schema, version))

    async def subjects(self) -> list[str]:
        """All subjects."""
        return await self._run(self.core.list_of(Request("GET", "subjects"), str))

    async def versions(self, subject: str) -> list[int]:
        """The versions of *subject*."""
        return await self._run(self.core.list_of(_versions(subject), int))

    async def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete *subject*; returns its versions. ``permanent`` works after a deletion that is not."""
        return await self._run(self.core.delete(subject, permanent))

    async def compatibility_level(self, subject: str | None = None) -> str:
        """The level of *subject*, or the global one: ``BACKWARD``, ``FULL_TRANSITIVE``, ``NONE`` and so on."""
        return await self._run(self.core.compatibility_level(subject))

    async def set_compatibility_level(self, level: str, subject: str | None = None) -> None:
        """Set the *level* of *subject*, or the global one: ``BACKWARD``, ``FULL_TRANSITIVE``, ``NONE`` and so on."""
        await self._run(self.core.set_compatibility_level(level, subject))

    async def _run(self, steps: Steps[T]) -> T:
        try:
            request = next(steps)
            while True:
                request = steps.send(await self._send(request))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return] # the generator's own result

    async def _send(self, request: Request) -> Response:
        return await tenacity.AsyncRetrying(**retry_settings(len(self._options.urls)))(self._once, request)

    async def _once(self, request: Request) -> Response:
        url = self._url
        headers = self._options.headers() if self._options.token is None else await asyncio.to_thread(self._options.headers)
        return self._judged(await self._outcome(url, request, headers), url, request)

    async def _outcome(self, url: str, request: Request, headers: dict[str, str]) -> Response | Exception:
        body = Body(url, request, self._options.timeout_s)
        try:
            async with self._client.stream(**self._arguments(url, request, headers)) as answer:
                async for piece in answer.aiter_raw():
                    body.add(piece)
                return body.response(answer.status_code)
        except Exception as error:  # noqa: BLE001 raised by the caller
            return error.with_traceback(None)


def _versions(subject: str) -> Request:
    from urllib.parse import quote

    return Request("GET", f"subjects/{quote(subject, safe='')}/versions", None, subject)
