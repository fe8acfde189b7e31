"""The token endpoint: requests, which responses are tokens, which failures are retried, and no secret is shown."""
from __future__ import annotations

import base64
import contextlib
import gzip
import itertools
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient.errors import AuthenticationError, ConfigurationError, KafkaError, SaslAuthenticationError, TokenUnavailableError
from pyclient.plugins import OAuthToken
from pyclient.sasl.oauthbearer import OAuthBearer
from pyclient.sasl.oidc import token_source
from pyclient.sasl.tokens import LONGEST, TokenSource
from pyclient.testing import CertificateAuthority
from tests.secrets import assert_no_local_shows
from tests.unit.sasl.endpoint import Endpoint
from tests.unit.sasl.exchanges import Wall, exchanged, options

CLIENT = {"sasl_oauthbearer_client_credentials_client_id": "our app", "sasl_oauthbearer_client_credentials_client_secret": "marker:secret+1"}
QUICK = {"sasl_login_retry_backoff_ms": 100, "sasl_login_retry_backoff_max_ms": 1000}


def source(url: str, waits: list[float] | None = None, clock: Callable[[], float] = lambda: 0.0, **given: Any) -> TokenSource:
    """*clock* shows how much time the attempts take; the test's own sleep takes none."""
    config = options(**{"sasl_oauthbearer_token_endpoint_url": url, **CLIENT, **QUICK, **given})
    return token_source(config, Wall().surroundings(), sleep=(waits if waits is not None else []).append, clock=clock)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as found:
        yield found


# ---- asking ---------------------------------------------------------------------------------------------------------


def test_client_credentials_are_requested_as_in_RFC_6749(endpoint: Endpoint) -> None:
    token = source(endpoint.url, sasl_oauthbearer_scope="kafka.read")()
    assert isinstance(token, OAuthToken)
    assert (token.value, token.expires_at) == ("abc", Wall().now + 3600)
    (asked,) = endpoint.asked
    assert asked.form == {"grant_type": "client_credentials", "scope": "kafka.read"}
    assert asked.basic == "our app:marker:secret+1"
    assert "marker" not in asked.path + str(asked.form)


def test_id_and_secret_are_url_encoded_when_the_option_says_so(endpoint: Endpoint) -> None:
    source(endpoint.url, sasl_oauthbearer_header_urlencode=True)()
    assert endpoint.asked[0].basic == "our+app:marker%3Asecret%2B1"
    assert endpoint.asked[0].form == {"grant_type": "client_credentials"}


def test_a_login_takes_its_token_from_the_endpoint(endpoint: Endpoint) -> None:
    config = options(**{"sasl.oauthbearer.token.endpoint.url": endpoint.url, **CLIENT})
    mechanism = OAuthBearer()
    mechanism.check(config)
    for _ in range(3):
        assert exchanged(mechanism, config, lambda message: b"") == [b"n,,\x01auth=Bearer abc\x01\x01"]
    assert len(endpoint.asked) == 1


def test_an_assertion_from_a_file_is_exchanged_for_a_token(endpoint: Endpoint, tmp_path: Path) -> None:
    file = tmp_path / "assertion"
    file.write_text("the.marker.assertion\n")
    source(endpoint.url, sasl_oauthbearer_assertion_file=str(file))()
    assert endpoint.asked[0].form == {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "the.marker.assertion"}
    assert "authorization" not in endpoint.asked[0].headers


# ---- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lives", [None, "soon", True, 0, -5, 10**10, 10**40])
def test_an_invalid_lifetime_is_ignored(lives: Any) -> None:
    with Endpoint((200, {"access_token": "abc", "expires_in": lives})) as endpoint:
        assert source(endpoint.url)().expires_at is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b"[" * 10_000, {"access_token": ""}, {"access_token": 5}, b"x" * (LONGEST + 1)])
def test_a_response_without_a_token_is_reported(body: Any) -> None:
    with Endpoint((200, body)) as endpoint, pytest.raises(TokenUnavailableError, match="token endpoint http://127"):
        source(endpoint.url)()


def test_a_response_that_is_too_long_is_not_read_to_its_end() -> None:
    with Endpoint((200, b'{"access_token": "abc"}' + b" " * LONGEST)) as endpoint, pytest.raises(TokenUnavailableError, match=f"more than {LONGEST} B"):
        source(endpoint.url)()


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip, gzip", "deflate", "br", "zstd", "what is that"])
@pytest.mark.parametrize("status", [200, 400])
def test_a_compressed_response_is_not_opened(encoding: str, status: int) -> None:
    """A kilobyte could become gigabytes, before its limit is looked at."""
    body = b'{"access_token": "abc"}'
    for _ in range(encoding.count("gzip")):
        body = gzip.compress(body)
    with Endpoint((status, body), encoding=encoding) as endpoint:
        with pytest.raises(TokenUnavailableError, match="compressed its response, although the request says Accept-Encoding: identity"):
            source(endpoint.url)()
        assert endpoint.asked[0].headers["accept-encoding"] == "identity"


