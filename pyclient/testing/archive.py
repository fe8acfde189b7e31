"""The start-up archive: preloaded classes, which more than halve a broker's start. Created once per Java and jars.

Java 25 and later use an AOT cache (JEP 514), 17 to 24 a CDS archive (JEP 350), which needs the base archive that some
trimmed runtimes lack. The archive is written by the first broker that stops in order, so no start waits for it
separately. Rule: an archive speeds a start or is ignored; it never breaks one.
"""
from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Final

from pyclient.testing.cache import FileLock, cache_directory, written_whole
from pyclient.testing.jars import Jars
from pyclient.testing.java import Java

FIRST_AOT_JAVA: Final = 25

# The collector and compiler flags of training and use must agree, or Java ignores the archive.
FAST_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

log = logging.getLogger(__name__)


class Archive:
    """The start-up archive of one (Java, jars) pair."""

    def __init__(self, java: Java, jars: Jars) -> None:
        self._aot = java.feature >= FIRST_AOT_JAVA
        self._supported = self._aot or _has_base_archive(java)
        identity = "\n".join((str(java.path.resolve()), java.version, str(java.home), jars.classpath, jars.digest, *FAST_FLAGS))
        key = hashlib.sha256(identity.encode()).hexdigest()[:12]
        self.path: Final = cache_directory() / f"kafka-{jars.version}-java{java.feature}-{key}.{'aot' if self._aot else 'jsa'}"
        self._seal = self.path.with_suffix(self.path.suffix + ".json")

    @property
    def usable(self) -> bool:
        """Whether the file exists unchanged; a truncated or replaced one is not used."""
        try:
            known = json.loads(self._seal.read_text("utf-8"))
            found = self.path.stat()
        except (OSError, ValueError):
            return False
        return bool(known == _identity_of(found.st_size, found.st_mtime_ns))

    def flags(self) -> list[str]:
        """Java options to use the archive; empty when there is none."""
        if not self.usable:
            return []
        return [f"-XX:AOTCache={self.path}"] if self._aot else [f"-XX:SharedArchiveFile={self.path}"]

    def discard(self) -> None:
        """Delete an archive with which a start failed; the next broker writes another."""
        self._seal.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def training(self) -> Training | None:
        """A lock to create the archive, or None: it exists, is not supported, or another process creates it."""
        if not self._supported or self.usable:
            return None
        lock = FileLock(self.path.with_suffix(".lock"))
        return Training(self, lock, aot=self._aot) if lock.try_acquire() else None

    def adopt(self, made: Path) -> None:
        """Install *made* as the archive."""
        made.replace(self.path)
        found = self.path.stat()
        with written_whole(self._seal) as scratch:
            scratch.write_text(json.dumps(_identity_of(found.st_size, found.st_mtime_ns)), "utf-8")


class Training:
    """A broker's run that writes the archive when it stops in order. Holds the lock until `finish`."""

    def __init__(self, archive: Archive, lock: FileLock, *, aot: bool) -> None:
        self._archive, self._lock, self._aot = archive, lock, aot
        self._output = archive.path.with_name(f".training-{archive.path.name}")
        self._output.unlink(missing_ok=True)  # left by a run that was killed

    def flags(self) -> list[str]:
        """Java options to write the archive at exit."""
        option = "AOTCacheOutput" if self._aot else "ArchiveClassesAtExit"
        return [f"-XX:{option}={self._output}"]

    def finish(self, *, orderly: bool) -> None:
        """The broker ended; after an *orderly* stop its output becomes the archive."""
        try:
            if orderly and self._output.is_file() and self._output.stat().st_size:
                self._archive.adopt(self._output)
                log.info("created the start-up archive %s: later brokers start in half the time", self._archive.path)
        finally:
            self._output.unlink(missing_ok=True)
            self._lock.release()


def _identity_of(size: int, mtime_ns: int) -> dict[str, int]:
    return {"size": size, "mtime_ns": mtime_ns}


def _has_base_archive(java: Java) -> bool:
    return any((java.home / "lib" / flavour / "classes.jsa").is_file() for flavour in ("server", "client"))
