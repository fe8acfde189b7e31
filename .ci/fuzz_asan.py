"""Runs the fuzzers on compiled modules that check each access to memory: ``python .ci/fuzz_asan.py SECONDS [SEED]``.

The tracked files are copied to build/asan and compiled there with gcc's AddressSanitizer; a read or write out of bounds
ends a fuzzer with a report that names the line of C. Only what changed is compiled the next time.
"""
from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from checkout import ROOT, copy, tracked

COPY: Final = ROOT / "build" / "asan"
FLAGS: Final = "-fsanitize=address -fno-omit-frame-pointer"
RELEASE: Final = '"-O3", "-g0"'
CHECKED: Final = '"-O1", "-g1"'
"""Instead of RELEASE: compiles in less time, and reports name lines."""
FUZZERS: Final = ("mutate", "damage_arrow", "damage_avro", "damage_buffers", "damage_messages")


def library() -> Path:
    """Where gcc keeps its AddressSanitizer. It must be loaded before Python, which is compiled without."""
    if shutil.which("gcc") is None:
        sys.exit("fuzz-asan: gcc is missing. As root: apt-get install gcc libc6-dev")
    asked = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    found = Path(asked.stdout.strip())
    if not found.is_absolute():  # gcc repeats the name of a file that it does not have
        sys.exit("fuzz-asan: gcc has no libasan.so. As root: apt-get install libgcc-N-dev, where N is what `gcc -dumpversion` prints")
    return found


def copy_sources() -> None:
    """Bring the copy up to date; its modules are compiled for checks, not for speed."""
    copy(COPY, tracked())
    (COPY / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text().replace(RELEASE, CHECKED))


def compile_modules() -> None:
    """Compile in the copy; the whole output is shown when it fails."""
    print("fuzz-asan: compiling into build/asan (minutes the first time)", flush=True)
    build = [sys.executable, "-c", "from setuptools import setup; setup()", "build_ext", "--inplace", "--parallel", str(os.cpu_count() or 1)]
    done = subprocess.run(build, cwd=COPY, env={**os.environ, "CC": "gcc", "CFLAGS": FLAGS}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.stdout.buffer.write(done.stdout)
        sys.exit("fuzz-asan: the modules do not compile; the output is above")


def environment(asan: Path) -> dict[str, str]:
    """The copy's modules come first, and each allocation of Python is one that is checked."""
    return {**os.environ, "LD_PRELOAD": str(asan), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc", "PYTHONPATH": str(COPY)}


def fuzz(name: str, seconds: str, seed: str, env: Mapping[str, str]) -> bool:
    """Run one fuzzer to its end; returns whether it found nothing."""
    print(f"fuzz-asan: {name} for {seconds} s, seed {seed}", flush=True)
    return subprocess.run([sys.executable, "-m", f"tests.fuzz.{name}", seconds, seed], cwd=COPY, env=dict(env), check=False).returncode == 0


def main(seconds: str, seed: str = "") -> None:
    """Every fuzzer runs, also after one that failed."""
    asan = library()
    copy_sources()
    compile_modules()
    seed = seed or str(random.SystemRandom().randrange(2**32))
    failed = [name for name in FUZZERS if not fuzz(name, seconds, seed, environment(asan))]
    if failed:
        sys.exit(f"fuzz-asan: failed: {', '.join(failed)} (seed {seed})")


if __name__ == "__main__":
    main(*sys.argv[1:])