def test_a_response_that_says_that_it_is_not_compressed_is_read() -> None:
    with Endpoint(encoding="Identity") as endpoint:
        assert source(endpoint.url)().value == "abc"


def test_httpx_logs_the_URL_without_its_query(endpoint: Endpoint, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("httpx"), "disabled", False)  # a program's dictConfig disables loggers
    with caplog.at_level("DEBUG", "httpx"), caplog.at_level("DEBUG", "httpcore"):
        source(endpoint.url + "?key=marker&a=b%20c")()
    logged = [record.getMessage() for record in caplog.records if record.name.split(".")[0] in {"httpx", "httpcore"}]
    assert endpoint.asked[0].path == "/token?key=marker&a=b%20c"
    assert any(each.startswith(f'HTTP Request: POST {endpoint.url} "HTTP/1') for each in logged)
    assert not any("marker" in each for each in logged)


@pytest.mark.parametrize("answer", [
    (500, b""), (400, {"error": "no"}), (200, {"refresh_token": "marker:secret+1"}), (200, {"access_token": "a marker:secret+1"}), (200, b"marker:secret+1"), None,
    (200, {"access_token": ["marker:secret+1"]}),
], ids=range(7))
@pytest.mark.parametrize("encoded", [True, False])
def test_no_local_variable_of_a_failed_request_shows_a_secret(answer: tuple[int, Any] | None, encoded: bool) -> None:
    """Tools that report errors keep the variables of each frame, also those of hidden causes."""
    with Endpoint(*[answer] if answer else []) as endpoint:
        url = endpoint.url if answer else "http://127.0.0.1:1/"
        with pytest.raises(KafkaError) as caught:
            source(url, sasl_oauthbearer_header_urlencode=encoded)()
    assert_no_local_shows(caught.value, "marker", "our app:", base64.b64encode(b"our app:marker:secret+1").decode(),
                          base64.b64encode(b"our+app:marker%3Asecret%2B1").decode())


@pytest.mark.parametrize("status", [500, 503, 408, 429])
def test_a_temporary_failure_is_retried_after_growing_waits(status: int) -> None:
    waits: list[float] = []
    with Endpoint((status, b""), (status, b""), (200, {"access_token": "abc"})) as endpoint:
        assert source(endpoint.url, waits)().value == "abc"
        assert len(endpoint.asked) == 3
    assert waits == [0.1, 0.2]


def test_the_longest_wait_limits_the_time_for_all_attempts_as_in_Java() -> None:
    waits: list[float] = []
    with Endpoint((503, b"")) as endpoint, pytest.raises(TokenUnavailableError, match="HTTP 503"):
        source(endpoint.url, waits)()
    assert waits == [0.1, 0.2, 0.4]
    with Endpoint((503, b"")) as endpoint, pytest.raises(TokenUnavailableError):
        source(endpoint.url, waits, sasl_login_retry_backoff_ms=0)()
    assert len(waits) == 3


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404])
def test_a_refusal_is_raised_at_once_with_the_endpoints_text_and_without_the_secret(status: int) -> None:
    details = {"error": "invalid_client", "error_description": "no such pair our app / marker:secret+1\n", "hint": "marker:secret+1"}
    with Endpoint((status, details)) as endpoint:
        with pytest.raises(AuthenticationError, match=rf"HTTP {status} \(invalid_client: .*\[hidden\].*client_secret") as caught:
            source(endpoint.url)()
        assert len(endpoint.asked) == 1, "no redirect is followed: it would carry the secret elsewhere"
    assert "marker" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize("token", [None, "", "two words", "m\u00e4rker", 5])
def test_a_response_without_a_valid_token_blames_the_endpoint(token: Any) -> None:
    with Endpoint((200, {"access_token": token})) as endpoint, pytest.raises(TokenUnavailableError, match="token endpoint .* without a valid access_token"):
        source(endpoint.url)()


def test_an_unreachable_endpoint_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(TokenUnavailableError, match=f"http://127.0.0.1:{port}/token did not answer: ConnectError"):
        source(f"http://127.0.0.1:{port}/token?key=marker")()


def test_an_endpoint_that_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TokenUnavailableError, match="ReadTimeout"):
        source(f"http://127.0.0.1:{silent.getsockname()[1]}/token", sasl_login_read_timeout_ms=50, sasl_login_retry_backoff_max_ms=1)()


def test_the_certificate_of_an_endpoint_is_checked_against_SSL_CERT_FILE(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours, anothers = CertificateAuthority(), CertificateAuthority("a stranger")
    for name, authority in (("ours.pem", ours), ("anothers.pem", anothers)):
        (tmp_path / name).write_text(authority.pem)
    with Endpoint(tls=ours.server_context("127.0.0.1")) as endpoint:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "anothers.pem"))
        waits: list[float] = []
        with pytest.raises(SaslAuthenticationError, match=r"certificate of the token endpoint https://127.* is not accepted: .*SSL_CERT_FILE"):
            source(endpoint.url, waits)()
        assert waits == [], "trying again does not help"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ours.pem"))
        assert source(endpoint.url)().value == "abc"
    with Endpoint(tls=ours.server_context("elsewhere.example")) as endpoint, pytest.raises(SaslAuthenticationError, match="must be issued for that host"):
        source(endpoint.url)()


