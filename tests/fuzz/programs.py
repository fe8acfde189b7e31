"""The fuzzers, each a process of its own: run for a while, and what they report."""
from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import Final

SECONDS: Final = float(os.environ.get("PYCLIENT_FUZZ_SECONDS", "30"))
SEED: Final = int(os.environ.get("PYCLIENT_FUZZ_SEED", random.SystemRandom().randrange(2**32)))

HANG_S: Final = 500.0
"""A process that takes so much longer hangs; a slow machine needs minutes to import and to begin."""


def fuzzed(name: str) -> dict[str, int]:
    """Run a fuzzer of this folder for `SECONDS` with a checking allocator; it must end well."""
    print(f"{name}: seed {SEED}, {SECONDS} s (PYCLIENT_FUZZ_SEED, PYCLIENT_FUZZ_SECONDS)")
    run = subprocess.run(
        [sys.executable, "-m", f"tests.fuzz.{name}", str(SECONDS), str(SEED)], capture_output=True, text=True,
        timeout=SECONDS + HANG_S, check=False, env={**os.environ, "PYTHONMALLOC": "debug"})
    assert run.returncode == 0, f"seed {SEED}\n{run.stderr}"
    report: dict[str, int] = json.loads(run.stdout)
    print(report)
    return report
