"""Downloads from a Maven repository served on this machine, with the faults real ones have."""
from __future__ import annotations

import concurrent.futures
import hashlib
import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from pyclient.testing import jars as jars_module
from pyclient.testing.cache import cache_directory
from pyclient.testing.common.errors import JarsUnavailableError
from pyclient.testing.jars import ensure_jars
from pyclient.testing.lockfile import Jar, Lock


class Repository:
    """A Maven repository over HTTP. `faults` are answers given once each before a path is served truly."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[bytes | HTTPStatus]] = {}
        self.asked: Counter[str] = Counter()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        repository = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.lstrip("/")
                repository.asked[path] += 1
                fault = repository.faults.get(path)
                answer = fault.pop(0) if fault else repository.files.get(path, HTTPStatus.NOT_FOUND)
                if isinstance(answer, HTTPStatus):
                    self.send_error(answer)
                    return
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def jar_of(name: str, content: bytes) -> Jar:
    return Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest())


CONTENTS = {f"part{i}": bytes([i]) * (i * 100 + 1) for i in range(12)}
JARS = {name: jar_of(name, content) for name, content in CONTENTS.items()}


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    served = Repository()
    served.files = {JARS[name].path: content for name, content in CONTENTS.items()}
    monkeypatch.setenv("PYCLIENT_MAVEN_URL", served.url)
    monkeypatch.setenv("PYCLIENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(jars_module, "load_lock", lambda version: Lock(version, tuple(JARS.values()), "digest"))
    yield served
    served.close()


def test_every_jar_of_the_lock_arrives_and_nothing_else(repository: Repository) -> None:
    found = ensure_jars("1.0")
    on_disk = {path.name: path.read_bytes() for path in found.directory.glob("*.jar")}
    assert on_disk == {JARS[name].name: content for name, content in CONTENTS.items()}
    assert found.names == tuple(sorted(on_disk))


def test_a_second_call_asks_the_repository_nothing(repository: Repository) -> None:
    first = ensure_jars("1.0")
    repository.asked.clear()
    assert ensure_jars("1.0") == first
    assert not repository.asked


@pytest.mark.parametrize("fault", [HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS, b"cut off"])
def test_a_passing_fault_is_retried(repository: Repository, fault: bytes | HTTPStatus) -> None:
    path = JARS["part3"].path
    repository.faults[path] = [fault, fault]
    assert (ensure_jars("1.0").directory / JARS["part3"].name).read_bytes() == CONTENTS["part3"]
    assert repository.asked[path] == 3


def test_a_missing_file_is_not_retried_and_its_address_is_named(repository: Repository) -> None:
    path = JARS["part5"].path
    del repository.files[path]
    with pytest.raises(JarsUnavailableError, match=f"{path}.*PYCLIENT_MAVEN_URL"):
        ensure_jars("1.0")
    assert repository.asked[path] == 1


def test_content_that_differs_from_the_lock_is_never_kept(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars_module, "ATTEMPTS", 2)
    repository.files[JARS["part7"].path] = b"<html>log in first</html>"
    with pytest.raises(JarsUnavailableError, match="sha256"):
        ensure_jars("1.0")
    assert not list(cache_directory().rglob(JARS["part7"].name))


def test_files_downloaded_before_a_failure_are_kept(repository: Repository) -> None:
    path = JARS["part11"].path
    content = repository.files.pop(path)
    with pytest.raises(JarsUnavailableError):
        ensure_jars("1.0")
    arrived = {file.name for file in cache_directory().rglob("*.jar")}
    repository.files[path] = content
    repository.asked.clear()
    ensure_jars("1.0")
    assert arrived
    assert not {Path(asked).name for asked in repository.asked} & arrived


def test_many_starters_at_once_download_each_file_once(repository: Repository) -> None:
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: ensure_jars("1.0"), range(6)))
    assert len(set(found)) == 1
    assert set(repository.asked.values()) == {1}


def test_a_truncated_jar_in_the_cache_is_replaced(repository: Repository) -> None:
    damaged = ensure_jars("1.0").directory / JARS["part9"].name
    damaged.write_bytes(CONTENTS["part9"][:-1])
    ensure_jars("1.0")
    assert damaged.read_bytes() == CONTENTS["part9"]


def test_a_replaced_jar_keeps_its_time_so_that_start_up_archives_stay_valid(repository: Repository) -> None:
    jar = ensure_jars("1.0").directory / JARS["part2"].name
    before = jar.stat().st_mtime_ns
    jar.unlink()
    ensure_jars("1.0")
    assert jar.stat().st_mtime_ns == before


def test_a_local_maven_repository_is_used_before_the_network(repository: Repository, tmp_path: Path) -> None:
    local = tmp_path / "home" / ".m2" / "repository" / JARS["part4"].path
    local.parent.mkdir(parents=True)
    local.write_bytes(CONTENTS["part4"])
    ensure_jars("1.0")
    assert repository.asked[JARS["part4"].path] == 0
    assert repository.asked[JARS["part5"].path] == 1


def test_a_wrong_file_in_the_local_maven_repository_is_not_trusted(repository: Repository, tmp_path: Path) -> None:
    local = tmp_path / "home" / ".m2" / "repository" / JARS["part4"].path
    local.parent.mkdir(parents=True)
    local.write_bytes(b"something else")
    assert (ensure_jars("1.0").directory / JARS["part4"].name).read_bytes() == CONTENTS["part4"]


def test_an_unreachable_repository_names_proxy_and_mirror_settings(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars_module, "ATTEMPTS", 1)
    monkeypatch.setenv("PYCLIENT_MAVEN_URL", "http://127.0.0.1:1")
    with pytest.raises(JarsUnavailableError, match=r"HTTPS_PROXY.*PYCLIENT_MAVEN_URL"):
        ensure_jars("1.0")