@pytest.mark.parametrize(("head", "drop"), [(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "), (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"), (b"", b"H")])
def test_a_response_that_arrives_byte_by_byte_is_given_up_in_time(head: bytes, drop: bytes) -> None:
    def drip(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            peer.recv(65_536)
            peer.sendall(head)
            while not over.wait(0.01):
                peer.sendall(drop)

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        try:
            with pytest.raises(TokenUnavailableError, match="no complete response within 0.5 s"):
                source(f"http://127.0.0.1:{server.getsockname()[1]}/token", sasl_login_connect_timeout_ms=300, sasl_login_read_timeout_ms=200, sasl_login_retry_backoff_ms=0)()
        finally:
            over.set()
            thread.join()


def test_the_time_for_all_attempts_includes_their_duration() -> None:
    waits: list[float] = []
    slow = itertools.count(0.0, 0.15).__next__  # each attempt takes 150 ms
    with Endpoint((503, b"")) as endpoint:
        with pytest.raises(TokenUnavailableError, match="HTTP 503"):
            source(endpoint.url, waits, clock=slow, sasl_login_retry_backoff_ms=1, sasl_login_retry_backoff_max_ms=200)()
        assert len(endpoint.asked) == 2, "a third attempt would begin after 300 ms"
    assert waits == [0.001]


@pytest.mark.parametrize("encoded", [True, False])
def test_an_endpoint_that_repeats_the_request_shows_no_secret(encoded: bool) -> None:
    basic = base64.b64encode(b"our+app:marker%3Asecret%2B1" if encoded else b"our app:marker:secret+1").decode()
    details = {"error": "invalid_client", "error_description": f"Authorization: Basic {basic}; marker%3Asecret%2B1; marker:secret+1"}
    with Endpoint((401, details)) as endpoint, pytest.raises(AuthenticationError, match=r"Basic \[hidden\]; \[hidden\]; \[hidden\]"):
        source(endpoint.url, sasl_oauthbearer_header_urlencode=encoded)()


def test_a_broken_proxy_setting_is_reported(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "garbage://proxy")
    with pytest.raises(TokenUnavailableError, match="token endpoint .* cannot be reached: .*proxy"):
        source(endpoint.url)()


# ---- files and options ----------------------------------------------------------------------------------------------


def test_a_file_is_read_for_each_token(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    file.write_text("first\n")
    fetch = source(file.as_uri())
    assert fetch() == "first"
    file.write_text("second")
    assert fetch() == "second"
    for content in (b"\xff", b"", b"two words"):
        file.write_bytes(content)
        with pytest.raises(TokenUnavailableError, match="contains no valid token"):
            fetch()
    file.unlink()
    with pytest.raises(TokenUnavailableError, match="cannot be read"):
        fetch()


@pytest.mark.parametrize(("url", "details"), [
    ("ftp://host/x", "ftp"), ("host/x", "no scheme"), ("https://", "https"), ("https://me:marker@host/", "contains a user or a password"),
    ("https://[::1", "not a valid URL"), ("https://host:99999/", "not a valid URL"), ("https://host:abc/", "not a valid URL"), ("https://ho st/", "not a valid URL"), ("https://host/\n", "not a valid URL"),
    (f"https://{'a' * 64}/", "not a valid URL"),
])
def test_an_unusable_URL_is_refused_when_the_client_is_created(url: str, details: str) -> None:
    with pytest.raises(ConfigurationError, match=details) as caught:
        source(url)
    assert caught.value.option == "sasl_oauthbearer_token_endpoint_url"
    assert "marker" not in str(caught.value)


@pytest.mark.parametrize("missing", list(CLIENT))
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(ConfigurationError, match="is not set") as caught:
        source("https://host/", None, lambda: 0.0, **{missing: None})
    assert caught.value.option == missing


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyclient-kafka\[oidc\]'"):
        source("https://host/")


def test_unencrypted_secrets_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    source("http://127.0.0.1:1/")
    assert not caplog.records
    source("http://idp.example/")
    assert "not https" in caplog.text


def test_no_repr_or_error_shows_the_secret(endpoint: Endpoint) -> None:
    fetch = source(endpoint.url + "?key=marker")
    assert "marker" not in repr(fetch)
    for answer in [(500, b"marker:secret+1"), (400, {"error": "marker:secret+1"}), (200, b"marker:secret+1")]:
        endpoint.answers = [answer]
        with pytest.raises(KafkaError) as caught:
            fetch()
        assert "marker" not in repr(caught.value)
