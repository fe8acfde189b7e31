"""Gets Kafka's jars: each file of the lock from the cache, a local Maven repository or Maven Central, verified.

Needs no Maven. Rule: a returned folder holds exactly the lock's files.
"""
from __future__ import annotations

import concurrent.futures
import hashlib
import http.client
import json
import logging
import os
import shutil
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

import tenacity

from pyclient.testing.cache import FileLock, cache_directory, written_whole
from pyclient.testing.common.errors import JarsUnavailableError
from pyclient.testing.lockfile import DEFAULT_VERSION, Jar, Lock, load_lock
from pyclient.testing.progress import Progress

MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
THREADS: Final = 8
ATTEMPTS: Final = 5
SOCKET_TIMEOUT_S: Final = 30.0
RETRIED_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIXED_MTIME: Final = 1_577_836_800  # a start-up archive is void when a jar's time changes; so every download gets this one
_COMPLETE: Final = ".complete"

log = logging.getLogger(__name__)


class Jars(NamedTuple):
    """The jars of one Kafka version in *directory*; *digest* changes when any of them does."""

    version: str
    directory: Path
    names: tuple[str, ...]
    digest: str

    @property
    def classpath(self) -> str:
        """All jars in a fixed order: start-up archives depend on it, and a wildcard's order is the file system's."""
        return os.pathsep.join(str(self.directory / name) for name in self.names)


def ensure_jars(version: str = DEFAULT_VERSION) -> Jars:
    """Kafka's jars for *version*, downloaded on first use (55 MB), shared by all processes of the user.

    ``PYCLIENT_MAVEN_URL`` names another repository than Maven Central; proxies (``HTTPS_PROXY``) and the system's
    certificates (``SSL_CERT_FILE``) are honoured.

    Raises:
        JarsUnavailableError: a file could not be had, or is not what the lock names.
    """
    lock = load_lock(version)
    jars = Jars(version, cache_directory() / f"kafka-{version}-{lock.digest}",
                tuple(sorted(jar.name for jar in lock.jars)), lock.digest)
    if not _is_complete(jars):
        jars.directory.mkdir(exist_ok=True)
        with FileLock(jars.directory / ".lock"):
            if not _is_complete(jars):  # another process may have done it meanwhile
                _fill(jars, lock)
    return jars


def _is_complete(jars: Jars) -> bool:
    try:
        sizes = json.loads((jars.directory / _COMPLETE).read_text("utf-8"))
        return all((jars.directory / name).stat().st_size == sizes[name] for name in jars.names)
    except (OSError, ValueError, KeyError):
        return False


def _fill(jars: Jars, lock: Lock) -> None:
    progress = Progress(f"Downloading Apache Kafka {lock.version} (once; kept in {jars.directory})", len(lock.jars))
    progress.start()
    with concurrent.futures.ThreadPoolExecutor(THREADS, thread_name_prefix="pyclient-jars") as pool:
        waiting = [pool.submit(_provide, jar, jars.directory, progress) for jar in lock.jars]
        try:
            for done in concurrent.futures.as_completed(waiting):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    sizes = {name: (jars.directory / name).stat().st_size for name in jars.names}
    with written_whole(jars.directory / _COMPLETE) as scratch:
        scratch.write_text(json.dumps(sizes), "utf-8")


def _provide(jar: Jar, directory: Path, progress: Progress) -> None:
    target = directory / jar.name
    if not _matches(target, jar):
        with written_whole(target) as scratch:
            if not _copy_local(jar, scratch):
                _download(jar, scratch)
            os.utime(scratch, (_FIXED_MTIME, _FIXED_MTIME))
    progress.step(target.stat().st_size)


def _copy_local(jar: Jar, scratch: Path) -> bool:
    local = Path.home() / ".m2" / "repository" / jar.path
    if not _matches(local, jar):
        return False
    shutil.copyfile(local, scratch)
    return _matches(scratch, jar)


def _matches(path: Path, jar: Jar) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False


def _download(jar: Jar, scratch: Path) -> None:
    url = f"{os.environ.get('PYCLIENT_MAVEN_URL', MAVEN_CENTRAL).rstrip('/')}/{jar.path}"
    try:
        for attempt in _retrying():
            with attempt:
                scratch.write_bytes(_fetch(url, jar))
    except _PASSING as failed:
        raise JarsUnavailableError(
            f"could not download {url} ({failed}). {_advice(failed)}"
        ) from failed


def _retrying() -> tenacity.Retrying:
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(_may_pass),
        wait=tenacity.wait_exponential(multiplier=0.3, max=8) + tenacity.wait_random(0, 0.3),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        before_sleep=tenacity.before_sleep_log(log, logging.INFO),
        reraise=True,
    )


class _DamagedError(Exception):
    """The checksum differs from the lock file's."""


_PASSING: Final = (OSError, http.client.HTTPException, _DamagedError)  # what a download may fail with


def _fetch(url: str, jar: Jar) -> bytes:
    content = _read(url)
    digest = hashlib.sha256(content).hexdigest()
    if digest != jar.sha256:
        raise _DamagedError(f"{len(content)} B with sha256 {digest}, but the lock file says {jar.sha256}")
    return content


def _read(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=SOCKET_TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except urllib.error.HTTPError as refused:
        refused.close()  # it holds the connection
        raise
    return content


def _may_pass(failed: BaseException) -> bool:
    if isinstance(failed, urllib.error.HTTPError):
        return failed.code in RETRIED_STATUS
    return isinstance(failed, _PASSING) and not _is_certificate_failure(failed)


def _is_certificate_failure(failed: BaseException) -> bool:
    reason = getattr(failed, "reason", failed)
    return isinstance(reason, ssl.SSLCertVerificationError)


def _advice(failed: BaseException) -> str:
    if _is_certificate_failure(failed):
        return ("The server's certificate is not trusted: behind an inspecting proxy, set SSL_CERT_FILE to the system's "
                "bundle of certificates.")
    if isinstance(failed, _DamagedError):
        return "A proxy or mirror may answer with a page of its own; set PYCLIENT_MAVEN_URL to a true Maven repository."
    return ("Check the network, set HTTPS_PROXY if a proxy is needed, or PYCLIENT_MAVEN_URL to a mirror of Maven "
            "Central; what has arrived is kept.")
