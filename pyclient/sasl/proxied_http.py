"""HTTP requests through ``proxy_url``: httpx asks HTTP proxies itself; for SOCKS it gets a transport of httpx-socks."""
from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyclient.errors import ConfigurationError
from pyclient.redaction import Secret, in_one_line, public_url, without

REFUSED: Final = 407


def check_package(proxy_url: str | None) -> None:
    """Raises ConfigurationError: the proxy is a SOCKS proxy, and httpx-socks is not installed."""
    if proxy_url is not None and not proxy_url.startswith("http:"):
        _httpx_socks()


def client_arguments(httpx: Any, proxy_url: str | None, verify: ssl.SSLContext, *, is_async: bool = False) -> dict[str, Any]:
    """What an httpx client is created with. Without *proxy_url* the environment's settings apply."""
    if proxy_url is None:
        return {"verify": verify}
    parts, user, password = urlsplit(proxy_url), *_login(proxy_url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    if parts.scheme == "http":
        auth = None if user is None else (user, password or "")
        return {"verify": verify, "proxy": httpx.Proxy(f"http://{host}:{parts.port}", auth=auth)}
    package, kinds = _httpx_socks()
    kind = package.AsyncProxyTransport if is_async else package.SyncProxyTransport
    return {"transport": kind(
        proxy_type=kinds.SOCKS4 if parts.scheme == "socks4" else kinds.SOCKS5, proxy_host=parts.hostname, proxy_port=parts.port,
        username=user, password=password, rdns=parts.scheme == "socks5h", verify=verify)}


def proxy_failure(error: BaseException, proxy_url: str | None) -> str | None:
    """What failed, if the proxy did; without its password."""
    if proxy_url is None or type(error).__name__ not in ("ProxyError", "ProxyConnectionError", "ProxyTimeoutError"):
        return None
    said = without([_login(proxy_url)[1] or ""], in_one_line(str(error)))
    return f"the proxy {public_url(proxy_url)} (proxy_url) does not connect to it: {said or type(error).__name__}"


def proxy_refusal(status: int, proxy_url: str | None) -> str | None:
    """What an HTTP proxy answers instead of the server, if it asks for another login."""
    return None if proxy_url is None or status != REFUSED else f"the proxy {public_url(proxy_url)} (proxy_url) answers with HTTP {status}: check its user and password"


def _login(proxy_url: str) -> tuple[str | None, str | None]:
    parts = urlsplit(proxy_url)
    return (None if parts.username is None else unquote(parts.username)), (None if parts.password is None else Secret(unquote(parts.password)))


def _httpx_socks() -> tuple[Any, Any]:
    try:
        import httpx_socks
        from python_socks import ProxyType
    except ImportError as error:
        raise ConfigurationError(
            f"HTTP requests through proxy_url need the package httpx-socks ({error}); install it with pip install 'pyclient-kafka[proxy]'",
            option="proxy_url") from error
    return httpx_socks, ProxyType
