"""The jars of a Kafka version: the committed lock files, and how to renew them.

A line is ``group:artifact:version sha256``; lines starting with # are comments. Renewing needs Maven:
``python -m pyclient.testing.lockfile 4.3.1`` resolves the coordinates below and writes ``kafka-4.3.1.lock``.
"""
from __future__ import annotations

import hashlib
import importlib.resources
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from pyclient.testing.common.errors import LocalClusterError

DEFAULT_VERSION: Final = "4.3.1"

# kafka_2.13 is the broker, kafka-tools the command line tools; the last writes the log (4.x: log4j 2, 3.x: log4j 1).
ROOTS: Final = {
    "4.3.1": ("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1",
              "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"),
    "3.9.1": ("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1",
              "org.slf4j:slf4j-reload4j:1.7.36"),
}


class Jar(NamedTuple):
    """One file of the Maven repository, by coordinates and content."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Where a Maven repository keeps it, relative to the repository's root."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


class Lock(NamedTuple):
    """The jars of one Kafka version, and a digest that changes when any of them does."""

    version: str
    jars: tuple[Jar, ...]
    digest: str


def load_lock(version: str) -> Lock:
    """The lock of Kafka *version*.

    Raises:
        LocalClusterError: there is none.
    """
    if version not in ROOTS:
        raise LocalClusterError(
            f"Kafka {version} cannot be run here: only {' and '.join(ROOTS)} have a lock file of jars. Choose one of "
            "them, or start that broker yourself and give its address in PYCLIENT_BOOTSTRAP."
        )
    text = importlib.resources.files("pyclient.testing").joinpath(f"kafka-{version}.lock").read_text("utf-8")
    return parse_lock(version, text)


def parse_lock(version: str, text: str) -> Lock:
    """Read a lock file's text. Raises LocalClusterError naming the line that is malformed."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    jars = tuple(_parse_line(version, line) for line in lines)
    return Lock(version, jars, hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12])


def _parse_line(version: str, line: str) -> Jar:
    coordinates, _, digest = line.partition(" ")
    parts = coordinates.split(":")
    if len(parts) == 3 and len(digest) == 64:
        return Jar(parts[0], parts[1], parts[2], digest)
    raise LocalClusterError(
        f"the lock file of Kafka {version} has a malformed line: {line!r}. Expected `group:artifact:version sha256`; "
        f"renew it with `python -m pyclient.testing.lockfile {version}`."
    )


def render_lock(version: str, jars: Iterable[Jar]) -> str:
    """The lock file's text, sorted, so that renewing it shows only real changes."""
    lines = sorted(f"{jar.group}:{jar.artifact}:{jar.version} {jar.sha256}" for jar in jars)
    header = f"# The jars of Kafka {version}; renew with: python -m pyclient.testing.lockfile {version}"
    return "\n".join([header, *lines, ""])


def _resolve(version: str) -> list[Jar]:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "pom.xml").write_text(_pom(ROOTS[version]))
        subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-Dmdep.useRepositoryLayout=true",
                        f"-DoutputDirectory={work / 'repository'}"], cwd=work, check=True, timeout=900)
        return [_jar_of(path.relative_to(work / "repository"), path) for path in work.rglob("*.jar")]


def _pom(roots: Iterable[str]) -> str:
    blocks = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in (root.split(":") for root in roots)
    )
    return ("<project><modelVersion>4.0.0</modelVersion><groupId>lock</groupId><artifactId>lock</artifactId>"
            f"<version>1</version><dependencies>{blocks}</dependencies></project>")


def _jar_of(relative: Path, path: Path) -> Jar:
    *group, artifact, version, _ = relative.parts
    return Jar(".".join(group), artifact, version, hashlib.sha256(path.read_bytes()).hexdigest())


def main() -> None:
    """Write the lock file of each version named on the command line."""
    for version in sys.argv[1:] or ROOTS:
        target = Path(__file__).with_name(f"kafka-{version}.lock")
        target.write_text(render_lock(version, _resolve(version)), "utf-8")
        print(f"{target}: {len(load_lock(version).jars)} jars")


if __name__ == "__main__":
    main()
