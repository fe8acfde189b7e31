"""Command lines for Kafka's Java programs: broker, formatter and tools, with flags chosen for a quick start."""
from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyclient.testing.archive import FAST_FLAGS, Archive
from pyclient.testing.jars import Jars, ensure_jars
from pyclient.testing.java import Java, find_java
from pyclient.testing.lockfile import DEFAULT_VERSION

BROKER: Final = "kafka.Kafka"
FORMATTER: Final = "kafka.tools.StorageTool"
SERVER_HEAP: Final = ("-Xms64m", "-Xmx384m")
TOOL_HEAP: Final = ("-Xmx256m",)

_LOG4J2: Final = """\
appender.f.type=File
appender.f.name=F
appender.f.fileName=${sys:kafka.logs.dir}/server.log
appender.f.layout.type=PatternLayout
appender.f.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.f.ref=F
"""
_LOG4J1: Final = """\
log4j.rootLogger=INFO,F
log4j.appender.F=org.apache.log4j.FileAppender
log4j.appender.F.File=${kafka.logs.dir}/server.log
log4j.appender.F.layout=org.apache.log4j.PatternLayout
log4j.appender.F.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class Jvm(NamedTuple):
    """Java, jars and start-up archive of one Kafka version."""

    java: Java
    jars: Jars
    archive: Archive
    archived: bool = True

    def command(self, main: str, *arguments: str, logs: Path, flags: Sequence[str] = ()) -> list[str]:
        """The command running class *main*, which logs into the folder *logs*; the class path is in `environment`."""
        return [str(self.java.path), *FAST_FLAGS, *(self.archive.flags() if self.archived else ()), *flags,
                f"-Dkafka.logs.dir={logs}", self._logging(logs), main, *arguments]

    def environment(self) -> dict[str, str]:
        """This process's environment with Kafka's class path: too long to be read in a list of processes."""
        return os.environ | {"CLASSPATH": self.jars.classpath}

    def run_tool(self, main: str, *arguments: str, logs: Path, input_text: str | None,
                 timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end. Raises subprocess.TimeoutExpired after *timeout_s*; the tool is killed then."""
        return subprocess.run(
            self.command(main, *arguments, logs=logs, flags=TOOL_HEAP), env=self.environment(), text=True,
            input="" if input_text is None else input_text, capture_output=True, timeout=timeout_s, check=False)

    def _logging(self, logs: Path) -> str:
        if self.jars.version.startswith("3."):
            file = _written(logs / "log4j.properties", _LOG4J1)
            return f"-Dlog4j.configuration=file:{file}"
        return f"-Dlog4j2.configurationFile={_written(logs / 'log4j2.properties', _LOG4J2)}"


def prepare_jvm(version: str = DEFAULT_VERSION) -> Jvm:
    """Find Java, get the jars. Raises JavaNotFoundError or JarsUnavailableError."""
    java = find_java()
    jars = ensure_jars(version)
    return Jvm(java, jars, Archive(java, jars))


def _written(path: Path, text: str) -> Path:
    if not path.exists():
        path.write_text(text, "utf-8")
    return path
