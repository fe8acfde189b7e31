"""The Python of Spark's processes on this machine, without the archive that slows their start.

Spark puts its own ``pyspark.zip`` in front of ``PYTHONPATH``. Python compiles what it imports from an archive at each
start, although the installed PySpark is compiled already. Beside it stands a JAR of Spark's, which Python lists. A
small script takes both off the path. Independent of Java and sessions.
"""
from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import site
import sys
from pathlib import Path

from pyclient.testing.cache import cache_directory, written_whole


def local_python() -> Path:
    """What to give Spark as ``PYSPARK_PYTHON`` when all its processes run on this machine.

    A script in the cache that runs this very Python; this Python itself where that does not help: on Windows, or if
    other processes would not find PySpark without the archive.
    """
    homes = _spark_homes()
    if sys.platform == "win32" or not any(_on_every_path(home.parent) for home in homes):
        return Path(sys.executable)
    return executable("python", _script(homes, Path(sys.executable)))


def executable(name: str, text: str) -> Path:
    """A script in the cache with that content, called *name*, in a folder of its own; written once."""
    script = cache_directory() / f"spark-{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}" / "bin" / name
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(script) as scratch:
            scratch.write_text(text)
            scratch.chmod(0o755)
    return script


def _spark_homes() -> list[Path]:
    """The folder of the installed PySpark, as Python and as Spark name it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    home = Path(spec.origin).parent
    return list(dict.fromkeys((home, home.resolve())))


def _on_every_path(folder: Path) -> bool:
    """Whether other processes with this Python and this environment import from *folder*."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    usual = (*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []))
    return folder.resolve() in {Path(each).resolve() for each in (*given, *usual) if each}


def _script(homes: list[Path], python: Path) -> str:
    patterns = [pattern for home in homes for pattern in (shlex.quote(f"{home}/python/lib/pyspark.zip"), f"{shlex.quote(str(home))}/jars/spark-core_*.jar")]
    return f"""#!/bin/sh
# Spark's archive in PYTHONPATH is compiled at each start; the installed PySpark is the same and compiled already.
set -f
IFS=:
path=
for entry in $PYTHONPATH; do
    case $entry in
        {' | '.join(patterns)}) ;;
        *) path=${{path:+$path:}}$entry ;;
    esac
done
PYTHONPATH=$path exec {shlex.quote(str(python))} "$@"
"""
