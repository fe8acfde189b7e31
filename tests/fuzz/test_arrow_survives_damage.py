"""Damaged Arrow data that is sent never crashes, and nothing but the data leaves the process."""
from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import Final

SECONDS: Final = float(os.environ.get("PYCLIENT_FUZZ_SECONDS", "30"))
SEED: Final = int(os.environ.get("PYCLIENT_FUZZ_SEED", random.SystemRandom().randrange(2**32)))


def test_random_damage_to_arrow_data_is_refused_and_no_other_memory_is_sent() -> None:
    print(f"seed {SEED}, {SECONDS} s (PYCLIENT_FUZZ_SEED, PYCLIENT_FUZZ_SECONDS)")
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.damage_arrow", str(SECONDS), str(SEED)], capture_output=True, text=True,
        timeout=SECONDS + 120, check=False, env={**os.environ, "PYTHONMALLOC": "debug"})
    assert run.returncode == 0, f"seed {SEED}\n{run.stderr}"
    report = json.loads(run.stdout)
    print(report)
    assert report["rounds"] > 100
    assert report["sent"] > 0 < report["refused"]  # both were seen
