"""The wheel and sdist of this checkout, built once per test session, and environments that hold nothing else.

For tests of what users get; they run programs in other processes, never import the wheel here.
"""
from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD_TIMEOUT_S: Final = 900
FROM_CHECKOUT: Final = os.environ.get("PYCLIENT_DIST") == "checkout"
CONSTRAINTS: Final = ROOT / "requirements" / "constraints.txt"


class Distribution(NamedTuple):
    """The files that a release consists of."""

    wheel: Path
    sdist: Path

    def names(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()


def built(shared: Path) -> Distribution:
    """Build sdist, then the wheel from it, into *shared*; processes that call this at the same time wait for the first.

    ``PYCLIENT_DIST`` may name a folder where both were built from this very checkout already.
    """
    if (done := os.environ.get("PYCLIENT_DIST")) and not FROM_CHECKOUT:
        [wheel], [sdist] = Path(done).glob("*.whl"), Path(done).glob("*.tar.gz")
        return Distribution(wheel, sdist)
    shared.mkdir(parents=True, exist_ok=True)
    with (shared / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(shared.glob("*.whl")):
            run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(shared), str(ROOT), timeout=BUILD_TIMEOUT_S)
    return Distribution(next(shared.glob("*.whl")), next(shared.glob("*.tar.gz")))


def copied(folder: Path) -> None:
    """Lay out the packages of this checkout as a wheel would, with the modules compiled in place."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    unwanted = shutil.ignore_patterns("*.c", "__pycache__")
    for name, source in packages.items():
        if "." not in name:  # the others are links within pyclient, which are followed
            shutil.copytree(ROOT / source, folder / name, ignore=unwanted)


def run(*command: str, cwd: Path = ROOT, timeout: float = 300, **environment: str) -> str:
    """Run *command* and return its output; a failure shows all of it."""
    done = subprocess.run(
        command, cwd=cwd, env={**clean_environment(), **environment}, timeout=timeout, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    assert done.returncode == 0, f"{' '.join(command)} exits with {done.returncode}:\n{done.stdout}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    """This environment without what would let the checkout leak in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "PYCLIENT_PURE"))}


def empty_environment(folder: Path, *requirements: str) -> Path:
    """A new virtual environment with *requirements* and nothing else; returns its interpreter."""
    run(sys.executable, "-m", "venv", str(folder))
    python = folder / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "-c", str(CONSTRAINTS), *requirements, cwd=folder, timeout=900)
    return python
